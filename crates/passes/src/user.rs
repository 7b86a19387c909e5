//! Passes of the user's own: functions from graph to graph that run at named places of the pipeline.
//!
//! Each is checked after it ran, since what follows relies on it: its graph is valid, and has the interface of the graph
//! that it was given: the same inputs, states, outputs and updates, of the same types.

use crate::CompileError;
use onestep_ir::{Graph, GraphError, Port};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Where a pass runs: after the pass of the pipeline with this name, and on what that one leaves: `docs/passes.md`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// Before everything else: the graph as it was built (a training step with its backward pass and update), with calls and
    /// composites whole.
    Input,
    /// The same without calls: one flat list of nodes.
    Inline,
    /// Updates are unconditional; composites are whole.
    Guard,
    /// Only primitives, and what the backend has kernels for; a pass from here on adds nothing else.
    Decompose,
    /// Constants are computed, and of equal nodes one is left.
    Cse,
    /// The graph that fusion sees next, but for what nothing reads.
    Last,
}

impl Stage {
    /// The pass of the pipeline that it follows.
    pub fn pass(self) -> &'static str {
        match self {
            Stage::Input => "input",
            Stage::Inline => "inline",
            Stage::Guard => "guard",
            Stage::Decompose => "decompose",
            Stage::Cse => "cse",
            Stage::Last => "simplify-3",
        }
    }
}

type Run = dyn Fn(&Graph) -> Result<Graph, Box<dyn Error + Send + Sync>> + Send + Sync;

/// A pass of the user's own. Two are equal where they are clones of one.
#[derive(Clone)]
pub struct UserPass {
    name: &'static str,
    after: Stage,
    run: Arc<Run>,
}

impl UserPass {
    /// A pass with this name, under which its graph is dumped and its time reported. [`onestep_ir::rewrite::rewrite`] is the
    /// way to write one.
    pub fn new<E: Into<Box<dyn Error + Send + Sync>>>(
        name: &'static str,
        after: Stage,
        run: impl Fn(&Graph) -> Result<Graph, E> + Send + Sync + 'static,
    ) -> UserPass {
        UserPass { name, after, run: Arc::new(move |g| run(g).map_err(Into::into)) }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Where it runs.
    pub fn after(&self) -> Stage {
        self.after
    }

    /// Runs it and checks what it gives.
    pub fn apply(&self, graph: &Graph) -> Result<Graph, CompileError> {
        let wrong = |what: String| CompileError::Pass { pass: self.name, what };
        let out = (self.run)(graph).map_err(|e| wrong(format!("failed: {e}")))?;
        out.verify().map_err(|e| match e {
            GraphError::Invalid(faults) => {
                wrong(format!("gives a graph that is not valid: {}", faults.join("; ")))
            }
            e => wrong(format!("gives a graph that is not valid: {e}")),
        })?;
        match changed(graph, &out) {
            None => Ok(out),
            Some(what) => Err(wrong(format!(
                "changes {what}; a pass keeps inputs, states, outputs and updates, with their types"
            ))),
        }
    }
}

impl fmt::Debug for UserPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pass '{}' after {:?}", self.name, self.after)
    }
}

impl PartialEq for UserPass {
    fn eq(&self, other: &UserPass) -> bool {
        self.name == other.name && self.after == other.after && Arc::ptr_eq(&self.run, &other.run)
    }
}
impl Eq for UserPass {}

/// What differs between the interfaces of two valid graphs, if anything does.
fn changed(before: &Graph, after: &Graph) -> Option<String> {
    let ports = |g: &Graph, ports: &[Port]| -> Vec<String> {
        ports.iter().map(|p| format!("'{}' of {}", p.name, g.ty(p.value))).collect()
    };
    let states = |g: &Graph| -> Vec<String> {
        let all = g.states.iter();
        all.map(|s| format!("'{}' of {} ({}, {:?})", s.name, g.ty(s.value), s.role.name(), s.init)).collect()
    };
    let updates = |g: &Graph| -> Vec<String> {
        let guarded = |always| if always { "guarded" } else { "always" };
        let mut all: Vec<String> = g
            .updates
            .iter()
            .map(|u| format!("'{}' {}", g.states[u.state].name, guarded(u.guarded)))
            .collect();
        all.sort();
        all
    };
    let guard = |g: &Graph| g.guard.iter().map(|_| "the commit guard".to_string()).collect();
    let dims = |g: &Graph| g.dims.iter().map(|(d, n)| format!("'{d}' of at most {n}")).collect();
    let lists: [(&str, Vec<String>, Vec<String>); 6] = [
        ("the inputs", ports(before, &before.inputs), ports(after, &after.inputs)),
        ("the states", states(before), states(after)),
        ("the outputs", ports(before, &before.outputs), ports(after, &after.outputs)),
        ("the updated states", updates(before), updates(after)),
        ("the guard", guard(before), guard(after)),
        ("the dimensions", dims(before), dims(after)),
    ];
    let (what, before, after) = lists.into_iter().find(|(_, before, after)| before != after)?;
    let only = |a: &[String], b: &[String]| {
        a.iter().filter(|x| !b.contains(x)).map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    let (lost, new) = (only(&before, &after), only(&after, &before));
    Some(match (&lost[..], &new[..]) {
        ("", "") => format!("the order of {}", what.trim_start_matches("the ")),
        (_, "") => format!("{what}: {lost} is missing"),
        ("", _) => format!("{what}: {new} is new"),
        _ => format!("{what}: {lost} became {new}"),
    })
}
