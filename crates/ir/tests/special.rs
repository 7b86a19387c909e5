//! Special functions at numbers whose values are known, at their poles and infinities, and in their gradients.

use onestep_ir::interp::{Mode, run};
use onestep_ir::{Array, DType, GraphBuilder, Tensor};
use std::collections::BTreeMap;
use std::f64::consts::{LN_2, PI};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;
/// Euler's constant γ, Apéry's constant ζ(3).
const EULER: f64 = 0.577_215_664_901_532_9;
const APERY: f64 = 1.202_056_903_159_594_2;

fn of(x: &[f64], build: impl for<'g> Fn(Tensor<'g>) -> Tensor<'g>) -> Vec<f64> {
    let g = GraphBuilder::new("case");
    g.output("y", build(g.constant(Array::from_f64(DType::F64, &[x.len()], x).unwrap())));
    let graph = g.build().unwrap_or_else(|e| panic!("{e}"));
    run(&graph, &[], &BTreeMap::new(), Mode::Declared).unwrap().outputs[0].reals().to_vec()
}

#[track_caller]
fn near(got: &[f64], want: &[f64]) {
    let same = |(a, b): (&f64, &f64)| {
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 2e-13 * b.abs().max(1.0)
    };
    assert!(got.len() == want.len() && got.iter().zip(want).all(same), "{got:?}, not {want:?}");
}

#[test]
fn log_gamma() {
    let factorial = |n: usize| (1..n).map(|k| (k as f64).ln()).sum::<f64>();
    let x: Vec<f64> = (1..60).map(|n| n as f64).collect();
    near(&of(&x, |x| x.log_gamma()), &(1..60).map(factorial).collect::<Vec<_>>());
    let half = PI.sqrt().ln();
    near(&of(&[0.5, -0.5, -1.5], |x| x.log_gamma()), &[half, half + LN_2, half + (4.0f64 / 3.0).ln()]);
    near(&of(&[0.0, -1.0, -7.0, INF, -INF, NAN], |x| x.log_gamma()), &[INF, INF, INF, INF, INF, NAN]);
    near(&of(&[1e300], |x| x.log_gamma()), &[1e300 * (1e300f64.ln() - 1.0)]);
}

#[test]
fn its_derivatives() {
    let half = -EULER - 2.0 * LN_2;
    near(&of(&[1.0, 2.0, 0.5, -0.5], |x| x.digamma()), &[-EULER, 1.0 - EULER, half, half + 2.0]);
    near(&of(&[0.0, -1.0, -3.0, INF], |x| x.digamma()), &[-INF, NAN, NAN, INF]);
    let square = PI * PI;
    let first = of(&[1.0, 2.0, 0.5, -0.5], |x| x.polygamma(1));
    near(&first, &[square / 6.0, square / 6.0 - 1.0, square / 2.0, square / 2.0 + 4.0]);
    let second = of(&[1.0, 0.5, -0.5], |x| x.polygamma(2));
    near(&second, &[-2.0 * APERY, -14.0 * APERY, -14.0 * APERY + 16.0]);
    near(&of(&[1.0], |x| x.polygamma(3)), &[square * square / 15.0]);
    let g = GraphBuilder::new("case");
    g.output("y", g.input("x", DType::F32, [1]).polygamma(17));
    assert!(g.build().unwrap_err().to_string().contains("order up to 16"));
}

#[test]
fn the_inverse_error_function() {
    let x: Vec<f64> = (-40..=40).map(|i| i as f64 * 0.1).collect();
    let erf: Vec<f64> = x.iter().map(|&x| libm::erf(x)).collect();
    let got = of(&erf, |x| x.erf_inv());
    for ((x, e), y) in x.iter().zip(&erf).zip(got) {
        // A rounding of erf moves its inverse by this much.
        let slope = PI.sqrt() / 2.0 * (x * x).exp();
        assert!((x - y).abs() <= 4.0 * f64::EPSILON * slope.max(1.0) * e.abs().max(0.1), "{x}: {y}");
    }
    near(&of(&[1.0, -1.0, 1.5, NAN], |x| x.erf_inv()), &[INF, -INF, NAN, NAN]);
}
