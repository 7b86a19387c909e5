//! Parameter groups: who takes what, which numbers they share, and what is refused.

mod common;

use common::{call, first_state, get, given_gradients, set};
use onestep_ir::{DType, Graph, GraphBuilder, Init, Role};
use onestep_optim::rules::*;
use onestep_optim::{
    Clip, Group, OptimError, Params, Schedule, StepGraph, StepOptions, UpdateRule, training_step,
};

/// Four parameters whose gradients are 1: loss Σ of all of them. All start at 1.
fn four() -> Graph {
    let g = GraphBuilder::new("four");
    let one = |name: &str, shape: &[usize]| g.parameter(name, shape, Init::ONES).sum_all();
    let loss = one("embed.weight", &[2, 2]) + one("fc.weight", &[2, 2]) + one("fc.bias", &[2]);
    g.finish(loss + one("norm.bias", &[2])).unwrap()
}

fn step(rule: &dyn UpdateRule, groups: Vec<Group>) -> Result<StepGraph, OptimError> {
    training_step(&four(), "loss", Params::All, rule, &StepOptions { groups, ..StepOptions::default() })
}

/// How far each parameter moves in one step, after `change` of the first state.
fn moves(step: &StepGraph, change: &[(&str, f64)]) -> [f64; 4] {
    let mut state = first_state(&step.graph);
    change.iter().for_each(|(path, x)| set(&mut state, path, &[*x]));
    call(&step.graph, &mut state, &[]);
    ["embed.weight", "fc.weight", "fc.bias", "norm.bias"].map(|path| 1.0 - get(&state, path)[0])
}

/// The paths of all scalars of the step.
fn scalars(step: &StepGraph) -> Vec<String> {
    let scalars = step.graph.states.iter().filter(|s| s.role == Role::Scalar);
    scalars.map(|s| s.name.to_string()).collect()
}

#[test]
fn a_group_has_the_numbers_that_it_sets_and_shares_the_others() {
    let groups = vec![
        Group::new("bias", ["*.bias"]).weight_decay(0.0),
        Group::new("embed", ["embed*"]).lr(0.25).lr_scale(0.5),
    ];
    let step = step(&Sgd::new(0.5).weight_decay(1.0), groups).unwrap();
    assert_eq!(moves(&step, &[]), [0.25, 1.0, 0.5, 0.5]);
    // A shared number reaches all groups, a group's own that group alone.
    assert_eq!(moves(&step, &[("opt/lr", 0.125)]), [0.25, 0.25, 0.125, 0.125]);
    assert_eq!(moves(&step, &[("opt/embed/lr_scale", 1.0)]), [0.5, 1.0, 0.5, 0.5]);
    assert_eq!(moves(&step, &[("opt/bias/weight_decay", 1.0)]), [0.25, 1.0, 1.0, 1.0]);
    let own = ["opt/bias/weight_decay", "opt/embed/lr", "opt/embed/lr_scale"];
    let want = [&["opt/step", "opt/weight_decay"][..], &["opt/lr", "opt/skipped"], &own].concat();
    let mut got = scalars(&step);
    got.sort();
    let mut want: Vec<String> = want.iter().map(|s| s.to_string()).collect();
    want.sort();
    assert_eq!(got, want);
}

#[test]
fn the_first_group_that_fits_takes_a_parameter() {
    let groups = vec![Group::new("fc", ["fc.*"]).lr(0.5), Group::new("bias", ["*.bias"]).lr(0.25)];
    assert_eq!(moves(&step(&Sgd::new(1.0), groups).unwrap(), &[]), [1.0, 0.5, 0.5, 0.25]);
}

#[test]
fn frozen_parameters_have_no_gradient_and_no_slots() {
    let groups = vec![Group::new("kept", ["fc.bias"]), Group::new("fixed", ["fc.*", "norm*"]).frozen()];
    let step = step(&Sgd::new(1.0).momentum(0.9), groups.clone()).unwrap();
    assert_eq!(moves(&step, &[]), [1.0, 0.0, 1.0, 0.0]);
    let slots: Vec<&str> = step.layout.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(slots[1..3], ["embed.weight", "fc.bias"]);
    assert!(slots.iter().all(|s| !s.contains("fc.weight") && !s.contains("norm")));
    // A gradient that is given all the same counts nowhere: not in the norm, and not in the guard.
    let shapes: [(&str, &[usize]); 2] = [("fc.bias", &[1]), ("norm.bias", &[1])];
    let groups = vec![Group::new("fixed", ["norm*"]).frozen()];
    let options = StepOptions { groups, clip: Some(Clip::GlobalNorm(1.0)), ..StepOptions::default() };
    let graph = given_gradients(DType::F32, &shapes, &Sgd::new(1.0), &options);
    let mut state = first_state(&graph);
    let outputs = call(&graph, &mut state, &[&[0.5], &[f32::NAN]]);
    assert_eq!(outputs[0].to_f64(), [0.5]);
    assert_eq!((get(&state, "fc.bias"), get(&state, "norm.bias")), (vec![-0.5], vec![0.0]));
}

#[test]
fn a_group_with_a_rule_of_its_own_has_all_of_its_numbers() {
    let groups = vec![Group::new("table", ["embed*"]).rule(Lion::new(0.125)).weight_decay(1.0)];
    let step = step(&Sgd::new(1.0), groups).unwrap();
    assert_eq!(moves(&step, &[("opt/lr", 0.5)]), [0.25, 0.5, 0.5, 0.5]);
    assert_eq!(moves(&step, &[("opt/table/lr", 0.5)]), [1.0, 1.0, 1.0, 1.0]);
    let scalars = scalars(&step);
    for number in ["lr", "one_minus_beta1", "one_minus_beta2", "weight_decay"] {
        assert!(scalars.contains(&format!("opt/table/{number}")), "{scalars:?}");
    }
}

#[test]
fn muon_leaves_what_is_no_matrix_to_adamw() {
    let groups = vec![
        Group::new("bias", ["fc.bias"]).weight_decay(0.5),
        Group::new("table", ["embed*"]).rule(AdamW::new(0.25).weight_decay(0.0)),
    ];
    let others = AdamW::new(0.125).weight_decay(0.0);
    let step = step(&Muon::new(0.5).others(others), groups).unwrap();
    let [table, _, bias, norm] = moves(&step, &[]);
    common::assert_close(&[table, bias, norm], &[0.25, 0.125 + 0.0625, 0.125], 1e-6);
    let slots: Vec<&str> = step.layout.iter().filter_map(|e| e.name.strip_prefix("opt/")).collect();
    let want = ["embed.weight/m", "embed.weight/v", "fc.weight/momentum", "fc.bias/m", "fc.bias/v"];
    assert_eq!(slots, [&want[..], &["norm.bias/m", "norm.bias/v"]].concat());
    let scalars = scalars(&step);
    for path in ["lr", "adamw/lr", "adamw/eps", "bias/weight_decay", "table/lr", "adamw/weight_decay"] {
        assert!(scalars.contains(&format!("opt/{path}")), "{path} of {scalars:?}");
    }
}

#[test]
fn scalars_that_steps_move_are_each_group_s_own() {
    let groups = vec![Group::new("bias", ["*.bias"]).set("one_minus_beta1", 0.5)];
    let step = step(&Nadam::new(0.1), groups).unwrap();
    let mut state = first_state(&step.graph);
    (0..3).for_each(|_| drop(call(&step.graph, &mut state, &[])));
    let (all, bias) = (get(&state, "opt/mu_product")[0], get(&state, "opt/bias/mu_product")[0]);
    assert!((all / bias - (0.9f64 / 0.5).powi(3)).abs() < 1e-5, "{all} {bias}");
}

#[test]
fn a_group_has_the_step_s_schedule_or_its_own() {
    let groups = vec![
        Group::new("bias", ["*.bias"]).schedule(Schedule::Step { every: 1, factor: 0.5 }),
        Group::new("embed", ["embed*"]).lr(2.0),
    ];
    let schedule = Schedule::Linear { from: 0.0, to: 1.0, steps: 4 };
    let options = StepOptions { groups, schedule, ..StepOptions::default() };
    let step = training_step(&four(), "loss", Params::All, &Sgd::new(1.0), &options).unwrap();
    assert_eq!(moves(&step, &[("opt/step", 2.0)]), [1.0, 0.5, 0.25, 0.25]);
    assert_eq!(moves(&step, &[("opt/step", 2.0), ("opt/bias/schedule/factor", 1.0)]), [1.0, 0.5, 1.0, 1.0]);
    assert!(scalars(&step).contains(&"opt/schedule/steps".to_string()));
}

#[test]
fn two_owners_of_one_path_are_refused() {
    // Muon has `opt/adamw/lr` for what is no matrix.
    let group = Group::new("adamw", ["embed*"]).rule(AdamW::new(0.1));
    let error = step(&Muon::new(0.1), vec![group]).unwrap_err().to_string();
    assert!(error.contains("opt/adamw/lr") && error.contains("exists already"), "{error}");
    let group = Group::new("schedule", ["embed*"]).rule(Lion::new(0.1)).set("lr", 0.5);
    assert!(step(&Muon::new(0.1), vec![group]).is_ok());
}

#[test]
fn mistakes_are_named() {
    let refused = |groups: Vec<Group>, says: &[&str]| {
        let error = step(&Sgd::new(1.0), groups).unwrap_err();
        let text = error.to_string();
        says.iter().for_each(|s| assert!(text.contains(s), "{text:?} lacks {s:?}"));
        error
    };
    let error = refused(vec![Group::new("a", ["fc.wieght"])], &["'a'", "did you mean 'fc.weight'?"]);
    assert!(matches!(error, OptimError::PatternTakesNothing { .. }));
    let wide = vec![Group::new("all", ["*"]), Group::new("bias", ["*.bias"])];
    refused(wide, &["'bias'", "'*.bias'", "'all'", "narrower group first"]);
    let error =
        refused(vec![Group::new("a", ["fc*"]), Group::new("a", ["norm*"])], &["'a'", "name of its own"]);
    assert!(matches!(error, OptimError::RepeatedGroup { .. }));
    for name in ["", "a/b"] {
        let error = refused(vec![Group::new(name, ["fc*"])], &["without '/'"]);
        assert!(matches!(error, OptimError::GroupName { .. }));
    }
    let error = refused(vec![Group::new("a", [""; 0])], &["'a'", "no pattern"]);
    assert!(matches!(error, OptimError::GroupWithoutPattern { .. }));
    let error = refused(vec![Group::new("a", ["fc*"]).set("weight_deacy", 0.0)], &["'weight_decay'?"]);
    assert!(matches!(error, OptimError::UnknownNumber { .. }));
    for group in [Group::new("a", ["*"]).lr(-1.0), Group::new("a", ["*"]).set("weight_decay", f64::NAN)] {
        assert!(matches!(refused(vec![group], &["finite"]), OptimError::GroupNumber { .. }));
    }
    let group = Group::new("a", ["*"]).rule(Adam::new(1.0).betas(2.0, 0.9));
    assert!(matches!(refused(vec![group], &["beta1"]), OptimError::Hyper { .. }));
    let error = refused(vec![Group::new("a", ["*"]).frozen()], &["no parameter to train"]);
    assert!(matches!(error, OptimError::NoParameters));
}
