//! Gradients in `f16` and `bf16`: of every op in the table, finite and close to those of the same operands in `f64`.

mod support;

use onestep_autodiff::without_gradient;
use onestep_ir::interp::{Mode, run};
use onestep_ir::op::{Range, Sample};
use onestep_ir::testing::epsilon;
use onestep_ir::{DType, Dense, Op, Type};
use std::collections::{BTreeMap, BTreeSet};
use support::{As, differentiated, is_f64, size};

/// The sample with its floats in another dtype; `None` if the op or a range does not fit it.
fn in_dtype(sample: &Sample, dtype: DType) -> Option<Sample> {
    let mut sample = sample.clone();
    for (ty, range) in sample.operands.iter_mut().filter(|(ty, _)| ty.dtype == DType::F64) {
        if matches!(range, Range::Real(a, b) if a.abs().max(b.abs()) > 100.0) {
            return None;
        }
        ty.dtype = dtype;
    }
    if let Op::Matmul(m) = &mut sample.op {
        m.dtype = dtype;
    }
    let types: Vec<Type> = sample.operands.iter().map(|(ty, _)| ty.clone()).collect();
    sample.op.rule().infer(&types).ok().map(|_| sample)
}

#[test]
fn narrow_gradients_are_those_of_f64() {
    let mut seen = BTreeSet::new();
    for sample in Op::samples().into_iter().filter(|s| is_f64(s) && without_gradient(&s.op).is_none()) {
        for dtype in [DType::F16, DType::BF16] {
            let Some(narrow) = in_dtype(&sample, dtype) else { continue };
            let tested = differentiated(&narrow, None, 1, As::Itself).unwrap();
            let run = |mode| run(&tested.graph, &tested.inputs, &BTreeMap::new(), mode).unwrap().outputs;
            // The same graph of the same numbers, once rounded after every op and once never.
            let (got, want): (Vec<Dense>, Vec<Dense>) = (run(Mode::Declared), run(Mode::AllF64));
            for &(i, output) in &tested.gradients {
                let Some(at) = output else { continue };
                if narrow.operands.get(i).is_none() {
                    continue;
                }
                let (got, want) = (got[at].reals(), want[at].reals());
                let what = format!("{:?} in {dtype:?}, operand {i}:\n{got:?}\n{want:?}", narrow.op);
                assert!(got.iter().all(|x| x.is_finite()), "{what}");
                let gap = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(gap <= 32.0 * epsilon(dtype) * size(want).max(0.05), "{gap}: {what}");
                seen.insert((narrow.op.rule().name(), dtype.name()));
            }
        }
    }
    assert!(seen.len() > 120, "{}", seen.len());
}
