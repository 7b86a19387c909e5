//! What stands around the update rule: loss scaling, accumulation over micro-batches, averages of the parameters, storage
//! in fewer bits; on the reference interpreter.

#[path = "../common/mod.rs"]
mod common;

mod accumulate;
mod average;
mod loss_scale;
mod storage;

use onestep_ir::{DType, Graph, GraphBuilder, Init, Role};
use onestep_optim::{Params, StepOptions, UpdateRule, training_step};
use serde_json::Value;

/// What PyTorch did, as `tests/data/make_torch_mixed_precision.py` recorded it.
fn recorded() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/torch-mixed-precision.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// Loss Σ w·x: the gradient of `w` is the input `x`, both of 3 elements. A running statistic, guarded, follows the input.
fn linear(dtype: DType) -> Graph {
    let g = GraphBuilder::new("linear");
    let (w, x) = (g.state("w", Role::Parameter, dtype, &[3], Init::ONES), g.input("x", dtype, [3]));
    let mean = g.state("mean", Role::Buffer, dtype, &[3], Init::ZEROS);
    g.update(mean, (mean + x) * 0.5, true);
    g.finish((w * x).sum_all()).unwrap()
}

fn step(graph: &Graph, rule: &dyn UpdateRule, options: &StepOptions) -> Graph {
    training_step(graph, "loss", Params::All, rule, options).unwrap().graph
}
