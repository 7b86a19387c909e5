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
//! | `opt/schedule/<number>`, `opt/clip_norm`, `opt/clip_value` | numbers of the schedule and of clipping |
//! | `opt/<parameter's path>/<slot>` | each slot of the rule: `…/m`, `…/v`, `…/momentum`, … |
//!
//! What stands around the rule has state of its own: `opt/loss_scale/…`, `opt/accumulate/…`, `opt/average/…`, `ema/…`.

use crate::guard::{all_finite, commit_guard};
use crate::{Clip, OptimError, RuleContext, SlotSpec, StepOptions, UpdateRule, global_norm};
use onestep_ir::{DType, GraphBuilder, Init, Mistake, Role, Tensor};

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
/// Under [`Clip::GlobalNorm`] a norm that overflows also forbids the step.
pub fn apply_updates<'g>(
    g: &'g GraphBuilder,
    trained: &[Trained<'g>],
    rule: &dyn UpdateRule,
    options: &StepOptions,
) -> Result<Applied<'g>, OptimError> {
    rule.check()?;
    options.schedule.check()?;
    options.clip.map_or(Ok(()), |clip| clip.check())?;
    check_types(trained)?;
    let wide = trained.iter().any(|t| t.parameter.dtype() == DType::F64);
    let dtype = if wide { DType::F64 } else { DType::F32 };
    let scalar = |name: &str, dtype, value| {
        g.state(&format!("opt/{name}"), Role::Scalar, dtype, &[], Init::Constant(value))
    };

    let completed = scalar("step", DType::I32, 0.0);
    let t = completed + 1.0;
    let mut hyper: Vec<_> = rule.hyper().iter().map(|h| (h.name, scalar(h.name, dtype, h.value))).collect();
    if let Some(multiplier) = options.schedule.build(g, t, dtype) {
        match hyper.iter_mut().find(|(name, _)| *name == "lr") {
            Some((_, lr)) => *lr = *lr * multiplier,
            None => {
                let m = Mistake::new(
                    "the rule has no 'lr' to multiply",
                    "use a constant schedule with this rule",
                );
                g.mistake("schedule", &[multiplier], m);
            }
        }
    }

    let mut gradients: Vec<_> = trained.iter().map(|t| t.gradient).collect();
    let norm = options.clip.map(|_| global_norm(g, &gradients, dtype));
    let finite = match (options.clip, norm) {
        // The norm of anything that is not finite is not finite: squares do not cancel.
        (Some(Clip::GlobalNorm(_)), Some(norm)) => norm.is_finite(),
        _ => all_finite(g, &gradients),
    };
    if let (Some(clip), Some(norm)) = (options.clip, norm) {
        gradients = clip.apply(g, &gradients, norm);
    }

    let contexts = [DType::F32, DType::F64].map(|d| RuleContext::new(d, t, &hyper));
    let specs = rule.slots();
    let (mut parameters, mut slots) = (vec![], vec![]);
    for (t, gradient) in trained.iter().zip(gradients) {
        let ty = t.parameter.ty().map(|ty| (ty.dtype, ty.shape.sizes().unwrap_or_default()));
        let (dtype, sizes) = ty.unwrap_or((dtype, vec![]));
        let paths: Vec<String> = specs.iter().map(|s| format!("opt/{}/{}", t.path, s.name)).collect();
        let declare =
            |(path, spec): (&String, &SlotSpec)| g.state(path, Role::Slot, dtype, &sizes, spec.init);
        let old: Vec<_> = paths.iter().zip(&specs).map(declare).collect();
        let context = &contexts[(dtype == DType::F64) as usize];
        let (parameter, new) = rule.update(context, t.parameter, gradient, &old);
        if new.len() != old.len() {
            return Err(OptimError::SlotCount { rule: rule.name(), want: old.len(), got: new.len() });
        }
        g.update(t.parameter, parameter, true);
        old.iter().zip(&new).for_each(|(old, new)| g.update(*old, *new, true));
        parameters.push(parameter);
        slots.push(paths.into_iter().zip(new).collect());
    }
    let guard = commit_guard(g, &[finite]);
    g.update(completed, t, true);
    Ok(Applied { parameters, slots, norm, finite, guard })
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
