//! Walks the op table: the gradient of every operand of every sample against finite differences in `f64`, the same
//! for the gradient's own gradient, and each composite's gradient against that of its decomposition.

mod support;

use onestep_autodiff::without_gradient;
use onestep_ir::Op;
use onestep_ir::op::{Range, Sample};
use onestep_ir::ops::UnaryKind;
use onestep_ir::testing::custom_samples;
use std::collections::BTreeSet;
use support::{As, agree, choices, differentiated, is_f64, outputs, size, slopes};

const TOLERANCE: f64 = 1e-6;

/// Samples whose gradient is zero, so that a scaled gradient would pass too; each with the reason.
fn flat(sample: &Sample, operand: usize) -> Option<&'static str> {
    if sample.operands[operand].0.numel() == 0 {
        return Some("the operand is empty");
    }
    let types: Vec<_> = sample.operands.iter().map(|o| o.0.clone()).collect();
    if sample.op.rule().infer(&types).unwrap().iter().all(|ty| ty.numel() == 0) {
        return Some("the result is empty");
    }
    match &sample.op {
        Op::Unary(u) if matches!(u.kind, UnaryKind::Sign | UnaryKind::Floor) => Some("steps are flat"),
        Op::Unary(u) if matches!(u.kind, UnaryKind::Ceil | UnaryKind::Round | UnaryKind::Trunc) => {
            Some("steps are flat")
        }
        Op::Dropout(d) if d.p.get() == 1.0 => Some("everything is dropped"),
        Op::Softmax(_) if sample.operands[0].1 == Range::Real(0.99e8, 1e8) => {
            Some("one element has all the weight")
        }
        Op::Attention(_) | Op::AttentionGrad(_) if sample.operands[1].0.numel() == 0 => {
            Some("there is no key")
        }
        Op::DynamicUpdateSlice(_) if sample.operands[0].0 == sample.operands[1].0 && operand == 0 => {
            Some("everything is overwritten")
        }
        _ => None,
    }
}

/// Every case: a sample, and which of its results the loss depends on.
fn cases() -> impl Iterator<Item = (Sample, Option<usize>)> {
    let samples = Op::samples().into_iter().chain(custom_samples());
    let samples = samples.filter(|s| is_f64(s) && without_gradient(&s.op).is_none());
    samples.flat_map(|s| choices(&s).into_iter().map(move |only| (s.clone(), only)))
}

#[test]
fn every_gradient_is_the_slope() {
    for (sample, only) in cases() {
        let tested = differentiated(&sample, only, 1, As::Itself).unwrap();
        let found = outputs(&tested.graph, &tested.inputs);
        for &(i, output) in &tested.gradients {
            let slope = slopes(&tested.graph, &tested.inputs, i);
            let zeros = vec![0.0; slope.len()];
            let gradient = output.map_or(&zeros, |o| &found[o]);
            let what = format!(
                "{:?}, {only:?}, operand {i}:\n gradient {gradient:?}\n    slope {slope:?}",
                sample.op
            );
            assert!(agree(gradient, &slope, TOLERANCE), "{what}");
            let scaled: Vec<f64> = gradient.iter().map(|x| x * 1.01).collect();
            match flat(&sample, i) {
                Some(_) => assert_eq!(size(&slope), 0.0, "is on the list of flat samples: {what}"),
                // One result of several may well not depend on each operand; all together do.
                None if only.is_some() && size(&slope) == 0.0 => {}
                None => assert!(!agree(&scaled, &slope, TOLERANCE), "a wrong gradient would pass: {what}"),
            }
        }
    }
}

#[test]
fn every_second_derivative_is_the_slope_of_the_first() {
    // Of an op with several results, all together and the first alone: enough, and the slopes take long.
    for (sample, only) in cases().filter(|(_, only)| only.is_none_or(|i| i == 0)) {
        let Some(tested) = differentiated(&sample, only, 2, As::Itself) else { continue };
        let found = outputs(&tested.graph, &tested.inputs);
        for &(i, output) in &tested.gradients {
            let slope = slopes(&tested.graph, &tested.inputs, i);
            let zeros = vec![0.0; slope.len()];
            let gradient = output.map_or(&zeros, |o| &found[o]);
            let what =
                format!("{:?}, {only:?}, input {i}:\n gradient {gradient:?}\n    slope {slope:?}", sample.op);
            assert!(agree(gradient, &slope, TOLERANCE), "{what}");
        }
    }
}

#[test]
fn composites_agree_with_their_decompositions() {
    let mut compared = 0;
    for (sample, only) in cases() {
        for order in [1, 2] {
            let Some(parts) = differentiated(&sample, only, order, As::Decomposed) else { continue };
            let whole = differentiated(&sample, only, order, As::Itself).unwrap();
            let (a, b) = (outputs(&whole.graph, &whole.inputs), outputs(&parts.graph, &parts.inputs));
            for (&(i, x), &(_, y)) in whole.gradients.iter().zip(&parts.gradients) {
                let zeros = vec![0.0; whole.inputs[i].len()];
                let (x, y) = (x.map_or(&zeros, |o| &a[o]), y.map_or(&zeros, |o| &b[o]));
                let what = format!("{:?}, {only:?}, order {order}, input {i}:\n{x:?}\n{y:?}", sample.op);
                assert!(agree(x, y, 1e-9), "{what}");
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

/// Every mnemonic is either differentiated above or on the written list of ops without gradient.
#[test]
fn no_op_is_left_out() {
    // Ops with regions have no sample of their own: `structure.rs` differentiates a call, `scan.rs` scans.
    // A rounding has no slope: `conventions.rs` has what is taken for it.
    let elsewhere = ["call", "scan", "round_stochastic", "quantize"];
    let mut left: BTreeSet<&str> = Op::names().into_iter().filter(|name| !elsewhere.contains(name)).collect();
    for sample in Op::samples() {
        if without_gradient(&sample.op).is_some() || is_f64(&sample) {
            left.remove(sample.op.rule().name());
        }
    }
    assert!(left.is_empty(), "neither differentiated nor listed: {left:?}");
}
