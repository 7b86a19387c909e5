//! Whole training steps against the reference interpreter: the same graph, the same batches, the same first state; after
//! each of five steps every parameter, slot, counter and output agrees.

use crate::common::*;
use onestep::ir::interp;
use onestep::optim::{StepOptions, UpdateRule, training_step};
use onestep::prelude::*;
use onestep::{Clip, Executable, Options, Params};
use std::collections::BTreeMap;
use std::sync::Arc;

fn compare(name: &str, forward: &Graph, rule: &dyn UpdateRule, batches: impl Fn(u64) -> [Array; 2]) {
    let schedule = Schedule::WarmupCosine { warmup: 2, total: 10, floor: 0.1 };
    let options = StepOptions { clip: Some(Clip::GlobalNorm(0.5)), schedule, ..StepOptions::default() };
    let graph = training_step(forward, "loss", Params::All, rule, &options).unwrap().graph;
    let executable = Executable::compile(&graph, &cpu(2), &Options::default()).unwrap();
    let mut state = State::new();
    state.initialise(&graph, 42).unwrap();
    let first = |n: &str| (Arc::<str>::from(n), state.get(n).unwrap());
    let mut reference: BTreeMap<Arc<str>, Array> = state.names().map(first).collect();
    let mut bound = executable.bind(&state).unwrap();
    let mut losses = vec![];
    for n in 0..5 {
        let batch = batches(n);
        let out = bound.run(&mut state, &batch).unwrap();
        let want = interp::run_arrays(&graph, &batch, &mut reference).unwrap();
        for (port, want) in graph.outputs.iter().zip(&want) {
            let got = out.array(&port.name).unwrap();
            near(&format!("{name}, step {n}, output {}", port.name), &got, want);
        }
        losses.push(out.loss().unwrap());
        for (path, want) in &reference {
            near(&format!("{name}, step {n}, {path}"), &state.get(path).unwrap(), want);
        }
    }
    assert_eq!(values(&state, "opt/step"), [5.0]);
    assert!(losses.windows(2).all(|l| l[0] != l[1]), "{losses:?}");
}

/// Integers are equal; floats agree to 1e-4 of the tensor's largest element, which rounding does not reach in five steps
/// and a wrong rule does at the first. The gradient of a key's bias is 0 but for rounding: hence the absolute part.
#[track_caller]
fn near(what: &str, got: &Array, want: &Array) {
    assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()), "{what}");
    let (got, want) = (got.to_f64(), want.to_f64());
    let scale = want.iter().fold(0f64, |m, x| m.max(x.abs()));
    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
        assert!((g - w).abs() <= 1e-4 * scale + 2e-9, "{what}: element {i} is {g}, not {w}");
    }
}

#[test]
fn a_classifier() {
    let graph = onestep::ir::bind(&classifier(6), &BTreeMap::from([("B".into(), 6)])).unwrap();
    let rules: [&dyn UpdateRule; 3] =
        [&Sgd::new(0.1).momentum(0.9).nesterov(true), &Adam::new(0.01).amsgrad(true), &AdamW::new(0.01)];
    for rule in rules {
        compare(rule.name(), &graph, rule, |n| rows(6, n));
    }
}

#[test]
fn a_gpt_with_dropout() {
    let rule = Sgd::new(0.5).momentum(0.9);
    compare("sgd", &language_model(2, 0.2), &rule, |n| tokens(2, n));
    // With PyTorch's 1e-8 a step would be as large for rounding's gradient as for any other.
    let rule = AdamW::new(0.01).weight_decay(0.1).eps(1e-3);
    compare("adamw", &language_model(2, 0.2), &rule, |n| tokens(2, n));
}

#[test]
fn a_recurrent_network() {
    compare("recurrent", &recurrent(), &AdamW::new(0.01).eps(1e-3), sequences);
}
