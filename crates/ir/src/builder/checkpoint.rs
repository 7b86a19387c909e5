//! Checkpoints: the nodes that a function built become one call when the graph is finished.

use crate::ops::Call;
use crate::{Graph, GraphBuilder, GraphError, Mistake, NodeId, outline};
use std::collections::HashSet;
use std::ops::Range;

impl GraphBuilder {
    /// Runs `f`, whose nodes become a **checkpoint**: the gradient computes them again from what they were computed from,
    /// instead of keeping what they computed. Only the values that are used outside are kept. `name` is for people.
    ///
    /// The results and their gradients are the same, bit for bit; the step takes less memory, and the time of computing
    /// these nodes twice. Checkpoints nest. What is built in one may be used anywhere.
    ///
    /// ```
    /// # use onestep_ir::{DType, GraphBuilder, Init};
    /// let g = GraphBuilder::new("deep");
    /// let mut x = g.input("x", DType::F32, [64, 32]);
    /// for i in 0..8 {
    ///     x = g.checkpoint(&format!("block.{i}"), || {
    ///         let w = g.parameter(&format!("block.{i}.w"), &[32, 32], Init::Normal { mean: 0.0, std: 0.2 });
    ///         x + x.matmul(w).tanh().matmul_t(w, false, true)
    ///     });
    /// }
    /// # g.finish(x.square().mean_all()).unwrap();
    /// ```
    #[track_caller]
    pub fn checkpoint<R>(&self, name: &str, f: impl FnOnce() -> R) -> R {
        let at = || {
            let inner = self.inner.borrow();
            (inner.regions.len(), inner.graph.nodes.len())
        };
        let (depth, from) = at();
        let out = f();
        let (_, to) = at();
        if depth == 0 {
            self.inner.borrow_mut().checkpoints.push((name.to_string(), from..to));
        } else {
            let m = Mistake::new(
                format!("checkpoint '{name}' stands in the region of another op"),
                "put the whole op into a checkpoint",
            );
            self.mistake("checkpoint", &[], m);
        }
        out
    }
}

/// The graph with a call for each checkpoint; inner ones stand before those around them.
pub(super) fn outlined(graph: &Graph, checkpoints: &[(String, Range<usize>)]) -> Result<Graph, GraphError> {
    let mut graph = graph.clone();
    // A checkpoint takes in the calls that the inner ones became.
    let mut calls: Vec<(usize, NodeId)> = vec![];
    for (name, built) in checkpoints {
        let mut nodes: HashSet<NodeId> = built.clone().map(|n| NodeId(n as u32)).collect();
        nodes.extend(calls.iter().filter(|(from, _)| built.contains(from)).map(|(_, call)| *call));
        if let Some(call) = outline(&mut graph, &nodes, Call::checkpoint(name)) {
            calls.push((built.start, call));
        }
    }
    if !calls.is_empty() {
        // They may nest too deep.
        graph.verify()?;
    }
    Ok(graph)
}
