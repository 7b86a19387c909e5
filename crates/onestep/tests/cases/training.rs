//! Training steps over many calls: what is kept, what is counted, what may change without compiling, and what a stopped
//! run goes on with.

use crate::common::*;
use onestep::io::safetensors;
use onestep::prelude::*;
use onestep::{Clip, LossScale, UnusedParameter};
use std::path::Path;
use std::process::Command;

#[test]
fn state_is_kept_over_calls() {
    let g = GraphBuilder::new("w");
    let w = g.parameter("w", &[1], Init::ZEROS);
    let graph = g.finish((w - 1.0).square().sum_all()).unwrap();
    let mut step = TrainingStep::new(graph).optimizer(Sgd::new(0.1)).compile(&cpu(1)).unwrap();
    let mut state = step.init(0).unwrap();
    for want in [0.2, 0.36, 0.488, 0.5904, 0.67232] {
        step.run(&mut state, ()).unwrap();
        assert_close(&values(&state, "w"), &[want], 1e-6);
    }
    assert_eq!(values(&state, "opt/step"), [5.0]);
    assert_eq!(step.compilations().len(), 1);
}

/// A parameter that starts at 1 and has gradient 1.
fn slope() -> Graph {
    let g = GraphBuilder::new("slope");
    let p = g.parameter("p", &[1], Init::ONES);
    g.finish(p.sum_all()).unwrap()
}

#[test]
fn adam_counts_its_steps() {
    let mut step = TrainingStep::new(slope()).optimizer(Adam::new(0.1)).compile(&cpu(1)).unwrap();
    let mut state = step.init(0).unwrap();
    for want in [0.9, 0.8, 0.7] {
        step.run(&mut state, ()).unwrap();
        assert_close(&values(&state, "p"), &[want], 2e-7);
    }
}

#[test]
fn adamw_decays_the_old_weight() {
    let rule = AdamW::new(0.1).weight_decay(0.1);
    let mut step = TrainingStep::new(slope()).optimizer(rule).compile(&cpu(1)).unwrap();
    let mut state = step.init(0).unwrap();
    step.run(&mut state, ()).unwrap();
    assert_close(&values(&state, "p"), &[0.89], 1e-7);
}

#[test]
fn a_hundred_learning_rates_compile_once() {
    let mut step = TrainingStep::new(slope()).optimizer(Sgd::new(1.0)).compile(&cpu(1)).unwrap();
    let mut state = step.init(0).unwrap();
    let mut want = 1.0;
    for i in 0..100 {
        let rate = 1.0 / (i + 3) as f64;
        state.set_scalar("opt/lr", rate).unwrap();
        step.run(&mut state, ()).unwrap();
        want -= rate;
        assert_close(&values(&state, "p"), &[want], 1e-5);
    }
    assert_eq!((step.compilations().len(), step.program().rebinds()), (1, 0));
}

#[test]
fn a_schedule_in_the_graph_follows_its_formula() {
    let schedule = Schedule::WarmupCosine { warmup: 10, total: 80, floor: 0.25 };
    let step = TrainingStep::new(slope()).optimizer(Sgd::new(0.5)).schedule(schedule.clone());
    let mut step = step.compile(&cpu(1)).unwrap();
    let mut state = step.init(0).unwrap();
    for t in 1..=100 {
        let before = values(&state, "p")[0];
        step.run(&mut state, ()).unwrap();
        let rate = before - values(&state, "p")[0];
        assert!((rate - 0.5 * schedule.multiplier(t)).abs() < 4e-6, "step {t}: {rate}");
    }
    // A longer run is a change of state.
    state.set_scalar("opt/schedule/total", 1e6).unwrap();
    let before = values(&state, "p")[0];
    step.run(&mut state, ()).unwrap();
    assert_close(&[before - values(&state, "p")[0]], &[0.5], 1e-5);
    assert_eq!(step.compilations().len(), 1);
}

const FIRST: &str = "ONESTEP_CASES_RESUME_FROM";
const LAST: &str = "ONESTEP_CASES_RESUME_TO";

fn resumable() -> CompiledStep {
    let step = TrainingStep::new(language_model(2, 0.2)).optimizer(AdamW::new(1e-2).weight_decay(0.1));
    let schedule = Schedule::WarmupCosine { warmup: 2, total: 6, floor: 0.1 };
    // Two calls a step, so that the run is stopped between two calls.
    let step = step.loss_scale(LossScale::dynamic(1024.0).growth(2.0, 1)).accumulate(2).ema(0.9);
    step.clip_global_norm(1.0).schedule(schedule).compile(&cpu(2)).unwrap()
}

fn steps(step: &mut CompiledStep, state: &mut State, numbers: std::ops::Range<u64>) {
    for n in numbers {
        assert!(step.run(state, tokens(2, n)).unwrap().loss().unwrap().is_finite());
    }
}

/// Not a test of its own: the process that goes on with a run that `a_resumed_run_has_the_same_bits` began.
#[test]
fn resume_in_a_new_process() {
    let (Some(from), Some(to)) = (std::env::var_os(FIRST), std::env::var_os(LAST)) else { return };
    let mut step = resumable();
    let mut state = State::new();
    assert!(step.missing(&state).contains(&"rng/counter".to_string()));
    state.load(Path::new(&from)).unwrap();
    assert_eq!(step.missing(&state), [""; 0]);
    steps(&mut step, &mut state, 3..5);
    state.save(Path::new(&to)).unwrap();
}

#[test]
fn a_resumed_run_has_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from.safetensors"), folder.path().join("to.safetensors"));
    let mut step = resumable();
    let mut straight = step.init(11).unwrap();
    steps(&mut step, &mut straight, 0..3);
    straight.save(&from).unwrap();
    assert_eq!(values(&straight, "opt/accumulate/count"), [1.0]);
    let test = "training::resume_in_a_new_process";
    let child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .envs([(FIRST, &from), (LAST, &to)])
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    steps(&mut step, &mut straight, 3..5);
    let (resumed, _) = safetensors::load(&to).unwrap();
    let resumed: std::collections::BTreeMap<_, _> =
        resumed.iter().map(|(n, a)| (n.to_string(), a.bytes().to_vec())).collect();
    let straight = snapshot(&straight);
    assert_eq!(resumed.keys().collect::<Vec<_>>(), straight.keys().collect::<Vec<_>>());
    for (name, bytes) in &straight {
        assert!(resumed[name] == *bytes, "{name} differs");
    }
    assert_eq!(straight["rng/counter"], 5u32.to_le_bytes());
    assert_eq!(straight["opt/step"], 2i32.to_le_bytes());
    assert_eq!(straight["opt/loss_scale/scale"], 4096f32.to_le_bytes());
}

#[test]
fn the_last_smaller_batch_compiles_once_more() {
    let training = |most| TrainingStep::new(classifier(most)).optimizer(Adam::new(1e-2)).compile(&cpu(2));
    let mut step = training(32).unwrap();
    let mut state = step.init(5).unwrap();
    for epoch in 0..3 {
        step.run(&mut state, rows(32, epoch)).unwrap();
        let before = state.try_clone().unwrap();
        step.run(&mut state, rows(17, epoch)).unwrap();
        // The same as a program that never knew another size, on the same state.
        let mut other = before;
        training(17).unwrap().run(&mut other, rows(17, epoch)).unwrap();
        assert_eq!(snapshot(&state), snapshot(&other));
    }
    assert_eq!(values(&state, "opt/step"), [6.0]);
    let reasons: Vec<_> = step.compilations().iter().map(|e| (e.binding["B"], e.reason)).collect();
    assert_eq!(reasons, [(32, "first compilation"), (17, "sizes not met before")]);
    assert_eq!(step.program().rebinds(), 0);
}

/// `loss = (a + b + t·c + t)·x`, with `b` frozen, `t` used twice and `u` not at all.
fn sharing() -> Graph {
    let g = GraphBuilder::new("sharing");
    let [a, b, t, c, u] = ["a", "b", "t", "c", "u"].map(|n| g.parameter(n, &[2], Init::Constant(2.0)));
    g.output("u", u);
    let x = g.input("x", F32, [2]);
    g.finish(((a + b + t * c + t) * x).sum_all()).unwrap()
}

#[test]
fn frozen_tied_and_unused_parameters() {
    let chosen = |names: &[&str]| {
        let step = TrainingStep::new(sharing()).optimizer(Sgd::new(1.0).weight_decay(0.0));
        step.parameters(names.iter().copied())
    };
    let mut step = chosen(&["t", "a"]).compile(&cpu(1)).unwrap();
    assert_eq!(step.layout()[1].name, "t", "in the order asked for");
    let mut state = step.init(0).unwrap();
    step.run(&mut state, [floats(&[2], &[1.0, 10.0])]).unwrap();
    assert_eq!(values(&state, "a"), [1.0, -8.0]);
    assert_eq!(values(&state, "t"), [2.0 - 3.0, 2.0 - 30.0], "one gradient for each use");
    for frozen in ["b", "c", "u"] {
        assert_eq!(values(&state, frozen), [2.0, 2.0]);
    }

    let refused = chosen(&["a", "u"]).compile(&cpu(1)).unwrap_err().to_string();
    assert!(refused.contains("'u'"), "{refused}");
    let unused = chosen(&["a", "u"]).unused(UnusedParameter::Zero).compile(&cpu(1));
    let mut step = unused.unwrap();
    step.run(&mut state, [floats(&[2], &[1.0, 10.0])]).unwrap();
    assert_eq!((values(&state, "u"), values(&state, "a")), (vec![2.0; 2], vec![0.0, -18.0]));
}

#[test]
fn gradients_of_zero_are_clipped_to_zero() {
    for clip in [None, Some(Clip::GlobalNorm(1.0)), Some(Clip::Value(1.0))] {
        let g = GraphBuilder::new("zero");
        let (w, x) = (g.parameter("w", &[3], Init::ONES), g.input("x", F32, [3]));
        let step = TrainingStep::new(g.finish((w * x).sum_all()).unwrap()).optimizer(Adam::new(0.1));
        let step = match clip {
            None => step,
            Some(Clip::GlobalNorm(max)) => step.clip_global_norm(max),
            Some(Clip::Value(max)) => step.clip_value(max),
        };
        let mut step = step.compile(&cpu(1)).unwrap();
        let mut state = step.init(0).unwrap();
        step.run(&mut state, [floats(&[3], &[0.0; 3])]).unwrap();
        assert_eq!((values(&state, "w"), values(&state, "opt/step")), (vec![1.0; 3], vec![1.0]));
        assert_eq!(values(&state, "opt/w/m"), [0.0; 3]);
        // A longer gradient is cut down to length 1, or each element to 1.
        let out = step.run(&mut state, [floats(&[3], &[3.0, 0.0, 4.0])]).unwrap();
        if clip.is_some() {
            assert_close(&[out.scalar("grad_norm").unwrap()], &[5.0], 1e-5);
        }
        let want = match clip {
            None => [0.3, 0.0, 0.4],
            Some(Clip::GlobalNorm(_)) => [0.06, 0.0, 0.08],
            Some(Clip::Value(_)) => [0.1, 0.0, 0.1],
        };
        assert_close(&values(&state, "opt/w/m"), &want, 1e-6);
    }
}
