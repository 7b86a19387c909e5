//! Pass `decompose`: replaces composites that the target does not accept by simpler ops, until none is left.
//!
//! It also rewrites three primitives that loop kernels express through others: `concat` becomes guarded reads of its
//! operands, unless these are computed in their places in it, `pad` with interior padding becomes reshapes and plain pads, and `pow` with a constant exponent of 1 or 2
//! becomes a product. A composite on 16-bit floats whose kernel the target has in `f32` runs there.

use crate::fuse::costly;
use crate::{Target, legalize};
use onestep_ir::ops::{Binary, BinaryKind, CompareKind, Op, Pad, Slice};
use onestep_ir::{DType, Def, Graph, GraphBuilder, GraphError, Node, Real, Shape, Tensor, Type, ValueId};

/// Runs the pass. Every round may bring composites of a lower level, so rounds repeat until nothing changes.
pub fn decompose(graph: &Graph, target: &dyn Target) -> Result<Graph, GraphError> {
    let mut graph = graph.clone();
    loop {
        let mut changed = false;
        let before = graph;
        graph = onestep_ir::rewrite::rewrite(&before, &mut |g, node, operands| {
            let results: Vec<DType> = node.results.iter().map(|v| before.ty(*v).dtype).collect();
            let new = step(g, node, &results, operands, target)?;
            changed = true;
            Some(new)
        })?;
        if !changed {
            return Ok(graph);
        }
    }
}

fn step<'g>(
    g: &'g GraphBuilder,
    node: &Node,
    results: &[DType],
    operands: &[Tensor<'g>],
    target: &dyn Target,
) -> Option<Vec<Tensor<'g>>> {
    let types: Vec<Type> = operands.iter().filter_map(|t| t.ty()).collect();
    if target.accepts(&node.op, &types) {
        return None;
    }
    if let Some(new) = legalize::widened(g, node, results, operands, target) {
        return Some(new);
    }
    match &node.op {
        Op::Concat(_) if operands.len() == 1 => Some(vec![operands[0]]),
        Op::Concat(_) if operands.iter().all(|t| computed_in_place(*t, target)) => None,
        Op::Concat(c) => Some(vec![concat(g, c.axis, operands)]),
        Op::Pad(p) if p.interior > 0 => Some(vec![spread(p, operands[0])]),
        Op::Binary(Binary { kind: BinaryKind::Pow }) => match splat(operands[1])? {
            1.0 => Some(vec![operands[0]]),
            2.0 => Some(vec![operands[0] * operands[0]]),
            _ => None,
        },
        op => op.rule().decompose(g, operands),
    }
}

/// The number that a splat constant repeats, seen through broadcasts.
fn splat(t: Tensor<'_>) -> Option<f64> {
    let mut value = t.value()?;
    t.graph().with_graph(|g| {
        loop {
            let node = g.def(value)?;
            match &node.op {
                Op::Constant(c) => return c.as_splat(),
                Op::Broadcast(_) => value = node.operands[0],
                _ => return None,
            }
        }
    })
}

/// Whether a part of a concatenation has a kernel of its own in any case, which can as well leave it in its place there: no loop
/// over all parts would compute it, since that costs more than to store it.
fn computed_in_place(part: Tensor<'_>, target: &dyn Target) -> bool {
    let placed = |mut v: ValueId| {
        part.graph().with_graph(|g| {
            while let Some(Node { op: Op::Reshape(_), operands, .. }) = g.def(v) {
                v = operands[0];
            }
            let Def::Node(id, result) = g.values[v.index()].def else { return false };
            let (op, operands) = (&g.node(id).op, &g.node(id).operands);
            let types: Vec<Type> = operands.iter().map(|o| g.ty(*o).clone()).collect();
            let own = if target.accepts(op, &types) {
                target.gives_strided(op, result as usize)
            } else {
                costly(op)
            };
            own && g.ty(v).numel() > 0
        })
    };
    part.value().is_some_and(placed)
}

/// Concatenation as a chain of selects by position; each operand is padded to the full size, so that every read is
/// guarded by its own range.
fn concat<'g>(g: &'g GraphBuilder, axis: usize, operands: &[Tensor<'g>]) -> Tensor<'g> {
    let sizes: Vec<usize> = operands.iter().filter_map(|t| t.shape().0[axis].size()).collect();
    let total: usize = sizes.iter().sum();
    let (mut out, mut start) = (None::<Tensor<'g>>, 0);
    for (t, n) in operands.iter().zip(&sizes).filter(|(_, n)| **n > 0) {
        let value = Real::new(0.0);
        let pad = Pad { axis, low: start, high: total - start - n, interior: 0, value };
        let padded = if *n == total { *t } else { g.emit1(pad, &[*t]) };
        out = Some(match out {
            None => padded,
            Some(before) => {
                let shape = padded.shape();
                let index = g.iota(DType::I64, &shape, axis);
                let limit = g.full(DType::I64, &shape, start as f64);
                let here = g.emit1(Op::from(CompareKind::Ge), &[index, limit]);
                g.emit1(onestep_ir::ops::Select, &[here, padded, before])
            }
        });
        start += n;
    }
    out.unwrap_or(operands[0])
}

/// Padding between elements: each element becomes a row of itself and `interior` fills; the fills after the last
/// element are cut off; then the ends are padded.
fn spread<'g>(p: &Pad, x: Tensor<'g>) -> Tensor<'g> {
    let g = x.graph();
    let shape = x.shape();
    let Some(n) = shape.0[p.axis].size() else { return g.emit1(*p, &[x]) };
    let step = p.interior + 1;
    if n == 0 {
        return g.emit1(Pad { interior: 0, ..*p }, &[x]);
    }
    let mut split = shape.0.clone();
    split.insert(p.axis + 1, 1.into());
    let wide = Pad { axis: p.axis + 1, low: 0, high: p.interior, interior: 0, value: p.value };
    let mut merged = shape.0.clone();
    merged[p.axis] = (n * step).into();
    let rows = g.emit1(wide, &[x.reshape(Shape(split))]).reshape(Shape(merged));
    let cut = g.emit1(Slice { axis: p.axis, start: 0, end: (n - 1) * step + 1, step: 1 }, &[rows]);
    g.emit1(Pad { interior: 0, ..*p }, &[cut])
}
