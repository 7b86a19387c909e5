//! The graph: SSA values, ops with several results and nested regions, and the interface of a program: inputs,
//! state, outputs and updates.
//!
//! The nodes of a region stand in an order in which every value is defined before it is used.

use crate::{Init, Loc, Op, Type};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A value: one result of a node, or a parameter of a region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ValueId(pub u32);

impl ValueId {
    /// As an index into [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node: one op applied to operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId(pub u32);

impl NodeId {
    /// As an index into [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Def {
    /// Result `1` of node `0`.
    Node(NodeId, u32),
    /// A parameter of a region (an input or a state, in the outermost one).
    Param,
}

/// A value's type and origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// Its type.
    pub ty: Type,
    /// Its origin.
    pub def: Def,
}

/// One op applied to operands.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op.
    pub op: Op,
    /// Its operands.
    pub operands: Vec<ValueId>,
    /// Its results.
    pub results: Vec<ValueId>,
    /// Its nested regions.
    pub regions: Vec<Region>,
    /// The line of the user's program that built it.
    pub loc: Option<Loc>,
}

/// A list of nodes with parameters and results. A nested region may use only its own parameters and values.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// Values that are given to it.
    pub params: Vec<ValueId>,
    /// Its nodes, each after those whose results it uses.
    pub nodes: Vec<NodeId>,
    /// What it gives back (unused for the outermost region, which has outputs and updates).
    pub results: Vec<ValueId>,
}

/// Whether an input, state, output or dimension may have this name: it is not empty, and has no quote, backslash or
/// control character.
pub(crate) fn is_well_formed(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| c.is_control() || c == '"' || c == '\\')
}

/// A named value at the interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its name.
    pub name: Arc<str>,
    /// The value.
    pub value: ValueId,
}

/// What a state tensor is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Learned by the optimizer.
    Parameter,
    /// A slot of the optimizer, such as a moment.
    Slot,
    /// A hyper-parameter or counter of the step.
    Scalar,
    /// Key or counter of random numbers.
    Rng,
    /// Running statistics, caches and other buffers.
    Buffer,
    /// A gradient that stays resident.
    Gradient,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 6] =
        [Role::Parameter, Role::Slot, Role::Scalar, Role::Rng, Role::Buffer, Role::Gradient];

    /// The keyword of the text form.
    pub fn name(self) -> &'static str {
        match self {
            Role::Parameter => "parameter",
            Role::Slot => "slot",
            Role::Scalar => "scalar",
            Role::Rng => "rng",
            Role::Buffer => "buffer",
            Role::Gradient => "gradient",
        }
    }
}

/// A named, resident tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct StatePort {
    /// Its path, such as `block.3.attn.q.weight`.
    pub name: Arc<str>,
    /// Its value at the start of the call.
    pub value: ValueId,
    /// What it is for.
    pub role: Role,
    /// Its first value.
    pub init: Init,
}

/// `state <- value` at the end of the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Update {
    /// Index into [`Graph::states`].
    pub state: usize,
    /// The new value.
    pub value: ValueId,
    /// Whether the commit guard precedes the write.
    pub guarded: bool,
}

/// A pure graph plus its interface.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Its name.
    pub name: String,
    /// Dimension variables and their bounds.
    pub dims: BTreeMap<Arc<str>, usize>,
    /// All values, of every region.
    pub values: Vec<Value>,
    /// All nodes, of every region.
    pub nodes: Vec<Node>,
    /// The outermost region; its parameters are the inputs and states.
    pub body: Region,
    /// Fed at each call.
    pub inputs: Vec<Port>,
    /// Resident tensors.
    pub states: Vec<StatePort>,
    /// Given back at each call.
    pub outputs: Vec<Port>,
    /// Written back at the end of each call.
    pub updates: Vec<Update>,
    /// A `bool` scalar: when false, guarded updates do not happen.
    pub guard: Option<ValueId>,
}

impl Graph {
    /// How deep regions may nest: the builder, the parser and the verifier refuse more, so that everything that walks
    /// a graph may recurse.
    pub const MAX_NESTING: usize = 64;

    /// A value's type.
    pub fn ty(&self, v: ValueId) -> &Type {
        &self.values[v.index()].ty
    }

    /// A node.
    pub fn node(&self, n: NodeId) -> &Node {
        &self.nodes[n.index()]
    }

    /// The node that defines a value, if it is not a parameter.
    pub fn def(&self, v: ValueId) -> Option<&Node> {
        match self.values[v.index()].def {
            Def::Node(n, _) => Some(self.node(n)),
            Def::Param => None,
        }
    }

    /// Adds a value.
    pub fn add_value(&mut self, ty: Type, def: Def) -> ValueId {
        self.values.push(Value { ty, def });
        ValueId(self.values.len() as u32 - 1)
    }

    /// The nodes of the outermost region, in order.
    pub fn body_nodes(&self) -> impl DoubleEndedIterator<Item = &Node> {
        self.body.nodes.iter().map(|n| self.node(*n))
    }

    /// The state with this path.
    pub fn state(&self, name: &str) -> Option<&StatePort> {
        self.states.iter().find(|s| &*s.name == name)
    }

    /// The output with this name.
    pub fn output(&self, name: &str) -> Option<&Port> {
        self.outputs.iter().find(|o| &*o.name == name)
    }

    /// Every value that the interface reads: outputs, updates and the guard.
    pub fn roots(&self) -> impl Iterator<Item = ValueId> {
        self.outputs.iter().map(|o| o.value).chain(self.updates.iter().map(|u| u.value)).chain(self.guard)
    }

    /// How often each value is used: as an operand, as a region's result, and by the interface.
    pub fn uses(&self) -> Vec<usize> {
        let mut count = vec![0; self.values.len()];
        let regions = self.nodes.iter().flat_map(|n| &n.regions).flat_map(|r| r.results.iter().copied());
        let operands = self.nodes.iter().flat_map(|n| n.operands.iter().copied());
        for v in operands.chain(regions).chain(self.roots()) {
            count[v.index()] += 1;
        }
        count
    }

    /// Whether every dimension variable has been replaced by a size.
    pub fn is_bound(&self) -> bool {
        self.values.iter().all(|v| v.ty.shape.sizes().is_some())
    }
}
