//! Outlining, the opposite of inlining: nodes of the body become the region of one call.

use crate::ops::Call;
use crate::{Def, Graph, Node, NodeId, Op, Region, ValueId};
use std::collections::{HashMap, HashSet};

/// Makes one call of those of `nodes` that stand in the body, where nothing else may stand between them, and gives the
/// call's node; `None` (and no change) where nothing outside uses what they compute.
///
/// The values that are used outside keep their numbers, as results of the call. Numbers and indices that the nodes take from
/// outside are copied into the region, since they cost nothing; all else is an operand.
pub fn outline(graph: &mut Graph, nodes: &HashSet<NodeId>, call: Call) -> Option<NodeId> {
    let place = graph.body.nodes.iter().position(|n| nodes.contains(n))?;
    let chosen: Vec<NodeId> =
        graph.body.nodes[place..].iter().copied().take_while(|n| nodes.contains(n)).collect();
    let inside: HashSet<ValueId> = chosen.iter().flat_map(|n| &graph.node(*n).results).copied().collect();
    let rest = graph.body.nodes.iter().filter(|n| !nodes.contains(n));
    let used: HashSet<ValueId> =
        rest.flat_map(|n| &graph.node(*n).operands).copied().chain(graph.roots()).collect();
    let results: Vec<ValueId> =
        (chosen.iter().flat_map(|n| &graph.node(*n).results)).copied().filter(|v| used.contains(v)).collect();
    if results.is_empty() {
        return None;
    }

    let mut region = Region::default();
    let mut operands = vec![];
    // By the value outside: what stands for it in the region.
    let mut map: HashMap<ValueId, ValueId> = HashMap::new();
    for &n in &chosen {
        for v in graph.node(n).operands.clone() {
            if inside.contains(&v) || map.contains_key(&v) {
                continue;
            }
            let ty = graph.ty(v).clone();
            let stands = match graph.def(v).filter(|node| is_free(&node.op)) {
                Some(node) => {
                    let copy = NodeId(graph.nodes.len() as u32);
                    let (op, loc) = (node.op.clone(), node.loc);
                    let value = graph.add_value(ty, Def::Node(copy, 0));
                    let node = Node { op, operands: vec![], results: vec![value], regions: vec![], loc };
                    graph.nodes.push(node);
                    region.nodes.push(copy);
                    value
                }
                None => {
                    let param = graph.add_value(ty, Def::Param);
                    region.params.push(param);
                    operands.push(v);
                    param
                }
            };
            map.insert(v, stands);
        }
    }
    let id = NodeId(graph.nodes.len() as u32);
    for (i, &v) in (0..).zip(&results) {
        let (ty, def) = (graph.ty(v).clone(), graph.values[v.index()].def);
        let inner = graph.add_value(ty, def);
        graph.values[v.index()].def = Def::Node(id, i);
        map.insert(v, inner);
        region.results.push(inner);
    }
    for &n in &chosen {
        let node = &mut graph.nodes[n.index()];
        let stand = |v: &mut ValueId| *v = map.get(v).copied().unwrap_or(*v);
        node.operands.iter_mut().for_each(stand);
        node.results.iter_mut().for_each(stand);
    }
    let loc = graph.node(chosen[0]).loc;
    region.nodes.extend(&chosen);
    let end = place + chosen.len();
    graph.body.nodes.splice(place..end, [id]);
    graph.nodes.push(Node { op: Op::Call(call), operands, results, regions: vec![region], loc });
    Some(id)
}

/// Whether the op is a number or an index, which a kernel writes rather than reads.
fn is_free(op: &Op) -> bool {
    match op {
        Op::Constant(c) => c.value.shape().is_empty(),
        Op::Iota(_) => true,
        _ => false,
    }
}
