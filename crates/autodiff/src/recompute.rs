//! Recomputation that nobody marked: the forward pass in segments, each of which becomes a checkpoint.
//!
//! A segment's inner values are not kept for the backward pass, which computes them again when it gets there; what is
//! kept is what crosses a border between segments. With `n` values of one size in `√n` segments that is about `2√n`
//! of them (Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016).
//!
//! Before that comes what costs next to nothing: an activation or a norm whose result a product reads. The gradient of either
//! needs what it was computed from, so that its result need not be kept beside it for the gradient of the product.

use onestep_ir::ops::{Call, Unary, UnaryKind};
use onestep_ir::{Def, Graph, Node, NodeId, Op, ValueId, outline};
use std::collections::{HashMap, HashSet};

/// The forward graph in `segments` parts of about equal memory, the first `recomputed` of which are checkpoints. The last part
/// is better left as it is: the backward pass begins there. `graph` has no unbound dimension.
///
/// The borders are where few bytes cross.
pub fn segmented(graph: &Graph, segments: usize, recomputed: usize) -> Graph {
    let nodes: Vec<NodeId> = graph.body.nodes.clone();
    let mut borders = vec![0];
    borders.extend(cuts(graph, segments));
    borders.push(nodes.len());
    let mut out = graph.clone();
    for (i, ends) in borders.windows(2).take(recomputed).enumerate() {
        let part: HashSet<NodeId> = nodes[ends[0]..ends[1]].iter().copied().collect();
        outline(&mut out, &part, Call::checkpoint(&format!("segment.{i}")));
    }
    out
}

/// The forward graph with the first `most` of its activations and norms as checkpoints, each with what leads to it from the product
/// before and with the products that read it; and how many there are in all. What is computed again ends with what those products
/// read, since the gradient of a product does not ask for its result. `graph` has no unbound dimension.
pub fn activations_again(graph: &Graph, most: usize) -> (Graph, usize) {
    let (mut out, mut found) = (graph.clone(), 0);
    let uses = graph.uses();
    let mut readers: HashMap<ValueId, Vec<NodeId>> = HashMap::new();
    for &id in graph.body.nodes.iter().filter(|id| is_product(&graph.node(**id).op)) {
        graph.node(id).operands.iter().for_each(|v| readers.entry(*v).or_default().push(id));
    }
    let mut taken = HashSet::new();
    for &id in &graph.body.nodes {
        let Some(&read) = graph.node(id).results.first() else { continue };
        let products = readers.get(&read).filter(|r| r.len() == uses[read.index()]);
        let Some(mut part) = products.and_then(|_| activation(graph, &uses, id)) else { continue };
        part.extend(products.into_iter().flatten());
        let Some(body) = side_by_side(&out, &part).filter(|_| part.is_disjoint(&taken)) else { continue };
        found += 1;
        if found <= most {
            out.body.nodes = body;
            outline(&mut out, &part, Call::checkpoint(&format!("activation.{found}")));
        }
        taken.extend(part);
    }
    (out, found)
}

/// A node with those that lead to it alone from results of products and the like, if there is an activation or a norm among them.
fn activation(graph: &Graph, uses: &[usize], id: NodeId) -> Option<HashSet<NodeId>> {
    if !is_light(&graph.node(id).op) {
        return None;
    }
    let (mut part, mut stack) = (HashSet::from([id]), vec![id]);
    while let Some(n) = stack.pop() {
        for &v in &graph.node(n).operands {
            let Def::Node(from, _) = graph.values[v.index()].def else { continue };
            if uses[v.index()] == 1 && is_light(&graph.node(from).op) && part.insert(from) {
                stack.push(from);
            }
        }
    }
    part.iter().any(|n| is_activation(&graph.node(*n).op)).then_some(part)
}

/// The body in an order in which the nodes of a part stand together, where the first product among them was. None if a product
/// waits for another one's result.
fn side_by_side(graph: &Graph, part: &HashSet<NodeId>) -> Option<Vec<NodeId>> {
    let body = &graph.body.nodes;
    let first = body.iter().position(|n| part.contains(n) && is_product(&graph.node(*n).op))?;
    let end = body.iter().rposition(|n| part.contains(n))? + 1;
    let results = |n: &NodeId| graph.node(*n).results.iter().copied();
    let of_part: HashSet<ValueId> = part.iter().flat_map(results).collect();
    let mut wanted: HashSet<ValueId> =
        part.iter().flat_map(|n| graph.node(*n).operands.iter().copied()).collect();
    // What the later products read comes before them all.
    let mut before = HashSet::new();
    for n in body[first..end].iter().rev().filter(|n| !part.contains(n)) {
        if results(n).any(|v| wanted.contains(&v)) {
            let operands = &graph.node(*n).operands;
            if operands.iter().any(|v| of_part.contains(v)) {
                return None;
            }
            wanted.extend(operands);
            before.insert(*n);
        }
    }
    let (head, rest) = body.split_at(first);
    let others = |n: &&NodeId| !part.contains(n);
    let order = head.iter().filter(others).chain(rest.iter().filter(|n| before.contains(n)));
    let order = order.chain(body.iter().filter(|n| part.contains(n)));
    Some(order.chain(rest.iter().filter(others).filter(|n| !before.contains(n))).copied().collect())
}

/// Products, whose gradients need their operands alone.
fn is_product(op: &Op) -> bool {
    matches!(op, Op::Matmul(_) | Op::Convolution(_))
}

/// Whether the op's result can be had again for about the time of writing it.
fn is_light(op: &Op) -> bool {
    is_activation(op)
        || matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Cast(_) | Op::Reshape(_) | Op::Transpose(_))
        || matches!(op, Op::Broadcast(_) | Op::Slice(_) | Op::Compare(_) | Op::Select(_) | Op::Dropout(_))
}

/// Whether the op's gradient needs its operand.
fn is_activation(op: &Op) -> bool {
    match op {
        Op::Gelu(_) | Op::Silu(_) | Op::LayerNorm(_) | Op::RmsNorm(_) => true,
        Op::Unary(Unary { kind }) => *kind != UnaryKind::Neg,
        _ => false,
    }
}

/// Bytes of a node's results that a kernel has to write; numbers, indices and other ways to read an operand are free.
fn bytes(graph: &Graph, node: &Node) -> usize {
    match node.op {
        Op::Constant(_)
        | Op::Iota(_)
        | Op::Reshape(_)
        | Op::Transpose(_)
        | Op::Broadcast(_)
        | Op::Slice(_) => 0,
        _ => node.results.iter().map(|v| graph.ty(*v).numel() * graph.ty(*v).dtype.size()).sum(),
    }
}

/// The places of the body at which to cut it into `segments` parts: before these nodes.
fn cuts(graph: &Graph, segments: usize) -> Vec<usize> {
    let nodes: Vec<&Node> = graph.body_nodes().collect();
    let mut last_use = vec![0; graph.values.len()];
    for (at, node) in nodes.iter().enumerate() {
        node.operands.iter().for_each(|v| last_use[v.index()] = at);
    }
    graph.roots().for_each(|v: ValueId| last_use[v.index()] = nodes.len());
    // Before each node: the bytes computed so far, and those of them that are still needed.
    let (mut done, mut live) = (0, 0);
    let mut ends: Vec<Vec<usize>> = vec![vec![]; nodes.len() + 1];
    let mut before = vec![];
    for (at, node) in nodes.iter().enumerate() {
        before.push((done, live));
        let own = bytes(graph, node);
        done += own;
        live += own;
        let last = node.results.iter().map(|v| last_use[v.index()]).max().unwrap_or(at).max(at);
        ends[last].push(own);
        live -= ends[at].iter().sum::<usize>();
    }
    let mut cuts: Vec<usize> = vec![];
    for k in 1..segments {
        let target = (done as u128 * k as u128 / segments as u128) as usize;
        let reach = done / segments / 2;
        let from = cuts.last().map_or(1, |c| c + 1);
        let near = (from..nodes.len()).filter(|&at| before[at].0.abs_diff(target) <= reach);
        cuts.extend(near.min_by_key(|&at| (before[at].1, before[at].0.abs_diff(target))));
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;
    use onestep_ir::{DType, GraphBuilder, Init, Tensor};

    /// Blocks that widen and narrow again.
    fn deep(blocks: usize) -> Graph {
        let g = GraphBuilder::new("deep");
        let mut x = g.input("x", DType::F32, [16, 4]);
        for i in 0..blocks {
            let w = |side: &str, shape| g.parameter(&format!("{i}.{side}"), shape, Init::ONES);
            let wide: Tensor<'_> = x.matmul(w("up", &[4, 64])).tanh();
            x = x + wide.exp().matmul(w("down", &[64, 4]));
        }
        g.finish(x.sum_all()).unwrap()
    }

    #[test]
    fn segments_are_cut_where_little_crosses() {
        let graph = deep(8);
        for segments in [2, 4, 8] {
            let cut = segmented(&graph, segments, segments);
            cut.verify().unwrap();
            let calls: Vec<&Node> = cut.body_nodes().filter(|n| matches!(n.op, Op::Call(_))).collect();
            assert_eq!(calls.len(), segments);
            // Between blocks only `x` crosses: a call takes it and two parameters for each of its blocks.
            for call in &calls {
                assert_eq!(call.results.len(), 1, "{cut}");
                assert_eq!(call.operands.len(), 1 + 2 * 8 / segments, "{cut}");
            }
        }
    }

    #[test]
    fn activations_between_products_are_computed_again() {
        let graph = deep(3);
        // Of each block, `tanh` and `exp` are between the two products.
        for most in 0..5 {
            let (cut, found) = activations_again(&graph, most);
            cut.verify().unwrap();
            let calls = cut.body_nodes().filter(|n| matches!(n.op, Op::Call(_)));
            assert_eq!((calls.count(), found), (most.min(3), 3));
        }
    }

    #[test]
    fn any_number_of_segments_gives_a_graph_of_the_same_value() {
        let graph = deep(3);
        let x = onestep_ir::Array::new(&[16, 4], &[0.01f32; 64]).unwrap();
        let run = |g: &Graph| {
            let mut state = graph.states.iter().map(|s| (s.name.clone(), s)).fold(
                std::collections::BTreeMap::new(),
                |mut all, (name, s)| {
                    let sizes = graph.ty(s.value).sizes();
                    let n = sizes.iter().product();
                    all.insert(name, onestep_ir::Array::new(&sizes, &vec![0.1f32; n]).unwrap());
                    all
                },
            );
            onestep_ir::interp::run_arrays(g, std::slice::from_ref(&x), &mut state).unwrap()
        };
        let want = run(&graph);
        for most in 0..4 {
            assert_eq!(run(&activations_again(&graph, most).0), want, "{most}");
        }
        for segments in 1..40 {
            for recomputed in [segments / 2, segments] {
                let cut = segmented(&graph, segments, recomputed);
                cut.verify().unwrap();
                assert_eq!(run(&cut), want, "{segments} {recomputed}");
            }
        }
    }
}
