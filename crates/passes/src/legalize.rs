//! Pass `legalize`: arithmetic in a dtype that the target's kernels do not compute in is done in `f32`: operands are cast,
//! the op runs, its result is cast back. The result is the same as rounding each op to its declared dtype, which is what
//! the interpreter does. A product of narrower floats in `f64` is one of `f64`.

use crate::Target;
use onestep_ir::ops::{Matmul, Op};
use onestep_ir::{DType, Graph, GraphBuilder, GraphError, Node, Tensor, Type};

/// Runs the pass.
pub fn legalize(graph: &Graph, target: &dyn Target) -> Result<Graph, GraphError> {
    onestep_ir::rewrite::rewrite(graph, &mut |g, node, operands| {
        let low = |d: DType| d.is_float() && !target.computes_in(d);
        if matches!(node.op, Op::Matmul(m) if m.dtype == DType::F64 && operands[0].dtype() != DType::F64) {
            let wide: Vec<Tensor<'_>> = operands.iter().map(|t| t.cast(DType::F64)).collect();
            return Some(vec![g.emit1(node.op.clone(), &wide)]);
        }
        if matches!(node.op, Op::Matmul(_)) && operands[0].dtype().is_fp8() {
            return eight_bits(g, node, operands, target);
        }
        let arithmetic = matches!(
            node.op,
            Op::Unary(_)
                | Op::Binary(_)
                | Op::Compare(_)
                | Op::Select(_)
                | Op::Reduce(_)
                | Op::Matmul(_)
                | Op::Iota(_)
                | Op::Cumulative(_)
                | Op::ArgReduce(_)
                | Op::ScatterAdd(_)
                | Op::ScatterAddAlong(_)
        );
        let result = graph.ty(*node.results.first()?).dtype;
        if !arithmetic || !(low(result) || operands.iter().any(|t| low(t.dtype()))) {
            return None;
        }
        let wide: Vec<Tensor<'_>> =
            operands.iter().map(|t| if low(t.dtype()) { t.cast(DType::F32) } else { *t }).collect();
        let op = match &node.op {
            Op::Matmul(m) if low(m.dtype) => Matmul { dtype: DType::F32, ..*m }.into(),
            Op::Iota(i) => onestep_ir::ops::Iota { dtype: DType::F32, ..i.clone() }.into(),
            op => op.clone(),
        };
        Some(vec![g.emit1(op, &wide).cast(result)])
    })
}

/// A product of 8-bit floats that the target lacks: that of the narrowest dtype it computes in, each of which holds them exactly.
fn eight_bits<'g>(
    g: &'g GraphBuilder,
    node: &Node,
    operands: &[Tensor<'g>],
    target: &dyn Target,
) -> Option<Vec<Tensor<'g>>> {
    let types: Vec<Type> = operands.iter().filter_map(|t| t.ty()).collect();
    let Op::Matmul(m) = &node.op else { return None };
    if target.accepts(&node.op, &types) {
        return None;
    }
    let to = if target.computes_in(DType::BF16) { DType::BF16 } else { DType::F32 };
    let wide: Vec<Tensor<'g>> = operands.iter().map(|t| t.cast(to)).collect();
    let sums = if target.computes_in(m.dtype) { m.dtype } else { DType::F32 };
    Some(vec![g.emit1(Matmul { dtype: sums, ..*m }, &wide).cast(m.dtype)])
}

/// The results of a composite, or of an op of the user's own, whose library kernel the target has, but not in the operands' 16-bit dtype: cast up, run,
/// cast back. It would round at each op of its decomposition otherwise.
pub(crate) fn widened<'g>(
    g: &'g GraphBuilder,
    node: &Node,
    results: &[DType],
    operands: &[Tensor<'g>],
    target: &dyn Target,
) -> Option<Vec<Tensor<'g>>> {
    let low = |d: DType| d.is_float() && !target.computes_in(d);
    let library = matches!(
        node.op,
        Op::Convolution(_)
            | Op::ConvolutionInputGrad(_)
            | Op::ConvolutionWeightGrad(_)
            | Op::Attention(_)
            | Op::AttentionGrad(_)
            | Op::MaxPool(_)
            | Op::Custom(_)
    );
    if !library || !operands.iter().any(|t| low(t.dtype())) {
        return None;
    }
    let wide: Vec<Tensor<'g>> =
        operands.iter().map(|t| if low(t.dtype()) { t.cast(DType::F32) } else { *t }).collect();
    let types: Vec<Type> = wide.iter().filter_map(|t| t.ty()).collect();
    if !target.accepts(&node.op, &types) {
        return None;
    }
    let out = g.emit(node.op.clone(), &wide);
    Some(out.into_iter().zip(results).map(|(t, d)| t.cast(*d)).collect())
}
