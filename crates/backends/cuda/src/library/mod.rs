//! Kernels for whole ops, as templates of CUDA C: every size is a constant of the text.
//!
//! All are deterministic: no float is added by an atomic, and each sum has an order that the sizes fix. [`accepts`] is the list
//! of them; an op that is not on it is decomposed, or refused when a program is compiled.

mod arg_reduce;
pub(crate) mod attention;
mod convolution;
mod cumulative;
mod dynamic_slice;
mod gather;
pub(crate) mod gemv;
pub(crate) mod matmul;
mod max_pool;
pub(crate) mod notice;
mod order;
mod scatter;
pub(crate) mod simt;
mod sort;
mod text;
mod tiles;
pub(crate) mod transposition;
pub(crate) mod warpgroup;
mod wgmma;

use crate::code::{Address, Launch};
use crate::error::CudaError;
use crate::within::Within;
use onestep_ir::{DType, Op, Shape, Type};
use onestep_passes::schedule::{BufferId, LibraryKernel, Schedule, View};
use std::collections::HashMap;

/// Whether there is a kernel for the op on operands of these dtypes.
pub(crate) fn accepts(op: &Op, dtypes: &[DType]) -> bool {
    let float = dtypes.first().is_some_and(|d| d.is_float());
    match op {
        Op::Matmul(_)
        | Op::Convolution(_)
        | Op::ConvolutionInputGrad(_)
        | Op::ConvolutionWeightGrad(_)
        | Op::MaxPool(_) => float,
        Op::ScatterAdd(_) | Op::ScatterAddAlong(_) => dtypes.first() != Some(&DType::Bool),
        Op::Gather(_)
        | Op::GatherAlong(_)
        | Op::DynamicSlice(_)
        | Op::DynamicUpdateSlice(_)
        | Op::ArgReduce(_)
        | Op::Cumulative(_)
        | Op::Sort(_) => true,
        _ => false,
    }
}

/// Whether operands of the op may be strided views; else they are dense, at any offset.
pub(crate) fn takes_strided(op: &Op) -> bool {
    matches!(
        op,
        Op::Matmul(_)
            | Op::Gather(_)
            | Op::GatherAlong(_)
            | Op::ScatterAdd(_)
            | Op::ScatterAddAlong(_)
            | Op::DynamicSlice(_)
            | Op::DynamicUpdateSlice(_)
            | Op::Attention(_)
            | Op::AttentionGrad(_)
    )
}

/// Whether result `n` of the op may lie at any distances but for its last axis, whose elements are side by side; else it is dense,
/// at any offset.
pub(crate) fn gives_strided(op: &Op, result: usize) -> bool {
    match op {
        Op::Attention(_) => result == 0,
        Op::AttentionGrad(_) => result < 3,
        _ => false,
    }
}

/// What a kernel is compiled in: the schedule, and where its buffers are.
pub(crate) struct Context<'a> {
    pub schedule: &'a Schedule,
    pub homes: &'a [Address],
    /// Results that go elsewhere.
    pub within: &'a HashMap<BufferId, Within>,
}

/// The launches of a kernel, one after the other.
#[derive(Default)]
pub(crate) struct Launches {
    pub list: Vec<Launch>,
    /// Bytes that they keep from one to the next, in [`Space::Scratch`](crate::code::Space::Scratch).
    pub scratch_bytes: usize,
}

impl From<Launch> for Launches {
    fn from(launch: Launch) -> Launches {
        Launches { list: vec![launch], scratch_bytes: 0 }
    }
}

impl Context<'_> {
    /// The dtype of a view's buffer. Refuses a view that leaves it.
    pub fn check_view(&self, view: &View, what: &'static str) -> Result<DType, CudaError> {
        let wrong = |why: &str| CudaError::Operand { what, why: format!("{why} ({view})") };
        let buffer = self
            .schedule
            .buffers
            .get(view.buffer.index())
            .ok_or_else(|| wrong("its buffer does not exist"))?;
        if view.shape.len() != view.strides.len() {
            return Err(wrong("it has not one stride for each axis"));
        }
        if !view.shape.contains(&0) {
            let mut axes = view.shape.iter().zip(&view.strides);
            let last = axes.try_fold(view.offset, |sum, (&n, &stride)| {
                (n - 1).checked_mul(stride).and_then(|far| far.checked_add(sum))
            });
            if last.is_none_or(|last| last >= buffer.numel()) {
                return Err(wrong("it leaves its buffer"));
            }
        }
        Ok(buffer.dtype)
    }

    /// Whether the schedule needs a product's buffer for more than its epilogue.
    pub fn reads_later(&self, product: BufferId) -> bool {
        let s = self.schedule;
        s.kernels.iter().any(|k| k.reads().contains(&product))
            || s.outputs.iter().any(|(_, b)| *b == product)
            || s.states.iter().any(|state| state.update == Some(product))
    }

    /// Where a view's first element is.
    pub fn of(&self, view: &View) -> Address {
        let bytes = self.schedule.buffer(view.buffer).dtype.size();
        self.homes[view.buffer.index()].plus(view.offset * bytes)
    }

    /// Where a buffer is.
    pub fn home(&self, b: BufferId) -> Address {
        self.homes[b.index()]
    }
}

/// Compiles a library kernel, after checking its operands and results against the op's own rule.
pub(crate) fn compile(kernel: &LibraryKernel, context: &Context<'_>) -> Result<Launches, CudaError> {
    let op = kernel.op.rule().name();
    let mut types = vec![];
    for view in &kernel.operands {
        let dtype = context.check_view(view, "an operand")?;
        if !view.is_dense() && !takes_strided(&kernel.op) {
            let why = format!("'{op}' takes it dense, not {view}");
            return Err(CudaError::Operand { what: "an operand", why });
        }
        types.push(Type::new(dtype, Shape::fixed(&view.shape)));
    }
    let results = kernel.op.rule().infer(&types);
    let results = results.map_err(|m| CudaError::Operand { what: "an operand", why: m.to_string() })?;
    let wrong = |why| CudaError::Operand { what: "the result", why };
    if results.len() != kernel.results.len() {
        return Err(wrong(format!("'{op}' gives {} of them, not {}", results.len(), kernel.results.len())));
    }
    for (n, (view, ty)) in kernel.results.iter().zip(&results).enumerate() {
        let dtype = context.check_view(view, "the result")?;
        if dtype != ty.dtype || view.shape.iter().product::<usize>() != ty.numel() {
            return Err(wrong(format!("'{op}' gives another one than {view} holds")));
        }
        if !(view.is_dense() || gives_strided(&kernel.op, n) && view.last_is_dense()) {
            return Err(wrong(format!("'{op}' gives it dense, not as {view}")));
        }
    }
    if results.iter().all(|ty| ty.numel() == 0) {
        return Ok(Launches::default());
    }
    let k = Operands { kernel, context, types: &types, results: &results };
    match &kernel.op {
        Op::Gather(g) => Ok(gather::rows(g, &k).into()),
        Op::GatherAlong(g) => Ok(gather::along(g, &k).into()),
        Op::ScatterAdd(s) => Ok(scatter::rows(s, &k)),
        Op::ScatterAddAlong(s) => Ok(scatter::along(s, &k)),
        Op::DynamicSlice(d) => Ok(dynamic_slice::slice(d, &k).into()),
        Op::DynamicUpdateSlice(d) => Ok(dynamic_slice::update(d, &k)),
        Op::ArgReduce(a) => Ok(arg_reduce::compile(a, &k)),
        Op::Cumulative(c) => Ok(cumulative::compile(c, &k).into()),
        Op::Sort(s) => Ok(sort::compile(s, &k)),
        Op::MaxPool(m) => Ok(max_pool::compile(m, &k).into()),
        Op::Convolution(c) => Ok(convolution::forward(c, &k)),
        Op::ConvolutionInputGrad(c) => Ok(convolution::input_grad(c, &k)),
        Op::ConvolutionWeightGrad(c) => Ok(convolution::weight_grad(c, &k)),
        Op::Attention(a) => attention::forward(a, &k),
        Op::AttentionGrad(a) => attention::backward(a, &k),
        _ => {
            let names = types.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ");
            Err(CudaError::NoKernel { op, why: format!("on {names}") })
        }
    }
}

/// A library kernel's operands and results, of the types that its op takes and gives.
pub(crate) struct Operands<'a> {
    pub kernel: &'a LibraryKernel,
    pub context: &'a Context<'a>,
    pub types: &'a [Type],
    pub results: &'a [Type],
}

impl Operands<'_> {
    pub fn view(&self, n: usize) -> &View {
        &self.kernel.operands[n]
    }
    pub fn dtype(&self, n: usize) -> DType {
        self.types[n].dtype
    }
    /// The sizes of operand `n`.
    pub fn sizes(&self, n: usize) -> &[usize] {
        &self.kernel.operands[n].shape
    }
    /// Whether the first result takes the place of operand `n`.
    pub fn in_place(&self, n: usize) -> bool {
        let view = self.view(n);
        view.is_dense() && self.context.of(view) == self.result(0)
    }
    /// Where result `n` is.
    pub fn result(&self, n: usize) -> Address {
        self.context.of(&self.kernel.results[n])
    }
    /// Whether operand `n` starts at a multiple of 16 bytes.
    pub fn in_chunks(&self, n: usize) -> bool {
        self.context.of(self.view(n)).in_chunks()
    }
    /// All operands, then all results, as parameters of a launch.
    pub fn arguments(&self) -> Vec<Address> {
        let operands = self.kernel.operands.iter().map(|v| self.context.of(v));
        operands.chain(self.kernel.results.iter().map(|v| self.context.of(v))).collect()
    }
    /// Their dtypes.
    pub fn dtypes(&self) -> Vec<DType> {
        self.types.iter().chain(self.results).map(|t| t.dtype).collect()
    }
}
