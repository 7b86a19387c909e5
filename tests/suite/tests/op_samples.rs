//! Every op's own samples on every runtime, in each float dtype: the compiled graph against the interpreter.

use onestep_ir::interp::{Mode, run};
use onestep_ir::op::{Range, Sample};
use onestep_ir::testing::{difference, epsilon, graph_of, operand_values};
use onestep_ir::{Array, DType, Dense, Op, Type};
use onestep_suite::runtimes;
use std::collections::{BTreeMap, BTreeSet};

/// The sample with its `f64` operands in another dtype; `None` if the op or the range does not fit it.
fn in_dtype(sample: &Sample, dtype: DType) -> Option<Sample> {
    let mut sample = sample.clone();
    for (ty, range) in sample.operands.iter_mut().filter(|(ty, _)| ty.dtype == DType::F64) {
        // Beyond 100, a narrow float's steps are wider than what the sample is about.
        if dtype.size() == 2 && matches!(range, Range::Real(a, b) if a.abs().max(b.abs()) > 100.0) {
            return None;
        }
        ty.dtype = dtype;
    }
    if let Op::Matmul(m) = &mut sample.op
        && m.dtype == DType::F64
    {
        m.dtype = dtype;
    }
    let types: Vec<Type> = sample.operands.iter().map(|(ty, _)| ty.clone()).collect();
    sample.op.rule().infer(&types).ok().map(|_| sample)
}

/// The largest finite magnitude, or 1: sums that cancel are as exact as their terms.
fn size(d: &Dense) -> f64 {
    match d.dtype.is_float() {
        true => d.reals().iter().filter(|x| x.is_finite()).fold(1.0, |m, x| m.max(x.abs())),
        false => 1.0,
    }
}

/// How far a result may lie from the interpreter's: a few roundings of the least exact dtype that takes part.
fn tolerance(sample: &Sample) -> f64 {
    let coarsest = sample.operands.iter().map(|(ty, _)| epsilon(ty.dtype)).fold(0.0, f64::max);
    16.0 * coarsest
}

#[test]
fn every_op_in_every_float_dtype() {
    let mut seen = BTreeSet::new();
    for (n, sample) in Op::samples().into_iter().enumerate() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let Some(sample) = in_dtype(&sample, dtype) else { continue };
            let has_f64 = sample.operands.iter().any(|(ty, _)| ty.dtype == dtype);
            if dtype != DType::F64 && !has_f64 {
                continue;
            }
            let types: Vec<Type> = sample.operands.iter().map(|(ty, _)| ty.clone()).collect();
            let graph = graph_of(&sample.op, &types).unwrap();
            let fed: Vec<Array> =
                operand_values(&sample, n as u64).iter().map(|d| d.to_array().unwrap()).collect();
            let dense: Vec<Dense> = fed.iter().map(Dense::from_array).collect();
            let want = run(&graph, &dense, &BTreeMap::new(), Mode::Declared).unwrap().outputs;
            for runtime in runtimes::all() {
                let what = format!("{:?} of {types:?} on {}", sample.op, runtime.name());
                let got = runtime.run(&graph, &fed).unwrap_or_else(|e| panic!("{what}: {e}"));
                for (g, w) in got.iter().zip(&want) {
                    let d = difference(&Dense::from_array(g), w) / size(w);
                    assert!(d <= tolerance(&sample), "{what}: {d}\n{g:?}\n{w:?}");
                }
            }
            seen.insert((sample.op.rule().name(), dtype.name()));
        }
    }
    assert!(seen.len() > 250, "{}", seen.len());
}
