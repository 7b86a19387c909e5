//! `attention` and `attention_grad` in 16-bit floats, block by block on tensor cores (Dao, "FlashAttention-2", 2023): nothing of
//! queries × keys is ever in memory. Sums are `f32`; what is a factor of a product is rounded to 16 bits.
//!
//! A block's rows stay in registers as the left factors of Hopper's products of a warpgroup, from the scores to the weighted
//! sums, and blocks do not wait for each other: the gradient recomputes the scores twice, once to add up over the keys of each
//! query and once over the queries of each key. So each sum has one order, and no float is added by an atomic.
//!
//! In `f32` and `f64` an attention is taken apart into matrix products and a softmax, as it is where the gradient of an additive
//! mask is wanted or a head is larger than [`MOST_SIZE`].
//!
//! The kernels are the `.cu` files beside this one. Their text begins with the sizes and distances of the case
//! ([`Problem::text`]), the instructions (`device.cuh`, [`wgmma`](mod@wgmma)), and what they share (`tile.cuh`, `scores.cuh`).

mod backward;
mod forward;

pub(super) use backward::compile as backward;
pub(super) use forward::compile as forward;

use super::Operands;
use super::text::{largest, word};
use super::wgmma::{self, Factors, wgmma};
use crate::code::{Address, Launch, PROCESSORS, Space};
use crate::error::CudaError;
use onestep_ir::ops::{Attention, AttentionAlign, AttentionOperands};
use onestep_ir::{DType, Op, Type};
use onestep_passes::schedule;
use std::fmt::Write as _;

/// The largest head size: a row of sums fits a thread's registers.
const MOST_SIZE: usize = 256;
/// No number of queries, keys or heads of the batch is larger; and farther than any key.
const FAR: usize = 1 << 28;
/// Blocks that keep a device busy.
const ENOUGH: usize = PROCESSORS;
/// Rows times rows, both in shared memory.
const ALONG: Factors = Factors::Shared { left_along: true, right_along: true };

/// Whether there is a kernel for the op on operands of these types.
pub(crate) fn accepts(op: &Op, operands: &[Type]) -> bool {
    let op = match op {
        Op::Attention(a) => a,
        Op::AttentionGrad(a) if !a.mask_grad => &a.forward,
        _ => return false,
    };
    let [q, k, v, ..] = operands else { return false };
    let sizes = |ty: &Type| Some(op.layout.arrange(<[usize; 4]>::try_from(ty.shape.sizes()?).ok()?));
    let (Some([batch, heads, queries, size]), Some([_, _, keys, _]), Some([_, _, _, values])) =
        (sizes(q), sizes(k), sizes(v))
    else {
        return false;
    };
    let small = |n: usize| (1..=MOST_SIZE).contains(&n);
    let count = |n: usize| batch.saturating_mul(heads).saturating_mul(n.div_ceil(64));
    matches!(q.dtype, DType::F16 | DType::BF16)
        && small(size)
        && small(values)
        && queries.max(keys) < FAR
        && count(queries).max(count(keys)) < FAR
}

/// A tensor of the op by the order batch, head, row, column.
struct View {
    name: &'static str,
    strides: [usize; 4],
    /// Bytes that every row starts at a multiple of, up to 16.
    aligned: usize,
}

/// The sizes and the operands of an attention.
struct Problem<'a> {
    op: &'a Attention,
    k: &'a Operands<'a>,
    operands: AttentionOperands<usize>,
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    size: usize,
    values: usize,
}

impl<'a> Problem<'a> {
    /// The problem, and the numbers of the last `N` operands.
    fn new<const N: usize>(
        op: &'a Attention,
        k: &'a Operands<'a>,
    ) -> Result<(Problem<'a>, [usize; N]), CudaError> {
        let all: Vec<usize> = (0..k.types.len()).collect();
        let wrong = |why: String| CudaError::Operand { what: "an operand", why };
        let (operands, more) = op.operands(&all).map_err(|m| wrong(m.to_string()))?;
        let sizes = |n: usize| {
            let sizes = <[usize; 4]>::try_from(k.sizes(n).to_vec());
            sizes.map(|s| op.layout.arrange(s)).map_err(|s| wrong(format!("{s:?} has not four axes")))
        };
        let [batch, heads, queries, size] = sizes(operands.q)?;
        let ([_, kv_heads, keys, _], [_, _, _, values]) = (sizes(operands.k)?, sizes(operands.v)?);
        Ok((Problem { op, k, operands, batch, heads, kv_heads, queries, keys, size, values }, more))
    }

    /// Query heads for each key head.
    fn group(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    /// The head sizes of keys and of values, filled up to panels of 64 columns.
    fn panels(&self) -> [usize; 2] {
        [self.size, self.values].map(|n| n.div_ceil(64) * 64)
    }

    fn at(&self, n: usize) -> Address {
        self.k.context.of(self.k.view(n))
    }

    /// Operand `n`, in the op's layout.
    fn operand(&self, name: &'static str, n: usize) -> View {
        self.view(name, self.k.view(n))
    }

    /// Result `n`, in the op's layout.
    fn result(&self, name: &'static str, n: usize) -> View {
        self.view(name, &self.k.kernel.results[n])
    }

    fn view(&self, name: &'static str, view: &schedule::View) -> View {
        let mut strides = [0; 4];
        for (to, (&size, &stride)) in strides.iter_mut().zip(view.shape.iter().zip(&view.strides)) {
            *to = if size == 1 { 0 } else { stride };
        }
        let (strides, at) = (self.op.layout.arrange(strides), self.k.context.of(view));
        // An iteration of a scan may put it at any element.
        let bytes = if matches!(at.space, Space::Body(_)) { 2 } else { at.offset | 16 };
        let [b, h, t, d] = strides;
        let aligned = 1 << (bytes | ((b | h | t) * 2)).trailing_zeros();
        View { name, strides, aligned: if d <= 1 { aligned } else { 2 } }
    }

    /// The head of a kernel's text: the case as constants, `more` constants, the instructions, and what the kernels share.
    /// `scratch` is how many numbers are kept between launches; `scores` and `sums` are the columns of products with the left factor in shared memory and in registers.
    fn text(&self, views: &[View], more: &str, scratch: usize, scores: &[usize], sums: &[usize]) -> String {
        let Problem { op, k, batch, heads, kv_heads, queries, keys, size, values, .. } = self;
        let dtype = k.dtype(self.operands.q);
        let float = |x: f64| format!("{:e}f", x as f32);
        let far = |side: Option<u32>| side.map_or(FAR, |n| (n as usize).min(FAR));
        let right = if op.causal { 0 } else { far(op.window.map(|[_, right]| right)) };
        let mask = match self.operands.mask.map(|n| k.dtype(n)) {
            None => "NONE",
            Some(DType::Bool) => "ALLOWED",
            Some(_) => "ADDED",
        };
        let mask_strides = self.operands.mask.map_or([0; 4], |n| {
            let view = k.view(n);
            [0, 1, 2, 3].map(|axis| if view.shape[axis] == 1 { 0 } else { view.strides[axis] })
        });
        let length_stride = self.operands.lengths.map_or(0, |n| k.view(n).strides[0]);
        let mut text = format!(
            "typedef {} word;\nconstexpr bool BF16 = {};\n\
             constexpr int BATCH = {batch}, HEADS = {heads}, KV_HEADS = {kv_heads}, GROUP = {}, QUERIES = {queries}, KEYS = {keys}, SIZE = {size}, VALUE_SIZE = {values};\n\
             constexpr float SCALE = {}, SOFTCAP = {};\n\
             constexpr bool CAPPED = {}, AT_END = {}, LENGTHS = {};\n\
             constexpr int LEFT = {}, RIGHT = {right}, LENGTH_STRIDE = {length_stride};\n\
             constexpr int NONE = 0, ALLOWED = 1, ADDED = 2, MASK = {mask};\n{more}",
            word(largest(k).max(scratch)),
            dtype == DType::BF16,
            self.group(),
            float(op.scale.get()),
            float(op.softcap.map_or(1.0, |cap| cap.get())),
            op.softcap.is_some(),
            op.align == AttentionAlign::BottomRight,
            op.lengths,
            far(op.window.map(|[left, _]| left)),
        );
        text += wgmma::ORDER;
        text += include_str!("device.cuh");
        text += "#ifdef __CUDACC_RTC__\n";
        let distinct = |columns: &[usize]| {
            let mut columns: Vec<usize> = columns.iter().map(|n| n.next_multiple_of(16)).collect();
            columns.sort();
            columns.dedup();
            columns
        };
        distinct(scores).into_iter().for_each(|n| text += &wgmma(dtype, n, ALONG));
        distinct(sums).into_iter().for_each(|n| text += &wgmma(dtype, n, Factors::LeftInRegisters));
        text += "#endif\n";
        text += include_str!("tile.cuh");
        let mask_view = View { name: "MASK_VIEW", strides: mask_strides, aligned: 2 };
        for view in views.iter().chain([&mask_view]) {
            let [b, h, t, d] = view.strides;
            let (chunks, pairs) = (view.aligned >= 16 && d == 1, view.aligned >= 4 && d == 1);
            let _ =
                writeln!(text, "constexpr View {} = {{{b}, {h}, {t}, {d}, {chunks}, {pairs}}};", view.name);
        }
        text + include_str!("scores.cuh")
    }

    /// What every kernel reads. An operand that is not there has the queries' address, and is not read.
    fn inputs(&self) -> Vec<Address> {
        let AttentionOperands { q, k, v, mask, lengths } = self.operands;
        [q, k, v, mask.unwrap_or(q), lengths.unwrap_or(q)].map(|n| self.at(n)).to_vec()
    }
}

/// How a kernel's work is cut into blocks.
#[derive(Clone, Copy)]
struct Blocks {
    /// Of 64 rows and 128 threads each, in a block.
    warpgroups: usize,
    /// Rows that the loop takes at a time.
    step: usize,
    /// Blocks that a multiprocessor holds at once, which bounds a thread's registers.
    resident: usize,
}

impl Blocks {
    fn rows(&self) -> usize {
        64 * self.warpgroups
    }

    /// The constants of the text, where the loop's step is called `step`.
    fn text(&self, step: &str) -> String {
        let Blocks { warpgroups, resident, .. } = self;
        format!(
            "constexpr int WARPGROUPS = {warpgroups}, THREADS = {}, RESIDENT = {resident}, {step} = {};\n",
            128 * warpgroups,
            self.step
        )
    }

    fn launch(&self, source: String, grid: usize, shared_bytes: usize, arguments: Vec<Address>) -> Launch {
        Launch { source, grid, threads: 128 * self.warpgroups as u32, shared_bytes, arguments }
    }
}
