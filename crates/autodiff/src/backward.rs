//! The sweep: from the outputs back to the wanted values, visiting only the nodes between.
//!
//! 1. `Path::find` walks back from the outputs (float operands only) and then forward again, to keep the nodes that
//!    lie between a wanted value and an output.
//! 2. The kept nodes are visited in reverse order. Each one's rule turns the cotangents of its results into those of
//!    its operands, which are added to what other uses gave.
//!
//! A wanted value on a path whose every cotangent is an exact zero (behind `floor`, say) gets zeros; one that is on no
//! path gets `None`.

use crate::AutodiffError;
use crate::rules::{At, Rule, rule, scan};
use crate::sums::Sums;
use onestep_ir::ops::{Backward, Barrier};
use onestep_ir::rewrite::splice;
use onestep_ir::{
    Def, Graph, GraphBuilder, GraphError, Loc, Node, NodeId, Op, OpRule, Tensor, Type, ValueId,
};
use std::cell::OnceCell;
use std::collections::HashSet;

/// How far a sweep goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Through wanted values, to those that they depend on: total derivatives.
    Whole,
    /// Not beyond a wanted value: the derivative of what was built on top of them, such as a decomposition.
    UpToWanted,
}

/// The type of a value that takes part in differentiation, or what is wrong with it.
pub(crate) fn check(what: &str, g: &GraphBuilder, t: Tensor<'_>) -> Result<Type, AutodiffError> {
    if !std::ptr::eq(t.graph(), g) {
        return Err(AutodiffError::Foreign { what: what.to_string() });
    }
    match t.ty() {
        None => Err(GraphError::Build(g.errors()).into()),
        Some(ty) if !ty.dtype.is_float() => {
            Err(AutodiffError::NotFloat { what: what.to_string(), ty: Box::new(ty) })
        }
        Some(ty) => Ok(ty),
    }
}

/// A node as the sweep needs it, copied out of the graph that grows meanwhile.
pub(crate) struct Step {
    pub node: NodeId,
    pub op: Op,
    pub operands: Vec<ValueId>,
    pub results: Vec<ValueId>,
    pub loc: Option<Loc>,
}

impl Step {
    pub fn line(&self) -> String {
        self.loc.map_or_else(|| "an unknown line".into(), |l| l.to_string())
    }
}

/// The nodes between wanted values and outputs, in an order in which each stands after those it uses, and the values
/// that depend on a wanted one.
pub(crate) struct Path {
    pub steps: Vec<Step>,
    pub live: HashSet<ValueId>,
}

impl Path {
    pub fn find(graph: &Graph, outputs: &[ValueId], wrt: &[ValueId], extent: Extent) -> Path {
        let mut live: HashSet<ValueId> = wrt.iter().copied().collect();
        let stop = if extent == Extent::UpToWanted { live.clone() } else { HashSet::new() };
        let mut steps = vec![];
        for id in ancestors(graph, outputs, &stop) {
            let node = graph.node(id);
            let reached = node.operands.iter().any(|v| live.contains(v));
            if !reached || matches!(rule(&node.op), Rule::Ends(_)) {
                continue;
            }
            live.extend(node.results.iter().filter(|v| graph.ty(**v).dtype.is_float()));
            steps.push(Step {
                node: id,
                op: node.op.clone(),
                operands: node.operands.clone(),
                results: node.results.clone(),
                loc: node.loc,
            });
        }
        Path { steps, live }
    }
}

/// The nodes that `from` depends on through floats, operands before users. Values in `stop` are not passed.
fn ancestors(graph: &Graph, from: &[ValueId], stop: &HashSet<ValueId>) -> Vec<NodeId> {
    let node_of = |v: &ValueId| match graph.values[v.index()].def {
        Def::Node(n, _) if graph.ty(*v).dtype.is_float() && !stop.contains(v) => Some(n),
        _ => None,
    };
    let mut order = vec![];
    let mut seen = HashSet::new();
    // (node, whether its operands have been walked)
    let mut stack: Vec<(NodeId, bool)> = from.iter().rev().filter_map(node_of).map(|n| (n, false)).collect();
    while let Some((id, done)) = stack.pop() {
        if done {
            order.push(id);
        } else if seen.insert(id) {
            stack.push((id, true));
            stack.extend(graph.node(id).operands.iter().rev().filter_map(node_of).map(|n| (n, false)));
        }
    }
    order
}

/// The cotangents of `wrt`, given those of the outputs.
#[track_caller]
pub(crate) fn sweep<'g>(
    g: &'g GraphBuilder,
    outputs: &[(Tensor<'g>, Tensor<'g>)],
    wrt: &[Tensor<'g>],
    extent: Extent,
) -> Result<Vec<Option<Tensor<'g>>>, AutodiffError> {
    let ids = |ts: &mut dyn Iterator<Item = Tensor<'g>>| -> Result<Vec<ValueId>, AutodiffError> {
        ts.map(|t| t.value().ok_or_else(|| GraphError::Build(g.errors()).into())).collect()
    };
    let wrt_ids = ids(&mut wrt.iter().copied())?;
    let output_ids = ids(&mut outputs.iter().map(|o| o.0))?;
    let path = g.with_graph(|graph| Path::find(graph, &output_ids, &wrt_ids, extent));
    let mistakes = g.errors().len();
    // The graph before it grows, which only ops with regions need.
    let before: OnceCell<Graph> = OnceCell::new();

    let mut cotangents = Sums::new(g);
    for (v, (_, c)) in output_ids.iter().zip(outputs) {
        cotangents.add(*v, *c);
    }
    for step in path.steps.iter().rev() {
        let given: Vec<_> = g.at(step.loc, || step.results.iter().map(|v| cotangents.of(*v)).collect());
        if given.iter().all(Option::is_none) {
            continue;
        }
        let wanted: Vec<bool> = step.operands.iter().map(|v| path.live.contains(v)).collect();
        let back = g.at(step.loc, || pull(g, &before, step, &given, &wanted)).map_err(|mut e| {
            if let AutodiffError::NoGradient { parameter, .. } = &mut e {
                *parameter = g.with_graph(|graph| needed_by(graph, step, &wrt_ids));
            }
            e
        })?;
        for ((&v, c), wanted) in step.operands.iter().zip(back).zip(wanted) {
            if let Some(c) = c.filter(|_| wanted) {
                g.at(step.loc, || cotangents.add(v, c));
            }
        }
    }
    let errors = g.errors();
    if errors.len() > mistakes {
        return Err(GraphError::Build(errors).into());
    }
    let reached: HashSet<ValueId> =
        path.steps.iter().flat_map(|s| &s.operands).chain(&output_ids).copied().collect();
    let here = Some(Loc::caller());
    let zeros = |x: Tensor<'g>| g.at(here, || g.full(x.dtype(), x.shape(), 0.0));
    Ok(wrt_ids
        .iter()
        .zip(wrt)
        .map(|(v, x)| g.at(here, || cotangents.of(*v)).or_else(|| reached.contains(v).then(|| zeros(*x))))
        .collect())
}

/// What one node passes back to its operands.
#[track_caller]
fn pull<'g>(
    g: &'g GraphBuilder,
    before: &OnceCell<Graph>,
    step: &Step,
    cotangents: &[Option<Tensor<'g>>],
    wanted: &[bool],
) -> Result<Vec<Option<Tensor<'g>>>, AutodiffError> {
    let handles = |vs: &[ValueId]| -> Vec<Tensor<'g>> { vs.iter().map(|v| g.tensor(*v)).collect() };
    let (operands, results) = (handles(&step.operands), handles(&step.results));
    if let Some(open) =
        operands.iter().chain(&results).filter_map(|t| t.ty()).find(|t| t.shape.sizes().is_none())
    {
        let op = step.op.rule().name().to_string();
        return Err(AutodiffError::Unbound { op, loc: step.line(), ty: Box::new(open) });
    }
    let at = At { g, operands: &operands, results: &results, cotangents, wanted };
    match rule(&step.op) {
        Rule::Explicit(gradient) => match gradient.pull(&at) {
            Some(back) => Ok(back),
            None => through_decomposition(&at, step),
        },
        Rule::Decomposition => through_decomposition(&at, step),
        Rule::Inline => {
            let graph = before.get_or_init(|| g.with_graph(Graph::clone));
            // The region once more: what it computes is the same as in the forward pass, and is merged with that, unless
            // it begins behind barriers.
            let begin = match &step.op {
                Op::Call(call) if call.checkpoint => {
                    operands.iter().map(|x| g.emit1(Barrier, &[*x])).collect()
                }
                _ => operands.clone(),
            };
            let parts = region(g, graph, graph.node(step.node), &begin);
            through(&at, step, parts)
        }
        Rule::Scan(op) => {
            let graph = before.get_or_init(|| g.with_graph(Graph::clone));
            scan::pull(&at, op, graph, step.node)
        }
        Rule::Custom(op) => {
            let (operands, results) = (&operands[..], &results[..]);
            match op.gradient(&Backward { g, operands, results, cotangents, wanted }) {
                Some(back) => back.map_err(|mistake| AutodiffError::WrongGradient {
                    op: op.name().to_string(),
                    loc: step.line(),
                    mistake,
                }),
                None => through_decomposition(&at, step),
            }
        }
        Rule::Ends(_) => Ok(vec![None; operands.len()]),
    }
}

/// Builds the op's decomposition and differentiates that.
#[track_caller]
fn through_decomposition<'g>(at: &At<'_, 'g>, step: &Step) -> Result<Vec<Option<Tensor<'g>>>, AutodiffError> {
    match step.op.rule().decompose(at.g, at.operands) {
        Some(parts) => through(at, step, parts),
        None => Err(AutodiffError::NoGradient {
            op: step.op.rule().name().to_string(),
            loc: step.line(),
            reason: match step.op {
                Op::Custom(_) => "it gives neither a gradient nor a decomposition; write one of them".into(),
                _ => "this case has neither a rule nor a decomposition".into(),
            },
            parameter: String::new(),
        }),
    }
}

/// Differentiates what was built on top of a node's operands to give its results.
#[track_caller]
fn through<'g>(
    at: &At<'_, 'g>,
    step: &Step,
    parts: Vec<Tensor<'g>>,
) -> Result<Vec<Option<Tensor<'g>>>, AutodiffError> {
    let outputs: Vec<_> =
        parts.into_iter().zip(at.cotangents).filter_map(|(p, c)| c.map(|c| (p, c))).collect();
    // An operand that occurs twice is wanted once, and its cotangent is the sum of both.
    let first = |i: usize| at.wanted[i] && !step.operands[..i].contains(&step.operands[i]);
    let wanted: Vec<usize> = (0..at.operands.len()).filter(|&i| first(i)).collect();
    let wrt: Vec<_> = wanted.iter().map(|&i| at.operands[i]).collect();
    let found = sweep(at.g, &outputs, &wrt, Extent::UpToWanted)?;
    let mut back = vec![None; at.operands.len()];
    for (i, c) in wanted.into_iter().zip(found) {
        back[i] = c;
    }
    Ok(back)
}

/// The results of a call by the nodes of its region.
pub(crate) fn region<'g>(
    g: &'g GraphBuilder,
    graph: &Graph,
    node: &Node,
    operands: &[Tensor<'g>],
) -> Vec<Tensor<'g>> {
    node.regions.first().map_or(vec![], |region| splice(g, graph, region, operands, &mut |_, _, _| None))
}

/// The name of the first wanted value that a node depends on.
fn needed_by(graph: &Graph, step: &Step, wrt: &[ValueId]) -> String {
    let mut values: HashSet<ValueId> = step.operands.iter().copied().collect();
    for n in ancestors(graph, &step.operands, &HashSet::new()) {
        values.extend(&graph.node(n).operands);
    }
    let Some(v) = wrt.iter().find(|v| values.contains(v)) else { return "a wanted value".into() };
    let state = graph.states.iter().find(|s| s.value == *v).map(|s| format!("state '{}'", s.name));
    let input = || graph.inputs.iter().find(|p| p.value == *v).map(|p| format!("input '{}'", p.name));
    state.or_else(input).unwrap_or_else(|| format!("value %{} ({})", v.0, graph.ty(*v)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onestep_ir::{DType, Init, Role};

    /// No op of the table is without a rule, a decomposition or a reason, so this one is asked for what it lacks.
    #[test]
    fn a_missing_gradient_names_op_line_and_parameter() {
        let g = GraphBuilder::new("missing");
        let w = g.scope("block", || g.state("w", Role::Parameter, DType::F32, &[2], Init::ZEROS));
        let (y, line) = ((w * 2.0).exp(), line!());
        let (v, id) = (y.value().unwrap(), w.value().unwrap());
        let path = g.with_graph(|graph| Path::find(graph, &[v], &[id], Extent::Whole));
        let step = path.steps.last().unwrap();
        let at = At { g: &g, operands: &[w * 2.0], results: &[y], cotangents: &[Some(y)], wanted: &[true] };
        let mut error = through_decomposition(&at, step).unwrap_err();
        let AutodiffError::NoGradient { parameter, .. } = &mut error else { panic!("{error}") };
        *parameter = g.with_graph(|graph| needed_by(graph, step, &[id]));
        let text = error.to_string();
        assert!(text.contains("'exp'") && text.contains(&format!("backward.rs:{line}:")), "{text}");
        assert!(text.contains("the loss to state 'block.w'"), "{text}");
    }
}
