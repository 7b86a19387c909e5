//! Random graphs: the fused and grouped schedule, the unfused one, and the interpreter compute the same; plans with and
//! without reuse are sound, and arenas are tight.

use onestep_ir::interp::{self, Mode};
use onestep_ir::testing::{RandomOptions, difference, random_graph, random_inputs, random_state};
use onestep_ir::{Dense, Graph};
use onestep_passes::pipeline::{Compiled, Options, compile};
use onestep_passes::plan::PlanOptions;
use onestep_passes::schedule::execute::{ReferenceTarget, execute};

fn compiled(graph: &Graph, fuse: bool, reuse: bool) -> Compiled {
    let options = Options { fuse, plan: PlanOptions { reuse, ..PlanOptions::default() }, dump: false };
    compile(graph, &ReferenceTarget, &options).unwrap_or_else(|e| panic!("{e}\n{graph}"))
}

fn check(seed: u64, options: RandomOptions) {
    let graph = random_graph(seed, options);
    let inputs: Vec<Dense> = random_inputs(&graph, seed).iter().map(Dense::from_array).collect();
    let state: std::collections::BTreeMap<_, _> =
        random_state(&graph, seed).into_iter().map(|(k, v)| (k, Dense::from_array(&v))).collect();
    let want = interp::run(&graph, &inputs, &state, Mode::Declared).unwrap();
    let fused = compiled(&graph, true, true);
    let unfused = compiled(&graph, false, false);
    let states: Vec<Dense> = fused.schedule.states.iter().map(|s| state[&s.name].clone()).collect();
    let a = execute(&fused.schedule, &inputs, &states).unwrap();
    let b = execute(&unfused.schedule, &inputs, &states).unwrap();
    let at = |what: &str| format!("seed {seed} {what}\n{graph}\n{}", fused.schedule);
    for (i, (x, y)) in a.outputs.iter().zip(&b.outputs).enumerate() {
        assert!(same(x, y), "{}", at(&format!("output {i}: fused {x:?} unfused {y:?}")));
        let diff = difference(x, &Dense { shape: x.shape.clone(), ..want.outputs[i].clone() });
        assert!(diff < 1e-3, "{}", at(&format!("output {i} differs from the interpreter by {diff}")));
    }
    for (s, (x, y)) in fused.schedule.states.iter().zip(a.states.iter().zip(&b.states)) {
        assert!(same(x, y), "{}", at(&format!("state {}", s.name)));
        let diff = difference(x, &Dense { shape: x.shape.clone(), ..want.state[&s.name].clone() });
        assert!(diff < 1e-3, "{}", at(&format!("state {} differs by {diff}", s.name)));
    }
    let p = &fused.plan;
    assert!(
        p.arena_bytes as f64 <= 1.05 * p.live_bytes as f64,
        "{}: {} {}",
        at("arena"),
        p.arena_bytes,
        p.live_bytes
    );
}

/// Equal to the bit, any NaN being one.
fn same(a: &Dense, b: &Dense) -> bool {
    let (a, b) = (a.to_array().unwrap(), b.to_array().unwrap());
    let bits = |x: f64| if x.is_nan() { u64::MAX } else { x.to_bits() };
    a.shape() == b.shape() && a.to_f64().into_iter().map(bits).eq(b.to_f64().into_iter().map(bits))
}

#[test]
fn random_graphs_fused_and_unfused_agree() {
    for seed in 0..1000 {
        check(seed, RandomOptions::default());
    }
}
