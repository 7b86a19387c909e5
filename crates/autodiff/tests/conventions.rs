//! Where a derivative is a matter of convention, it is PyTorch's; and where it is defined, edges do not break it.

mod support;

use onestep_autodiff::{gradients, jvp, vjp};
use onestep_ir::interp::{Mode, run};
use onestep_ir::{Array, DType, Dense, GraphBuilder, Tensor};
use std::collections::BTreeMap;

type Build = dyn for<'g> Fn(&[Tensor<'g>]) -> Tensor<'g>;

/// The gradients of Σ `build(inputs)`·`cotangent` in `f32`.
fn slopes_of(inputs: &[&[f64]], cotangent: f64, build: &Build) -> Vec<Vec<f64>> {
    let g = GraphBuilder::new("case");
    let xs: Vec<Tensor<'_>> =
        inputs.iter().enumerate().map(|(i, x)| g.input(&format!("x{i}"), DType::F32, [x.len()])).collect();
    let loss = (build(&xs) * cotangent).sum_all();
    for (i, d) in gradients(&g, loss, &xs).unwrap().into_iter().enumerate() {
        g.output(&format!("d{i}"), d.expect("the loss depends on every input"));
    }
    let fed: Vec<Dense> =
        inputs.iter().map(|x| Dense::from_reals(DType::F32, &[x.len()], x.to_vec())).collect();
    let outcome = run(&g.build().unwrap(), &fed, &BTreeMap::new(), Mode::Declared).unwrap();
    outcome.outputs.iter().map(|d| d.reals().to_vec()).collect()
}

/// Rounding by chance is differentiated as its mean, the number itself, in both modes.
#[test]
fn rounding_by_chance_has_the_slope_of_its_mean() {
    let g = GraphBuilder::new("rounded");
    let (x, bits) = (g.input("x", DType::F32, [3]), g.input("bits", DType::U32, [3]));
    let y = x.round_stochastic(bits);
    let thrice = y.cast(DType::F32) * 3.0;
    g.output("pulled", gradients(&g, thrice.sum_all(), &[x]).unwrap()[0].unwrap());
    let tangent = g.full(DType::F32, [3], 0.5);
    g.output("pushed", jvp(&g, &[thrice], &[(x, tangent)]).unwrap()[0].unwrap());
    let x = Dense::from_reals(DType::F32, &[3], vec![1.001, -0.3, 0.0]);
    let bits = Dense::from_ints(DType::U32, &[3], vec![0, 1 << 31, (1 << 32) - 1]);
    let outcome = run(&g.build().unwrap(), &[x, bits], &BTreeMap::new(), Mode::Declared).unwrap();
    let found: Vec<&[f64]> = outcome.outputs.iter().map(|d| d.reals()).collect();
    assert_eq!(found, [[3.0; 3], [1.5; 3]]);
}

/// Quantisation is differentiated straight through: as the division by its scale, whatever was rounded, and as if the scale did not
/// depend on the tensor. Products of 8-bit floats then have the gradients of the products of what their factors stand for, but for
/// the rounding of the cotangent; here that has two bits of significand, so that nothing is rounded.
#[test]
fn quantisation_is_differentiated_straight_through() {
    let g = GraphBuilder::new("quantised");
    let (x, w) = (g.input("x", DType::F32, [1, 4]), g.input("w", DType::F32, [2, 4]));
    let ((qx, sx), (qw, sw)) = (x.quantize(DType::F8E4M3), w.quantize(DType::F8E4M3));
    let cotangent = g.constant(Array::new(&[1, 2], &[3f32, -0.5]).unwrap());
    let y = qx.matmul_t(qw, false, true) * sx * sw;
    let back = gradients(&g, (y * cotangent).sum_all(), &[x, w]).unwrap();
    let rounded = |q: Tensor<'_>, scale: Tensor<'_>| (q.cast(DType::F32) * scale).value().unwrap();
    let parts = [back[0].unwrap(), back[1].unwrap(), g.tensor(rounded(qx, sx)), g.tensor(rounded(qw, sw))];
    parts.iter().zip(["dx", "dw", "x", "w"]).for_each(|(t, name)| g.output(name, *t));
    let real = |shape: &[usize], of: &[f64]| Dense::from_reals(DType::F32, shape, of.to_vec());
    let fed = [
        real(&[1, 4], &[1.03, -7.7, 0.011, 450.0]),
        real(&[2, 4], &[0.3, -0.2, 0.05, 1e-3, -0.31, 0.7, 0.0, 0.09]),
    ];
    let outcome = run(&g.build().unwrap(), &fed, &BTreeMap::new(), Mode::Declared).unwrap();
    let [dx, dw, x, w] = [0, 1, 2, 3].map(|n| outcome.outputs[n].reals());
    assert_ne!(x, fed[0].reals(), "450 is rounded");
    for k in 0..4 {
        let want = 3.0 * w[k] - 0.5 * w[4 + k];
        assert!((dx[k] - want).abs() < 1e-5, "{k}: {} for {want}", dx[k]);
        assert!((dw[k] - 3.0 * x[k]).abs() < 1e-3 && (dw[4 + k] + 0.5 * x[k]).abs() < 1e-3);
    }
}

#[test]
fn power_at_zero() {
    let square = slopes_of(&[&[0.0], &[0.0]], 1.0, &|x| {
        let two = x[0].graph().full(DType::F32, x[0].shape(), 2.0);
        (x[0] - x[1]).pow(two)
    });
    assert_eq!(square, [[0.0], [0.0]]);
    assert_eq!(slopes_of(&[&[1.0], &[1.0]], 123.0, &|x| (x[0] - x[1]).pow(x[1])), [[123.0], [-123.0]]);
    let corners = slopes_of(&[&[0.0, 0.0, 0.0, 2.0], &[0.0, 1.0, 3.0, 0.0]], 1.0, &|x| x[0].pow(x[1]));
    assert_eq!(corners[0], [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(corners[1][..3], [0.0, 0.0, 0.0]);
    assert!((corners[1][3] - 2f64.ln()).abs() < 1e-6);
}

/// d²/da² a² = 2 and d²/db² aᵇ = 0 where the first derivative is 0 by convention: no 0·∞.
#[test]
fn second_derivative_of_power_at_zero() {
    let g = GraphBuilder::new("twice");
    let (a, b) = (g.input("a", DType::F64, [3]), g.input("b", DType::F64, [3]));
    let first: Vec<_> = gradients(&g, a.pow(b).sum_all(), &[a, b]).unwrap().into_iter().flatten().collect();
    let again: Vec<_> = vjp(&g, &[(first[0], g.full(DType::F64, [3], 1.0))], &[a]).unwrap();
    g.output("daa", again[0].unwrap());
    g.output("dbb", gradients(&g, first[1].sum_all(), &[b]).unwrap()[0].unwrap());
    let d = |v: &[f64]| Dense::from_reals(DType::F64, &[3], v.to_vec());
    let out = support::outputs(&g.build().unwrap(), &[d(&[0.0; 3]), d(&[0.0, 1.0, 2.0])]);
    assert_eq!(out, [[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]);
}

#[test]
fn kinks_and_ties() {
    let at = [-1.0, 0.0, 2.0];
    assert_eq!(slopes_of(&[&at], 1.0, &|x| x[0].relu()), [[0.0, 0.0, 1.0]]);
    assert_eq!(slopes_of(&[&at], 1.0, &|x| x[0].abs()), [[-1.0, 0.0, 1.0]]);
    assert_eq!(slopes_of(&[&at], 1.0, &|x| x[0].floor() + x[0].sign() + x[0].round()), [[0.0; 3]]);
    assert_eq!(slopes_of(&[&at], 1.0, &|x| x[0].ceil() * x[0]), [[-1.0, 0.0, 2.0]]);
    let pair: [&[f64]; 2] = [&[1.0, 3.0]; 2];
    assert_eq!(slopes_of(&pair, 1.0, &|x| x[0].maximum(x[1])), [[0.5, 0.5], [0.5, 0.5]]);
    assert_eq!(slopes_of(&pair, 1.0, &|x| x[0].minimum(x[1])), [[0.5, 0.5], [0.5, 0.5]]);
    assert_eq!(slopes_of(&[&[3.0, 1.0, 3.0]], 1.0, &|x| x[0].max(&[0])), [[0.5, 0.0, 0.5]]);
    assert_eq!(slopes_of(&[&[3.0, 1.0, 1.0]], 1.0, &|x| x[0].min(&[0])), [[0.0, 0.5, 0.5]]);
    assert_eq!(slopes_of(&[&[0.0, 4.0]], 1.0, &|x| x[0].sqrt()), [[f64::INFINITY, 0.25]]);
}

#[test]
fn nan_passes() {
    let nan = [f64::NAN, 1.0];
    assert_eq!(slopes_of(&[&nan], 1.0, &|x| x[0].relu()), [[1.0, 1.0]]);
    assert!(slopes_of(&[&nan], 1.0, &|x| x[0].relu() * x[0])[0][0].is_nan());
    // To both operands: neither lost.
    let d = slopes_of(&[&nan, &[1.0, 0.0]], 1.0, &|x| x[0].maximum(x[1]));
    assert_eq!(d, [[1.0, 1.0], [1.0, 0.0]]);
    // A branch that was not taken leaves no trace.
    let d = slopes_of(&[&[0.0, 4.0]], 1.0, &|x| x[0].greater(1.0).select(x[0], 0.0));
    assert_eq!(d, [[0.0, 1.0]]);
}

#[test]
fn product_with_zeros() {
    let prod = |x: &[f64]| slopes_of(&[x], 1.0, &|x| x[0].prod(&[0])).remove(0);
    assert_eq!(prod(&[2.0, 3.0, 4.0]), [12.0, 8.0, 6.0]);
    assert_eq!(prod(&[2.0, 0.0, 4.0, 5.0, 1.0]), [0.0, 40.0, 0.0, 0.0, 0.0]);
    assert_eq!(prod(&[2.0, 0.0, 0.0]), [0.0; 3]);
    assert_eq!(prod(&[7.0]), [1.0]);
    assert_eq!(prod(&[]), [0.0; 0]);
    // Several axes, of which one stays in the middle.
    let g = GraphBuilder::new("axes");
    let x = g.constant(Array::new(&[2, 2, 2], &[1f64, 2.0, 3.0, 4.0, 5.0, 0.0, 7.0, 8.0]).unwrap());
    let d = gradients(&g, x.prod(&[0, 2]).sum_all(), &[x]).unwrap()[0].unwrap();
    g.output("d", d);
    let out = support::outputs(&g.build().unwrap(), &[]);
    assert_eq!(out[0], [0.0, 0.0, 224.0, 168.0, 0.0, 10.0, 96.0, 84.0]);
}

/// Transposes are flags, a shared matrix takes one product over all rows, and dtypes are the operands'.
#[test]
fn products_without_transposes() {
    let g = GraphBuilder::new("linear");
    let x = g.input("x", DType::BF16, [4, 8, 3]);
    let w = g.input("w", DType::BF16, [5, 3]);
    let y = x.matmul_t(w, false, true);
    let found = vjp(&g, &[(y, g.full(DType::BF16, [4, 8, 5], 1.0))], &[x, w]).unwrap();
    assert_eq!((found[0].unwrap().ty(), found[1].unwrap().ty()), (x.ty(), w.ty()));
    let names: Vec<_> =
        g.with_graph(|graph| graph.body_nodes().map(|n| n.op.rule().name().to_string()).collect());
    assert_eq!(names.iter().filter(|n| *n == "matmul").count(), 3, "{names:?}");
    assert!(!names.iter().any(|n| n == "transpose" || n == "sum"), "{names:?}");
}

#[test]
fn low_precision_keeps_its_dtype() {
    let g = GraphBuilder::new("half");
    let x = g.input("x", DType::BF16, [4]);
    let loss = (x.tanh() * x.sigmoid() + x.pow(x)).cast(DType::F32).sum_all();
    let d = gradients(&g, loss, &[x]).unwrap()[0].unwrap();
    assert_eq!(d.ty(), x.ty());
}

/// No division by the element, and every cotangent to the place that PyTorch gives it.
#[test]
fn scans_at_zeros_and_ties() {
    let x = [2.0, 0.0, 3.0, 0.0];
    // Products 2, 0, 0, 0.
    assert_eq!(slopes_of(&[&x], 1.0, &|x| x[0].cumprod(0)), [[1.0, 2.0 + 6.0, 0.0, 0.0]]);
    let ties = [1.0, 3.0, 3.0, 2.0];
    assert_eq!(slopes_of(&[&ties], 1.0, &|x| x[0].cummax(0)), [[1.0, 1.0, 2.0, 0.0]]);
    assert_eq!(slopes_of(&[&[3.0, 1.0, 1.0, 2.0]], 1.0, &|x| x[0].cummin(0)), [[1.0, 1.0, 2.0, 0.0]]);
    assert_eq!(slopes_of(&[&ties], 1.0, &|x| x[0].top_k(0, 2).0), [[0.0, 1.0, 1.0, 0.0]]);
    assert_eq!(slopes_of(&[&ties], 1.0, &|x| x[0].median(0)), [[0.0, 0.0, 0.0, 1.0]]);
    let low = f64::NEG_INFINITY;
    let d = slopes_of(&[&[low, 0.0, low, 0.0]], 1.0, &|x| x[0].log_cumsum_exp(0).slice(0, 1, 4));
    assert_eq!(d, [[0.0, 2.5, 0.0, 0.5]]);
    assert_eq!(slopes_of(&[&[low, low]], 1.0, &|x| x[0].log_sum_exp(&[0])), [[0.0, 0.0]]);
    assert_eq!(slopes_of(&[&[low, low]], 1.0, &|x| x[0].log_add_exp(x[0])), [[1.0, 1.0]]);
}

/// Lengths and spreads of nothing have no direction, and no infinite slope.
#[test]
fn lengths_at_zero() {
    let zero: [f64; 3] = [0.0; 3];
    for p in [1.0, 2.0, 3.0, f64::INFINITY] {
        assert_eq!(slopes_of(&[&zero], 1.0, &move |x| x[0].norm(p, &[0])), [[0.0; 3]], "{p}");
    }
    assert_eq!(slopes_of(&[&[5.0; 3]], 1.0, &|x| x[0].std(&[0], true)), [[0.0; 3]]);
    assert!(slopes_of(&[&zero], 1.0, &|x| x[0].normalize(0, 1e-3)).concat().iter().all(|d| d.is_finite()));
    assert_eq!(slopes_of(&[&zero, &zero], 1.0, &|x| x[0].hypot(x[1])), [[0.0; 3], [0.0; 3]]);
    assert_eq!(slopes_of(&[&zero, &zero], 1.0, &|x| x[0].atan2(x[1])), [[0.0; 3], [0.0; 3]]);
    let equal = slopes_of(&[&[3.0], &[3.0]], 1.0, &|x| x[0].hypot(x[1]));
    assert!(equal.concat().iter().all(|d| (d - 0.5f64.sqrt()).abs() < 1e-6), "{equal:?}");
}

#[test]
fn losses_at_their_edges() {
    let cross = |x: f64, y: f64| slopes_of(&[&[x], &[y]], 1.0, &|x| x[0].bce_with_logits_each(x[1]))[0][0];
    assert_eq!(
        [cross(100.0, 0.0), cross(-100.0, 1.0), cross(100.0, 1.0), cross(0.0, 0.0)],
        [1.0, -1.0, 0.0, 0.5]
    );
    assert_eq!(slopes_of(&[&[0.0]], 1.0, &|x| x[0].softplus()), [[0.5]]);
    assert_eq!(slopes_of(&[&[-1.0, 1.0, 2.0]], 1.0, &|x| x[0].hard_tanh(-1.0, 1.0)), [[0.0; 3]]);
    assert_eq!(slopes_of(&[&[-1.0, 1.0, 2.0]], 1.0, &|x| x[0].clamp(-1.0, 1.0)), [[1.0, 1.0, 0.0]]);
}
