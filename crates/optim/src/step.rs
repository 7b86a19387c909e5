//! Whole training steps as graphs: forward, gradients and update ([`training_step`]), or forward and gradients
//! ([`with_backward`]).
//!
//! The result keeps the forward graph's inputs, state, updates and outputs, with the loss moved to the front. New
//! parameters and slots are updates of state, not outputs, so that nothing is copied; the layout says where each is.

use crate::accumulate::{accumulate, only_at};
use crate::apply::apply_grouped;
use crate::group::assign;
use crate::storage::store;
use crate::{Group, OptimError, StepOptions, Storage, Trained, UnusedParameter, UpdateRule};
use onestep_autodiff::{gradients, vjp};
use onestep_ir::{DType, Graph, GraphBuilder, Init, Role, Tensor, nearest};
use std::collections::HashSet;

/// Which state is trained. What is not is frozen: it stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Params {
    /// Every state with the role of a parameter, in the graph's order.
    #[default]
    All,
    /// State at these paths, in this order.
    Paths(Vec<String>),
}

impl<S: Into<String>, const N: usize> From<[S; N]> for Params {
    fn from(paths: [S; N]) -> Params {
        Params::Paths(paths.into_iter().map(Into::into).collect())
    }
}

/// What an entry of the layout is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LayoutRole {
    /// The loss: the first output.
    Loss,
    /// A new parameter.
    Parameter,
    /// A new slot.
    Slot,
    /// A new average of a parameter.
    Average,
    /// A gradient that stays resident.
    Gradient,
    /// Another output.
    Metric,
}

/// One result of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayoutEntry {
    /// The output's name, or the state's path.
    pub name: String,
    /// What it is.
    pub role: LayoutRole,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its dtype.
    pub dtype: DType,
    /// The state that it overwrites; `None` for an output.
    pub overwrites: Option<String>,
}

/// A training step.
#[derive(Clone, Debug)]
pub struct StepGraph {
    /// The graph. Its first output is the loss, and its other outputs are the metrics.
    pub graph: Graph,
    /// The results in order: the loss; the new value of `params[i]` for each `i`, or its gradient; the new slot `k` of
    /// `params[i]`, row-major over `(i, k)`; the averages of the parameters, if they are kept; the metrics.
    pub layout: Vec<LayoutEntry>,
}

/// The training step of `rule` on the output `loss`: a scalar of any float dtype. The graph's dimensions are bound.
///
/// A parameter that is used several times gets the sum of its uses' gradients. If the graph has a commit guard, the
/// step is committed only where that holds too. Gradients are, in this order: unscaled, accumulated, clipped, applied.
pub fn training_step(
    graph: &Graph,
    loss: &str,
    params: Params,
    rule: &dyn UpdateRule,
    options: &StepOptions,
) -> Result<StepGraph, OptimError> {
    let g = GraphBuilder::edit(graph.clone());
    let (chosen, groups) = moving(&g, params, &options.groups)?;
    let scaling = match options.loss_scale {
        Some(numbers) => {
            numbers.check()?;
            Some(numbers.declare(&g))
        }
        None => None,
    };
    let mut trained = differentiate(&g, loss, chosen, options.unused, scaling.map(|s| s.scale))?;
    if let Some(scaling) = scaling {
        trained.iter_mut().for_each(|t| t.gradient = scaling.unscale(t.gradient));
    }
    let last = match options.accumulate {
        Some(calls) => Some(accumulate(&g, calls, &options.combine, &mut trained)?),
        None => None,
    };
    let of_calls = g.with_graph(|graph| graph.updates.len());
    let applied = apply_grouped(&g, &trained, &groups, rule, options)?;
    let averages = match &options.average {
        Some(average) => average.update(&g, &trained, &applied.parameters)?,
        None => vec![],
    };
    if let Some(norm) = applied.norm {
        g.output("grad_norm", norm);
    }
    if let Some(scaling) = scaling {
        scaling.update(&g, applied.finite, last);
        g.output("loss_scale", scaling.scale);
        g.output("skipped", applied.guard.not().cast(DType::I32));
    }
    let parameters = trained.iter().zip(&applied.parameters);
    let parameters = parameters.map(|(t, new)| overwriting(&t.path, LayoutRole::Parameter, *new));
    let slots = applied.slots.iter().flatten().map(|(path, new)| overwriting(path, LayoutRole::Slot, *new));
    let averages = averages.iter().map(|(path, new)| overwriting(path, LayoutRole::Average, *new));
    let entries: Vec<LayoutEntry> = parameters.chain(slots).chain(averages).collect();
    let graph = match last.and_then(|last| last.value()) {
        Some(last) => only_at(g.build()?, last, of_calls)?,
        None => g.build()?,
    };
    let narrow = entries.iter().filter(|e| options.storage(e.role) == Storage::Bf16);
    let graph = store(&graph, &narrow.map(|e| e.name.as_str()).collect())?;
    Ok(finish(graph, loss, entries))
}

/// The forward graph with the gradients of `loss`, which become the state `grad/<path>`: resident, readable, and
/// written at every call, whatever the commit guard says. A parameter that the loss does not depend on is an error.
pub fn with_backward(graph: &Graph, loss: &str, params: Params) -> Result<StepGraph, OptimError> {
    let g = GraphBuilder::edit(graph.clone());
    let mut entries = vec![];
    let (chosen, _) = moving(&g, params, &[])?;
    for Trained { path, gradient, .. } in differentiate(&g, loss, chosen, UnusedParameter::Error, None)? {
        let path = format!("grad/{path}");
        let entry = overwriting(&path, LayoutRole::Gradient, gradient);
        let state = g.state(&path, Role::Gradient, entry.dtype, &entry.shape, Init::ZEROS);
        g.update(state, gradient, false);
        entries.push(entry);
    }
    Ok(finish(g.build()?, loss, entries))
}

/// The paths of the chosen parameters that are not frozen, each with its group.
fn moving(
    g: &GraphBuilder,
    params: Params,
    groups: &[Group],
) -> Result<(Vec<String>, Vec<Option<usize>>), OptimError> {
    g.with_graph(check_bound)?;
    let chosen = g.with_graph(|graph| choose(graph, params))?;
    let of = assign(groups, &chosen.iter().map(String::as_str).collect::<Vec<_>>())?;
    let pairs = chosen.into_iter().zip(of);
    Ok(pairs.filter(|(_, at)| at.is_none_or(|at| !groups[at].frozen)).unzip())
}

/// The chosen parameters with their gradients; those of `scale · loss`, if there is a scale.
fn differentiate<'g>(
    g: &'g GraphBuilder,
    loss: &str,
    chosen: Vec<String>,
    unused: UnusedParameter,
    scale: Option<Tensor<'g>>,
) -> Result<Vec<Trained<'g>>, OptimError> {
    let scalar = find_loss(g, loss)?;
    let handles: Vec<_> = chosen.iter().filter_map(|path| g.find_state(path)).collect();
    let found = match scale {
        None => gradients(g, scalar, &handles)?,
        Some(scale) => {
            // A scale is too large for a loss of f16.
            let wide = scalar.cast(scalar.dtype().accumulator());
            vjp(g, &[(wide, scale.cast(wide.dtype()))], &handles)?
        }
    };
    let pairs = chosen.into_iter().zip(handles).zip(found);
    pairs
        .map(|((path, parameter), gradient)| {
            let gradient = match (gradient, unused) {
                (Some(gradient), _) => gradient,
                (None, UnusedParameter::Zero) => g.full(parameter.dtype(), parameter.shape(), 0.0),
                (None, UnusedParameter::Error) => {
                    return Err(OptimError::UnusedParameter { path, loss: loss.to_string() });
                }
            };
            Ok(Trained { path, parameter, gradient })
        })
        .collect()
}

fn check_bound(graph: &Graph) -> Result<(), OptimError> {
    if graph.is_bound() {
        return Ok(());
    }
    let dims = graph.values.iter().flat_map(|v| &v.ty.shape.0);
    let mut names: Vec<String> = dims.flat_map(|d| d.vars()).map(|v| v.to_string()).collect();
    names.sort();
    names.dedup();
    Err(OptimError::Unbound { names })
}

fn find_loss<'g>(g: &'g GraphBuilder, loss: &str) -> Result<Tensor<'g>, OptimError> {
    let name = loss.to_string();
    let (value, ty) = g.with_graph(|graph| match graph.output(loss) {
        Some(port) => Ok((port.value, Box::new(graph.ty(port.value).clone()))),
        None => {
            let nearest = nearest(loss, graph.outputs.iter().map(|o| &*o.name));
            Err(OptimError::UnknownLoss { name: name.clone(), nearest })
        }
    })?;
    if !ty.dtype.is_float() {
        return Err(OptimError::LossDType { name, ty });
    }
    if ty.shape.rank() > 0 {
        return Err(OptimError::LossShape { name, ty });
    }
    Ok(g.tensor(value))
}

/// The paths of the chosen parameters, all of them float state.
fn choose(graph: &Graph, params: Params) -> Result<Vec<String>, OptimError> {
    let paths = match params {
        Params::Paths(paths) => paths,
        Params::All => {
            let parameters = graph.states.iter().filter(|s| s.role == Role::Parameter);
            parameters.map(|s| s.name.to_string()).collect()
        }
    };
    if paths.is_empty() {
        return Err(OptimError::NoParameters);
    }
    let mut seen = HashSet::new();
    for path in &paths {
        let Some(state) = graph.state(path) else {
            let floats = graph.states.iter().filter(|s| graph.ty(s.value).dtype.is_float());
            let nearest = nearest(path, floats.map(|s| &*s.name));
            return Err(OptimError::UnknownParameter { path: path.clone(), nearest });
        };
        let dtype = graph.ty(state.value).dtype;
        if !dtype.is_float() {
            return Err(OptimError::NotDifferentiable { path: path.clone(), dtype });
        }
        if !seen.insert(path) {
            return Err(OptimError::RepeatedParameter { path: path.clone() });
        }
    }
    Ok(paths)
}

fn overwriting(path: &str, role: LayoutRole, value: Tensor<'_>) -> LayoutEntry {
    let overwrites = Some(path.to_string());
    LayoutEntry { name: path.to_string(), role, shape: sizes(value), dtype: value.dtype(), overwrites }
}

/// The dtype of a state that is overwritten.
fn kept(graph: &Graph, entry: &LayoutEntry) -> DType {
    graph.state(&entry.name).map_or(entry.dtype, |s| graph.ty(s.value).dtype)
}

/// The sizes of a value of a bound graph.
fn sizes(value: Tensor<'_>) -> Vec<usize> {
    value.shape().sizes().unwrap_or_default()
}

/// The finished graph with the loss in front, and its layout around `entries`.
fn finish(mut graph: Graph, loss: &str, entries: Vec<LayoutEntry>) -> StepGraph {
    graph.outputs.sort_by_key(|o| &*o.name != loss);
    let mut layout = vec![];
    let mut metrics = vec![];
    for (i, port) in graph.outputs.iter().enumerate() {
        let (role, list) =
            if i == 0 { (LayoutRole::Loss, &mut layout) } else { (LayoutRole::Metric, &mut metrics) };
        let ty = graph.ty(port.value);
        let name = port.name.to_string();
        list.push(LayoutEntry { name, role, shape: ty.sizes(), dtype: ty.dtype, overwrites: None });
    }
    layout.extend(entries.into_iter().map(|e| LayoutEntry { dtype: kept(&graph, &e), ..e }));
    layout.extend(metrics);
    StepGraph { graph, layout }
}
