//! Pass `simplify`: local rewrites that keep every bit of the result.
//!
//! - identities: `x·1`, `x/1`, `x − 0`, `x + (−0)`, casts, reshapes, transposes, broadcasts, slices and pads that change
//!   nothing, reductions over no axis or over axes of size 1 (of a sum, `0 + x` remains), `−(−x)`, `not(not x)`, a select
//!   whose branches are one value or whose condition is a constant;
//! - casts: down from where a value was cast up, and down behind a reshape, which changes places with it;
//! - chains: reshape of reshape, transpose of transpose, broadcast of broadcast, reverse of reverse;
//! - a transpose of the last two axes before a matmul becomes the matmul's flag;
//! - a view of a repeated number is that number repeated over the view's shape.

use onestep_ir::ops::{Binary, BinaryKind, Constant, Matmul, Op, Reduce, ReduceKind, Unary, UnaryKind};
use onestep_ir::{DType, Dim, Graph, GraphBuilder, GraphError, Node, Shape, Tensor, ValueId};

/// Runs the pass to a fixed point.
pub fn simplify(graph: &Graph) -> Result<Graph, GraphError> {
    let mut graph = graph.clone();
    loop {
        let mut changed = false;
        graph = onestep_ir::rewrite::rewrite(&graph, &mut |g, node, operands| {
            let new = rule(g, node, operands)?;
            changed = true;
            Some(vec![new])
        })?;
        if !changed {
            return Ok(graph);
        }
    }
}

/// The op that defines a tensor and that op's first operand.
fn def<'g>(t: Tensor<'g>) -> Option<(Op, Option<Tensor<'g>>)> {
    let g = t.graph();
    let (op, first): (Op, Option<ValueId>) = g.with_graph(|graph| {
        let node = graph.def(t.value()?)?;
        Some((node.op.clone(), node.operands.first().copied()))
    })?;
    Some((op, first.map(|v| g.tensor(v))))
}

/// The number that a tensor repeats, if its definition says so.
fn splat(t: Tensor<'_>) -> Option<f64> {
    match def(t)?.0 {
        Op::Constant(c) => c.as_splat(),
        _ => None,
    }
}

fn is(t: Tensor<'_>, number: f64) -> bool {
    splat(t).is_some_and(|x| x.to_bits() == number.to_bits())
}

fn rule<'g>(g: &'g GraphBuilder, node: &Node, operands: &[Tensor<'g>]) -> Option<Tensor<'g>> {
    let x = *operands.first()?;
    let shape = x.shape();
    match &node.op {
        Op::Binary(Binary { kind }) => binary(*kind, x, operands[1]),
        Op::Unary(Unary { kind: kind @ (UnaryKind::Neg | UnaryKind::Not) }) => match def(x)? {
            (Op::Unary(Unary { kind: inner }), before) if inner == *kind => before,
            _ => None,
        },
        Op::Select(_) if operands[1].value() == operands[2].value() => Some(operands[1]),
        Op::Select(_) => splat(x).map(|c| if c != 0.0 { operands[1] } else { operands[2] }),
        Op::Cast(c) if x.dtype() == c.dtype => Some(x),
        Op::Cast(c) => cast(c.dtype, x),
        Op::Bitcast(b) if x.dtype() == b.dtype => Some(x),
        Op::Reshape(r) if shape.0 == r.dims => Some(x),
        Op::Reshape(r) => match def(x)? {
            (Op::Reshape(_), Some(before)) => Some(before.reshape(Shape(r.dims.clone()))),
            (Op::Constant(c), _) => repeated(g, &c, &r.dims),
            _ => None,
        },
        Op::Transpose(t) if t.perm.iter().copied().eq(0..t.perm.len()) => Some(x),
        Op::Transpose(t) => match def(x)? {
            (Op::Transpose(inner), Some(before)) => {
                let perm: Vec<usize> = t.perm.iter().map(|&p| inner.perm[p]).collect();
                Some(before.transpose(&perm))
            }
            (Op::Constant(c), _) => {
                repeated(g, &c, &t.perm.iter().map(|&p| shape.0[p].clone()).collect::<Vec<_>>())
            }
            _ => None,
        },
        Op::Broadcast(b) if shape.0 == b.dims => Some(x),
        Op::Broadcast(b) => match def(x)? {
            (Op::Broadcast(_), Some(before)) => Some(before.broadcast(&Shape(b.dims.clone()))),
            (Op::Constant(c), _) => repeated(g, &c, &b.dims),
            _ => None,
        },
        Op::Reverse(r) if r.axes.iter().all(|&a| shape.0[a].is_one()) => Some(x),
        Op::Reverse(r) => match def(x)? {
            (Op::Reverse(inner), Some(before)) if inner.axes == r.axes => Some(before),
            (Op::Constant(c), _) => repeated(g, &c, &shape.0),
            _ => None,
        },
        Op::Slice(s) if s.start == 0 && s.step == 1 && shape.0[s.axis].size() == Some(s.end) => Some(x),
        Op::Pad(p) if p.low == 0 && p.high == 0 && p.interior == 0 => Some(x),
        Op::Reduce(Reduce { axes, kind }) if axes.iter().all(|&a| shape.0[a].is_one()) => {
            let alone = x.reshape(shape.without(axes));
            // A sum begins at 0.0, which turns -0.0 into 0.0.
            let from_zero = *kind == ReduceKind::Sum && x.dtype().is_float();
            Some(if from_zero { alone + 0.0 } else { alone })
        }
        Op::Matmul(m) => matmul(g, m, operands),
        _ => None,
    }
}

fn repeated<'g>(g: &'g GraphBuilder, c: &Constant, dims: &[Dim]) -> Option<Tensor<'g>> {
    c.value.shape().is_empty().then(|| g.emit1(Constant { value: c.value.clone(), dims: dims.to_vec() }, &[]))
}

fn binary<'g>(kind: BinaryKind, x: Tensor<'g>, y: Tensor<'g>) -> Option<Tensor<'g>> {
    let float = x.dtype().is_float();
    match kind {
        BinaryKind::Mul if is(y, 1.0) => Some(x),
        BinaryKind::Mul if is(x, 1.0) => Some(y),
        BinaryKind::Div if is(y, 1.0) => Some(x),
        BinaryKind::Sub if is(y, 0.0) => Some(x),
        BinaryKind::Add if is(y, if float { -0.0 } else { 0.0 }) => Some(x),
        BinaryKind::Add if is(x, if float { -0.0 } else { 0.0 }) => Some(y),
        BinaryKind::And | BinaryKind::Or if x.value() == y.value() => Some(x),
        BinaryKind::Max | BinaryKind::Min if x.value() == y.value() => Some(x),
        _ => None,
    }
}

/// A float that was widened and comes back is itself. A result that is rounded behind a reshape is rounded before it, so that
/// the kernel that computes it stores it rounded.
fn cast<'g>(to: DType, x: Tensor<'g>) -> Option<Tensor<'g>> {
    let narrower = |a: DType, b: DType| a.is_float() && b.is_float() && a.size() < b.size();
    match def(x)? {
        (Op::Cast(_), Some(before)) if before.dtype() == to && narrower(to, x.dtype()) => Some(before),
        (Op::Reshape(r), Some(before)) if narrower(to, x.dtype()) => {
            let computed =
                matches!(def(before)?.0, Op::Binary(_) | Op::Unary(_) | Op::Select(_) | Op::Cast(_));
            computed.then(|| before.cast(to).reshape(Shape(r.dims.clone())))
        }
        _ => None,
    }
}

/// Swaps of the last two axes go into the matmul's flags.
fn matmul<'g>(g: &'g GraphBuilder, m: &Matmul, operands: &[Tensor<'g>]) -> Option<Tensor<'g>> {
    let swapped = |t: Tensor<'g>| match def(t)? {
        (Op::Transpose(p), before) => {
            let r = p.perm.len();
            let mut swap: Vec<usize> = (0..r).collect();
            swap.swap(r - 1, r - 2);
            (p.perm == swap).then_some(before?)
        }
        _ => None,
    };
    if operands[0].dtype().is_fp8() {
        return None; // these are multiplied along their rows
    }
    let (a, b) = (swapped(operands[0]), swapped(operands[1]));
    if a.is_none() && b.is_none() {
        return None;
    }
    let flipped =
        Matmul { transpose_a: m.transpose_a ^ a.is_some(), transpose_b: m.transpose_b ^ b.is_some(), ..*m };
    Some(g.emit1(flipped, &[a.unwrap_or(operands[0]), b.unwrap_or(operands[1])]))
}
