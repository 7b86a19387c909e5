//! Attention: the launch of `forward.cu`; with few queries and many keys, the keys shared among blocks and a launch of
//! `combine.cu` behind it.

use super::super::{Launches, Operands};
use super::{Blocks, ENOUGH, Problem};
use crate::code::{Address, Launch, Space};
use crate::error::CudaError;
use onestep_ir::ops::Attention;

/// The most blocks that share the keys of a row.
const MOST_SPLITS: usize = 32;

pub(in super::super) fn compile(op: &Attention, k: &Operands<'_>) -> Result<Launches, CudaError> {
    let (p, []) = Problem::new::<0>(op, k)?;
    let [size, values] = p.panels();
    // The heads that share a key head are rows of one block where a head alone has fewer than a block's.
    let pack = if p.queries <= 32 { p.group() } else { 1 };
    let rows = pack * p.queries;
    let blocks = Blocks {
        warpgroups: if rows <= 64 { 1 } else { 2 },
        step: 64,
        resident: if size.max(values) <= 64 && rows > 64 { 2 } else { 1 },
    };
    let units = p.batch * p.heads / pack;
    let row_blocks = units * rows.div_ceil(blocks.rows());
    let splits = match 2 * row_blocks < ENOUGH {
        true => p.keys.div_ceil(blocks.step).min(ENOUGH / row_blocks).clamp(1, MOST_SPLITS),
        false => 1,
    };
    let scratch = if splits > 1 { units * splits * rows * (p.values + 2) } else { 0 };
    let out = || p.result("OUT", 0);
    let views =
        [p.operand("Q", p.operands.q), p.operand("K", p.operands.k), p.operand("V", p.operands.v), out()];
    let cut = format!("constexpr int PACK = {pack}, SPLITS = {splits};\n");
    let constants = cut.clone() + &blocks.text("KEY_BLOCK");
    let source =
        p.text(&views, &constants, scratch, &[blocks.step], &[p.values]) + include_str!("forward.cu");
    let [out_at, lse] = [0, 1].map(|n| k.result(n));
    let parts = Address { space: Space::Scratch, offset: 0 };
    let mut arguments = p.inputs();
    arguments.extend([out_at, lse, parts]);
    let shared = 2 * (blocks.rows() * size + 2 * blocks.step * (size + values));
    let mut list = vec![blocks.launch(source, row_blocks * splits, shared, arguments)];
    if splits > 1 {
        let threads = p.values.next_multiple_of(32);
        let constants = format!("{cut}constexpr int THREADS = {threads};\n");
        list.push(Launch {
            source: p.text(&[out()], &constants, scratch, &[], &[]) + include_str!("combine.cu"),
            grid: units * rows,
            threads: threads as u32,
            shared_bytes: 0,
            arguments: vec![out_at, lse, parts],
        });
    }
    Ok(Launches { list, scratch_bytes: scratch * 4 })
}
