//! Every rule against the trajectories recorded from `torch.optim`: 300 steps of given gradients, parameters and slots
//! at every recorded step, on the reference interpreter. The format is described in
//! `tests/data/make_torch_optimizer_trajectories.py`.

mod common;

use common::{State, close, first_state, get, given_gradients, set};
use onestep_ir::interp::run_arrays;
use onestep_ir::{Array, DType, Graph};
use onestep_optim::rules::RULES;
use onestep_optim::{Adam, AdamW, Sgd, StepOptions, UpdateRule};
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// In f64 the formulas differ from PyTorch's only in rounding.
const F64_RELATIVE: f64 = 1e-13;
const F64_ABSOLUTE: f64 = 1e-15;
/// In f32 rounding errors add up over 300 steps: a few units in the last place of the largest values met.
const F32_RELATIVE: f64 = 1e-6;
const F32_ABSOLUTE: f64 = 1e-6;

struct Recorded {
    tensors: BTreeMap<String, Array>,
    runs: BTreeMap<String, Value>,
    steps: Vec<usize>,
}

fn recorded() -> Recorded {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/torch-optimizer-trajectories.safetensors.zst");
    let mut packed = std::fs::File::open(path).unwrap();
    let mut bytes = vec![];
    ruzstd::decoding::StreamingDecoder::new(&mut packed).unwrap().read_to_end(&mut bytes).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = metadata.metadata().clone().unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let array = |t: safetensors::tensor::TensorView<'_>| {
        let dtype = if t.dtype() == safetensors::Dtype::F64 { DType::F64 } else { DType::F32 };
        Array::from_bytes(dtype, t.shape(), t.data()).unwrap()
    };
    Recorded {
        tensors: file.tensors().into_iter().map(|(name, t)| (name, array(t))).collect(),
        runs: serde_json::from_str(&metadata["runs"]).unwrap(),
        steps: serde_json::from_str(&metadata["steps"]).unwrap(),
    }
}

/// The rule with PyTorch's options. An option that is not known here fails the test, so that none goes unseen.
fn rule(name: &str, options: &Value) -> Box<dyn UpdateRule> {
    let options = options.as_object().unwrap();
    let number = |v: &Value| v.as_f64().unwrap();
    let on = |v: &Value| v.as_bool().unwrap();
    let lr = number(&options["lr"]);
    let others = options.iter().filter(|(k, _)| *k != "lr").map(|(k, v)| (k.as_str(), v));
    macro_rules! with_adam_options {
        ($first:expr) => {
            Box::new(others.fold($first, |r, (k, v)| match k {
                "betas" => r.betas(number(&v[0]), number(&v[1])),
                "eps" => r.eps(number(v)),
                "weight_decay" => r.weight_decay(number(v)),
                "amsgrad" => r.amsgrad(on(v)),
                "maximize" => r.maximize(on(v)),
                other => panic!("option '{other}' is not known"),
            }))
        };
    }
    match name {
        "sgd" => Box::new(others.fold(Sgd::new(lr), |r, (k, v)| match k {
            "momentum" => r.momentum(number(v)),
            "dampening" => r.dampening(number(v)),
            "weight_decay" => r.weight_decay(number(v)),
            "nesterov" => r.nesterov(on(v)),
            "maximize" => r.maximize(on(v)),
            other => panic!("option '{other}' is not known"),
        })),
        "adam" => with_adam_options!(Adam::new(lr)),
        "adamw" => with_adam_options!(AdamW::new(lr)),
        other => panic!("rule '{other}' is not known"),
    }
}

/// Where a recorded tensor `RUN/PARAM@STEP` or `RUN/SLOT/PARAM@STEP` is in our state.
fn path(name: &str) -> String {
    match name.split_once('/') {
        None => name.to_string(),
        Some(("step", _)) => "opt/step".to_string(),
        Some((slot, param)) => {
            let slot = match slot {
                "momentum_buffer" => "momentum",
                "exp_avg" => "m",
                "exp_avg_sq" => "v",
                "max_exp_avg_sq" => "v_max",
                other => panic!("slot '{other}' is not known"),
            };
            format!("opt/{param}/{slot}")
        }
    }
}

/// The gradients of one step, in the run's dtype.
fn gradients(recorded: &Recorded, graph: &Graph, step: usize) -> Vec<Array> {
    let of = |port: &onestep_ir::Port| {
        let (all, ty) = (recorded.tensors[&format!("grads/{}", port.name)].to_f64(), graph.ty(port.value));
        let n = ty.numel();
        Array::from_f64(ty.dtype, &ty.sizes(), &all[(step - 1) * n..step * n]).unwrap()
    };
    graph.inputs.iter().map(of).collect()
}

/// Every recorded tensor of `run` at `step`, by its name after the run's.
fn at_step<'a>(recorded: &'a Recorded, run: &str, step: usize) -> Vec<(&'a str, &'a Array)> {
    let (before, after) = (format!("{run}/"), format!("@{step}"));
    let named = recorded.tensors.iter();
    named.filter_map(|(n, t)| Some((n.strip_prefix(&before)?.strip_suffix(&after)?, t))).collect()
}

#[test]
fn every_recorded_tensor_of_every_run() {
    let recorded = recorded();
    let mut compared = 0;
    let mut failures = vec![];
    let mut rules = BTreeSet::new();
    for (run, facts) in &recorded.runs {
        let name = facts["rule"].as_str().unwrap();
        rules.insert(name);
        let (dtype, relative, absolute) = match facts["dtype"].as_str().unwrap() {
            "float64" => (DType::F64, F64_RELATIVE, F64_ABSOLUTE),
            _ => (DType::F32, F32_RELATIVE, F32_ABSOLUTE),
        };
        let rule = rule(name, &facts["options"]);
        let shapes: [(&str, &[usize]); 2] = [("w", &[7, 5]), ("b", &[5])];
        let graph = given_gradients(dtype, &shapes, &*rule, &StepOptions::default());
        let mut state: State = first_state(&graph);
        for param in ["w", "b"] {
            set(&mut state, param, &recorded.tensors[&format!("init/{param}")].to_f64());
        }
        let (mut worst, mut slots) = (0f64, BTreeSet::new());
        for step in 1..=300 {
            if let Some(lr) = facts["lr_at"].get(step.to_string()) {
                set(&mut state, "opt/lr", &[lr.as_f64().unwrap()]);
            }
            run_arrays(&graph, &gradients(&recorded, &graph, step), &mut state).unwrap();
            for (name, want) in at_step(&recorded, run, step) {
                let path = path(name);
                let got = get(&state, &path);
                assert_eq!(got.len(), want.len(), "{run} {name}");
                for (i, (got, want)) in got.iter().zip(want.to_f64()).enumerate() {
                    worst = worst.max((got - want).abs() / (absolute + relative * want.abs()));
                    if !close(*got, want, relative, absolute) {
                        failures.push(format!("{run} step {step} {path}[{i}]: got {got:e}, want {want:e}"));
                    }
                }
                slots.insert(path);
                compared += 1;
            }
            assert_eq!(
                recorded.steps.contains(&step),
                !at_step(&recorded, run, step).is_empty(),
                "{run} at {step}"
            );
        }
        for s in rule.slots() {
            assert!(slots.contains(&format!("opt/w/{}", s.name)), "{run}: slot {} is not compared", s.name);
        }
        println!("{run}: largest error {worst:.3} of the tolerance");
    }
    assert!(
        failures.is_empty(),
        "{} differ, first:\n{}",
        failures.len(),
        failures[..failures.len().min(20)].join("\n")
    );
    assert_eq!(recorded.runs.len(), 32);
    assert_eq!(compared, recorded.tensors.len() - 4, "all but the given start and gradients are compared");
    assert_eq!(rules, RULES.iter().map(|r| r.name).collect(), "every rule of the table has a trajectory");
}
