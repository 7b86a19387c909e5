//! What the cases share: devices, arrays, small models, and state as plain data.
#![allow(dead_code)]

use onestep::ir::testing::Rng;
use onestep::nn::{Activation, Gpt, Recurrent, mlp_classifier};
use onestep::prelude::*;
use std::collections::BTreeMap;

/// A small GPT with dropout.
pub const TINY: Gpt =
    Gpt { vocab: 32, width: 16, layers: 2, heads: 2, context: 8, dropout: 0.1, ..Gpt::MINI };

/// The CPU with this many threads.
pub fn cpu(threads: usize) -> Device {
    Device::cpu_with(threads).unwrap()
}

/// An `f32` array.
pub fn floats(shape: &[usize], values: &[f32]) -> Array {
    Array::new(shape, values).unwrap()
}

/// An `i32` array.
pub fn ints(shape: &[usize], values: &[i32]) -> Array {
    Array::new(shape, values).unwrap()
}

/// Uniform numbers in ±1.
pub fn random(shape: &[usize], seed: u64) -> Array {
    let mut rng = Rng::new(seed);
    let n: usize = shape.iter().product();
    floats(shape, &(0..n).map(|_| rng.real(-1.0, 1.0) as f32).collect::<Vec<_>>())
}

/// Uniform integers from 0 to `below − 1`.
pub fn random_ints(shape: &[usize], below: i64, seed: u64) -> Array {
    let mut rng = Rng::new(seed);
    let n: usize = shape.iter().product();
    ints(shape, &(0..n).map(|_| rng.int(0, below - 1) as i32).collect::<Vec<_>>())
}

/// A tensor of the state as numbers.
pub fn values(state: &State, path: &str) -> Vec<f64> {
    state.get(path).unwrap().to_f64()
}

/// Every tensor's bytes, by path.
pub fn snapshot(state: &State) -> BTreeMap<String, Vec<u8>> {
    state.names().map(|n| (n.to_string(), state.get(n).unwrap().bytes().to_vec())).collect()
}

/// The same without what a skipped step is allowed to change.
pub fn guarded(state: &State) -> BTreeMap<String, Vec<u8>> {
    let mut all = snapshot(state);
    all.remove("opt/skipped");
    all
}

/// Asserts that two lists agree to within an absolute tolerance; NaN agrees with NaN.
#[track_caller]
pub fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
    let near = |g: f64, w: f64| g == w || (g - w).abs() <= tolerance || (g.is_nan() && w.is_nan());
    let agree = got.len() == want.len() && got.iter().zip(want).all(|(g, w)| near(*g, *w));
    assert!(agree, "got {got:?}, want {want:?} to within {tolerance}");
}

/// A classifier of 12 features with 3 classes: inputs `x` and `y` of `B` rows, outputs `loss` and `accuracy`.
pub fn classifier(most: usize) -> Graph {
    let g = GraphBuilder::new("classifier");
    let x = g.input("x", F32, (dim("B").at_most(most), 12));
    let y = g.input("y", I32, (dim("B"),));
    let logits = mlp_classifier(&g, x, &[16], 3, Activation::Relu);
    g.output("accuracy", logits.argmax(-1).equals(y).mean());
    g.finish(logits.cross_entropy(y)).unwrap()
}

/// A batch for it.
pub fn rows(n: usize, seed: u64) -> [Array; 2] {
    [random(&[n, 12], seed), random_ints(&[n], 3, seed + 1000)]
}

/// A classifier of sequences: a GRU in both directions and a stack of equal layers, as scans. Inputs `x` and `y` of 4
/// sequences of 9 steps, output `loss`.
pub fn recurrent() -> Graph {
    let g = GraphBuilder::new("recurrent");
    let x = g.input("x", F32, [4, 9, 12]);
    let y = g.input("y", I32, [4]);
    let network = Recurrent { layers: 2, bidirectional: true, dropout: 0.1, ..Recurrent::gru(8) };
    let read = network.build(&g, "gru", x).output.mean_over(&[1]);
    let deep =
        g.repeat(3, read, |h, _| nn::dropout(&g, "deep", nn::linear(&g, "deep", h, 16).relu(), 0.1) + h);
    g.finish(nn::linear(&g, "out", deep, 3).cross_entropy(y)).unwrap()
}

/// A batch for it.
pub fn sequences(seed: u64) -> [Array; 2] {
    [random(&[4, 9, 12], seed), random_ints(&[4], 3, seed + 1000)]
}

/// A language model over `TINY`'s tokens with this dropout: inputs `x` and `y`, output `loss`.
pub fn language_model(batch: usize, dropout: f64) -> Graph {
    let g = GraphBuilder::new("tiny-gpt");
    let x = g.input("x", I32, [batch, TINY.context]);
    let y = g.input("y", I32, [batch, TINY.context]);
    let logits = Gpt { dropout, ..TINY }.build(&g, x);
    g.finish(logits.cross_entropy(y)).unwrap()
}

/// A batch for it.
pub fn tokens(batch: usize, seed: u64) -> [Array; 2] {
    let ids = |seed| random_ints(&[batch, TINY.context], TINY.vocab as i64, seed);
    [ids(seed), ids(seed + 1000)]
}

/// One run of an inference program on a fresh state from seed 0, with every output.
pub fn outputs(graph: &Graph, feeds: &[Array]) -> BTreeMap<String, Vec<f64>> {
    let mut program = compile(graph, &cpu(2)).unwrap();
    let mut state = program.init(0).unwrap();
    let out = program.run(&mut state, feeds).unwrap();
    out.names().map(|n| (n.to_string(), out.array(n).unwrap().to_f64())).collect()
}

/// The loss of a graph and its gradients by path, at these parameter values.
pub fn gradients(graph: &Graph, at: &[(&str, Array)]) -> (f64, BTreeMap<String, Vec<f64>>) {
    let params = at.iter().map(|(n, _)| n.to_string()).collect();
    let params = onestep::Params::Paths(params);
    let mut step =
        onestep::compile_with_backward(graph, "loss", params, &cpu(2), &onestep::Options::default()).unwrap();
    let mut state = step.init(0).unwrap();
    at.iter().for_each(|(name, array)| state.set(name, array));
    let loss = step.run(&mut state, ()).unwrap().loss().unwrap();
    (loss, at.iter().map(|(n, _)| (n.to_string(), values(&state, &format!("grad/{n}")))).collect())
}
