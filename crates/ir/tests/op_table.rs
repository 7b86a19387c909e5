//! Walks the op table: every op is inferred, evaluated by its reference, and compared with its decomposition.

use onestep_ir::interp::{Mode, run};
use onestep_ir::op::Sample;
use onestep_ir::testing::custom_samples;
use onestep_ir::{DType, Dense, Graph, Op, Shape, Type, testing};
use std::collections::{BTreeMap, BTreeSet};

/// Those of the table, and of ops as a user writes them.
fn samples() -> Vec<Sample> {
    [Op::samples(), custom_samples()].concat()
}

fn types(sample: &Sample) -> Vec<Type> {
    sample.operands.iter().map(|(ty, _)| ty.clone()).collect()
}

fn eval(graph: &Graph, inputs: &[Dense], mode: Mode) -> Vec<Dense> {
    run(graph, inputs, &BTreeMap::new(), mode).unwrap_or_else(|e| panic!("{e}")).outputs
}

#[test]
fn every_name_has_a_sample() {
    let sampled: BTreeSet<&str> = Op::samples().iter().map(|s| s.op.rule().name()).collect();
    // A sample cannot carry a region: `call` is tested where it is inlined, `scan` in `scan.rs`.
    let names: BTreeSet<&str> = Op::names().into_iter().filter(|n| !["call", "scan"].contains(n)).collect();
    assert_eq!(sampled, names);
    assert_eq!(names.len() + 2, Op::names().len(), "a mnemonic stands twice");
}

#[test]
fn references_give_the_inferred_types() {
    for sample in samples() {
        let graph =
            testing::graph_of(&sample.op, &types(&sample)).unwrap_or_else(|e| panic!("{:?}: {e}", sample.op));
        let inferred = sample.op.rule().infer(&types(&sample)).unwrap();
        for seed in 0..3 {
            let results = eval(&graph, &testing::operand_values(&sample, seed), Mode::Declared);
            let got: Vec<Type> = results.iter().map(Dense::ty).collect();
            assert_eq!(got, inferred, "{:?}", sample.op);
            for r in &results {
                assert_eq!(r.to_array().unwrap().shape(), r.shape, "{:?}", sample.op);
            }
        }
    }
}

/// In all-f64 mode the two may differ only by the order of operations, and by constants that have the rounding of
/// their dtype.
#[test]
fn decompositions_equal_references() {
    let mut composites = BTreeSet::new();
    for sample in samples() {
        let types = types(&sample);
        let Some(graph) = testing::decomposed(&sample.op, &types) else { continue };
        let graph = graph.unwrap_or_else(|e| panic!("{:?}: {e}", sample.op));
        let whole = testing::graph_of(&sample.op, &types).unwrap();
        composites.insert(sample.op.rule().name());
        let narrow = types.iter().any(|t| t.dtype.is_float() && t.dtype != DType::F64);
        for seed in 0..5 {
            let inputs = testing::operand_values(&sample, seed);
            let (want, got) = (eval(&whole, &inputs, Mode::AllF64), eval(&graph, &inputs, Mode::AllF64));
            assert_eq!(want.len(), got.len(), "{:?}", sample.op);
            for (w, g) in want.iter().zip(&got) {
                let d = testing::difference(w, g);
                assert!(d <= if narrow { 1e-6 } else { 1e-12 }, "{:?}: {d}\n{w:?}\n{g:?}", sample.op);
            }
            // With each op rounded, the decomposition stays within a few roundings of the result's dtype.
            let (want, got) = (eval(&whole, &inputs, Mode::Declared), eval(&graph, &inputs, Mode::Declared));
            for (w, g) in want.iter().zip(&got) {
                let d = testing::difference(w, g);
                let low =
                    types.iter().map(|t| testing::epsilon(t.dtype)).fold(testing::epsilon(w.dtype), f64::max);
                assert!(d <= 1e-12 + 8.0 * low, "{:?}: {d}\n{w:?}\n{g:?}", sample.op);
            }
        }
    }
    let want = [
        "attention",
        "attention_grad",
        "convolution",
        "convolution_input_grad",
        "convolution_weight_grad",
        "bce_with_logits",
        "cross_entropy",
        "ctc_loss",
        "dropout",
        "gelu",
        "layer_norm",
        "log_softmax",
        "max_pool",
        "mean",
        "quantize",
        "rms_norm",
        "round_stochastic",
        "silu",
        "softmax",
        "sum_pool",
        "testing.horner",
    ];
    assert_eq!(composites, want.into_iter().collect());
}

/// Decompositions name no op but primitives: a backend that has the primitives has everything.
#[test]
fn decompositions_end_in_primitives() {
    for sample in samples() {
        let Some(graph) = testing::decomposed(&sample.op, &types(&sample)) else { continue };
        let graph = graph.unwrap();
        for node in graph.body_nodes() {
            let operands: Vec<Type> = node.operands.iter().map(|v| graph.ty(*v).clone()).collect();
            assert!(testing::decomposed(&node.op, &operands).is_none(), "{:?} in {:?}", node.op, sample.op);
        }
        let inferred = sample.op.rule().infer(&types(&sample)).unwrap();
        let got: Vec<Type> = graph.outputs.iter().map(|o| graph.ty(o.value).clone()).collect();
        assert_eq!(got, inferred, "{:?}", sample.op);
    }
}

/// A shape rule answers or refuses whatever it is given; it never panics.
#[test]
fn shape_rules_are_total() {
    use onestep_ir::Dim;
    let huge = Dim::fixed(usize::MAX);
    let shapes: Vec<Shape> = vec![
        Shape::scalar(),
        Shape::fixed(&[0]),
        Shape::fixed(&[2]),
        Shape::fixed(&[4, 3]),
        Shape::fixed(&[1, 2, 3, 4]),
        Shape(vec![huge.clone()]),
        Shape(vec![huge.clone(), huge]),
        Shape(vec![Dim::var("B"), Dim::fixed(3)]),
        Shape(vec![Dim::var("B"), Dim::var("T"), Dim::fixed(2), Dim::fixed(2)]),
    ];
    let all: Vec<Type> = [DType::F64, DType::BF16, DType::I32, DType::U32, DType::Bool]
        .into_iter()
        .flat_map(|d| shapes.iter().map(move |s| Type::new(d, s.clone())))
        .collect();
    let mut rng = testing::Rng::new(1);
    for sample in samples() {
        for count in 0..8 {
            for _ in 0..40 {
                let operands: Vec<Type> =
                    (0..count).map(|_| all[rng.int(0, all.len() as i64) as usize].clone()).collect();
                let _ = sample.op.rule().infer(&operands);
                // One operand of a good list replaced: most rules look further.
                let mut nearly = types(&sample);
                if !nearly.is_empty() {
                    let at = rng.int(0, nearly.len() as i64) as usize;
                    nearly[at] = all[rng.int(0, all.len() as i64) as usize].clone();
                    let _ = sample.op.rule().infer(&nearly);
                }
            }
        }
    }
}

/// Nothing is promoted: an operand in another float dtype is refused, and the remedy is a cast, unless the rule says that
/// the operand may have its own dtype.
#[test]
fn mixed_dtypes_are_refused_with_a_cast() {
    let mut refused = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for sample in samples() {
        let floats = sample.operands.iter().filter(|(t, _)| t.dtype == DType::F64).count();
        for i in (0..sample.operands.len()).filter(|_| floats > 1) {
            let mut mixed = types(&sample);
            if mixed[i].dtype != DType::F64 {
                continue;
            }
            mixed[i].dtype = DType::F32;
            let name = sample.op.rule().name();
            match sample.op.rule().infer(&mixed) {
                Err(mistake) => {
                    let text = format!("{mistake:?}");
                    assert!(text.contains("cast"), "{name}: {text}");
                    refused.insert(name);
                }
                Ok(_) => drop(taken.insert(name)),
            }
        }
    }
    assert!(refused.len() > 20, "{refused:?}");
    assert_eq!(taken, BTreeSet::new(), "take operands of two float dtypes");
}
