//! Groups, schedules and L-BFGS in compiled programs: one executable, whatever changes.

use crate::common::*;
use onestep::prelude::*;
use onestep::{Lbfgs, Lion, Options, Params, SparseAdam, compile_lbfgs};
use std::io::Read;

/// The language model with AdamW and these groups.
fn grouped(groups: Vec<Group>) -> CompiledStep {
    let step = TrainingStep::new(language_model(2, 0.0)).optimizer(AdamW::new(1e-2).weight_decay(0.1));
    groups.into_iter().fold(step.clip_global_norm(1.0), TrainingStep::group).compile(&cpu(2)).unwrap()
}

fn no_decay() -> Group {
    Group::new("no_decay", ["*.bias", "*norm*"]).weight_decay(0.0)
}

#[test]
fn groups_cost_no_kernels() {
    let kernels = |groups| grouped(groups).program().executable().unwrap().compiled().schedule.kernels.len();
    let one = kernels(vec![]);
    assert_eq!(kernels(vec![no_decay()]), one);
    let embedding = Group::new("embedding", ["tok.*"]).lr(1e-3).lr_scale(0.5);
    assert_eq!(kernels(vec![no_decay(), embedding]), one);
}

#[test]
fn a_hundred_rates_of_two_groups_compile_once() {
    let g = GraphBuilder::new("slopes");
    let loss = g.parameter("a", &[1], Init::ZEROS).sum_all() + g.parameter("b", &[1], Init::ZEROS).sum_all();
    let rise = Schedule::Linear { from: 0.0, to: 1.0, steps: 4 };
    let step = TrainingStep::new(g.finish(loss).unwrap()).optimizer(Sgd::new(0.0)).schedule(rise);
    let mut step = step.group(Group::new("b", ["b"]).lr(0.0)).compile(&cpu(1)).unwrap();
    let mut state = step.init(0).unwrap();
    let (mut a, mut b) = (0.0, 0.0);
    for n in 0..100 {
        let (rate, share) = (1.0 / (n + 3) as f64, (n as f64 / 4.0).min(1.0));
        state.set_scalar("opt/lr", rate).unwrap();
        state.set_scalar("opt/b/lr", 2.0 * rate).unwrap();
        step.run(&mut state, ()).unwrap();
        (a, b) = (a - rate * share, b - 2.0 * rate * share);
        assert_close(&values(&state, "a"), &[a], 1e-5);
        assert_close(&values(&state, "b"), &[b], 1e-5);
    }
    assert_eq!((step.compilations().len(), step.program().rebinds()), (1, 0));
}

#[test]
fn a_model_learns_by_muon_adamw_and_lion_at_once() {
    for muon in [Muon::new(0.01), Muon::new(0.01).bf16(true)] {
        let mut step = TrainingStep::new(language_model(2, 0.0))
            .optimizer(muon)
            .group(Group::new("embedding", ["tok.*"]).rule(Lion::new(1e-3)))
            .clip_global_norm(1.0)
            .compile(&cpu(2))
            .unwrap();
        let mut state = step.init(3).unwrap();
        let batch = tokens(2, 5);
        let mut losses = (0..30).map(|_| step.run(&mut state, &batch).unwrap().loss().unwrap());
        let first = losses.next().unwrap();
        let last = losses.last().unwrap();
        assert!(last < 0.7 * first, "{first} to {last}");
        assert_eq!(step.compilations().len(), 1);
    }
}

#[test]
fn sparse_adam_touches_the_rows_that_were_looked_up() {
    let g = GraphBuilder::new("table");
    let ids = g.input("ids", I32, [3]);
    let table = g.parameter("table", &[6, 4], Init::Normal { mean: 0.0, std: 1.0 });
    let graph = g.finish((table.gather(0, ids) - 1.0).square().sum_all()).unwrap();
    let mut step = TrainingStep::new(graph).optimizer(SparseAdam::new(0.1)).compile(&cpu(2)).unwrap();
    let mut state = step.init(2).unwrap();
    let row = |state: &State, path: &str, i: usize| values(state, path)[4 * i..4 * i + 4].to_vec();
    let paths = ["table", "opt/table/m", "opt/table/v"];
    for looked_up in [[1, 4, 1], [2, 2, 2], [4, 1, 0]] {
        let before = state.try_clone().unwrap();
        step.run(&mut state, [&ints(&[3], &looked_up)]).unwrap();
        for (path, i) in paths.iter().flat_map(|p| (0..6).map(move |i| (*p, i))) {
            let moved = row(&before, path, i) != row(&state, path, i);
            assert_eq!(moved, looked_up.contains(&(i as i32)), "row {i} of {path} after {looked_up:?}");
        }
    }
}

#[test]
fn lbfgs_on_an_executable_is_pytorch_s() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/torch-lbfgs.safetensors.zst");
    let mut packed = std::fs::File::open(path).unwrap();
    let mut bytes = vec![];
    ruzstd::decoding::StreamingDecoder::new(&mut packed).unwrap().read_to_end(&mut bytes).unwrap();
    let (recorded, _) = onestep::io::safetensors::from_bytes(&bytes).unwrap();
    let get = |name: &str| recorded.iter().find(|(n, _)| *n == name).unwrap().1.to_f64();

    let g = GraphBuilder::new("network");
    let (data, targets) = (g.input("data", F64, [20, 3]), g.input("targets", F64, [20, 2]));
    let shapes: [(&str, &[usize]); 3] = [("w1", &[5, 3]), ("b1", &[5]), ("w2", &[2, 5])];
    let [w1, b1, w2] = shapes.map(|(name, shape)| g.state(name, Role::Parameter, F64, shape, Init::ZEROS));
    let hidden = (data.matmul_t(w1, false, true) + b1).tanh();
    let loss = (hidden.matmul_t(w2, false, true) - targets).square().mean();
    let graph = g.finish(loss).unwrap();
    let inputs = [("data", [20, 3]), ("targets", [20, 2])]
        .map(|(name, shape)| Array::from_f64(F64, &shape, &get(name)).unwrap());

    let methods = [
        ("6-network", Lbfgs::new(0.1).iterations(4)),
        ("7-network", Lbfgs::new(1.0).iterations(4).strong_wolfe(true)),
    ];
    for (run, method) in methods {
        let mut step =
            compile_lbfgs(&graph, "loss", Params::All, method, &cpu(1), &Options::default()).unwrap();
        let mut state = step.init(0).unwrap();
        for (name, shape) in shapes {
            state.set(name, &Array::from_f64(F64, shape, &get(&format!("{run}/start/{name}"))).unwrap());
        }
        for n in 1..=12 {
            let loss = step.run(&mut state, &inputs).unwrap();
            assert_close(&[loss], &get(&format!("{run}/loss@{n}")), 1e-9);
            for (name, _) in shapes {
                assert_close(&values(&state, name), &get(&format!("{run}/{name}@{n}")), 1e-8);
            }
            assert_eq!(step.method().evaluated() as f64, get(&format!("{run}/evaluations@{n}"))[0]);
        }
        assert_eq!(step.backward().compilations().len(), 1);
    }
}

#[test]
fn lbfgs_minimises_an_f32_model() {
    let graph = classifier(6);
    let method = Lbfgs::new(1.0).strong_wolfe(true);
    let mut step =
        compile_lbfgs(&graph, "loss", Params::All, method.clone(), &cpu(2), &Options::default()).unwrap();
    let mut state = step.init(1).unwrap();
    let batch = rows(6, 2);
    let first = step.run(&mut state, &batch).unwrap();
    let last = step.run(&mut state, &batch).unwrap();
    assert!(last < 1e-2 * first, "{first} to {last}");
    // The learning rate changes, the history stays.
    let slower = step.method().clone().lr(0.5);
    step.set_method(slower).unwrap();
    assert!(step.set_method(method.lr(f64::NAN)).unwrap_err().to_string().contains("lr"));
    assert!(step.run(&mut state, &batch).unwrap() <= last);
    let error = compile_lbfgs(
        &graph,
        "loss",
        Params::from(["fc1.wieght"]),
        Lbfgs::new(1.0),
        &cpu(1),
        &Options::default(),
    );
    assert!(error.unwrap_err().to_string().contains("did you mean 'fc1.weight'?"));
}

#[test]
fn mistakes_of_groups_are_errors_of_compile() {
    let step = TrainingStep::new(classifier(2)).optimizer(AdamW::new(0.1)).clip_value(1.0);
    let error = step.group(Group::new("bias", ["*.bais"]).weight_decay(0.0)).compile(&cpu(1)).unwrap_err();
    assert!(error.to_string().contains("'*.bais'"), "{error}");
    let step = TrainingStep::new(classifier(2)).optimizer(AdamW::new(0.1)).clip_global_norm(1.0);
    let error = step.group(Group::new("bias", ["*.bias"]).set("momentum", 0.0)).compile(&cpu(1)).unwrap_err();
    assert!(error.to_string().contains("no number 'momentum'"), "{error}");
}
