//! Removal of dead code: what reaches neither an output, an update nor the guard. Of a scan, each carry, output, sequence
//! and constant goes alone: an output that nobody reads, a carry that nothing but itself depends on, and what the region
//! then does not use.

use crate::ops::Scan;
use crate::rewrite::interface;
use crate::{Def, Graph, Node, NodeId, Op, Port, Region, Update, ValueId};
use std::collections::HashMap;

/// The graph without the nodes that reach neither an output, an update nor the guard; inputs and states stay. Values
/// and nodes are numbered anew, in order.
pub fn eliminate_dead(graph: &Graph) -> Graph {
    let mut live = vec![false; graph.values.len()];
    for v in graph.roots() {
        live[v.index()] = true;
    }
    // A carry that turns out to be needed may need others: again, until nothing more is.
    let count = |live: &[bool]| live.iter().filter(|l| **l).count();
    let mut before = 0;
    while before < count(&live) {
        before = count(&live);
        mark(graph, &graph.body, &mut live);
    }
    let out = interface(graph);
    let map = graph.body.params.iter().copied().zip(out.body.params.iter().copied()).collect();
    let mut sweep = Sweep { graph, live: &live, map, out };
    let nodes = sweep.nodes(&graph.body);
    let Sweep { map, mut out, .. } = sweep;
    out.body.nodes = nodes;
    out.outputs = graph.outputs.iter().map(|o| Port { name: o.name.clone(), value: map[&o.value] }).collect();
    out.updates = graph.updates.iter().map(|u| Update { value: map[&u.value], ..*u }).collect();
    out.guard = graph.guard.map(|v| map[&v]);
    out
}

/// A nested region as a graph of its own, without an interface: its parameters are the body's, which has results. Values
/// and nodes are numbered anew, in order.
pub fn region_graph(graph: &Graph, region: &Region) -> Graph {
    let live = vec![true; graph.values.len()];
    let mut sweep = Sweep { graph, live: &live, map: HashMap::new(), out: Graph::default() };
    let body = sweep.region(region);
    Graph { body, ..sweep.out }
}

/// Marks what the marked values of a region are computed from.
fn mark(graph: &Graph, region: &Region, live: &mut [bool]) {
    for id in region.nodes.iter().rev() {
        let node = graph.node(*id);
        if !node.results.iter().any(|v| live[v.index()]) {
            continue;
        }
        match (&node.op, &node.regions[..]) {
            (Op::Scan(scan), [inner]) => mark_scan(graph, scan, node, inner, live),
            (_, regions) => {
                node.operands.iter().for_each(|v| live[v.index()] = true);
                for inner in regions {
                    inner.results.iter().for_each(|v| live[v.index()] = true);
                    mark(graph, inner, live);
                }
            }
        }
    }
}

/// A carry is needed when its last value is, or when an iteration uses it: the next walk goes on from there.
fn mark_scan(graph: &Graph, scan: &Scan, node: &Node, region: &Region, live: &mut [bool]) {
    for (i, (inner, outer)) in region.results.iter().zip(&node.results).enumerate() {
        if live[outer.index()] || i < scan.carries && live[region.params[i].index()] {
            live[inner.index()] = true;
        }
    }
    mark(graph, region, live);
    for (i, (param, operand)) in region.params.iter().zip(&node.operands).enumerate() {
        if live[param.index()] || i < scan.carries && live[node.results[i].index()] {
            live[operand.index()] = true;
        }
    }
}

struct Sweep<'a> {
    graph: &'a Graph,
    live: &'a [bool],
    map: HashMap<ValueId, ValueId>,
    out: Graph,
}

impl Sweep<'_> {
    fn is_live(&self, v: ValueId) -> bool {
        self.live[v.index()]
    }

    fn all(&self, values: &[ValueId]) -> Vec<ValueId> {
        values.iter().map(|v| self.map[v]).collect()
    }

    /// Copies a region with its parameters, live nodes and results.
    fn region(&mut self, region: &Region) -> Region {
        let mut params = vec![];
        for &v in &region.params {
            let param = self.out.add_value(self.graph.ty(v).clone(), Def::Param);
            self.map.insert(v, param);
            params.push(param);
        }
        Region { params, nodes: self.nodes(region), results: self.all(&region.results) }
    }

    /// Copies the live nodes of a region, and gives their numbers.
    fn nodes(&mut self, region: &Region) -> Vec<NodeId> {
        let graph = self.graph;
        let mut nodes = vec![];
        for id in &region.nodes {
            let node = graph.node(*id);
            if !node.results.iter().any(|v| self.is_live(*v)) {
                continue;
            }
            let reduced;
            let node = match (&node.op, &node.regions[..]) {
                (Op::Scan(scan), [inner]) => {
                    reduced = self.reduced(scan, node, inner);
                    &reduced
                }
                _ => node,
            };
            let regions = node.regions.iter().map(|inner| self.region(inner)).collect();
            let new = NodeId(self.out.nodes.len() as u32);
            let mut results = vec![];
            for (i, &v) in (0..).zip(&node.results) {
                let result = self.out.add_value(graph.ty(v).clone(), Def::Node(new, i));
                self.map.insert(v, result);
                results.push(result);
            }
            let operands = self.all(&node.operands);
            self.out.nodes.push(Node { op: node.op.clone(), operands, results, regions, loc: node.loc });
            nodes.push(new);
        }
        nodes
    }

    /// A scan without its dead carries, outputs, sequences and constants.
    fn reduced(&self, scan: &Scan, node: &Node, region: &Region) -> Node {
        let is_carry = |i: usize| self.is_live(region.params[i]) || self.is_live(node.results[i]);
        let (carries, sequences) = (scan.carries, scan.carries + scan.sequences);
        let takes = |i: &usize| if *i < carries { is_carry(*i) } else { self.is_live(region.params[*i]) };
        let gives = |i: &usize| if *i < carries { is_carry(*i) } else { self.is_live(node.results[*i]) };
        let taken: Vec<usize> = (0..node.operands.len()).filter(takes).collect();
        let given: Vec<usize> = (0..node.results.len()).filter(gives).collect();
        let pick = |from: &[ValueId], which: &[usize]| which.iter().map(|&i| from[i]).collect::<Vec<_>>();
        let count = |range: std::ops::Range<usize>| taken.iter().filter(|i| range.contains(i)).count();
        let op = Scan { carries: count(0..carries), sequences: count(carries..sequences), ..scan.clone() };
        let inner = Region {
            params: pick(&region.params, &taken),
            nodes: region.nodes.clone(),
            results: pick(&region.results, &given),
        };
        Node {
            op: op.into(),
            operands: pick(&node.operands, &taken),
            results: pick(&node.results, &given),
            regions: vec![inner],
            loc: node.loc,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, GraphBuilder, Init, Role, ScanOptions, dim};

    #[test]
    fn dead_nodes_go() {
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
        let a = g.finish(loss).unwrap();
        let b = eliminate_dead(&a);
        assert_eq!(b.nodes.len() + 2, a.nodes.len());
        assert!(b.nodes.iter().all(|n| !["exp", "log"].contains(&n.op.rule().name())));
        assert_eq!((b.inputs.len(), b.states.len(), b.updates.len()), (1, 2, 2));
        let uses = b.uses();
        assert!(b.nodes.iter().flat_map(|n| &n.results).all(|v| uses[v.index()] > 0));
    }

    /// Three carries: `a` is read, `b` feeds `a`, `c` only itself. One output of two is read; one sequence feeds `c`.
    #[test]
    fn parts_of_a_scan_go() {
        let g = GraphBuilder::new("parts");
        let inputs: Vec<_> = (0..6)
            .map(|i| {
                if i < 3 {
                    g.input(&format!("c{i}"), DType::F32, [2])
                } else {
                    g.input(&format!("x{i}"), DType::F32, [5, 2])
                }
            })
            .collect();
        let (k, unused) = (g.input("k", DType::F32, [2]), g.input("unused", DType::F32, [2]));
        let s = g.scan(&inputs[..3], &inputs[3..], ScanOptions::default(), |c, x| {
            let a = c[0] * k + c[1];
            (vec![a, c[1] + x[0], c[2] * unused + x[1]], vec![a + x[2], c[2].exp()])
        });
        g.output("a", s.carries[0]);
        g.output("y", s.outputs[0]);
        let graph = eliminate_dead(&g.build().unwrap());
        graph.verify().unwrap();
        let node = graph.body_nodes().next().unwrap();
        let Op::Scan(scan) = &node.op else { panic!("{graph}") };
        assert_eq!(
            (scan.carries, scan.sequences, node.operands.len(), node.results.len()),
            (2, 2, 5, 3),
            "{graph}"
        );
        assert!(graph.nodes.iter().all(|n| n.op.rule().name() != "exp"));
    }
}
