//! Forward mode: from the inputs on to the outputs, visiting only the nodes between.
//!
//! The nodes on a path ([`Path::find`], as in reverse mode) are visited in order. Each one's rule turns the tangents of
//! its operands into those of its results. A tangent that is absent is an exact zero.

mod rules;
mod scan;

use crate::AutodiffError;
use crate::backward::{Extent, Path, Step, region};
use onestep_ir::{Graph, GraphBuilder, GraphError, Loc, Tensor, ValueId};
use rules::{At, Rule, rule};
use std::cell::OnceCell;
use std::collections::HashMap;

/// The tangents of `outputs`, given those of the inputs.
#[track_caller]
pub(crate) fn sweep<'g>(
    g: &'g GraphBuilder,
    outputs: &[Tensor<'g>],
    inputs: &[(Tensor<'g>, Tensor<'g>)],
    extent: Extent,
) -> Result<Vec<Option<Tensor<'g>>>, AutodiffError> {
    let ids = |ts: &mut dyn Iterator<Item = Tensor<'g>>| -> Result<Vec<ValueId>, AutodiffError> {
        ts.map(|t| t.value().ok_or_else(|| GraphError::Build(g.errors()).into())).collect()
    };
    let input_ids = ids(&mut inputs.iter().map(|i| i.0))?;
    let output_ids = ids(&mut outputs.iter().copied())?;
    let path = g.with_graph(|graph| Path::find(graph, &output_ids, &input_ids, extent));
    let mistakes = g.errors().len();
    // The graph before it grows, which only calls need.
    let before: OnceCell<Graph> = OnceCell::new();

    let mut tangents: HashMap<ValueId, Tensor<'g>> = HashMap::new();
    let add = |to: &mut HashMap<ValueId, Tensor<'g>>, v: ValueId, t: Tensor<'g>| {
        let sum = to.get(&v).map_or(t, |before| *before + t);
        to.insert(v, sum);
    };
    for (v, (_, t)) in input_ids.iter().zip(inputs) {
        add(&mut tangents, *v, *t);
    }
    for step in &path.steps {
        let given: Vec<_> = step.operands.iter().map(|v| tangents.get(v).copied()).collect();
        if given.iter().all(Option::is_none) {
            continue;
        }
        let pushed = g.at(step.loc, || push(g, &before, step, &given))?;
        for (v, t) in step.results.iter().zip(pushed) {
            if let Some(t) = t {
                g.at(step.loc, || add(&mut tangents, *v, t));
            }
        }
    }
    let errors = g.errors();
    if errors.len() > mistakes {
        return Err(GraphError::Build(errors).into());
    }
    let here = Some(Loc::caller());
    let zeros = |y: Tensor<'g>| g.at(here, || g.full(y.dtype(), y.shape(), 0.0));
    let found = output_ids.iter().zip(outputs);
    Ok(found
        .map(|(v, y)| tangents.get(v).copied().or_else(|| path.live.contains(v).then(|| zeros(*y))))
        .collect())
}

/// What one node passes on to its results.
#[track_caller]
fn push<'g>(
    g: &'g GraphBuilder,
    before: &OnceCell<Graph>,
    step: &Step,
    tangents: &[Option<Tensor<'g>>],
) -> Result<Vec<Option<Tensor<'g>>>, AutodiffError> {
    let handles = |vs: &[ValueId]| -> Vec<Tensor<'g>> { vs.iter().map(|v| g.tensor(*v)).collect() };
    let (operands, results) = (handles(&step.operands), handles(&step.results));
    let types = operands.iter().chain(&results).filter_map(|t| t.ty());
    if let Some(open) = types.into_iter().find(|t| t.shape.sizes().is_none()) {
        let op = step.op.rule().name().to_string();
        return Err(AutodiffError::Unbound { op, loc: step.line(), ty: Box::new(open) });
    }
    let at = At { g, op: &step.op, operands: &operands, results: &results, tangents };
    let rule = rule(&step.op);
    match rule.push(&at) {
        Some(pushed) => Ok(pushed),
        None if matches!(rule, Rule::Inline) => {
            let graph = before.get_or_init(|| g.with_graph(Graph::clone));
            let parts = region(g, graph, graph.node(step.node), &operands);
            through(&at, parts)
        }
        None if let Rule::Scan(op) = rule => {
            let graph = before.get_or_init(|| g.with_graph(Graph::clone));
            scan::push(&at, op, graph, step.node)
        }
        None => match step.op.rule().decompose(g, &operands) {
            Some(parts) => through(&at, parts),
            None => {
                let op = step.op.rule().name().to_string();
                Err(AutodiffError::NoTangent { op, loc: step.line() })
            }
        },
    }
}

/// Differentiates what was built on top of a node's operands to give its results.
#[track_caller]
fn through<'g>(at: &At<'_, 'g>, parts: Vec<Tensor<'g>>) -> Result<Vec<Option<Tensor<'g>>>, AutodiffError> {
    let mut inputs: Vec<(Tensor<'g>, Tensor<'g>)> = vec![];
    for (x, t) in at.operands.iter().zip(at.tangents) {
        // An operand that occurs twice moves once.
        if let Some(t) = t.filter(|_| inputs.iter().all(|i| i.0.value() != x.value())) {
            inputs.push((*x, t));
        }
    }
    let floats: Vec<usize> = (0..parts.len()).filter(|&i| parts[i].dtype().is_float()).collect();
    let outputs: Vec<_> = floats.iter().map(|&i| parts[i]).collect();
    let mut pushed = vec![None; parts.len()];
    for (i, t) in floats.into_iter().zip(sweep(at.g, &outputs, &inputs, Extent::UpToWanted)?) {
        pushed[i] = t;
    }
    Ok(pushed)
}
