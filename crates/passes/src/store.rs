//! Pass `store`: state in a 16-bit float, for a program that does not train. What a program reads at every call takes half
//! the memory and half the time to read; [`precision`](crate::precision::precision), which comes after it, then finds the low
//! values and casts nothing.
//!
//! What it changes: `f32` parameters, and the `f32` buffers that a `dynamic_update_slice` writes into, which are caches. Each
//! is declared in the low dtype and cast up where it is read; rows that are written into a cache are rounded. What it keeps:
//! the type of every other value, and the interface but for these dtypes. First values are those of the `f32` graph, rounded.

use crate::precision::{Precision, check, source};
use onestep_ir::rewrite::{eliminate_dead, rewrite, store_states};
use onestep_ir::{DType, Graph, GraphBuilder, GraphError, Node, Op, Role, StatePort, Tensor, ValueId};

/// Runs the pass. The dimensions need not be bound. A graph that is differentiated already is a mistake, as for
/// [`precision`](crate::precision::precision): an optimizer needs its `f32` masters.
pub fn store(graph: &Graph, precision: Precision) -> Result<Graph, GraphError> {
    let Some(low) = precision.low() else { return Ok(graph.clone()) };
    check(graph)?;
    let kept = |s: &StatePort| is_stored(graph, s.role, s.value).then_some(low);
    let declared = store_states(graph, &kept, &|_, _, new| new.cast(low))?;
    let out = rewrite(&declared, &mut |g, node, operands| written(g, low, node, operands))?;
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
