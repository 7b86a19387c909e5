//! Kernels for whole ops: matrix products, convolutions, indexed reads and writes, pooling, attention.
//!
//! [`accepts`] is the list of them, with the operands that may be strided views. An op that is not on it is refused when a
//! schedule is compiled; there is no slow path behind it.

mod arg_reduce;
mod attention;
mod attention_block;
mod attention_grad;
mod convolution;
mod ctc_loss;
mod cumulative;
mod custom;
mod dynamic_slice;
mod gather;
pub mod gemm;
mod indexed;
pub(crate) mod matmul;
mod max_pool;
mod scatter;
mod softmax;
mod sort;

use crate::error::CpuError;
use crate::kernel::{Work, check_result, check_view};
use gemm::Isa;
use indexed::Slices;
use onestep_ir::{DType, Op};
use onestep_passes::schedule::{LibraryKernel, Schedule, View};

/// What a kernel takes for an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// A dense view, at any offset.
    Dense,
    /// A dense view, or one element broadcast to the whole shape.
    DenseOrSplat,
    /// Any strided view.
    Strided,
}

/// What the kernel of an op of the table takes for each operand, given their dtypes; `None` without a kernel. Those of the
/// user's own take dense views.
pub fn accepts(op: &Op, dtypes: &[DType]) -> Option<Vec<Layout>> {
    use Layout::{Dense, DenseOrSplat, Strided};
    let data = *dtypes.first()?;
    let real = matches!(data, DType::F32 | DType::F64);
    match op {
        Op::Matmul(m) if real && m.dtype == data => Some(vec![Strided, Strided]),
        Op::Gather(_) | Op::GatherAlong(_) | Op::DynamicSlice(_) => Some(vec![Dense, Dense]),
        Op::ScatterAdd(_) | Op::ScatterAddAlong(_) if scatter::adds(data) => {
            Some(vec![DenseOrSplat, Dense, Dense])
        }
        Op::DynamicUpdateSlice(_) => Some(vec![DenseOrSplat, Dense, Dense]),
        Op::Cumulative(_) if cumulative::scans(data) => Some(vec![Dense]),
        Op::Sort(_) => Some(vec![Dense]),
        Op::ArgReduce(_) if arg_reduce::compares(data) => Some(vec![Dense]),
        Op::Attention(_) | Op::AttentionGrad(_) if real => Some(vec![Strided; dtypes.len()]),
        Op::Convolution(_) | Op::ConvolutionInputGrad(_) | Op::ConvolutionWeightGrad(_) if real => {
            Some(vec![Dense, Dense])
        }
        Op::CtcLoss(_) if real => Some(vec![Dense; 4]),
        Op::MaxPool(_) if real => Some(vec![Dense]),
        _ => None,
    }
}

/// Whether result `n` of the op may lie at any distances but for its last axis, whose elements are side by side; else it is all of
/// its buffer.
pub fn gives_strided(op: &Op, result: usize) -> bool {
    match op {
        Op::Attention(_) => result == 0,
        Op::AttentionGrad(_) => result < 3,
        _ => false,
    }
}

/// Compiles a library kernel.
pub(crate) fn compile(
    kernel: &LibraryKernel,
    schedule: &Schedule,
    isa: Isa,
) -> Result<Box<dyn Work>, CpuError> {
    let op = kernel.op.rule().name();
    let mut dtypes = vec![];
    for view in &kernel.operands {
        dtypes.push(check_view(schedule, view, "an operand")?);
    }
    let names = || dtypes.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ");
    let refused = || CpuError::NoKernel { op, why: format!("on {}", names()) };
    let layouts = match &kernel.op {
        Op::Custom(_) => vec![Layout::Dense; dtypes.len()],
        op => accepts(op, &dtypes).ok_or_else(refused)?,
    };
    if layouts.len() != kernel.operands.len() {
        let why = format!("'{op}' takes {}, got {}", layouts.len(), kernel.operands.len());
        return Err(CpuError::Operand { what: "the number of operands", why });
    }
    for (view, layout) in kernel.operands.iter().zip(layouts) {
        if !suits(view, layout) {
            let why = format!("'{op}' takes it as {layout:?}, not {view}");
            return Err(CpuError::Operand { what: "an operand", why });
        }
    }
    check_types(kernel, schedule, &dtypes)?;
    if let Op::Custom(op) = &kernel.op {
        return custom::compile(op, kernel, schedule, &dtypes);
    }
    let wrong = |why: &str| CpuError::Operand { what: "the op", why: format!("'{op}' {why}") };
    let data = &kernel.operands[0];
    let result = kernel.results.first().ok_or_else(|| wrong("has no result"))?.buffer;
    let view = |i: usize| kernel.operands[i].clone();
    match &kernel.op {
        Op::Gather(g) => {
            let slices = Slices::new(&data.shape, g.axis, view(1).shape.iter().product());
            Ok(Box::new(gather::Gather::rows(slices, dtypes[0], dtypes[1], view(0), view(1), result)))
        }
        Op::GatherAlong(g) => {
            let slices = Slices::new(&data.shape, g.axis, view(1).shape[g.axis]);
            Ok(Box::new(gather::Gather::along(slices, dtypes[0], dtypes[1], view(0), view(1), result)))
        }
        Op::ScatterAdd(s) => {
            let slices = Slices::new(&data.shape, s.axis, view(1).shape.iter().product());
            scatter::compile(slices, false, dtypes[0], dtypes[1], [view(0), view(1), view(2)], result)
        }
        Op::ScatterAddAlong(s) => {
            let slices = Slices::new(&data.shape, s.axis, view(1).shape[s.axis]);
            scatter::compile(slices, true, dtypes[0], dtypes[1], [view(0), view(1), view(2)], result)
        }
        Op::DynamicSlice(d) => {
            let slices = Slices::new(&data.shape, d.axis, d.size);
            Ok(Box::new(dynamic_slice::Slice::new(slices, dtypes[0], dtypes[1], view(0), view(1), result)))
        }
        Op::DynamicUpdateSlice(d) => {
            let slices = Slices::new(&data.shape, d.axis, view(1).shape[d.axis]);
            let views = [view(0), view(1), view(2)];
            Ok(Box::new(dynamic_slice::Update::new(slices, dtypes[0], dtypes[2], views, result)))
        }
        Op::ArgReduce(a) => {
            let slices = Slices::new(&data.shape, a.axis, 1);
            arg_reduce::compile(slices, a.kind, dtypes[0], view(0), result)
        }
        Op::Cumulative(c) => cumulative::compile(c, dtypes[0], view(0), result),
        Op::Sort(s) => {
            let slices = Slices::new(&data.shape, s.axis, 1);
            let indices = kernel.results[1].buffer;
            Ok(Box::new(sort::Sort::new(slices, dtypes[0], s.descending, view(0), result, indices)))
        }
        Op::Attention(a) => attention::compile(a, isa, kernel, &dtypes),
        Op::AttentionGrad(a) => attention_grad::compile(a, isa, kernel, &dtypes),
        Op::Convolution(_) | Op::ConvolutionInputGrad(_) | Op::ConvolutionWeightGrad(_) => {
            convolution::compile(kernel, schedule, dtypes[0], isa)
        }
        Op::CtcLoss(op) => match (&dtypes[..], &kernel.results[..]) {
            (&[a, b, c, d], [losses, posteriors]) => ctc_loss::compile(
                op,
                [a, b, c, d],
                [view(0), view(1), view(2), view(3)],
                [losses.buffer, posteriors.buffer],
            ),
            _ => Err(wrong("has another number of operands or results")),
        },
        Op::MaxPool(op) => {
            let places = kernel.results.get(1).ok_or_else(|| wrong("has one result"))?.buffer;
            max_pool::compile(op, dtypes[0], view(0), [result, places])
        }
        _ => Err(refused()),
    }
}

/// Whether a view is what a kernel takes.
fn suits(view: &View, layout: Layout) -> bool {
    match layout {
        Layout::Dense => view.is_dense(),
        Layout::DenseOrSplat => view.is_dense() || view.strides.iter().all(|&s| s == 0),
        Layout::Strided => true,
    }
}

/// Checks operands against the op's own rule, and the results against what the rule gives.
fn check_types(kernel: &LibraryKernel, schedule: &Schedule, dtypes: &[DType]) -> Result<(), CpuError> {
    let types = kernel.operands.iter().zip(dtypes);
    let types: Vec<_> =
        types.map(|(v, &d)| onestep_ir::Type::new(d, onestep_ir::Shape::fixed(&v.shape))).collect();
    let results = kernel.op.rule().infer(&types);
    let results = results.map_err(|m| CpuError::Operand { what: "an operand", why: m.to_string() })?;
    if results.len() != kernel.results.len() {
        let why = format!("{} for {}", kernel.results.len(), results.len());
        return Err(CpuError::Operand { what: "the number of results", why });
    }
    for (n, (view, ty)) in kernel.results.iter().zip(&results).enumerate() {
        let whole = view.is_dense() && view.offset == 0;
        if whole {
            check_result(schedule, view.buffer, ty.dtype, &ty.sizes())?;
        }
        let dtype = check_view(schedule, view, "the result")?;
        let fits = dtype == ty.dtype && view.shape == ty.sizes() && view.last_is_dense();
        if !(whole || fits && gives_strided(&kernel.op, n)) {
            let why = format!("'{}' gives it dense, not as {view}", kernel.op.rule().name());
            return Err(CpuError::Operand { what: "the result", why });
        }
    }
    Ok(())
}
