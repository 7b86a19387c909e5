//! Every op's own samples on every runtime, in each float and integer dtype, and with axes of no elements: the compiled
//! graph against the interpreter.

use onestep_ir::interp::{Mode, run};
use onestep_ir::op::{Range, Sample};
use onestep_ir::testing::{custom_samples, difference, epsilon, graph_of, operand_values};
use onestep_ir::{Array, DType, Dense, Dim, Op, Shape, Type};
use onestep_suite::runtimes;
use onestep_suite::spread::{all_hold, part};
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

/// Whether some element, if there is one, is what reading at no place gives.
fn unread(a: &Array) -> bool {
    let nothing = |x: &f64| if a.dtype().is_float() { x.is_nan() } else { *x == 0.0 };
    a.is_empty() || a.to_f64().iter().any(nothing)
}

/// Whether the op takes lengths, of which one beyond the keys counts as all of them where nobody refuses it.
fn has_lengths(op: &Op) -> bool {
    match op {
        Op::Attention(a) => a.lengths,
        Op::AttentionGrad(a) => a.forward.lengths,
        _ => false,
    }
}

/// Runs a sample everywhere and compares with the interpreter. `Ok(false)` where the op itself refuses its operands' values, an
/// index that is none: then every runtime refuses them too, or reads NaN (0 for integers) there, or all that a length can mean.
fn compare(sample: &Sample, seed: u64) -> Result<bool, String> {
    let types: Vec<Type> = sample.operands.iter().map(|(ty, _)| ty.clone()).collect();
    let graph = graph_of(&sample.op, &types).unwrap();
    let fed: Vec<Array> = operand_values(sample, seed).iter().map(|d| d.to_array().unwrap()).collect();
    let dense: Vec<Dense> = fed.iter().map(Dense::from_array).collect();
    let want = run(&graph, &dense, &BTreeMap::new(), Mode::Declared);
    for runtime in runtimes::all() {
        let what = format!("{:?} of {types:?} on {}", sample.op, runtime.name());
        let (got, want) = match (runtime.run(&graph, &fed), &want) {
            (Ok(got), Ok(want)) => (got, &want.outputs),
            (Err(_), Err(_)) => continue,
            (Ok(got), Err(_)) if got.iter().all(unread) || has_lengths(&sample.op) => continue,
            (got, want) => return Err(format!("{what}: {got:?}, not {want:?}")),
        };
        if got.len() != want.len() {
            return Err(format!("{what}: {} results, not {}", got.len(), want.len()));
        }
        for (g, w) in got.iter().zip(want) {
            let d = difference(&Dense::from_array(g), w) / size(w);
            if d.is_nan() || d > tolerance(sample) {
                return Err(format!("{what}: off by {d}\n{g:?}\n{w:?}"));
            }
        }
    }
    Ok(want.is_ok())
}

#[test]
fn every_op_in_every_float_dtype() {
    let (mut seen, mut cases) = (BTreeSet::new(), vec![]);
    // Of the user's own ops those that run everywhere.
    let own = custom_samples().into_iter().filter(|s| s.op.rule().name() == "testing.horner");
    for (n, sample) in Op::samples().into_iter().chain(own).enumerate() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let Some(sample) = in_dtype(&sample, dtype) else { continue };
            let has_dtype = sample.operands.iter().any(|(ty, _)| ty.dtype == dtype);
            if dtype != DType::F64 && !has_dtype {
                continue;
            }
            seen.insert((sample.op.rule().name(), dtype.name()));
            cases.push((sample, n as u64));
        }
    }
    all_hold("floats", &cases, |_, (sample, n)| match compare(sample, *n)? {
        true => Ok(()),
        false => Err(format!("{:?} refuses its own sample", sample.op)),
    });
    assert!(seen.len() > 250, "{}", seen.len());
}

#[test]
fn every_op_of_integers_in_every_integer_dtype() {
    let mut cases = vec![];
    for (n, sample) in Op::samples().into_iter().enumerate() {
        for dtype in [DType::I8, DType::U8, DType::U32, DType::I64] {
            let mut sample = sample.clone();
            let ints =
                sample.operands.iter_mut().filter(|(ty, _)| matches!(ty.dtype, DType::I32 | DType::I64));
            let changed = ints.map(|(ty, _)| ty.dtype = dtype).count();
            let types: Vec<Type> = sample.operands.iter().map(|(ty, _)| ty.clone()).collect();
            if changed == 0 || sample.op.rule().infer(&types).is_err() {
                continue;
            }
            cases.push((sample, n as u64, dtype.name()));
        }
    }
    let ran = all_hold("integers", &cases, |_, (sample, n, dtype)| {
        Ok(compare(sample, *n)?.then(|| (sample.op.rule().name(), *dtype)))
    });
    let seen: BTreeSet<_> = ran.into_iter().flatten().collect();
    if part() != (0, 1) {
        return;
    }
    // Bits are read anew between dtypes of one size alone, and there is none of 8 bits beside the integers.
    let counts = |name: &str, d: &str, dtype: &str| d == dtype && name != "bitcast";
    let of = |dtype: &str| {
        seen.iter().filter(|(name, d)| counts(name, d, dtype)).map(|(name, _)| *name).collect::<Vec<_>>()
    };
    for dtype in ["u8", "u32", "i64"] {
        assert_eq!(of("i8").len(), of(dtype).len(), "{:?}, {dtype} {:?}", of("i8"), of(dtype));
    }
    assert!(of("i8").len() > 40, "{:?}", of("i8"));
}

/// Each size in turn is made 0 wherever it stands: the op is refused by its shape rule, with a mistake that says so, or
/// has the interpreter's result everywhere.
#[test]
fn every_op_of_no_elements() {
    let (mut cases, mut ran, mut refused) = (vec![], BTreeSet::new(), 0);
    for (n, sample) in Op::samples().into_iter().enumerate() {
        let sizes = sample.operands.iter().flat_map(|(ty, _)| ty.shape.0.iter().filter_map(Dim::size));
        for gone in sizes.collect::<BTreeSet<usize>>() {
            let empty = |d: &Dim| if d.size() == Some(gone) { Dim::fixed(0) } else { d.clone() };
            let mut sample = sample.clone();
            let Some(op) = sample.op.map_dims(|d| Some(empty(d))) else { continue };
            sample.op = op;
            for (ty, _) in &mut sample.operands {
                ty.shape = Shape(ty.shape.0.iter().map(empty).collect());
            }
            let types: Vec<Type> = sample.operands.iter().map(|(ty, _)| ty.clone()).collect();
            match sample.op.rule().infer(&types) {
                Ok(_) => {
                    ran.insert(sample.op.rule().name());
                    cases.push((sample, n as u64));
                }
                Err(mistake) => {
                    refused += 1;
                    assert!(format!("{mistake:?}").len() > 20, "{:?} of {types:?}: {mistake:?}", sample.op);
                }
            }
        }
    }
    all_hold("no elements", &cases, |_, (sample, n)| compare(sample, *n));
    assert!(ran.len() > 90 && refused > 5, "{} ran, {refused} refused", ran.len());
}
