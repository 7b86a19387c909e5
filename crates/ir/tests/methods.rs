//! Methods that are composed of other ops, on small tensors: values, edges, and the mistakes that they name.

use onestep_ir::interp::{Mode, run};
use onestep_ir::{Array, CrossEntropyOptions, DType, Dense, GraphBuilder, Tensor};
use std::collections::BTreeMap;

fn evaluated(g: &GraphBuilder, t: Tensor<'_>) -> Dense {
    g.output("y", t);
    let graph = g.build().unwrap_or_else(|e| panic!("{e}"));
    run(&graph, &[], &BTreeMap::new(), Mode::Declared).unwrap().outputs.remove(0)
}

/// The shape and the elements of what `build` makes of a constant.
fn of(
    shape: &[usize],
    x: &[f64],
    build: impl for<'g> Fn(Tensor<'g>) -> Tensor<'g>,
) -> (Vec<usize>, Vec<f64>) {
    let g = GraphBuilder::new("case");
    let y = build(g.constant(Array::from_f64(DType::F32, shape, x).unwrap()));
    let y = evaluated(&g, y.cast(DType::F64));
    (y.shape.clone(), y.reals().to_vec())
}

fn row(x: &[f64], build: impl for<'g> Fn(Tensor<'g>) -> Tensor<'g>) -> Vec<f64> {
    of(&[x.len()], x, build).1
}

fn near(a: &[f64], b: &[f64]) {
    let same =
        |(x, y): (&f64, &f64)| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 1e-6 * y.abs().max(1.0);
    assert!(a.len() == b.len() && a.iter().zip(b).all(same), "{a:?}, not {b:?}");
}

const INF: f64 = f64::INFINITY;

#[test]
fn functions_of_one_element() {
    near(&row(&[10.0, -1.0], |x| x.exp2()), &[1024.0, 0.5]);
    near(&row(&[8.0, 0.0], |x| x.log2()), &[3.0, -INF]);
    near(&row(&[1000.0], |x| x.log10()), &[3.0]);
    assert_eq!(row(&[INF, -INF, f64::NAN, 1.0], |x| x.is_inf().cast(DType::F32)), [1.0, 1.0, 0.0, 0.0]);
    assert_eq!(row(&[-0.0, 0.0, -INF, -2.0], |x| x.sign_bit().cast(DType::F32)), [1.0, 0.0, 1.0, 1.0]);
    near(&row(&[0.0, 0.5, 1.0], |x| x.sinc()), &[1.0, 2.0 / std::f64::consts::PI, 0.0]);
    near(&row(&[10.0], |x| x.erfc()), &[2.088_487_583_762_545e-45]);
    near(&row(&[-2.0, 0.5, 3.0], |x| x.clamp(-1.0, 1.0)), &[-1.0, 0.5, 1.0]);
}

#[test]
fn functions_of_two_elements() {
    let signs = row(&[3.0, -3.0, 3.0, 0.0], |x| {
        let s = x.graph().constant(Array::from_f64(DType::F32, &[4], &[-1.0, 2.0, -0.0, -5.0]).unwrap());
        x.copysign(s)
    });
    assert_eq!(signs, [-3.0, 3.0, -3.0, 0.0]);
    assert!(signs[3].is_sign_negative());
    assert_eq!(row(&[-7.0, 7.0, -6.0], |x| x.floor_mod(3.0)), [2.0, 1.0, 0.0]);
    assert_eq!(row(&[-7.0, 7.0, -6.0], |x| x.floor_div(3.0)), [-3.0, 2.0, -2.0]);
    assert_eq!(row(&[-7.0, 7.0, -6.0], |x| x.cast(DType::I32).floor_mod(-3.0)), [-1.0, -2.0, 0.0]);
    assert_eq!(row(&[-7.0, 7.0, -6.0], |x| x.cast(DType::I32).floor_div(-3.0)), [2.0, -3.0, 2.0]);
    assert_eq!(row(&[7.0], |x| x.cast(DType::I32).floor_mod(0.0)), [7.0]);
    // 1e30² overflows f32.
    near(&row(&[1e30, 0.0, INF], |x| x.hypot(0.0)), &[1e30, 0.0, INF]);
    near(&row(&[3e30], |x| x.hypot(4e30) * 1e-30), &[5.0]);
    near(&row(&[1000.0, -INF], |x| x.log_add_exp(x)), &[1000.0 + std::f64::consts::LN_2, -INF]);
    near(&row(&[0.0, 2.0], |x| x.xlogy(0.0)), &[0.0, -INF]);
    near(&row(&[1.0, -1.0, 0.0], |x| x.atan2(-1.0)), &[2.356_194_490, -2.356_194_490, std::f64::consts::PI]);
}

#[test]
fn statistics() {
    let x = [1.0, 2.0, 3.0, 6.0];
    near(&row(&x, |x| x.var(&[0], true)), &[14.0 / 3.0]);
    near(&row(&x, |x| x.std(&[0], false)), &[3.5f64.sqrt()]);
    assert!(row(&[1.0], |x| x.var(&[0], true))[0].is_nan());
    near(&row(&[1000.0, 1000.0], |x| x.log_sum_exp(&[0])), &[1000.0 + std::f64::consts::LN_2]);
    assert_eq!(row(&[-INF, -INF], |x| x.log_sum_exp(&[0])), [-INF]);
    let two = [3.0, -4.0];
    for (p, want) in [(1.0, 7.0), (2.0, 5.0), (INF, 4.0), (-INF, 3.0), (0.0, 2.0), (3.0, 91f64.cbrt())] {
        near(&row(&two, |x| x.norm(p, &[0])), &[want]);
    }
    assert_eq!(of(&[2, 2], &x, |x| x.norm_keep(1.0, &[-1])), (vec![2, 1], vec![3.0, 9.0]));
    near(&row(&two, |x| x.normalize(0, 1e-12)), &[0.6, -0.8]);
    assert_eq!(row(&[0.0, 0.0], |x| x.normalize(0, 1e-12)), [0.0, 0.0]);
    near(&row(&two, |x| x.cosine_similarity(-x, 0, 1e-8)), &[-1.0]);
    assert_eq!(row(&[0.0, 5.0, f64::NAN], |x| x.count_nonzero(&[0])), [2.0]);
    let both = of(&[2, 2], &[0.0, 1.0, 2.0, 3.0], |x| {
        x.graph().stack(&[x.all_over(&[1]), x.any_over(&[1])], 0).cast(DType::F32)
    });
    assert_eq!(both.1, [0.0, 1.0, 1.0, 1.0]);
}

#[test]
fn activations() {
    near(&row(&[-1000.0, 0.0, 1000.0], |x| x.softplus()), &[0.0, std::f64::consts::LN_2, 1000.0]);
    near(&row(&[-1000.0, 1000.0], |x| x.log_sigmoid()), &[-1000.0, 0.0]);
    near(&row(&[-1000.0, 2.0], |x| x.elu(2.0)), &[-2.0, 2.0]);
    near(&row(&[-1000.0, 1.0], |x| x.selu()), &[-1.758_099_340_847, 1.050_700_987]);
    near(&row(&[-1000.0, 1.0], |x| x.celu(0.5)), &[-0.5, 1.0]);
    near(&row(&[-1000.0, 1000.0], |x| x.mish()), &[0.0, 1000.0]);
    near(&row(&[-4.0, 0.0, 4.0], |x| x.hard_sigmoid()), &[0.0, 0.5, 1.0]);
    near(&row(&[-4.0, 1.5, 4.0], |x| x.hard_swish()), &[0.0, 1.125, 4.0]);
    near(&row(&[-4.0, 2.0], |x| x.leaky_relu(0.1)), &[-0.4, 2.0]);
    near(&row(&[2.0, 0.0], |x| x.glu(0)), &[1.0]);
    near(&row(&[0.0, 3.0], |x| x.swiglu(0)), &[0.0]);
    let through = row(&[f64::NAN], |x| {
        let all = [
            x.softplus(),
            x.hard_tanh(-1.0, 1.0),
            x.elu(1.0),
            x.mish(),
            x.leaky_relu(0.1),
            x.clamp(0.0, 1.0),
        ];
        x.graph().concat(&all, 0)
    });
    assert!(through.iter().all(|x| x.is_nan()), "{through:?}");
}

#[test]
fn scans_and_ranks() {
    let x = [1.0, 3.0, 2.0, 3.0];
    assert_eq!(row(&x, |x| x.cumsum(0)), [1.0, 4.0, 6.0, 9.0]);
    assert_eq!(row(&x, |x| x.cumargmax(0)), [0.0, 1.0, 1.0, 3.0]);
    assert_eq!(row(&[2.0, f64::NAN, 1.0, f64::NAN], |x| x.cumargmin(0)), [0.0, 1.0, 1.0, 3.0]);
    near(&row(&[-INF, 0.0, 1000.0, 0.0], |x| x.log_cumsum_exp(0)), &[-INF, 0.0, 1000.0, 1000.0]);
    assert_eq!(row(&x, |x| x.sort(0, true).0), [3.0, 3.0, 2.0, 1.0]);
    assert_eq!(row(&x, |x| x.argsort(0, true)), [1.0, 3.0, 2.0, 0.0]);
    assert_eq!(row(&x, |x| x.top_k(0, 2).1), [1.0, 3.0]);
    assert_eq!(row(&x, |x| x.kth_smallest(0, 1).0), [2.0]);
    assert_eq!(row(&x, |x| x.median(0)), [2.0]);
    near(&row(&x, |x| x.quantile(0.5, 0)), &[2.5]);
    assert!(row(&[1.0, f64::NAN], |x| x.median(0))[0].is_nan());
    let some = [f64::NAN, 5.0, 1.0, f64::NAN, 2.0, 3.0];
    assert_eq!(row(&some, |x| x.nan_median(0)), [2.0]);
    near(&row(&some, |x| x.nan_quantile(0.5, 0)), &[2.5]);
    assert!(row(&[f64::NAN], |x| x.nan_quantile(0.5, 0))[0].is_nan());
}

#[test]
fn positions() {
    let x = [0.0, 1.0, 2.0, 3.0, 4.0];
    assert_eq!(row(&x, |x| x.reverse(&[0])), [4.0, 3.0, 2.0, 1.0, 0.0]);
    assert_eq!(row(&x, |x| x.roll(0, 2)), [3.0, 4.0, 0.0, 1.0, 2.0]);
    assert_eq!(row(&x, |x| x.roll(0, -1)), [1.0, 2.0, 3.0, 4.0, 0.0]);
    assert_eq!(row(&x, |x| x.pad_reflect(0, 2, 1)), [2.0, 1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 3.0]);
    assert_eq!(row(&x[..2], |x| x.pad_edge(0, 2, 1)), [0.0, 0.0, 0.0, 1.0, 1.0]);
    assert_eq!(row(&x[..3], |x| x.pad_circular(0, 1, 2)), [2.0, 0.0, 1.0, 2.0, 0.0, 1.0]);
    assert_eq!(row(&x[..2], |x| x.repeat_interleave(0, 2)), [0.0, 0.0, 1.0, 1.0]);
    assert_eq!(of(&[2], &x[..2], |x| x.tile(&[2, 2])), (vec![2, 4], [0.0, 1.0].repeat(4)));
    assert_eq!(of(&[5], &x, |x| x.windows(0, 3, 2)), (vec![2, 3], vec![0.0, 1.0, 2.0, 2.0, 3.0, 4.0]));
    assert_eq!(
        row(&[1.0, 3.0], |x| x.cast(DType::I32).one_hot(3, DType::F32)),
        [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    );
    assert_eq!(of(&[1], &[7.0], |x| x.diag_embed(1)), (vec![2, 2], vec![0.0, 7.0, 0.0, 0.0]));
}

/// Every slice of five elements that Python knows.
#[test]
fn slices_are_pythons() {
    let x: Vec<f64> = (0..5).map(f64::from).collect();
    let ends = [None, Some(-7), Some(-2), Some(0), Some(1), Some(4), Some(9)];
    for (start, end, step) in ends
        .iter()
        .flat_map(|s| ends.map(|e| (*s, e)))
        .flat_map(|(s, e)| [-2, -1, 1, 2].map(|step| (s, e, step)))
    {
        let (low, high): (isize, isize) = if step > 0 { (0, 5) } else { (-1, 4) };
        let at = |i: Option<isize>, default: isize| {
            i.map_or(default, |i| if i < 0 { i + 5 } else { i }.clamp(low, high))
        };
        let (mut i, stop) = if step > 0 { (at(start, 0), at(end, 5)) } else { (at(start, 4), at(end, -1)) };
        let mut want = vec![];
        while if step > 0 { i < stop } else { i > stop } {
            want.push(i as f64);
            i += step;
        }
        assert_eq!(row(&x, |x| x.slice_signed(0, start, end, step)), want, "{start:?}:{end:?}:{step}");
    }
}

#[test]
fn matrices() {
    let x: Vec<f64> = (0..6).map(f64::from).collect();
    assert_eq!(of(&[2, 3], &x, |x| x.tril(0)).1, [0.0, 0.0, 0.0, 3.0, 4.0, 0.0]);
    assert_eq!(of(&[2, 3], &x, |x| x.triu(1)).1, [0.0, 1.0, 2.0, 0.0, 0.0, 5.0]);
    for (offset, want) in
        [(0, vec![0.0, 4.0]), (1, vec![1.0, 5.0]), (2, vec![2.0]), (-1, vec![3.0]), (5, vec![])]
    {
        assert_eq!(of(&[2, 3], &x, |x| x.diagonal(offset)).1, want, "{offset}");
    }
    assert_eq!(of(&[3, 2], &x, |x| x.trace()).1, [3.0]);
    for (equation, want) in [
        ("ij,kj->ik", vec![5.0, 14.0, 14.0, 50.0]),
        ("ij,ij", vec![55.0]),
        ("ij,ij->ij", x.iter().map(|v| v * v).collect()),
        ("ab,cb->b", vec![9.0, 25.0, 49.0]),
        ("ij,ij->j", vec![9.0, 17.0, 29.0]),
    ] {
        near(&of(&[2, 3], &x, |x| x.graph().einsum(equation, &[x, x])).1, &want);
    }
    near(&of(&[2, 2], &x[..4], |x| x.graph().einsum("ii->i", &[x])).1, &[0.0, 3.0]);
    near(&of(&[2, 2], &x[..4], |x| x.graph().einsum("ij,jk,kl->il", &[x, x, x])).1, &[6.0, 11.0, 22.0, 39.0]);
}

#[test]
fn losses() {
    let pair = |build: &dyn for<'g> Fn(Tensor<'g>, Tensor<'g>) -> Tensor<'g>| {
        row(&[0.5, -3.0], |x| {
            let t = x.graph().constant(Array::from_f64(DType::F32, &[2], &[0.0, 1.0]).unwrap());
            build(x, t)
        })
    };
    near(&pair(&|x, t| x.l1(t)), &[2.25]);
    near(&pair(&|x, t| x.huber(t, 1.0)), &[(0.125 + 3.5) / 2.0]);
    near(&pair(&|x, t| x.smooth_l1(t, 2.0)), &[(0.0625 + 3.0) / 2.0]);
    near(&pair(&|x, t| x.hinge(t)), &[(1.0 + 4.0) / 2.0]);
    near(
        &row(&[100.0, -100.0, 100.0], |x| {
            let t = x.graph().constant(Array::from_f64(DType::F32, &[3], &[0.0, 1.0, 1.0]).unwrap());
            x.bce_with_logits_each(t)
        }),
        &[100.0, 100.0, 0.0],
    );
    let labelled = |labels: &[i32], build: &dyn for<'g> Fn(Tensor<'g>, Tensor<'g>) -> Tensor<'g>| {
        of(&[2, 2], &[0.0, 0.0, 0.0, 1.0], |x| {
            build(x, x.graph().constant(Array::new(&[2], labels).unwrap()))
        })
        .1
    };
    let (a, b) = (2f64.ln(), (1.0 + (-1f64).exp()).ln());
    near(&labelled(&[0, 1], &|x, y| x.log_softmax(-1).nll(y)), &[(a + b) / 2.0]);
    near(&labelled(&[-100, 1], &|x, y| x.log_softmax(-1).nll(y)), &[b]);
    near(&labelled(&[-100, -100], &|x, y| x.log_softmax(-1).nll(y)), &[0.0]);
    let options =
        |smoothing| CrossEntropyOptions { label_smoothing: smoothing, ..CrossEntropyOptions::default() };
    near(&labelled(&[0, 1], &|x, y| x.cross_entropy_of(y, options(0.0))), &[(a + b) / 2.0]);
    // Half of the target on both classes alike.
    near(&labelled(&[-100, 1], &|x, y| x.cross_entropy_of(y, options(0.5))), &[0.75 * b + 0.25 * (b + 1.0)]);
    near(&labelled(&[-100, -100], &|x, y| x.cross_entropy_of(y, options(0.5))), &[0.0]);
    near(
        &labelled(&[0, 1], &|x, y| {
            let weights = Some(x.graph().constant(Array::from_f64(DType::F32, &[2], &[1.0, 3.0]).unwrap()));
            x.cross_entropy_of(y, CrossEntropyOptions { weights, ..CrossEntropyOptions::default() })
        }),
        &[(a + 3.0 * b) / 4.0],
    );
}

#[test]
fn random_numbers() {
    let g = GraphBuilder::new("random");
    let key = g.constant(Array::new(&[2], &[1u32, 2]).unwrap());
    let counter = g.constant(Array::scalar(0u32));
    let normal = g.random_normal("normal", key, counter, [4000]);
    let uniform = g.random_uniform("uniform", key, counter, [4000]);
    let coin = g.random_bernoulli("coin", key, counter, [4000], 0.25).mean();
    let order = g.permutation("order", key, counter, 100);
    let moments = [normal.mean(), normal.var(&[0], true), uniform.mean(), uniform.var(&[0], true), coin];
    g.output("order", order.sort(0, false).0);
    g.output("given", order);
    let y = evaluated(&g, g.stack(&[uniform.min(&[0]), uniform.max(&[0])], 0));
    assert_eq!(y.ints(), (0..100).collect::<Vec<i64>>());
    g.output("ends", g.stack(&moments, 0));
    let graph = g.build().unwrap();
    let out = run(&graph, &[], &BTreeMap::new(), Mode::Declared).unwrap().outputs;
    assert_ne!(out[1].ints(), (0..100).collect::<Vec<i64>>());
    let ends = out[2].reals();
    assert!(ends[0] >= 0.0 && ends[1] < 1.0);
    for (got, want) in out[3].reals().iter().zip([0.0, 1.0, 0.5, 1.0 / 12.0, 0.25]) {
        assert!((got - want).abs() < 0.06, "{got}, not {want}");
    }
}

/// A mistake names the caller's line, and what to do.
#[test]
fn mistakes() {
    let g = GraphBuilder::new("wrong");
    let (x, n) = (g.input("x", DType::F32, [2, 3]), g.input("n", DType::I32, [2]));
    let line = line!() + 1;
    let _ = n.log2();
    let _ = x.mse(x.reshape([3, 2])).exp2();
    let _ = x.l1(x.reshape([3, 2]));
    let _ = x.pad_reflect(1, 3, 0);
    let _ = x.at(0, 0).tril(0);
    let _ = g.einsum("ij,jk->ik", &[x, x]);
    let _ = g.einsum("ij->ijk", &[x]);
    let _ = x.slice_signed(0, None, None, 0);
    let _ = x.quantile(1.5, 0);
    let _ = x.windows(0, 3, 1);
    let _ = x.cumsum(2);
    let _ = x.sort(5, true).0.exp();
    let _ = g.meshgrid(&[x]);
    let _ = x.shl(1.0);
    let errors: Vec<String> = g.errors().iter().map(|e| e.to_string()).collect();
    let want = [
        "takes a float",
        "shapes",
        "shapes",
        "no 3 elements",
        "no two axes",
        "'j'",
        "'k'",
        "step is 0",
        "quantile",
        "no window",
        "out of range",
        "out of range",
        "not a vector",
        "not defined on f32",
    ];
    assert_eq!(errors.len(), want.len(), "{errors:#?}");
    for (i, (error, want)) in errors.iter().zip(want).enumerate() {
        assert!(error.contains(want), "{error} has no '{want}'");
        assert!(
            error.contains(&format!("methods.rs:{}", line + i as u32)),
            "{error} is of line {}",
            line + i as u32
        );
    }
}
