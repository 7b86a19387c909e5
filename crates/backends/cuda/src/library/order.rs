//! Rows of items brought into ascending order: what a sort and a scatter into many rows share.
//!
//! An item is a key and its place in the row, compared in this order, so no two are equal: the order is stable, and any method
//! finds the same one. First every run of [`RUN`] items is ordered in a block's shared memory. Then each launch makes one run of
//! up to [`WAYS`]: an item finds how many of every run stand before it, and their sum is its place. So a row of 1024 takes one
//! launch, one of 16,384 two, and one of 262,144 three.

use super::text::{largest, launch};
use super::{Launches, Operands};
use crate::code::{Address, Launch, Space, THREADS};
use onestep_ir::DType;

/// Items that a block orders.
const RUN: usize = 1024;
/// Runs that become one.
const WAYS: usize = 16;

/// Rows to be ordered.
pub(super) struct Order {
    /// How many.
    pub rows: usize,
    /// Items of each.
    pub length: usize,
    /// Bits of a key: 32 or 64.
    pub bits: usize,
    /// Statements that return the key of place `a` of row `row`.
    pub key: String,
    /// Statements that take item `x` of row `row`, which comes to stand at place `to`; else the items are kept.
    pub take: Option<String>,
}

/// The struct `Item` with keys of so many bits.
pub(super) fn item(bits: usize) -> &'static str {
    if bits == 32 { include_str!("order/item_32.cu") } else { include_str!("order/item_64.cu") }
}

impl Order {
    /// Appends the launches that order the rows, over the operands and results of a kernel; where the items are then.
    pub fn launches(&self, k: &Operands<'_>, out: &mut Launches) -> Address {
        let base = out.scratch_bytes;
        let bytes = (self.rows * self.length * self.bits / 4).next_multiple_of(256);
        let place = |stage: usize| Address { space: Space::Scratch, offset: base + stage % 2 * bytes };
        // Short rows share a block.
        let mut run = self.length.next_power_of_two().min(RUN);
        let blocks = (self.rows * self.length.div_ceil(run)).div_ceil(RUN / run);
        out.list.push(self.launch(k, [place(1), place(0)], run, 1, blocks));
        let mut stage = 0;
        while run < self.length {
            let ways = self.length.div_ceil(run).min(WAYS);
            let blocks = (self.rows * self.length).div_ceil(THREADS as usize);
            out.list.push(self.launch(k, [place(stage), place(stage + 1)], run, ways, blocks));
            (run, stage) = (run * ways, stage + 1);
        }
        out.scratch_bytes += (stage + usize::from(self.take.is_none())).min(2) * bytes;
        place(stage)
    }

    /// The launch that makes runs of `run` items, or (of more than one way) one of `ways` of them.
    fn launch(&self, k: &Operands<'_>, ends: [Address; 2], run: usize, ways: usize, blocks: usize) -> Launch {
        let (rows, length) = (self.rows, self.length);
        let mut dtypes = k.dtypes();
        let own = dtypes.len();
        dtypes.extend([DType::I64; 2]);
        let put = match &self.take {
            Some(take) if run * ways >= length => take,
            _ => "    into[row * length + to] = x;\n",
        };
        let head = format!(
            "{}  constexpr word rows = {rows}, length = {length}, run = {run};\n  constexpr int threads = {THREADS}, ways = {ways};\n\
             \x20 const Item* const from = (const Item*)p{own};\n  Item* const into = (Item*)p{};\n\
             \x20 const auto put = [&](word row, word to, Item x) {{\n{put}  }};\n",
            item(self.bits),
            own + 1,
        );
        let (text, shared) = match ways {
            1 => {
                let key = format!("  const auto key = [&](word row, word a) {{\n{}  }};\n", self.key);
                let slots = format!("  constexpr word slots = {RUN};\n");
                (head + &key + &slots + include_str!("order/runs.cu"), RUN * self.bits / 4)
            }
            _ => (head + include_str!("order/merge.cu"), 0),
        };
        let arguments = [k.arguments(), ends.to_vec()].concat();
        launch(&dtypes, arguments, &text, largest(k).max(rows * length), blocks, shared)
    }
}
