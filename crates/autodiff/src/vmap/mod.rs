//! Mapping a graph over members: chosen inputs and states get a leading axis, one slice for each member, and so does
//! everything computed from them; the rest is computed once, for all. Graph to graph, so that the result can be mapped,
//! differentiated or compiled like any other.
//!
//! Each op has a rule (`rules/`), or is taken apart: its decomposition is mapped instead. A region is mapped as the graph
//! is. What member `k` gets are the bits that the op gives for that member's slices alone, wherever sums are taken in the
//! same order; an op that a rule takes apart, or hands to another kernel, may round otherwise.

mod error;
mod rules;
mod scan;

pub use error::VmapError;

use onestep_ir::{
    DType, Graph, GraphBuilder, GraphError, Loc, Mistake, Node, Op, Region, Shape, Tensor, Type, ValueId,
    nearest,
};
use rules::At;
use std::collections::HashMap;

/// Some names of the interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Names {
    /// None.
    #[default]
    None,
    /// All of them.
    All,
    /// These.
    These(Vec<String>),
}

impl<S: Into<String>, const N: usize> From<[S; N]> for Names {
    fn from(names: [S; N]) -> Names {
        Names::These(names.into_iter().map(Into::into).collect())
    }
}

impl Names {
    /// Whether this is one of them.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Names::None => false,
            Names::All => true,
            Names::These(names) => names.iter().any(|n| n == name),
        }
    }

    fn check<'a>(
        &self,
        kind: &'static str,
        known: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<(), VmapError> {
        let Names::These(names) = self else { return Ok(()) };
        match names.iter().find(|n| known.clone().all(|k| k != n.as_str())) {
            None => Ok(()),
            Some(name) => Err(VmapError::Unknown { kind, name: name.clone(), nearest: nearest(name, known) }),
        }
    }
}

/// What gets the leading axis.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Over {
    /// Of the inputs.
    pub inputs: Names,
    /// Of the states.
    pub states: Names,
}

/// The graph for `size` members at once: the inputs and states in `over`, and every output, have a leading axis of that
/// size; other inputs and states are shared. The graph's dimensions are bound.
///
/// Random numbers are drawn from each member's own key and counter: members of one shared key all see the same ones.
/// First values of a mapped state are drawn for the whole of it. Where the commit guard differs from member to member,
/// each member's guarded updates happen or not by its own guard. A shared state whose update would differ from member to
/// member is an error.
///
/// ```
/// use onestep_autodiff::{Over, vmap};
/// use onestep_ir::{DType, GraphBuilder, Init};
///
/// let g = GraphBuilder::new("line");
/// let x = g.input("x", DType::F32, [4, 3]);
/// let w = g.parameter("w", &[3, 2], Init::ZEROS);
/// g.output("y", x.matmul(w));
///
/// let five = vmap(&g.build()?, 5, &Over { states: ["w"].into(), ..Over::default() })?;
/// let ty = |v| five.ty(v).to_string();
/// assert_eq!(ty(five.inputs[0].value), "f32[4, 3]");
/// assert_eq!(ty(five.states[0].value), "f32[5, 3, 2]");
/// assert_eq!(ty(five.outputs[0].value), "f32[5, 4, 2]");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn vmap(graph: &Graph, size: usize, over: &Over) -> Result<Graph, VmapError> {
    graph.verify()?;
    if size == 0 {
        return Err(VmapError::Empty);
    }
    if let Some(open) = graph.values.iter().flat_map(|v| &v.ty.shape.0).find_map(|d| d.vars().first()) {
        return Err(VmapError::Unbound { name: open.to_string() });
    }
    over.inputs.check("input", graph.inputs.iter().map(|p| &*p.name))?;
    over.states.check("state", graph.states.iter().map(|s| &*s.name))?;
    let g = GraphBuilder::new(&graph.name);
    let mut mapper = Mapper { g: &g, graph, size, map: HashMap::new(), loc: None, guard: None };
    mapper.parameters(over);
    mapper.nodes(&graph.body)?;
    mapper.interface()?;
    Ok(g.build()?)
}

/// A value of the mapped graph: with the leading axis, or one for all members.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane<'g> {
    pub tensor: Tensor<'g>,
    pub mapped: bool,
}

impl<'g> Lane<'g> {
    /// The value with the leading axis: a shared one is repeated.
    pub fn wide(self, size: usize) -> Tensor<'g> {
        if self.mapped {
            return self.tensor;
        }
        self.tensor.broadcast(&leading(size, &self.tensor.shape()))
    }
}

/// `[size, shape…]`.
pub(crate) fn leading(size: usize, shape: &Shape) -> Shape {
    Shape([&[size.into()], &shape.0[..]].concat())
}

/// Rebuilds a graph node by node for all members.
pub(crate) struct Mapper<'a, 'g> {
    pub g: &'g GraphBuilder,
    pub graph: &'a Graph,
    pub size: usize,
    /// The new value of each old one met so far.
    pub map: HashMap<ValueId, Lane<'g>>,
    /// The user's line of a node that was taken apart, which all its parts carry.
    pub loc: Option<Loc>,
    /// Where members have guards of their own: the graph's guard, which is always true.
    guard: Option<Tensor<'g>>,
}

impl<'g> Mapper<'_, 'g> {
    fn parameters(&mut self, over: &Over) {
        let (graph, g) = (self.graph, self.g);
        for &v in &graph.body.params {
            let Type { dtype, shape } = graph.ty(v).clone();
            let sized = |mapped| if mapped { leading(self.size, &shape) } else { shape.clone() };
            let lane = if let Some(port) = graph.inputs.iter().find(|p| p.value == v) {
                let mapped = over.inputs.has(&port.name);
                Lane { tensor: g.input(&port.name, dtype, sized(mapped)), mapped }
            } else if let Some(s) = graph.states.iter().find(|s| s.value == v) {
                let mapped = over.states.has(&s.name);
                let sizes = sized(mapped).sizes().unwrap_or_default();
                Lane { tensor: g.state(&s.name, s.role, dtype, &sizes, s.init), mapped }
            } else {
                continue;
            };
            self.define(v, lane);
        }
    }

    /// Notes a new value. A guard of each member's own includes the graph's, so that whoever reads it learns of what a
    /// later pass adds there.
    fn define(&mut self, v: ValueId, mut lane: Lane<'g>) {
        if self.graph.guard == Some(v) && lane.mapped {
            let always = self.g.scalar(DType::Bool, 1.0);
            lane.tensor = lane.tensor.and(always);
            self.guard = Some(always);
        }
        self.map.insert(v, lane);
    }

    /// Maps a region's nodes; its parameters are in `map`.
    pub fn nodes(&mut self, region: &Region) -> Result<(), VmapError> {
        for id in &region.nodes {
            let node = self.graph.node(*id);
            let lanes: Vec<Lane<'g>> = node.operands.iter().map(|v| self.map[v]).collect();
            let g = self.g;
            let results = g.at(self.loc.or(node.loc), || self.node(node, &lanes))?;
            if results.len() != node.results.len() {
                // A mistake is on record.
                return Err(GraphError::Build(g.errors()).into());
            }
            for (&v, lane) in node.results.iter().zip(results) {
                self.define(v, lane);
            }
        }
        Ok(())
    }

    fn node(&mut self, node: &Node, lanes: &[Lane<'g>]) -> Result<Vec<Lane<'g>>, VmapError> {
        let mapped = lanes.iter().any(|l| l.mapped);
        match &node.regions[..] {
            [] => {}
            // What is shared is copied; a call's region takes what the call takes.
            [region] if !mapped || matches!(node.op, Op::Call(_)) => {
                return self.region(node, region, lanes, mapped);
            }
            [region] => match &node.op {
                Op::Scan(op) => return scan::scan(self, node, op, region, lanes),
                _ => return Err(self.no_rule(node)),
            },
            _ => return Err(self.no_rule(node)),
        }
        let lane = |tensor| Lane { tensor, mapped };
        if !mapped {
            let operands: Vec<_> = lanes.iter().map(|l| l.tensor).collect();
            return Ok(self.g.emit(node.op.clone(), &operands).into_iter().map(lane).collect());
        }
        let types: Vec<Type> = node.operands.iter().map(|v| self.graph.ty(*v).clone()).collect();
        let at = At { g: self.g, size: self.size, lanes, types: &types };
        match rules::rule(&node.op, self.size).apply(&at) {
            Some(results) => Ok(self.checked(node, results).into_iter().map(lane).collect()),
            None => self.apart(node, lanes, &types),
        }
    }

    /// A node with one region, which is mapped where its parameters are, and all its results with them.
    fn region(
        &mut self,
        node: &Node,
        region: &Region,
        lanes: &[Lane<'g>],
        mapped: bool,
    ) -> Result<Vec<Lane<'g>>, VmapError> {
        let operands: Vec<Tensor<'g>> = lanes.iter().map(|l| l.tensor).collect();
        let is_mapped = |i: usize| mapped && lanes.get(i).is_some_and(|l| l.mapped);
        let graph = self.graph;
        let ty = |(i, v): (usize, &ValueId)| {
            let Type { dtype, shape } = graph.ty(*v).clone();
            Type::new(dtype, if is_mapped(i) { leading(self.size, &shape) } else { shape })
        };
        let types: Vec<Type> = region.params.iter().enumerate().map(ty).collect();
        let mut inside = Ok(());
        let results = self.g.emit_with_region(node.op.clone(), &operands, &types, |params| {
            let params = params.iter().enumerate().map(|(i, p)| Lane { tensor: *p, mapped: is_mapped(i) });
            self.map.extend(region.params.iter().copied().zip(params));
            inside = self.nodes(region);
            let result = |v: &ValueId| {
                let lane = self.map.get(v)?;
                Some(if mapped { lane.wide(self.size) } else { lane.tensor })
            };
            region.results.iter().filter_map(result).collect()
        });
        inside?;
        Ok(results.into_iter().map(|tensor| Lane { tensor, mapped }).collect())
    }

    fn no_rule(&self, node: &Node) -> VmapError {
        let loc = self.loc.or(node.loc);
        let loc = loc.map_or_else(|| "an unknown line".to_string(), |l| l.to_string());
        VmapError::NoRule { op: node.op.rule().name().to_string(), loc }
    }

    /// Maps an op's decomposition.
    fn apart(&mut self, node: &Node, lanes: &[Lane<'g>], types: &[Type]) -> Result<Vec<Lane<'g>>, VmapError> {
        let loc = self.loc.or(node.loc);
        let h = GraphBuilder::new("decomposition");
        let operands = types.iter().enumerate().map(|(i, ty)| h.input(&i.to_string(), ty.dtype, &ty.shape));
        let operands: Vec<Tensor<'_>> = operands.collect();
        let Some(parts) = node.op.rule().decompose(&h, &operands) else {
            return Err(self.no_rule(node));
        };
        let parts: Vec<ValueId> = parts.iter().filter_map(|t| t.value()).collect();
        let graph = h.build()?;
        let map = graph.body.params.iter().copied().zip(lanes.iter().copied()).collect();
        let mut inner = Mapper { g: self.g, graph: &graph, size: self.size, map, loc, guard: None };
        inner.nodes(&graph.body)?;
        Ok(parts.iter().map(|v| Lane { tensor: inner.map[v].wide(self.size), mapped: true }).collect())
    }

    /// The results, if they are those of one member with the axis in front.
    fn checked(&self, node: &Node, results: Vec<Tensor<'g>>) -> Vec<Tensor<'g>> {
        let got: Vec<Option<Type>> = results.iter().map(|t| t.ty()).collect();
        let member = node.results.iter().map(|v| self.graph.ty(*v));
        let want: Vec<Option<Type>> =
            member.map(|ty| Some(Type::new(ty.dtype, leading(self.size, &ty.shape)))).collect();
        if got == want {
            return results;
        }
        if self.g.errors().is_empty() {
            let what = format!("the rule gives {got:?} in place of {want:?}");
            self.g.mistake(node.op.rule().name(), &[], Mistake::new(what, "a rule puts the axis in front"));
        }
        vec![]
    }

    fn interface(&self) -> Result<(), VmapError> {
        let (g, graph) = (self.g, self.graph);
        for o in &graph.outputs {
            g.output(&o.name, self.map[&o.value].wide(self.size));
        }
        let guard = graph.guard.map(|v| self.map[&v]);
        for u in &graph.updates {
            let port = &graph.states[u.state];
            let (state, value) = (self.map[&port.value], self.map[&u.value]);
            let own = guard.filter(|guard| u.guarded && guard.mapped);
            if !state.mapped {
                if value.mapped || own.is_some() {
                    return Err(VmapError::Shared { name: port.name.to_string() });
                }
                g.update(state.tensor, value.tensor, u.guarded);
                continue;
            }
            let value = value.wide(self.size);
            let Some(own) = own else {
                g.update(state.tensor, value, u.guarded);
                continue;
            };
            // The member's guard includes the graph's: it is asked once.
            let loc = graph.def(u.value).and_then(|n| n.loc);
            let value = g.at(loc, || {
                let column = Shape([vec![self.size.into()], vec![1.into(); value.rank() - 1]].concat());
                own.tensor.reshape(column).select(value, state.tensor)
            });
            g.update(state.tensor, value, false);
        }
        if let Some(guard) = self.guard.or(guard.map(|lane| lane.tensor)) {
            g.set_guard(guard);
        }
        Ok(())
    }
}
