//! Applies an update rule to parameters whose gradients are at hand, wherever those come from: counter, schedule,
//! clipping, guard and the rule itself.
//!
//! State that it declares, all scalars and slots in `f32`, or `f64` where a parameter is `f64`:
//!
//! | path | what |
//! |---|---|
//! | `opt/step` | `i32`: completed steps; within a step, `t` is this plus 1 |
//! | `opt/skipped` | `i32`: steps that the guard refused |
//! | `opt/<number>` | each number of the rule: `opt/lr`, `opt/weight_decay`, … |
//! | `opt/<group>/<number>` | each number that a group sets, and all numbers of a group with a rule of its own |
//! | `opt/schedule/<number>`, `opt/<group>/schedule/<number>` | numbers of the schedules |
//! | `opt/clip_norm`, `opt/clip_value` | numbers of clipping |
//! | `opt/<parameter's path>/<slot>` | each slot of the rule: `…/m`, `…/v`, `…/momentum`, … |
//!
//! What stands around the rule has state of its own: `opt/loss_scale/…`, `opt/accumulate/…`, `opt/average/…`, `ema/…`.

use crate::group::assign;
use crate::guard::{all_finite, commit_guard};
use crate::part::Parts;
use crate::{Clip, OptimError, SlotSpec, StepOptions, UpdateRule, global_norm};
use onestep_ir::{DType, GraphBuilder, Init, Role, Tensor};

/// A parameter with its gradient.
#[derive(Clone, Debug)]
pub struct Trained<'g> {
    /// The parameter's path.
    pub path: String,
    /// The handle of its state.
    pub parameter: Tensor<'g>,
    /// Its gradient, of the parameter's type.
    pub gradient: Tensor<'g>,
}

/// What was added to the graph.
#[derive(Clone, Debug)]
pub struct Applied<'g> {
    /// The new value of each parameter, in the caller's order.
    pub parameters: Vec<Tensor<'g>>,
    /// For each parameter its slots in the rule's order: the state's path and the new value.
    pub slots: Vec<Vec<(String, Tensor<'g>)>>,
    /// The norm of all gradients before clipping, if they are clipped.
    pub norm: Option<Tensor<'g>>,
    /// Whether the gradients, and under [`Clip::GlobalNorm`] their norm, are finite.
    pub finite: Tensor<'g>,
    /// The commit guard: `finite`, and the guard that the graph had.
    pub guard: Tensor<'g>,
}

/// Updates every parameter by `rule`, and with them the slots and the counter, unless a gradient has an element that
/// is not finite or the guard that the graph had forbids it: then nothing of them moves, and `opt/skipped` counts it.
/// Under [`Clip::GlobalNorm`] a norm that overflows also forbids the step. Parameters of frozen groups keep their values,
/// and their gradients count nowhere.
pub fn apply_updates<'g>(
    g: &'g GraphBuilder,
    trained: &[Trained<'g>],
    rule: &dyn UpdateRule,
    options: &StepOptions,
) -> Result<Applied<'g>, OptimError> {
    let paths: Vec<&str> = trained.iter().map(|t| t.path.as_str()).collect();
    apply_grouped(g, trained, &assign(&options.groups, &paths)?, rule, options)
}

/// [`apply_updates`] to parameters whose groups are known.
pub(crate) fn apply_grouped<'g>(
    g: &'g GraphBuilder,
    trained: &[Trained<'g>],
    groups: &[Option<usize>],
    rule: &dyn UpdateRule,
    options: &StepOptions,
) -> Result<Applied<'g>, OptimError> {
    rule.check()?;
    options.schedule.check()?;
    options.clip.map_or(Ok(()), |clip| clip.check())?;
    check_types(trained)?;
    let wide = trained.iter().any(|t| t.parameter.dtype() == DType::F64);
    let dtype = if wide { DType::F64 } else { DType::F32 };
    let completed = g.state("opt/step", Role::Scalar, DType::I32, &[], Init::ZEROS);
    let t = completed + 1.0;

    let moves: Vec<bool> = groups.iter().map(|at| at.is_none_or(|at| !options.groups[at].frozen)).collect();
    let moving = trained.iter().zip(&moves).filter(|(_, moves)| **moves);
    let mut gradients: Vec<_> = moving.map(|(t, _)| t.gradient).collect();
    let norm = options.clip.map(|_| global_norm(g, &gradients, dtype));
    let finite = match (options.clip, norm) {
        // The norm of anything that is not finite is not finite: squares do not cancel.
        (Some(Clip::GlobalNorm(_)), Some(norm)) => norm.is_finite(),
        _ => all_finite(g, &gradients),
    };
    if let (Some(clip), Some(norm)) = (options.clip, norm) {
        gradients = clip.apply(g, &gradients, norm);
    }

    let mut parts = Parts::new(g, rule, options, dtype, t);
    let mut gradients = gradients.into_iter();
    let (mut parameters, mut slots) = (vec![], vec![]);
    for ((trained, group), moves) in trained.iter().zip(groups).zip(&moves) {
        let (parameter, new) = match moves.then(|| gradients.next()).flatten() {
            Some(gradient) => update(g, trained, gradient, *group, &mut parts)?,
            None => (trained.parameter, vec![]),
        };
        parameters.push(parameter);
        slots.push(new);
    }
    parts.finish()?;
    let guard = commit_guard(g, &[finite]);
    g.update(completed, t, true);
    Ok(Applied { parameters, slots, norm, finite, guard })
}

/// The new value of one parameter, and its slots' paths and new values.
fn update<'g>(
    g: &'g GraphBuilder,
    trained: &Trained<'g>,
    gradient: Tensor<'g>,
    group: Option<usize>,
    parts: &mut Parts<'_, 'g>,
) -> Result<(Tensor<'g>, Vec<(String, Tensor<'g>)>), OptimError> {
    let dtype = trained.parameter.dtype();
    let sizes = trained.parameter.shape().sizes().unwrap_or_default();
    let part = parts.of(group, &sizes);
    let specs = part.rule.slots(&sizes);
    let paths: Vec<String> = specs.iter().map(|s| format!("opt/{}/{}", trained.path, s.name)).collect();
    let declare =
        |(path, spec): (&String, &SlotSpec)| g.state(path, Role::Slot, dtype, &spec.shape, spec.init);
    let old: Vec<_> = paths.iter().zip(&specs).map(declare).collect();
    let (parameter, new) = part.rule.update(part.context(dtype), trained.parameter, gradient, &old);
    if new.len() != old.len() {
        return Err(OptimError::SlotCount { rule: part.rule.name(), want: old.len(), got: new.len() });
    }
    g.update(trained.parameter, parameter, true);
    old.iter().zip(&new).for_each(|(old, new)| g.update(*old, *new, true));
    Ok((parameter, paths.into_iter().zip(new).collect()))
}

fn check_types(trained: &[Trained<'_>]) -> Result<(), OptimError> {
    if trained.is_empty() {
        return Err(OptimError::NoParameters);
    }
    for t in trained {
        // A poisoned handle has its mistake on the graph's record.
        let (Some(want), Some(got)) = (t.parameter.ty(), t.gradient.ty()) else { continue };
        let path = t.path.clone();
        if !matches!(want.dtype, DType::F32 | DType::F64) {
            return Err(OptimError::ParameterDType { path, dtype: want.dtype });
        }
        if want != got {
            return Err(OptimError::GradientType { path, want: Box::new(want), got: Box::new(got) });
        }
    }
    Ok(())
}
