//! Pass `cse`: of several nodes with the same op and operands, keeps the first.
//!
//! Ops are pure, so equal op and operands mean equal results. Nodes with nested regions are left alone, and so are barriers:
//! each stands for a value of its own.

use onestep_ir::{Graph, GraphError, Op, ValueId};
use std::collections::HashMap;

/// Runs the pass. One walk suffices: operands are merged before their uses.
pub fn cse(graph: &Graph) -> Result<Graph, GraphError> {
    // The key holds values of the new graph, in which equal things have one name already.
    // A region sees nothing of those around it, so each has its own.
    let mut seen: HashMap<(usize, Op, Vec<ValueId>), Vec<ValueId>> = HashMap::new();
    onestep_ir::rewrite::rewrite(graph, &mut |g, node, operands| {
        if !node.regions.is_empty() || matches!(node.op, Op::Barrier(_)) {
            return None;
        }
        let ids: Vec<ValueId> = operands.iter().map(|t| t.value()).collect::<Option<_>>()?;
        let key = (g.innermost_region(), node.op.clone(), ids);
        if let Some(known) = seen.get(&key) {
            return Some(known.iter().map(|v| g.tensor(*v)).collect());
        }
        let new = g.emit(node.op.clone(), operands);
        seen.insert(key, new.iter().map(|t| t.value()).collect::<Option<_>>()?);
        Some(new)
    })
}
