//! Pass `hoist`: of each scan, what does not change from iteration to iteration is taken out of it.
//!
//! - a carry that hands on its own value is a constant, and its last value is its first;
//! - what is computed from constants alone is computed once, before the scan, and is a constant of it; views of constants
//!   stay inside, where they cost nothing, and so do masks of positions, which cost less than to load;
//! - a constant that repeats one number goes the other way: inside, kernels have it for nothing.
//!
//! A scan of length 0 computes nothing that it would not have computed: ops are pure.

use onestep_ir::ops::{Constant, Scan};
use onestep_ir::rewrite::{rewrite, splice};
use onestep_ir::{Graph, GraphBuilder, GraphError, Node, Op, Region, Tensor, Type, ValueId};
use std::collections::{HashMap, HashSet};

/// Runs the pass to a fixed point: what leaves an inner scan may leave the one around it.
pub fn hoist(graph: &Graph) -> Result<Graph, GraphError> {
    let mut graph = graph.clone();
    loop {
        let mut changed = false;
        graph = rewrite(&graph, &mut |g, node, operands| {
            let new = scan(g, &graph, node, operands)?;
            changed = true;
            Some(new)
        })?;
        if !changed {
            return Ok(graph);
        }
    }
}

/// Where the value of a parameter of the new region comes from.
enum Inside {
    /// The next parameter.
    Param,
    /// A number, repeated.
    Splat(Constant),
}

fn scan<'g>(
    g: &'g GraphBuilder,
    graph: &Graph,
    node: &Node,
    operands: &[Tensor<'g>],
) -> Option<Vec<Tensor<'g>>> {
    let (Op::Scan(op), [region]) = (&node.op, &node.regions[..]) else { return None };
    let varying = op.carries + op.sequences;
    let stays = |i: usize| i < op.carries && region.results[i] == region.params[i];
    let fixed = |i: usize| i >= varying || stays(i);
    let invariant = invariants(graph, region, (0..operands.len()).filter(|&i| fixed(i)));
    let border = border(graph, region, &invariant);
    let splat = |t: &Tensor<'g>| {
        g.with_graph(|graph| match &graph.def(t.value()?)?.op {
            Op::Constant(c) if c.value.shape().is_empty() => Some(c.clone()),
            _ => None,
        })
    };
    let numbers: Vec<Option<Constant>> =
        operands.iter().enumerate().map(|(i, t)| splat(t).filter(|_| fixed(i))).collect();
    if border.is_empty() && numbers.iter().all(Option::is_none) && !(0..op.carries).any(stays) {
        return None;
    }

    // Outside: the invariant nodes that the others need, and what they need themselves.
    let mut outside: HashMap<ValueId, Tensor<'g>> =
        region.params.iter().copied().zip(operands.iter().copied()).collect();
    for inner in needed(graph, region, &invariant, &border) {
        let taken: Vec<Tensor<'g>> = inner.operands.iter().map(|v| outside[v]).collect();
        let given = g.at(inner.loc, || g.emit(inner.op.clone(), &taken));
        outside.extend(inner.results.iter().copied().zip(given));
    }

    // The new operands: carries, sequences, constants in their order, then what came out.
    let order = (0..operands.len()).filter(|&i| !fixed(i)).chain((0..operands.len()).filter(|&i| fixed(i)));
    let order: Vec<(usize, Inside)> =
        order.map(|i| (i, numbers[i].clone().map_or(Inside::Param, Inside::Splat))).collect();
    let mut given: Vec<Tensor<'g>> = vec![];
    let mut params: Vec<Type> = vec![];
    for (i, _) in order.iter().filter(|(_, inside)| matches!(inside, Inside::Param)) {
        given.push(operands[*i]);
        params.push(graph.ty(region.params[*i]).clone());
    }
    for v in &border {
        given.push(outside[v]);
        params.push(graph.ty(*v).clone());
    }
    let carries: Vec<usize> = (0..op.carries).filter(|&i| !stays(i)).collect();
    let leaner = Scan { carries: carries.len(), ..op.clone() };
    let kept: Vec<usize> = carries.iter().copied().chain(op.carries..node.results.len()).collect();
    if kept.is_empty() {
        return Some(operands[..op.carries].to_vec());
    }
    let results = g.emit_with_region(leaner, &given, &params, |p| {
        let mut p = p.iter().copied();
        let mut args = vec![None; operands.len()];
        for (i, inside) in &order {
            args[*i] = match inside {
                Inside::Param => p.next(),
                Inside::Splat(c) => Some(g.emit1(c.clone(), &[])),
            };
        }
        let args: Vec<Tensor<'g>> = args.into_iter().flatten().collect();
        let known: HashMap<ValueId, Option<ValueId>> =
            border.iter().copied().zip(p.map(|t| t.value())).collect();
        let all = splice(g, graph, region, &args, &mut |g, inner, _| {
            let here = |v: &ValueId| Some(g.tensor((*known.get(v)?)?));
            inner.results.iter().map(here).collect()
        });
        kept.iter().map(|&i| all[i]).collect()
    });
    let result = |i: usize| match kept.iter().position(|&k| k == i) {
        Some(at) => results.get(at).copied(),
        None => operands.get(i).copied(),
    };
    (0..node.results.len()).map(result).collect()
}

/// The values of a region that depend on its constants only: the parameters of these numbers, and what follows from them.
fn invariants(graph: &Graph, region: &Region, fixed: impl Iterator<Item = usize>) -> HashSet<ValueId> {
    let mut known: HashSet<ValueId> = fixed.map(|i| region.params[i]).collect();
    for node in region.nodes.iter().map(|n| graph.node(*n)) {
        if node.regions.is_empty() && node.operands.iter().all(|v| known.contains(v)) {
            known.extend(&node.results);
        }
    }
    known
}

/// The values of a region that are made of numbers and counts alone, by elementwise functions: a mask of positions. Kernels
/// compute them where they read them.
fn made_of_nothing(graph: &Graph, region: &Region) -> HashSet<ValueId> {
    let mut known = HashSet::new();
    for node in region.nodes.iter().map(|n| graph.node(*n)) {
        let elementwise = matches!(
            node.op,
            Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select(_) | Op::Cast(_) | Op::Bitcast(_)
        );
        if (elementwise || is_free(&node.op)) && node.operands.iter().all(|v| known.contains(v)) {
            known.extend(&node.results);
        }
    }
    known
}

/// Whether a kernel reads such a value for nothing, wherever it is defined.
fn is_free(op: &Op) -> bool {
    match op {
        Op::Constant(c) => c.value.shape().is_empty(),
        Op::Iota(_) | Op::Reshape(_) | Op::Transpose(_) | Op::Broadcast(_) | Op::Slice(_) => true,
        Op::Reverse(_) => true,
        Op::Pad(p) => p.interior == 0,
        _ => false,
    }
}

/// The invariant values that take work and that something read which stays inside, in their order.
fn border(graph: &Graph, region: &Region, invariant: &HashSet<ValueId>) -> Vec<ValueId> {
    let nodes = || region.nodes.iter().map(|n| graph.node(*n));
    let nothing = made_of_nothing(graph, region);
    let works = |n: &Node| !is_free(&n.op) && !n.results.iter().any(|v| nothing.contains(v));
    let leaves = |n: &Node| n.results.iter().all(|v| invariant.contains(v)) && works(n);
    let mut read: HashSet<ValueId> = region.results.iter().copied().collect();
    nodes().filter(|n| !leaves(n)).for_each(|n| read.extend(&n.operands));
    let is_read = |n: &&Node| leaves(n) && n.results.iter().any(|v| read.contains(v));
    nodes().filter(is_read).flat_map(|n| &n.results).copied().collect()
}

/// The invariant nodes that these values are computed by, in their order.
fn needed<'a>(
    graph: &'a Graph,
    region: &'a Region,
    invariant: &HashSet<ValueId>,
    values: &[ValueId],
) -> Vec<&'a Node> {
    let mut wanted: HashSet<ValueId> = values.iter().copied().collect();
    let mut out: Vec<&Node> = vec![];
    for node in region.nodes.iter().rev().map(|n| graph.node(*n)) {
        if node.results.iter().any(|v| wanted.contains(v) && invariant.contains(v)) {
            wanted.extend(&node.operands);
            out.push(node);
        }
    }
    out.reverse();
    out
}
