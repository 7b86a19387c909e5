//! Pass `guard`: makes the commit guard part of the values: a guarded update `s <- v` becomes `s <- select(guard, v, s)`.
//!
//! After it no update is guarded, so that later stages know only unconditional updates; the select fuses into the kernel
//! that computes `v`.

use onestep_ir::{Graph, GraphBuilder, GraphError};

/// Runs the pass.
pub fn guard(graph: &Graph) -> Result<Graph, GraphError> {
    let Some(guard) = graph.guard else {
        let mut out = graph.clone();
        out.updates.iter_mut().for_each(|u| u.guarded = false);
        return Ok(out);
    };
    let mut base = graph.clone();
    base.updates.clear();
    base.guard = None;
    let g = GraphBuilder::edit(base);
    for u in &graph.updates {
        let state = g.tensor(graph.states[u.state].value);
        let value = g.tensor(u.value);
        let value = if u.guarded {
            let loc = graph.def(u.value).and_then(|n| n.loc);
            g.at(loc, || g.tensor(guard).select(value, state))
        } else {
            value
        };
        g.update(state, value, false);
    }
    g.build()
}
