//! Pass `store`: state in a 16-bit float, for a program that does not train. What a program reads at every call takes half
//! the memory and half the time to read; [`precision`](crate::precision::precision), which comes after it, then finds the low
//! values and casts nothing.
//!
//! What it changes: `f32` parameters, and the `f32` buffers that a `dynamic_update_slice` writes into, which are caches. Each
//! is declared in the low dtype and cast up where it is read; rows that are written into a cache are rounded. What it keeps:
//! the type of every other value, and the interface but for these dtypes. First values are those of the `f32` graph, rounded.

use crate::precision::{Precision, check, source};
use onestep_ir::rewrite::{eliminate_dead, rewrite};
use onestep_ir::{DType, Def, Graph, GraphBuilder, GraphError, Node, NodeId, Op, Role, Tensor, ValueId};
use std::collections::HashMap;

/// Runs the pass. The dimensions need not be bound. A graph that is differentiated already is a mistake, as for
/// [`precision`](crate::precision::precision): an optimizer needs its `f32` masters.
pub fn store(graph: &Graph, precision: Precision) -> Result<Graph, GraphError> {
    let Some(low) = precision.low() else { return Ok(graph.clone()) };
    check(graph)?;
    let out = rewrite(&declared(graph, low), &mut |g, node, operands| written(g, low, node, operands))?;
    Ok(eliminate_dead(&out))
}

/// Whether the state of this value is one that the pass stores.
fn is_stored(graph: &Graph, role: Role, value: ValueId) -> bool {
    let written = |n: &Node| matches!(n.op, Op::DynamicUpdateSlice(_)) && n.operands[0] == value;
    let chosen = match role {
        Role::Parameter => true,
        Role::Buffer => graph.body_nodes().any(written),
        _ => false,
    };
    chosen && graph.ty(value).dtype == DType::F32
}

/// The graph with low state: cast up for all that read it, and what is new of it cast down.
fn declared(graph: &Graph, low: DType) -> Graph {
    let mut g = graph.clone();
    let stored: Vec<bool> = g.states.iter().map(|s| is_stored(graph, s.role, s.value)).collect();
    let mut wide: HashMap<ValueId, ValueId> = HashMap::new();
    for (state, _) in graph.states.iter().zip(&stored).filter(|(_, stored)| **stored) {
        g.values[state.value.index()].ty.dtype = low;
        wide.insert(state.value, cast(&mut g, state.value, DType::F32));
    }
    let casts = g.body.nodes.split_off(graph.body.nodes.len());
    let widen = |v: &mut ValueId| *v = wide.get(v).copied().unwrap_or(*v);
    g.nodes[..graph.nodes.len()].iter_mut().flat_map(|n| &mut n.operands).for_each(widen);
    g.outputs
        .iter_mut()
        .map(|o| &mut o.value)
        .chain(g.updates.iter_mut().map(|u| &mut u.value))
        .for_each(widen);
    g.guard.iter_mut().for_each(widen);
    g.body.nodes.splice(0..0, casts);
    for at in 0..g.updates.len() {
        if stored[g.updates[at].state] {
            let value = g.updates[at].value;
            g.updates[at].value = cast(&mut g, value, low);
        }
    }
    g
}

/// A cast of a value at the end of the graph.
fn cast(g: &mut Graph, v: ValueId, dtype: DType) -> ValueId {
    let mut ty = g.ty(v).clone();
    ty.dtype = dtype;
    let node = NodeId(g.nodes.len() as u32);
    let result = g.add_value(ty, Def::Node(node, 0));
    let op = onestep_ir::ops::Cast { dtype }.into();
    let loc = g.def(v).and_then(|n| n.loc);
    g.nodes.push(Node { op, operands: vec![v], results: vec![result], regions: vec![], loc });
    g.body.nodes.push(node);
    result
}

/// Writes rows into the low form of a cache, and takes a low value in place of its wide form rounded.
fn written<'g>(
    g: &'g GraphBuilder,
    low: DType,
    node: &Node,
    operands: &[Tensor<'g>],
) -> Option<Vec<Tensor<'g>>> {
    let below = g.tensor(source(g, low, *operands.first()?)?);
    match (&node.op, operands) {
        (Op::DynamicUpdateSlice(_), [_, rows, start]) => {
            let grown = g.emit(node.op.clone(), &[below, rows.cast(low), *start]);
            Some(grown.into_iter().map(|t| t.cast(DType::F32)).collect())
        }
        (Op::Cast(c), _) if c.dtype == low => Some(vec![below]),
        _ => None,
    }
}
