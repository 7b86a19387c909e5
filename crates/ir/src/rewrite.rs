//! The one way in which passes rebuild a graph: node by node into a new graph, so that nothing is edited in place
//! and every shape is inferred again.
//!
//! A rewrite keeps the interface (name, dimensions, inputs, states, outputs, updates, guard), the source lines, and
//! the type of every value that it replaces.

use crate::{
    DType, Def, Graph, GraphBuilder, GraphError, Mistake, Node, Port, Region, StatePort, Tensor, Type,
    ValueId,
};
use std::collections::HashMap;

pub use crate::dead::{eliminate_dead, region_graph};

/// What a rewrite does with one node: given the new builder, the old node and its new operands, it gives the handles
/// that replace the node's results, or `None` to copy the node.
pub type Rule<'r> = dyn for<'g> FnMut(&'g GraphBuilder, &Node, &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> + 'r;

/// Rebuilds `graph` node by node; for each node, also in nested regions, `rule` may give replacements. A node is
/// offered to the rule before its regions are; when the rule replaces it, its regions go with it.
pub fn rewrite(graph: &Graph, rule: &mut Rule<'_>) -> Result<Graph, GraphError> {
    rebuilt(graph, interface(graph), rule, &|_, _, new| new)
}

/// How a new value is written to a state that is kept in another dtype: given that state as it was, the value in that dtype.
pub type Write<'w> = dyn for<'g> Fn(&'g GraphBuilder, &StatePort, Tensor<'g>) -> Tensor<'g> + 'w;

/// The same graph with each state in the dtype that `dtype` gives for it, or its own where that is `None`. It is cast where it
/// is read, so that what is computed keeps its dtypes; `write` gives what is written to one that has another dtype now.
pub fn store_states(
    graph: &Graph,
    dtype: &dyn Fn(&StatePort) -> Option<DType>,
    write: &Write<'_>,
) -> Result<Graph, GraphError> {
    let mut interface = interface(graph);
    for (old, new) in graph.states.iter().zip(&interface.states) {
        let ty = &mut interface.values[new.value.index()].ty;
        ty.dtype = dtype(old).unwrap_or(ty.dtype);
    }
    rebuilt(graph, interface, &mut |_, _, _| None, write)
}

/// The nodes of `graph` between the inputs and states of `interface`, whose dtypes may differ.
fn rebuilt(
    graph: &Graph,
    interface: Graph,
    rule: &mut Rule<'_>,
    write: &Write<'_>,
) -> Result<Graph, GraphError> {
    let params = interface.body.params.clone();
    let states: Vec<ValueId> = interface.states.iter().map(|s| s.value).collect();
    let g = GraphBuilder::edit(interface);
    let mut copy = Copier { g: &g, graph, rule, map: HashMap::new() };
    for (old, new) in graph.body.params.iter().zip(params) {
        let read = g.at(None, || g.tensor(new).cast(graph.ty(*old).dtype));
        copy.map.insert(*old, read);
    }
    copy.nodes(&graph.body);
    let map = copy.map;
    for o in &graph.outputs {
        g.output(&o.name, map[&o.value]);
    }
    for u in &graph.updates {
        let (state, new) = (g.tensor(states[u.state]), map[&u.value]);
        let loc = graph.def(u.value).and_then(|n| n.loc);
        let same = new.value().is_none() || state.dtype() == new.dtype();
        let new = if same { new } else { g.at(loc, || write(&g, &graph.states[u.state], new)) };
        g.update(state, new, u.guarded);
    }
    if let Some(guard) = graph.guard {
        g.set_guard(map[&guard]);
    }
    g.build()
}

/// Copies the nodes of a region of `graph` into `g`, with `args` for its parameters and `rule` applied to each node,
/// and gives the region's results: what inlining and the derivatives of ops with regions are made of.
pub fn splice<'g>(
    g: &'g GraphBuilder,
    graph: &Graph,
    region: &Region,
    args: &[Tensor<'g>],
    rule: &mut Rule<'_>,
) -> Vec<Tensor<'g>> {
    let mut copy = Copier { g, graph, rule, map: HashMap::new() };
    copy.map.extend(region.params.iter().copied().zip(args.iter().copied()));
    copy.nodes(region);
    copy.all(&region.results)
}

/// A graph without nodes that has the dimensions, inputs and states of `graph`.
pub(crate) fn interface(graph: &Graph) -> Graph {
    let mut out = Graph { name: graph.name.clone(), dims: graph.dims.clone(), ..Graph::default() };
    let mut map = HashMap::new();
    for &v in &graph.body.params {
        let new = out.add_value(graph.ty(v).clone(), Def::Param);
        out.body.params.push(new);
        map.insert(v, new);
    }
    out.inputs = graph.inputs.iter().map(|p| Port { name: p.name.clone(), value: map[&p.value] }).collect();
    out.states = graph.states.iter().map(|s| StatePort { value: map[&s.value], ..s.clone() }).collect();
    out
}

struct Copier<'a, 'r, 'g> {
    g: &'g GraphBuilder,
    graph: &'a Graph,
    rule: &'a mut Rule<'r>,
    /// The new handle of each old value met so far.
    map: HashMap<ValueId, Tensor<'g>>,
}

impl<'g> Copier<'_, '_, 'g> {
    fn all(&self, values: &[ValueId]) -> Vec<Tensor<'g>> {
        values.iter().map(|v| self.map[v]).collect()
    }

    fn nodes(&mut self, region: &Region) {
        let graph = self.graph;
        for id in &region.nodes {
            let node = graph.node(*id);
            let operands = self.all(&node.operands);
            let g = self.g;
            let mut new = g.at(node.loc, || match (self.rule)(g, node, &operands) {
                Some(new) => self.checked(node, new),
                None => self.copy(node, &operands),
            });
            // What is missing is poisoned, with its mistake on record.
            let poison = g.poison();
            new.resize(node.results.len(), poison);
            self.map.extend(node.results.iter().copied().zip(new));
        }
    }

    fn copy(&mut self, node: &Node, operands: &[Tensor<'g>]) -> Vec<Tensor<'g>> {
        let (g, name) = (self.g, node.op.rule().name());
        let mut regions = vec![];
        for region in &node.regions {
            let types: Vec<Type> = region.params.iter().map(|v| self.graph.ty(*v).clone()).collect();
            let params = g.open_region(&types);
            self.map.extend(region.params.iter().copied().zip(params));
            self.nodes(region);
            match g.close_region(name, &self.all(&region.results)) {
                Some(region) => regions.push(region),
                None => return vec![],
            }
        }
        g.emit_regions(node.op.clone(), operands, regions)
    }

    /// The replacements, if they may stand for the node's results.
    fn checked(&self, node: &Node, new: Vec<Tensor<'g>>) -> Vec<Tensor<'g>> {
        let poisoned = new.iter().any(|t| t.value().is_none()) && !self.g.errors().is_empty();
        let got: Vec<Type> = new.iter().filter_map(|t| t.ty()).collect();
        let want: Vec<Type> = node.results.iter().map(|v| self.graph.ty(*v).clone()).collect();
        if poisoned || got == want {
            return new;
        }
        let list = |types: &[Type]| types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
        let what = format!("the rewrite gives ({}) in place of ({})", list(&got), list(&want));
        let mistake = Mistake::new(what, "a rewrite keeps the number and the types of the results");
        vec![self.g.mistake(node.op.rule().name(), &[], mistake)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Binary, BinaryKind};
    use crate::{DType, Init, Op, Role, dim};

    fn sample() -> Graph {
        let g = GraphBuilder::new("sample");
        let x = g.input("x", DType::F32, (dim("B").at_most(8), 3));
        let w = g.parameter("w", &[3], Init::ONES);
        let n = g.state("n", Role::Scalar, DType::I32, &[], Init::ZEROS);
        let y = x * w;
        let _dead = y.exp().log();
        let loss = y.square().sum_all();
        g.update(w, w - 0.5, true);
        g.update(n, n + 1.0, false);
        g.set_guard(loss.is_finite());
        g.finish(loss).unwrap()
    }

    #[test]
    fn copying_keeps_everything() {
        let a = sample();
        let b = rewrite(&a, &mut |_, _, _| None).unwrap();
        assert_eq!(a.values, b.values);
        assert_eq!(a.body.nodes, b.body.nodes);
        assert_eq!((&a.inputs, &a.states, &a.outputs), (&b.inputs, &b.states, &b.outputs));
        assert_eq!((&a.updates, a.guard, &a.dims, &a.name), (&b.updates, b.guard, &b.dims, &b.name));
        for (a, b) in a.nodes.iter().zip(&b.nodes) {
            assert_eq!((&a.op, &a.operands, &a.results, a.loc), (&b.op, &b.operands, &b.results, b.loc));
        }
    }

    #[test]
    fn a_rule_replaces_nodes_and_keeps_the_users_line() {
        let a = sample();
        let mul = Op::from(Binary { kind: BinaryKind::Mul });
        let b = rewrite(&a, &mut |_, node, x| {
            (node.op == mul).then(|| vec![(x[0].abs().log() + x[1].abs().log()).exp()])
        })
        .unwrap();
        assert!(b.nodes.iter().all(|n| n.op != mul));
        let line = a.nodes.iter().find(|n| n.op == mul).unwrap().loc;
        let replaced = 6;
        let broadcast = 1;
        assert_eq!(b.nodes.iter().filter(|n| n.loc == line).count(), replaced + broadcast);
    }

    #[test]
    fn a_rule_may_not_change_types() {
        let error = rewrite(&sample(), &mut |_, node, x| {
            (node.op.rule().name() == "exp").then(|| vec![x[0].sum_all()])
        });
        let text = error.unwrap_err().to_string();
        assert!(text.contains("gives (f32[]) in place of (f32[B, 3])"), "{text}");
    }
}
