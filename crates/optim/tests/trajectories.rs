//! Every rule against recorded trajectories: 300 steps of given gradients, parameters and slots at every recorded step, on
//! the reference interpreter. `torch-optimizer-trajectories` has `torch.optim`'s, `optimizer-references` those of the
//! papers' rules and of further options; the formats are described at the head of the scripts in `tests/data`.

mod common;

use common::recorded::Recorded;
use common::{State, close, first_state, get, given_gradients, set};
use onestep_ir::interp::run_arrays;
use onestep_ir::{Array, DType, Graph};
use onestep_optim::rules::*;
use onestep_optim::{StepOptions, UpdateRule};
use serde_json::Value;
use std::collections::BTreeSet;

/// Relative and absolute tolerance of a run.
fn tolerance(rule: &str, dtype: DType, first_recording: bool) -> (f64, f64) {
    match (rule, dtype) {
        // Iterated in bf16, where another order of a sum may round to the other side: without bf16 the error is ten times this.
        ("muon", _) if first_recording => (5e-4, 5e-4),
        // PyTorch keeps the scalars of these in f32, whatever the parameter is; the second recording has them in f64.
        ("nadam" | "asgd", DType::F64) if first_recording => (3e-8, 3e-8),
        // In f64 the formulas differ from the recorded ones only in rounding.
        (_, DType::F64) => (1e-13, 1e-15),
        // In f32 rounding errors add up over 300 steps: a few units in the last place of the largest values met.
        _ => (1e-6, 1e-6),
    }
}

/// The rule with the recorded options. An option that is not known here fails the test, so that none goes unseen.
fn rule(name: &str, options: &Value, first_recording: bool) -> Box<dyn UpdateRule> {
    let options = options.as_object().unwrap();
    let x = |v: &Value| v.as_f64().unwrap();
    let on = |v: &Value| v.as_bool().unwrap();
    let lr = x(&options["lr"]);
    let others = options.iter().filter(|(k, _)| *k != "lr").map(|(k, v)| (k.as_str(), v));
    macro_rules! with {
        ($first:expr, |$r:ident, $v:ident| $($key:literal => $set:expr),+ $(,)?) => {
            Box::new(others.fold($first, |$r, (key, $v)| match key {
                $($key => $set,)+
                other => panic!("option '{other}' of {name} is not known"),
            }))
        };
    }
    macro_rules! adam {
        ($first:expr) => {
            with!($first, |r, v|
                "betas" => r.betas(x(&v[0]), x(&v[1])), "eps" => r.eps(x(v)), "weight_decay" => r.weight_decay(x(v)),
                "amsgrad" => r.amsgrad(on(v)), "maximize" => r.maximize(on(v)),
            )
        };
    }
    match name {
        "sgd" => with!(Sgd::new(lr), |r, v|
            "momentum" => r.momentum(x(v)), "dampening" => r.dampening(x(v)), "weight_decay" => r.weight_decay(x(v)),
            "nesterov" => r.nesterov(on(v)), "maximize" => r.maximize(on(v)),
        ),
        "adam" => adam!(Adam::new(lr)),
        "adamw" => adam!(AdamW::new(lr)),
        "rmsprop" => with!(RmsProp::new(lr), |r, v|
            "alpha" => r.alpha(x(v)), "eps" => r.eps(x(v)), "weight_decay" => r.weight_decay(x(v)),
            "momentum" => r.momentum(x(v)), "centered" => r.centered(on(v)), "maximize" => r.maximize(on(v)),
        ),
        "adagrad" => with!(Adagrad::new(lr), |r, v|
            "lr_decay" => r.lr_decay(x(v)), "eps" => r.eps(x(v)), "weight_decay" => r.weight_decay(x(v)),
            "initial_accumulator_value" => r.initial_accumulator(x(v)), "maximize" => r.maximize(on(v)),
        ),
        "adadelta" => with!(Adadelta::new(lr), |r, v|
            "rho" => r.rho(x(v)), "eps" => r.eps(x(v)), "weight_decay" => r.weight_decay(x(v)),
            "maximize" => r.maximize(on(v)),
        ),
        "adamax" => with!(Adamax::new(lr), |r, v|
            "betas" => r.betas(x(&v[0]), x(&v[1])), "eps" => r.eps(x(v)), "weight_decay" => r.weight_decay(x(v)),
            "maximize" => r.maximize(on(v)),
        ),
        "nadam" => with!(Nadam::new(lr), |r, v|
            "weight_decay" => r.weight_decay(x(v)), "momentum_decay" => r.momentum_decay(x(v)),
            "decoupled_weight_decay" => r.decoupled(on(v)), "maximize" => r.maximize(on(v)),
        ),
        "radam" => with!(Radam::new(lr), |r, v|
            "betas" => r.betas(x(&v[0]), x(&v[1])), "eps" => r.eps(x(v)), "weight_decay" => r.weight_decay(x(v)),
            "decoupled_weight_decay" => r.decoupled(on(v)), "maximize" => r.maximize(on(v)),
        ),
        "rprop" => with!(Rprop::new(lr), |r, v|
            "etas" => r.etas(x(&v[0]), x(&v[1])), "step_sizes" => r.step_sizes(x(&v[0]), x(&v[1])),
            "maximize" => r.maximize(on(v)),
        ),
        "asgd" => with!(Asgd::new(lr), |r, v|
            "lambd" => r.lambda(x(v)), "alpha" => r.alpha(x(v)), "t0" => r.t0(x(v)),
            "weight_decay" => r.weight_decay(x(v)), "maximize" => r.maximize(on(v)),
        ),
        "sparse_adam" => with!(SparseAdam::new(lr), |r, v|
            "betas" => r.betas(x(&v[0]), x(&v[1])), "eps" => r.eps(x(v)), "maximize" => r.maximize(on(v)),
        ),
        "adafactor" => with!(Adafactor::new(lr), |r, v|
            "beta2_decay" => r.beta2_decay(x(v)), "eps" => r.eps1(x(&v[0])).eps2(x(&v[1])), "d" => r.clip(x(v)),
            "weight_decay" => r.weight_decay(x(v)), "maximize" => r.maximize(on(v)),
        ),
        "lamb" => with!(Lamb::new(lr), |r, v|
            "betas" => r.betas(x(&v[0]), x(&v[1])), "eps" => r.eps(x(v)), "weight_decay" => r.weight_decay(x(v)),
            "norms" => r.norms(x(&v[0]), x(&v[1])),
        ),
        "lion" => with!(Lion::new(lr), |r, v|
            "betas" => r.betas(x(&v[0]), x(&v[1])), "weight_decay" => r.weight_decay(x(v)),
        ),
        "muon" => with!(Muon::new(lr).bf16(first_recording), |r, v|
            "momentum" => r.momentum(x(v)), "nesterov" => r.nesterov(on(v)), "weight_decay" => r.weight_decay(x(v)),
            "steps" => r.steps(v.as_u64().unwrap() as usize),
            "rate" => r.rate(match v.as_str().unwrap() {
                "match_adamw" => MuonRate::MatchAdamW,
                "spectral" => MuonRate::Spectral,
                other => panic!("rate '{other}' is not known"),
            }),
        ),
        other => panic!("rule '{other}' is not known"),
    }
}

/// Where a recorded tensor `PARAM` or `SLOT/PARAM` is in our state.
fn path(rule: &str, name: &str) -> String {
    let Some((slot, param)) = name.split_once('/') else { return name.to_string() };
    let slot = match (rule, slot) {
        (_, "step" | "mu_product" | "eta" | "mu") => return format!("opt/{slot}"),
        (_, "momentum_buffer") => "momentum",
        (_, "exp_avg") => "m",
        (_, "max_exp_avg_sq") => "v_max",
        (_, "exp_avg_sq" | "square_avg" | "variance") => "v",
        (_, "grad_avg") => "mean",
        (_, "acc_delta" | "exp_inf") => "u",
        (_, "row_var") => "row",
        (_, "col_var") => "col",
        (_, "sum" | "prev" | "step_size" | "ax") => slot,
        other => panic!("slot '{other:?}' is not known"),
    };
    format!("opt/{param}/{slot}")
}

/// The gradients of one step, in the run's dtype.
fn gradients(given: &Recorded, rows: Option<&[f64]>, graph: &Graph, step: usize) -> Vec<Array> {
    let of = |port: &onestep_ir::Port| {
        let (all, ty) = (given.tensors[&format!("grads/{}", port.name)].to_f64(), graph.ty(port.value));
        let n = ty.numel();
        let mut values = all[(step - 1) * n..step * n].to_vec();
        if let Some(rows) = rows {
            let columns = n / 7;
            values.iter_mut().enumerate().for_each(|(i, x)| *x *= rows[(step - 1) * 7 + i / columns]);
        }
        Array::from_f64(ty.dtype, &ty.sizes(), &values).unwrap()
    };
    graph.inputs.iter().map(of).collect()
}

/// Compares every recorded tensor of every run. `given` has the start and the gradients. Gives the rules met.
fn compare(given: &Recorded, recorded: &Recorded, first_recording: bool) -> BTreeSet<String> {
    let mut compared = 0;
    let mut failures = vec![];
    let mut rules = BTreeSet::new();
    for (run, facts) in &recorded.runs {
        let name = facts["rule"].as_str().unwrap();
        rules.insert(name.to_string());
        let dtype = if facts["dtype"] == "float64" { DType::F64 } else { DType::F32 };
        let (relative, absolute) = tolerance(name, dtype, first_recording);
        let rule = rule(name, &facts["options"], first_recording);
        let shapes: [(&str, &[usize]); 2] = [("w", &[7, 5]), ("b", &[5])];
        let only_w = !recorded.tensors.contains_key(&format!("{run}/b@1"));
        let shapes = if only_w { &shapes[..1] } else { &shapes };
        let rows = (name == "sparse_adam").then(|| recorded.tensors["sparse/rows"].to_f64());
        let graph = given_gradients(dtype, shapes, &*rule, &StepOptions::default());
        let mut state: State = first_state(&graph);
        for (param, _) in shapes {
            set(&mut state, param, &given.tensors[&format!("init/{param}")].to_f64());
        }
        let (mut worst, mut slots) = (0f64, BTreeSet::new());
        for step in 1..=300 {
            if let Some(lr) = facts["lr_at"].get(step.to_string()) {
                set(&mut state, "opt/lr", &[lr.as_f64().unwrap()]);
            }
            run_arrays(&graph, &gradients(given, rows.as_deref(), &graph, step), &mut state).unwrap();
            let at_step = recorded.at_step(run, step);
            assert_eq!(recorded.steps.contains(&step), !at_step.is_empty(), "{run} at {step}");
            for (tensor, want) in at_step {
                let path = path(name, tensor);
                let got = get(&state, &path);
                assert_eq!(got.len(), want.len(), "{run} {tensor}");
                for (i, (got, want)) in got.iter().zip(want.to_f64()).enumerate() {
                    worst = worst.max((got - want).abs() / (absolute + relative * want.abs()));
                    if !close(*got, want, relative, absolute) {
                        failures.push(format!("{run} step {step} {path}[{i}]: got {got:e}, want {want:e}"));
                    }
                }
                slots.insert(path);
                compared += 1;
            }
        }
        for s in &graph.states {
            let slot = s.role == onestep_ir::Role::Slot;
            assert!(!slot || slots.contains(&*s.name), "{run}: slot {} is not compared", s.name);
        }
        println!("{run}: largest error {worst:.3} of the tolerance");
    }
    let first = &failures[..failures.len().min(20)];
    assert!(failures.is_empty(), "{} differ, first:\n{}", failures.len(), first.join("\n"));
    let all = recorded.tensors.keys().filter(|k| k.contains('@')).count();
    assert_eq!(compared, all, "all but what is given is compared");
    rules
}

#[test]
fn every_recorded_tensor_of_every_run() {
    let torch = Recorded::read("torch-optimizer-trajectories");
    assert_eq!(torch.runs.len(), 98);
    let mut rules = compare(&torch, &torch, true);
    let more = Recorded::read("optimizer-references");
    assert_eq!(more.runs.len(), 28);
    rules.extend(compare(&torch, &more, false));
    let table: BTreeSet<String> = RULES.iter().map(|r| r.name.to_string()).collect();
    assert_eq!(rules, table, "every rule of the table has a trajectory");
}
