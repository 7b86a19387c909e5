//! Every rule against recorded trajectories: 300 steps of given gradients, parameters and slots at every recorded step, on
//! every runtime. `torch-optimizer-trajectories` has `torch.optim`'s, `optimizer-references` those of the
//! papers' rules and of further options; the formats are described at the head of the scripts in `tests/data`.

#[path = "../../../crates/optim/tests/common/mod.rs"]
mod common;

use common::recorded::Recorded;
use common::{close, given_gradients};
use onestep_ir::{Array, DType, Graph};
use onestep_optim::rules::*;
use onestep_optim::{StepOptions, UpdateRule};
use onestep_suite::spread::{all_hold, part};
use onestep_suite::{Runtime, Session, runtimes};
use serde_json::Value;
use std::collections::BTreeSet;

/// Relative and absolute tolerance of a run.
fn tolerance(runtime: &str, rule: &str, dtype: DType, first_recording: bool) -> (f64, f64) {
    match (rule, dtype) {
        // Iterated in bf16, where another order of a sum may round to the other side: without bf16 the error is ten times this.
        ("muon", _) if first_recording => (5e-4, 5e-4),
        // PyTorch keeps the scalars of these in f32, whatever the parameter is; the second recording has them in f64.
        ("nadam" | "asgd", DType::F64) if first_recording => (3e-8, 3e-8),
        // In f64 the formulas differ from the recorded ones only in rounding.
        (_, DType::F64) if ["interpreter", "rewritten"].contains(&runtime) => (1e-13, 1e-15),
        // A device adds in another order.
        (_, DType::F64) => (1e-12, 1e-14),
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

/// Writes one state tensor, in the dtype that it has.
fn set(session: &mut dyn Session, path: &str, values: &[f64]) -> Result<(), String> {
    let old = session.get(path)?;
    session.set(path, &Array::from_f64(old.dtype(), old.shape(), values).unwrap());
    Ok(())
}

/// What is recorded, and where its start and gradients are.
struct Recording<'a> {
    given: &'a Recorded,
    recorded: &'a Recorded,
    first: bool,
}

/// Compares every recorded tensor of a run; how many there are, and its rule.
fn compare(runtime: &dyn Runtime, of: &Recording<'_>, run: &str) -> Result<(usize, String), String> {
    let Recording { given, recorded, first } = of;
    let facts = &recorded.runs[run];
    let name = facts["rule"].as_str().unwrap();
    let dtype = if facts["dtype"] == "float64" { DType::F64 } else { DType::F32 };
    let (relative, absolute) = tolerance(runtime.name(), name, dtype, *first);
    let rule = rule(name, &facts["options"], *first);
    let shapes: [(&str, &[usize]); 2] = [("w", &[7, 5]), ("b", &[5])];
    let only_w = !recorded.tensors.contains_key(&format!("{run}/b@1"));
    let shapes = if only_w { &shapes[..1] } else { &shapes };
    let rows = (name == "sparse_adam").then(|| recorded.tensors["sparse/rows"].to_f64());
    let graph = given_gradients(dtype, shapes, &*rule, &StepOptions::default());
    let mut session = runtime.open(&graph)?;
    for (param, _) in shapes {
        set(&mut *session, param, &given.tensors[&format!("init/{param}")].to_f64())?;
    }
    let (mut failures, mut slots, mut compared) = (vec![], BTreeSet::new(), 0);
    for step in 1..=300 {
        if let Some(lr) = facts["lr_at"].get(step.to_string()) {
            set(&mut *session, "opt/lr", &[lr.as_f64().unwrap()])?;
        }
        session.call(&gradients(given, rows.as_deref(), &graph, step))?;
        let at_step = recorded.at_step(run, step);
        assert_eq!(recorded.steps.contains(&step), !at_step.is_empty(), "{run} at {step}");
        for (tensor, want) in at_step {
            let path = path(name, tensor);
            let got = session.get(&path)?.to_f64();
            assert_eq!(got.len(), want.len(), "{run} {tensor}");
            for (i, (got, want)) in got.iter().zip(want.to_f64()).enumerate() {
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
    match failures.first() {
        Some(first) => Err(format!("{} differ, first {first}", failures.len())),
        None => Ok((compared, name.to_string())),
    }
}

#[test]
fn every_recorded_tensor_of_every_run() {
    let torch = Recorded::read("torch-optimizer-trajectories");
    assert_eq!(torch.runs.len(), 98);
    let more = Recorded::read("optimizer-references");
    assert_eq!(more.runs.len(), 28);
    for runtime in runtimes::all() {
        let mut rules = BTreeSet::new();
        for (recorded, first) in [(&torch, true), (&more, false)] {
            let of = Recording { given: &torch, recorded, first };
            let runs: Vec<&String> = recorded.runs.keys().collect();
            let good = all_hold(runtime.name(), &runs, |_, run| compare(runtime, &of, run));
            let compared: usize = good.iter().map(|(n, _)| n).sum();
            let all = recorded.tensors.keys().filter(|k| k.contains('@')).count();
            assert!(part() != (0, 1) || compared == all, "{compared} of {all}: all but what is given");
            rules.extend(good.into_iter().map(|(_, rule)| rule));
        }
        let table: BTreeSet<String> = RULES.iter().map(|r| r.name.to_string()).collect();
        assert!(part() != (0, 1) || rules == table, "every rule of the table has a trajectory");
    }
}
