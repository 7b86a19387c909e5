//! L-BFGS against PyTorch's: parameters, losses and the number of evaluations after each of 12 steps.

mod common;

use common::recorded::Recorded;
use onestep_optim::{Lbfgs, OptimError};
use serde_json::Value;
use std::convert::Infallible;

/// Σ 100 (xᵢ₊₁ − xᵢ²)² + (1 − xᵢ)², times `sign`.
fn valley(x: &[f64], gradient: &mut [f64], sign: f64) -> f64 {
    gradient.fill(0.0);
    let mut loss = 0.0;
    for i in 0..x.len() - 1 {
        let (a, b) = (1.0 - x[i], x[i + 1] - x[i] * x[i]);
        loss += sign * (100.0 * b * b + a * a);
        gradient[i] += sign * (-400.0 * b * x[i] - 2.0 * a);
        gradient[i + 1] += sign * 200.0 * b;
    }
    loss
}

/// The method with the recorded options. One that is not known here fails the test.
fn method(options: &Value) -> Lbfgs {
    let all = options.as_object().unwrap();
    let count = |v: &Value| v.as_u64().unwrap() as usize;
    all.iter().fold(Lbfgs::new(1.0), |m, (k, v)| match k.as_str() {
        "lr" => m.lr(v.as_f64().unwrap()),
        "max_iter" => m.iterations(count(v)),
        "max_eval" => m.evaluations(count(v)),
        "history_size" => m.history(count(v)),
        "tolerance_grad" => m.tolerance_gradient(v.as_f64().unwrap()),
        "tolerance_change" => m.tolerance_change(v.as_f64().unwrap()),
        "line_search_fn" => m.strong_wolfe(v == "strong_wolfe"),
        "maximize" => m.maximize(v.as_bool().unwrap()),
        other => panic!("option '{other}' is not known"),
    })
}

#[test]
fn every_step_is_pytorch_s() {
    let recorded = Recorded::read("torch-lbfgs");
    let mut met = 0;
    for (run, facts) in recorded.runs.iter().filter(|(_, facts)| facts["problem"] == "valley") {
        let get = |name: String| recorded.tensors[&format!("{run}/{name}")].to_f64();
        let sign = if facts["options"]["maximize"] == true { -1.0 } else { 1.0 };
        let mut method = method(&facts["options"]);
        method.check().unwrap();
        let mut x = get("start/x".to_string());
        for step in 1..=12 {
            if let Some(lr) = facts["lr_at"].get(step.to_string()) {
                method = method.lr(lr.as_f64().unwrap());
            }
            let loss = method.step(&mut x, |x, g| Ok::<_, Infallible>(valley(x, g, sign))).unwrap();
            // Steps feed back on rounding through the line search, more so near the minimum.
            let close = |got: f64, want: f64| (got - want).abs() <= 1e-7 * want.abs() + 1e-9;
            let want = get(format!("loss@{step}"))[0];
            assert!(close(loss, want), "{run} step {step}: loss {loss:e}, not {want:e}");
            for (got, want) in x.iter().zip(get(format!("x@{step}"))) {
                assert!(close(*got, want), "{run} step {step}: {got}, not {want}");
            }
            assert_eq!(method.evaluated() as f64, get(format!("evaluations@{step}"))[0], "{run} step {step}");
        }
        met += 1;
    }
    assert_eq!(met, 6);
}

#[test]
fn what_is_not_finite_is_never_gone_to() {
    // A loss that is not a number beyond 2, where its slope leads.
    let cliff = |x: &[f64], g: &mut [f64]| {
        g[0] = if x[0] < 2.0 { -1.0 } else { f64::NAN };
        Ok::<_, Infallible>(if x[0] < 2.0 { -x[0] } else { f64::NAN })
    };
    for strong_wolfe in [false, true] {
        let (mut x, mut method) = (vec![0.0], Lbfgs::new(0.5).strong_wolfe(strong_wolfe));
        for _ in 0..5 {
            method.step(&mut x, cliff).unwrap();
            assert!(x[0] < 2.0, "{x:?}");
        }
        assert!(x[0] > 1.0, "{x:?} with strong Wolfe {strong_wolfe}");
        x[0] = 3.0;
        assert!(method.step(&mut x, cliff).unwrap().is_nan());
        assert_eq!(x, [3.0]);
    }
}

#[test]
fn a_failure_of_the_closure_is_the_step_s() {
    let (mut x, mut method) = (vec![-1.2, 1.0], Lbfgs::new(1.0).strong_wolfe(true));
    let mut calls = 0;
    let outcome = method.step(&mut x, |x, g| {
        calls += 1;
        if calls == 2 { Err("device lost") } else { Ok(valley(x, g, 1.0)) }
    });
    assert_eq!((outcome, x), (Err("device lost"), vec![-1.2, 1.0]));
}

#[test]
fn numbers_out_of_range_are_refused() {
    let method = || Lbfgs::new(1.0);
    for (method, number) in [
        (Lbfgs::new(f64::NAN), "lr"),
        (method().iterations(0), "iterations"),
        (method().history(0), "history"),
        (method().evaluations(0), "evaluations"),
        (method().tolerance_gradient(-1.0), "tolerance_gradient"),
        (method().tolerance_change(-1.0), "tolerance_change"),
    ] {
        let error = method.check().unwrap_err();
        assert!(matches!(error, OptimError::Hyper { name, .. } if name == number), "{error}");
    }
}
