//! Whole training steps: what moves, in which order it is listed, and what is refused.

mod common;

use common::{assert_close, call, first_state, get, set};
use onestep_ir::{DType, Graph, GraphBuilder, GraphError, Init, Role, dim};
use onestep_optim::rules::*;
use onestep_optim::{
    Clip, LayoutRole, OptimError, Params, Schedule, StepOptions, UnusedParameter, UpdateRule, training_step,
    with_backward,
};

fn options() -> StepOptions {
    StepOptions::default()
}

/// Loss Σ (w − 1)² over a `w` of one element.
fn square() -> Graph {
    let g = GraphBuilder::new("square");
    let w = g.parameter("w", &[1], Init::ZEROS);
    g.finish((w - 1.0).square().sum_all()).unwrap()
}

/// Loss Σ w: the gradient is 1 always. `w` starts at 1.
fn slope() -> Graph {
    let g = GraphBuilder::new("slope");
    let w = g.parameter("w", &[1], Init::ONES);
    g.finish(w.sum_all()).unwrap()
}

fn course(graph: &Graph, rule: &dyn UpdateRule, options: &StepOptions, steps: usize) -> Vec<f64> {
    let step = training_step(graph, "loss", Params::All, rule, options).unwrap();
    let mut state = first_state(&step.graph);
    let mut one = || {
        call(&step.graph, &mut state, &[]);
        get(&state, "w")[0]
    };
    (0..steps).map(|_| one()).collect()
}

#[test]
fn state_is_kept_over_calls() {
    let course = course(&square(), &Sgd::new(0.1), &options(), 5);
    assert_close(&course, &[0.2, 0.36, 0.488, 0.5904, 0.67232], 1e-6);
}

#[test]
fn the_loss_is_that_before_the_update() {
    let step = training_step(&square(), "loss", Params::All, &Sgd::new(0.1), &options()).unwrap();
    let mut state = first_state(&step.graph);
    let losses: Vec<f64> = (0..3).map(|_| call(&step.graph, &mut state, &[])[0].to_f64()[0]).collect();
    assert_close(&losses, &[1.0, 0.64, 0.4096], 1e-6);
}

#[test]
fn adam_counts_its_steps() {
    assert_close(&course(&slope(), &Adam::new(0.1), &options(), 3), &[0.9, 0.8, 0.7], 1e-6);
}

#[test]
fn adamw_decays_the_old_weight() {
    assert_close(&course(&slope(), &AdamW::new(0.1).weight_decay(0.1), &options(), 1), &[0.89], 1e-6);
}

#[test]
fn adam_bias_correction_keeps_its_digits_in_f32() {
    let step = training_step(&slope(), "loss", Params::All, &Adam::new(1.0), &options()).unwrap();
    for completed in [0, 1, 9, 99, 999, 9_999, 1_000_000] {
        let mut state = first_state(&step.graph);
        set(&mut state, "w", &[0.0]);
        set(&mut state, "opt/step", &[completed as f64]);
        // The moments of a gradient that has been 1 at every step: corrected they are 1, and so is the move.
        set(&mut state, "opt/w/m", &[1.0 - 0.9f64.powi(completed)]);
        set(&mut state, "opt/w/v", &[1.0 - 0.999f64.powi(completed)]);
        call(&step.graph, &mut state, &[]);
        assert_close(&get(&state, "w"), &[-1.0], 5e-7);
    }
}

#[test]
fn one_graph_takes_any_number() {
    let step = training_step(&slope(), "loss", Params::All, &Sgd::new(0.0), &options()).unwrap();
    let mut state = first_state(&step.graph);
    let mut want = 1.0;
    for i in 0..100 {
        let lr = i as f64 / 128.0;
        set(&mut state, "opt/lr", &[lr]);
        set(&mut state, "opt/weight_decay", &[0.0]);
        call(&step.graph, &mut state, &[]);
        want -= lr;
        assert_close(&get(&state, "w"), &[want], 1e-5);
    }
}

/// Parameters `a` (used twice), `b` (used once) and `c` (not used); loss Σ a·x + Σ a·y + Σ b·x.
fn three(unused_role: Role) -> Graph {
    let g = GraphBuilder::new("three");
    let x = g.input("x", DType::F32, [2]);
    let y = g.input("y", DType::F32, [2]);
    let a = g.parameter("a", &[2], Init::ONES);
    let b = g.parameter("b", &[2], Init::ONES);
    g.state("c", unused_role, DType::F32, &[2], Init::ONES);
    g.output("norm", a.square().sum_all());
    g.finish((a * x).sum_all() + (a * y).sum_all() + (b * x).sum_all()).unwrap()
}

const X: &[f32] = &[1.0, 2.0];
const Y: &[f32] = &[3.0, 5.0];

#[test]
fn frozen_stays_and_tied_sums_its_uses() {
    let step = training_step(&three(Role::Buffer), "loss", ["a"].into(), &Sgd::new(1.0), &options()).unwrap();
    let mut state = first_state(&step.graph);
    call(&step.graph, &mut state, &[X, Y]);
    assert_eq!(get(&state, "a"), [-3.0, -6.0]);
    assert_eq!(get(&state, "b"), [1.0, 1.0]);
    assert_eq!(get(&state, "c"), [1.0, 1.0]);
    assert!(step.graph.states.iter().all(|s| !s.name.starts_with("opt/b")));
}

#[test]
fn unused_is_an_error_that_names_it() {
    let graph = three(Role::Parameter);
    let error = training_step(&graph, "loss", Params::All, &Sgd::new(1.0), &options()).unwrap_err();
    assert!(matches!(&error, OptimError::UnusedParameter { path, .. } if path == "c"), "{error}");
    let error = with_backward(&graph, "loss", Params::All).unwrap_err();
    assert!(matches!(&error, OptimError::UnusedParameter { path, .. } if path == "c"), "{error}");
}

#[test]
fn unused_has_a_zero_gradient_if_asked() {
    let zero = StepOptions { unused: UnusedParameter::Zero, ..options() };
    let course = |rule: &dyn UpdateRule| {
        let step = training_step(&three(Role::Parameter), "loss", Params::All, rule, &zero).unwrap();
        let mut state = first_state(&step.graph);
        call(&step.graph, &mut state, &[X, Y]);
        get(&state, "c")
    };
    assert_eq!(course(&Sgd::new(1.0)), [1.0, 1.0]);
    assert_eq!(course(&Adam::new(1.0)), [1.0, 1.0]);
    // Weight decay still applies.
    assert_eq!(course(&Sgd::new(0.5).weight_decay(0.5)), [0.75, 0.75]);
}

#[test]
fn the_layout_lists_every_result_in_order() {
    let clip = StepOptions { clip: Some(Clip::GlobalNorm(1.0)), ..options() };
    let step =
        training_step(&three(Role::Buffer), "loss", ["b", "a"].into(), &Adam::new(1.0), &clip).unwrap();
    let names: Vec<&str> = step.layout.iter().map(|e| e.name.as_str()).collect();
    let slots = ["opt/b/m", "opt/b/v", "opt/a/m", "opt/a/v"];
    assert_eq!(names, [&["loss", "b", "a"], &slots[..], &["norm", "grad_norm"]].concat());
    use LayoutRole::*;
    let roles: Vec<LayoutRole> = step.layout.iter().map(|e| e.role).collect();
    assert_eq!(roles, [Loss, Parameter, Parameter, Slot, Slot, Slot, Slot, Metric, Metric]);
    for entry in &step.layout {
        let is_output = step.graph.output(&entry.name).is_some();
        assert_eq!(entry.overwrites.is_none(), is_output, "{}", entry.name);
        if let Some(path) = &entry.overwrites {
            let at = step.graph.states.iter().position(|s| *s.name == **path).unwrap();
            let ty = step.graph.ty(step.graph.states[at].value);
            assert_eq!((&entry.shape, entry.dtype), (&ty.sizes(), ty.dtype));
            assert!(step.graph.updates.iter().any(|u| u.state == at && u.guarded), "{path}");
        }
    }
    assert_eq!(&*step.graph.outputs[0].name, "loss");
}

#[test]
fn gradients_stay_resident() {
    let step = with_backward(&three(Role::Buffer), "loss", Params::All).unwrap();
    let names: Vec<&str> = step.layout.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["loss", "grad/a", "grad/b", "norm"]);
    assert_eq!(step.layout[1].role, LayoutRole::Gradient);
    assert_eq!(step.graph.state("grad/a").unwrap().role, Role::Gradient);
    assert!(step.graph.updates.iter().all(|u| !u.guarded));
    let mut state = first_state(&step.graph);
    call(&step.graph, &mut state, &[X, Y]);
    assert_eq!(get(&state, "grad/a"), [4.0, 7.0]);
    assert_eq!(get(&state, "grad/b"), [1.0, 2.0]);
    assert_eq!(get(&state, "a"), [1.0, 1.0]);
}

#[test]
fn steps_are_valid_graphs_that_round_trip_as_text() {
    let schedule = Schedule::WarmupCosine { warmup: 2, total: 9, floor: 0.5 };
    for clip in [None, Some(Clip::GlobalNorm(1.0)), Some(Clip::Value(1.0))] {
        for row in RULES {
            let options = StepOptions { clip, schedule: schedule.clone(), ..options() };
            let rule = (row.with_lr)(0.1);
            let step = training_step(&three(Role::Buffer), "loss", Params::All, &*rule, &options).unwrap();
            step.graph.verify().unwrap();
            let text = step.graph.to_string();
            let read = Graph::parse(&text).unwrap();
            assert_eq!(read.to_string(), text);
            let (mut before, mut after) = (first_state(&step.graph), first_state(&read));
            assert_eq!(call(&step.graph, &mut before, &[X, Y]), call(&read, &mut after, &[X, Y]));
            assert_eq!(before, after, "{}", row.name);
        }
    }
    with_backward(&three(Role::Buffer), "loss", Params::All).unwrap().graph.verify().unwrap();
}

#[test]
fn f64_and_f32_parameters_in_one_step() {
    let g = GraphBuilder::new("mixed");
    let a = g.state("a", Role::Parameter, DType::F64, &[2], Init::ONES);
    let b = g.parameter("b", &[2], Init::ONES);
    let graph = g.finish(a.sum_all() + b.cast(DType::F64).sum_all()).unwrap();
    let clip = StepOptions { clip: Some(Clip::GlobalNorm(1.0)), ..options() };
    let step = training_step(&graph, "loss", Params::All, &Adam::new(0.1), &clip).unwrap();
    let ty = |path: &str| step.graph.ty(step.graph.state(path).unwrap().value).dtype;
    assert_eq!(ty("opt/lr"), DType::F64);
    assert_eq!((ty("opt/a/m"), ty("opt/b/m")), (DType::F64, DType::F32));
    let mut state = first_state(&step.graph);
    let outputs = call(&step.graph, &mut state, &[]);
    assert_close(&outputs[1].to_f64(), &[2.0], 1e-15);
    assert_close(&get(&state, "a"), &[0.9, 0.9], 1e-8);
    assert_close(&get(&state, "b"), &[0.9, 0.9], 1e-6);
}

#[track_caller]
fn refused(graph: &Graph, loss: &str, params: Params, says: &[&str]) -> OptimError {
    let error = training_step(graph, loss, params, &Sgd::new(1.0), &options()).unwrap_err();
    let text = error.to_string();
    says.iter().for_each(|s| assert!(text.contains(s), "{text:?} lacks {s:?}"));
    error
}

#[test]
fn wrong_names_are_refused_with_the_nearest() {
    let graph = three(Role::Buffer);
    let g = GraphBuilder::edit(graph.clone());
    g.parameter("block.0.weight", &[2], Init::ZEROS);
    g.state("tokens", Role::Buffer, DType::I32, &[2], Init::ZEROS);
    let named = g.build().unwrap();
    let error = refused(
        &named,
        "loss",
        ["block.0.wieght"].into(),
        &["block.0.wieght", "did you mean 'block.0.weight'"],
    );
    assert!(matches!(error, OptimError::UnknownParameter { .. }));
    let error = refused(&graph, "los", Params::All, &["'los'", "did you mean 'loss'"]);
    assert!(matches!(error, OptimError::UnknownLoss { .. }));
    let error = refused(&graph, "loss", ["a", "b", "a"].into(), &["'a'", "twice"]);
    assert!(matches!(error, OptimError::RepeatedParameter { .. }));
    let error = refused(&named, "loss", ["tokens"].into(), &["'tokens'", "i32"]);
    assert!(matches!(error, OptimError::NotDifferentiable { .. }));
    let error = refused(&graph, "loss", Params::Paths(vec![]), &[]);
    assert!(matches!(error, OptimError::NoParameters));
}

#[test]
fn a_loss_that_is_no_float_scalar_is_refused() {
    let g = GraphBuilder::new("wrong");
    let w = g.parameter("w", &[3], Init::ZEROS);
    g.output("vector", w * w);
    g.output("count", w.greater(0.0).cast(DType::I32).sum_all());
    let graph = g.build().unwrap();
    let error = refused(&graph, "vector", Params::All, &["'vector'", "f32[3]", "sum_all"]);
    assert!(matches!(error, OptimError::LossShape { .. }));
    let error = refused(&graph, "count", Params::All, &["'count'", "i32"]);
    assert!(matches!(error, OptimError::LossDType { .. }));
}

#[test]
fn a_path_through_truth_values_is_no_path() {
    let g = GraphBuilder::new("blocked");
    let w = g.parameter("w", &[3], Init::ZEROS);
    let graph = g.finish(w.greater(0.0).cast(DType::F32).sum_all()).unwrap();
    let error = refused(&graph, "loss", Params::All, &["'w'", "does not depend"]);
    assert!(matches!(error, OptimError::UnusedParameter { .. }));
}

#[test]
fn low_precision_parameters_are_refused() {
    let g = GraphBuilder::new("low");
    let w = g.state("w", Role::Parameter, DType::BF16, &[3], Init::ZEROS);
    let graph = g.finish(w.sum_all().cast(DType::F32)).unwrap();
    let error = refused(&graph, "loss", Params::All, &["'w'", "bf16", "f32"]);
    assert!(matches!(error, OptimError::ParameterDType { .. }));
    assert!(with_backward(&graph, "loss", Params::All).is_ok());
}

#[test]
fn unbound_dimensions_are_refused() {
    let g = GraphBuilder::new("unbound");
    let x = g.input("x", DType::F32, (dim("B").at_most(4),));
    let w = g.parameter("w", &[1], Init::ZEROS);
    let graph = g.finish((x * w).sum_all()).unwrap();
    let error = refused(&graph, "loss", Params::All, &["B"]);
    assert!(matches!(error, OptimError::Unbound { names } if names == ["B"]));
}

#[test]
fn names_that_are_taken_are_refused() {
    let step = training_step(&slope(), "loss", Params::All, &Sgd::new(1.0), &options()).unwrap();
    let error = refused(&step.graph, "loss", Params::All, &["opt/lr", "exists already"]);
    assert!(matches!(error, OptimError::Graph(GraphError::Build(_))));
}

#[test]
fn wrong_numbers_are_refused() {
    let bad: [(&dyn UpdateRule, &str); 23] = [
        (&Sgd::new(-1.0), "lr"),
        (&Sgd::new(f64::NAN), "lr"),
        (&Sgd::new(1.0).momentum(-0.5), "momentum"),
        (&Sgd::new(1.0).nesterov(true), "momentum"),
        (&Sgd::new(1.0).dampening(0.5), "dampening"),
        (&Sgd::new(1.0).momentum(0.9).dampening(0.1).nesterov(true), "dampening"),
        (&Adam::new(1.0).betas(1.0, 0.9), "beta1"),
        (&Adam::new(1.0).betas(0.9, -0.1), "beta2"),
        (&AdamW::new(1.0).eps(f64::INFINITY), "eps"),
        (&RmsProp::new(1.0).alpha(1.0), "alpha"),
        (&RmsProp::new(1.0).momentum(-1.0), "momentum"),
        (&Adagrad::new(1.0).initial_accumulator(-1.0), "initial_accumulator"),
        (&Adadelta::new(1.0).rho(-0.1), "rho"),
        (&Adamax::new(1.0).eps(0.0), "eps"),
        (&Nadam::new(1.0).momentum_decay(-1.0), "momentum_decay"),
        (&Radam::new(1.0).betas(0.9, 2.0), "beta2"),
        (&Rprop::new(1.0).etas(1.0, 1.2), "shrink"),
        (&Rprop::new(1.0).step_sizes(2.0, 1.0), "most_step"),
        (&Asgd::new(1.0).t0(f64::NAN), "t0"),
        (&Adafactor::new(1.0).beta2_decay(0.5), "beta2_decay"),
        (&Lamb::new(1.0).norms(2.0, 1.0), "most_norm"),
        (&Lion::new(-1.0), "lr"),
        (&Muon::new(1.0).others(AdamW::new(-1.0)), "lr"),
    ];
    let refuses = |rule: &dyn UpdateRule, options: &StepOptions, want: &str| {
        let error = training_step(&slope(), "loss", Params::All, rule, options).unwrap_err();
        assert!(matches!(error, OptimError::Hyper { name, .. } if name == want), "{error}");
    };
    bad.iter().for_each(|(rule, want)| refuses(*rule, &options(), want));
    let schedule = |warmup, total, floor| StepOptions {
        schedule: Schedule::WarmupCosine { warmup, total, floor },
        ..options()
    };
    refuses(&Sgd::new(1.0), &schedule(11, 10, 0.1), "warmup");
    refuses(&Sgd::new(1.0), &schedule(1, u32::MAX, 0.1), "total");
    refuses(&Sgd::new(1.0), &schedule(1, 10, -0.1), "floor");
    for max in [0.0, -1.0, f64::NAN] {
        refuses(&Sgd::new(1.0), &StepOptions { clip: Some(Clip::Value(max)), ..options() }, "max");
    }
}
