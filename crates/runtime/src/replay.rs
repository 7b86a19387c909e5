//! A step taken apart: a digest of every value that its graph computes, to be compared with the same step elsewhere.
//!
//! The graph is compiled with every value as an output and each op as a kernel of its own. The bits of a result depend
//! neither on fusion nor on what else is read, so these are the values of the step itself.

use crate::{Error, Executable, Feeds, Options, State};
use onestep_io::Digest;
use onestep_ir::{Graph, Loc, Node, Port, ValueId};

/// A value of a graph, as some run computed it.
#[derive(Clone, PartialEq, Debug)]
pub struct ValueDigest {
    /// Its name in the graph's text, such as `%12`.
    pub value: String,
    /// The op that computes it.
    pub op: &'static str,
    /// Its type.
    pub ty: String,
    /// The line that built it.
    pub loc: Option<Loc>,
    /// The digest of what it is.
    pub digest: Digest,
}

impl Executable {
    /// Digests of every value that the program's nodes compute from these inputs and this state, in the graph's order; a
    /// value inside a nested region is none of them. The state is left as it is. It takes the memory of all values at once.
    pub fn values(&self, state: &State, inputs: impl Feeds) -> Result<Vec<ValueDigest>, Error> {
        let graph = self.graph();
        let nodes = graph.body_nodes().flat_map(|n| n.results.iter().map(move |v| (n, *v)));
        let all: Vec<_> = nodes.collect();
        let outputs = all.iter().map(|(_, v)| Port { name: format!("%{}", v.0).into(), value: *v });
        let open = Graph { outputs: outputs.collect(), updates: vec![], guard: None, ..graph.clone() };
        let options = Options { fuse: false, ..Options::default() };
        let executable = Executable::compile(&open, self.device(), &options)?;
        // What is bound is not changed, but belongs to whoever runs it.
        let mut state = state.try_clone()?;
        let mut bound = executable.bind(&state)?;
        let out = bound.run(&mut state, inputs)?;
        let digest = |(node, v): &(&Node, ValueId)| {
            let value = format!("%{}", v.0);
            let array = out.array(&value)?;
            let (op, ty) = (node.op.rule().name(), graph.ty(*v).to_string());
            Ok(ValueDigest { value, op, ty, loc: node.loc, digest: Digest::of_array(&array) })
        };
        all.iter().map(digest).collect()
    }
}
