//! Forward mode over the op table: the tangent of every sample against finite differences along the tangent, and against
//! reverse mode, of which it is the transpose; then Hessian-vector products.

mod support;

use onestep_autodiff::{AutodiffError, gradients, hvp, jvp, vjp, without_gradient};
use onestep_ir::interp::{Mode, run};
use onestep_ir::op::{Range, Sample};
use onestep_ir::{DType, Dense, Graph, GraphBuilder, Op, Tensor, Type};
use std::collections::{BTreeMap, BTreeSet};
use support::{agree, draw, is_f64, outputs, size};

/// The results of a sample's op, their tangents `dy…`, and the cotangents `v…` pulled back as `dx…`.
struct Tested {
    graph: Graph,
    /// Operands, tangents of the float ones, cotangents of the float results.
    inputs: Vec<Dense>,
    /// Places among `inputs`: the float operands, and their tangents.
    moving: Vec<(usize, usize)>,
    /// Places among `inputs`: the cotangents.
    cotangents: Vec<usize>,
    /// Output places: each float result with its tangent, if it has one.
    tangents: Vec<(usize, Option<usize>)>,
    /// Output places of the cotangents of `moving`.
    pulled: Vec<Option<usize>>,
}

/// `moved` says which float operands have a tangent.
fn tested(sample: &Sample, moved: impl Fn(usize) -> bool) -> Tested {
    let g = GraphBuilder::new("sample");
    let mut inputs = vec![];
    let mut feed = |ty: &Type, range: Range, seed: usize| {
        inputs.push(draw(ty, range, seed as u64));
        g.input(&format!("x{}", inputs.len()), ty.dtype, ty.shape.clone()).value().unwrap()
    };
    let operands: Vec<_> = sample.operands.iter().enumerate().map(|(i, (ty, r))| feed(ty, *r, i)).collect();
    let operands: Vec<Tensor<'_>> = operands.into_iter().map(|v| g.tensor(v)).collect();
    let floats = (0..operands.len()).filter(|&i| operands[i].dtype().is_float() && moved(i));
    let some = Range::Real(-1.0, 1.0);
    let moving: Vec<(usize, usize)> = floats.enumerate().map(|(n, i)| (i, operands.len() + n)).collect();
    let with: Vec<(Tensor<'_>, Tensor<'_>)> = moving
        .iter()
        .map(|&(i, t)| (operands[i], g.tensor(feed(&sample.operands[i].0, some, 30 + t))))
        .collect();
    let results = g.emit(sample.op.clone(), &operands);
    let results: Vec<Tensor<'_>> = results.into_iter().filter(|t| t.dtype().is_float()).collect();
    let mut named = 0;
    let mut output = |t: Tensor<'_>| {
        g.output(&format!("y{named}"), t);
        named += 1;
        named - 1
    };
    let found = jvp(&g, &results, &with).unwrap_or_else(|e| panic!("{:?}: {e}", sample.op));
    let mut tangents = vec![];
    for (y, t) in results.iter().zip(found) {
        if let Some(t) = t {
            assert_eq!(t.ty(), y.ty(), "{:?}: the tangent has another type", sample.op);
        }
        tangents.push((output(*y), t.map(&mut output)));
    }
    let first = operands.len() + moving.len();
    let cotangents: Vec<usize> = (first..first + results.len()).collect();
    let given: Vec<(Tensor<'_>, Tensor<'_>)> =
        results.iter().map(|y| (*y, g.tensor(feed(&y.ty().unwrap(), some, 60)))).collect();
    let wrt: Vec<Tensor<'_>> = with.iter().map(|w| w.0).collect();
    let pulled = vjp(&g, &given, &wrt).unwrap().into_iter().map(|d| d.map(&mut output)).collect();
    Tested { graph: g.build().unwrap(), inputs, moving, cotangents, tangents, pulled }
}

fn cases() -> impl Iterator<Item = Sample> {
    Op::samples().into_iter().filter(|s| is_f64(s) && without_gradient(&s.op).is_none())
}

/// Each result's slope along the tangent, from four points, with its elements that are not finite as 0.
fn slope(t: &Tested) -> Vec<Vec<f64>> {
    let largest = t.moving.iter().map(|&(i, _)| size(t.inputs[i].reals())).fold(1e4, f64::max);
    let h = (largest * 1e-8).log2().round().exp2();
    let at = |by: f64| {
        let mut inputs = t.inputs.clone();
        for &(i, d) in &t.moving {
            inputs[i] = inputs[i].zip_reals(&t.inputs[d], |x, d| x + by * d);
        }
        let out = outputs(&t.graph, &inputs);
        t.tangents.iter().map(|&(y, _)| finite(&out[y])).collect::<Vec<_>>()
    };
    let (a, b, c, d) = (at(h), at(-h), at(2.0 * h), at(-2.0 * h));
    let one = |n: usize, j: usize| (8.0 * (a[n][j] - b[n][j]) - (c[n][j] - d[n][j])) / (12.0 * h);
    (0..a.len()).map(|n| (0..a[n].len()).map(|j| one(n, j)).collect()).collect()
}

fn finite(v: &[f64]) -> Vec<f64> {
    v.iter().map(|&x| if x.is_finite() { x } else { 0.0 }).collect()
}

#[test]
fn every_tangent_is_the_slope_and_the_transpose() {
    let (mut slopes, mut transposes) = (0, 0);
    for sample in cases() {
        let count = sample.operands.len();
        // All operands together, and where there are several each alone.
        let alone = (0..count).filter(|&i| count > 1 && sample.operands[i].0.dtype.is_float()).map(Some);
        for only in [None].into_iter().chain(alone) {
            let t = tested(&sample, |i| only.is_none_or(|o| o == i));
            let out = outputs(&t.graph, &t.inputs);
            let (mut forward, mut back) = (0.0, 0.0);
            for ((&(y, dy), slope), &v) in t.tangents.iter().zip(slope(&t)).zip(&t.cotangents) {
                let zeros = vec![0.0; slope.len()];
                let tangent = dy.map_or(&zeros, |dy| &out[dy]);
                let known = |x: &[f64]| -> Vec<f64> {
                    x.iter().zip(&out[y]).map(|(x, y)| if y.is_finite() { *x } else { 0.0 }).collect()
                };
                let what = format!("{:?}, {only:?}:\ntangent {tangent:?}\n  slope {slope:?}", sample.op);
                assert!(agree(&known(tangent), &known(&slope), 1e-6), "{what}");
                slopes += 1;
                if size(&known(&slope)) > 0.0 {
                    let scaled: Vec<f64> = known(tangent).iter().map(|x| x * 1.01).collect();
                    assert!(!agree(&scaled, &known(&slope), 1e-6), "a wrong tangent would pass: {what}");
                }
                forward += dot(&known(tangent), t.inputs[v].reals());
            }
            for (&(_, d), pulled) in t.moving.iter().zip(&t.pulled) {
                back += pulled.map_or(0.0, |p| dot(&out[p], t.inputs[d].reals()));
            }
            let scale = f64::max(forward.abs(), 1.0);
            assert!((forward - back).abs() <= 1e-9 * scale, "{:?}, {only:?}: {forward} {back}", sample.op);
            transposes += 1;
        }
    }
    assert!(slopes > 200 && transposes > 200, "{slopes} {transposes}");
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Every mnemonic is either moved above or on reverse mode's written list of ops without gradient.
#[test]
fn no_op_is_left_out() {
    // Ops with regions have no samples: calls are moved below, scans in `scan_maps.rs`.
    // A rounding has no slope: `conventions.rs` has what is taken for it.
    let elsewhere = ["call", "scan", "round_stochastic", "quantize"];
    let mut left: BTreeSet<&str> = Op::names().into_iter().filter(|name| !elsewhere.contains(name)).collect();
    for sample in Op::samples() {
        if without_gradient(&sample.op).is_some() || is_f64(&sample) {
            left.remove(sample.op.rule().name());
        }
    }
    assert!(left.is_empty(), "neither moved nor listed: {left:?}");
}

/// In half precision too, tangents have their value's type.
#[test]
fn samples_of_other_dtypes_have_tangents() {
    let half = |s: &Sample| s.operands.iter().any(|o| matches!(o.0.dtype, DType::BF16 | DType::F16));
    let mut seen = 0;
    for sample in Op::samples().into_iter().filter(|s| half(s) && without_gradient(&s.op).is_none()) {
        let t = tested(&sample, |_| true);
        run(&t.graph, &t.inputs, &BTreeMap::new(), Mode::Declared).unwrap();
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}

fn dense(v: &[f64]) -> Dense {
    Dense::from_reals(DType::F64, &[v.len()], v.to_vec())
}

/// A value that depends on another one moved adds its own tangent to the one that reaches it.
#[test]
fn intermediate_values_move_too() {
    let g = GraphBuilder::new("middle");
    let (x, dx) = (g.input("x", DType::F64, [1]), g.input("dx", DType::F64, [1]));
    let y = x * x;
    let other = g.input("other", DType::F64, [1]).exp();
    let out = jvp(&g, &[y * x, y, other, x], &[(x, dx), (y, dx)]).unwrap();
    assert!(out[2].is_none());
    for (i, t) in [out[0], out[1], out[3]].into_iter().enumerate() {
        g.output(&format!("t{i}"), t.unwrap());
    }
    // dy = 2x·dx + dx; d(y·x) = dy·x + y·dx.
    let found = outputs(&g.build().unwrap(), &[dense(&[3.0]), dense(&[2.0]), dense(&[0.0])]);
    assert_eq!(found, [vec![14.0 * 3.0 + 9.0 * 2.0], vec![14.0], vec![2.0]]);
}

#[test]
fn calls_are_seen_through() {
    let build = |called: bool| {
        let g = GraphBuilder::new("calls");
        let (x, y) = (g.input("x", DType::F64, [2]), g.input("y", DType::F64, [2]));
        let z = if called {
            let outer = g.call("outer", &[x, x, y], |p| {
                let z = g.call("inner", &[p[0], p[1]], |q| vec![q[0] * q[1].exp()])[0];
                vec![z * p[2], p[2]]
            });
            outer[0] + outer[1]
        } else {
            x * x.exp() * y + y
        };
        g.output("t", jvp(&g, &[z], &[(x, y), (y, x)]).unwrap()[0].unwrap());
        outputs(&g.build().unwrap(), &[dense(&[0.5, -1.0]), dense(&[2.0, 3.0])])
    };
    assert_eq!(build(true), build(false));
}

/// Behind a step the tangent is 0; behind an integer there is none.
#[test]
fn flat_and_integer_paths() {
    let g = GraphBuilder::new("flat");
    let x = g.input("x", DType::F64, [3]);
    let out = jvp(&g, &[x.exp().floor(), x.cast(DType::I32).cast(DType::F64)], &[(x, x)]).unwrap();
    assert!(out[1].is_none());
    g.output("t", out[0].unwrap());
    assert_eq!(outputs(&g.build().unwrap(), &[dense(&[1.0; 3])])[0], [0.0; 3]);
}

#[test]
fn errors_say_what_to_do() {
    let g = GraphBuilder::new("wrong");
    let (x, n) = (g.input("x", DType::F32, [2, 3]), g.input("n", DType::I32, [2]));
    let text = |e: Result<_, AutodiffError>| e.map(|_: Vec<_>| ()).unwrap_err().to_string();
    let wrong = g.full(DType::F32, [3, 2], 1.0);
    assert!(text(jvp(&g, &[x], &[(x, wrong)])).contains("input 0 is f32[2, 3] but its tangent is f32[3, 2]"));
    assert!(text(jvp(&g, &[x], &[(n, n)])).contains("input 0 is i32[2]; only floats"));
    assert!(text(jvp(&g, &[n], &[(x, x)])).contains("output 0 is i32[2]"));
    assert!(text(hvp(&g, x, &[(x, x)])).contains("not a scalar"));
    assert!(text(hvp(&g, x.sum_all(), &[(x, wrong)])).contains("its tangent is f32[3, 2]"));
    let h = GraphBuilder::new("open");
    let open = h.input("x", DType::F32, [onestep_ir::dim("B").at_most(8)]);
    assert!(text(jvp(&h, &[open.exp()], &[(open, open)])).contains("bind the dimension variables"));
}

/// ½ xᵀAx + Σ x⁴ has the Hessian (A + Aᵀ)/2 + 12·diag(x²).
#[test]
fn a_known_hessian() {
    let g = GraphBuilder::new("quadratic");
    let (x, v) = (g.input("x", DType::F64, [3, 1]), g.input("v", DType::F64, [3, 1]));
    let a = g.input("a", DType::F64, [3, 3]);
    let loss = (x * a.matmul(x)).sum_all() * 0.5 + x.square().square().sum_all();
    g.output("hv", hvp(&g, loss, &[(x, v)]).unwrap()[0].unwrap());
    let (xs, vs) = ([0.5, -1.0, 2.0], [1.0, 0.25, -0.5]);
    let a: Vec<f64> = (0..9).map(|i| (i as f64).sin()).collect();
    let inputs = [
        Dense::from_reals(DType::F64, &[3, 1], xs.to_vec()),
        Dense::from_reals(DType::F64, &[3, 1], vs.to_vec()),
        Dense::from_reals(DType::F64, &[3, 3], a.clone()),
    ];
    let row = |i: usize| {
        let linear: f64 = (0..3).map(|j| 0.5 * (a[3 * i + j] + a[3 * j + i]) * vs[j]).sum();
        linear + 12.0 * xs[i] * xs[i] * vs[i]
    };
    let want: Vec<f64> = (0..3).map(row).collect();
    assert!(agree(&outputs(&g.build().unwrap(), &inputs)[0], &want, 1e-14));
}

/// The Rosenbrock function at (−1.2, 1): Hessian [[1330, 480], [480, 200]].
#[test]
fn rosenbrock() {
    let g = GraphBuilder::new("rosenbrock");
    let (x, y) = (g.input("x", DType::F64, ()), g.input("y", DType::F64, ()));
    let (dx, dy) = (g.input("dx", DType::F64, ()), g.input("dy", DType::F64, ()));
    let loss = (1.0 - x).square() + (y - x * x).square() * 100.0;
    for (i, h) in hvp(&g, loss, &[(x, dx), (y, dy)]).unwrap().into_iter().enumerate() {
        g.output(&format!("h{i}"), h.unwrap());
    }
    let inputs = [-1.2, 1.0, 1.0, 2.0].map(|v| Dense::from_reals(DType::F64, &[], vec![v]));
    let out = outputs(&g.build().unwrap(), &inputs);
    assert!(agree(&out[0], &[1330.0 + 2.0 * 480.0], 1e-12) && agree(&out[1], &[480.0 + 400.0], 1e-12));
}

/// Forward over forward: the second derivative along a direction is vᵀ·H·v.
#[test]
fn tangents_of_tangents() {
    let g = GraphBuilder::new("twice");
    let (x, v) = (g.input("x", DType::F64, [3]), g.input("v", DType::F64, [3]));
    let loss = (x.tanh() * x.softmax(-1)).sum_all();
    let once = jvp(&g, &[loss], &[(x, v)]).unwrap()[0].unwrap();
    g.output("twice", jvp(&g, &[once], &[(x, v)]).unwrap()[0].unwrap());
    g.output("product", (hvp(&g, loss, &[(x, v)]).unwrap()[0].unwrap() * v).sum_all());
    let out = outputs(&g.build().unwrap(), &[dense(&[0.3, -1.0, 0.8]), dense(&[1.0, 0.5, -2.0])]);
    assert!(agree(&out[0], &out[1], 1e-12) && size(&out[0]) > 0.1, "{out:?}");
}

/// A linear loss has no curvature: zeros or nothing, and never an error.
#[test]
fn no_curvature() {
    let g = GraphBuilder::new("linear");
    let (x, y) = (g.input("x", DType::F64, [2]), g.input("y", DType::F64, [2]));
    let h = hvp(&g, (x * 3.0).sum_all() + y.square().sum_all(), &[(x, x), (y, y)]).unwrap();
    assert!(h[0].is_none() && h[1].is_some());
}

/// A small network with a convolution, a norm, attention's softmax and a cross-entropy: the product against finite
/// differences of the gradient, and against the gradient of ⟨gradient, v⟩.
#[test]
fn a_small_network() {
    let g = GraphBuilder::new("network");
    let x = g.input("x", DType::F64, [2, 1, 6]);
    let labels = g.input("labels", DType::I32, [2]);
    let shapes: [&[usize]; 5] = [&[3, 1, 3], &[4], &[4], &[12, 5], &[5]];
    let p: Vec<_> = (0..5).map(|i| g.input(&format!("p{i}"), DType::F64, shapes[i])).collect();
    let v: Vec<_> = (0..5).map(|i| g.input(&format!("v{i}"), DType::F64, shapes[i])).collect();
    let window = onestep_ir::ops::Window::plain(1);
    let y = g.emit1(onestep_ir::ops::Convolution { window, groups: 1 }, &[x, p[0]]);
    let y = y.layer_norm(p[1], p[2], 1e-5).gelu();
    let logits = y.reshape([2, 12]).matmul(p[3]).softmax(-1) * 3.0 + p[4];
    let loss = logits.cross_entropy(labels) + logits.square().sum_all() * 0.1;
    let slopes: Vec<_> = gradients(&g, loss, &p).unwrap().into_iter().map(Option::unwrap).collect();
    let with: Vec<_> = p.iter().copied().zip(v.iter().copied()).collect();
    let products = hvp(&g, loss, &with).unwrap();
    let along = slopes.iter().zip(&v).map(|(d, v)| (*d * *v).sum_all()).reduce(|a, b| a + b).unwrap();
    let twice = gradients(&g, along, &p).unwrap();
    let named = slopes.into_iter().chain(products.into_iter().flatten()).chain(twice.into_iter().flatten());
    named.enumerate().for_each(|(i, t)| g.output(&format!("o{i}"), t));
    let graph = g.build().unwrap();
    assert_eq!(graph.outputs.len(), 15);
    let fed = |i: usize, port: &onestep_ir::Port| {
        let range = if i == 1 { Range::Int(0, 5) } else { Range::Real(-1.0, 1.0) };
        draw(graph.ty(port.value), range, i as u64)
    };
    let fed: Vec<Dense> = graph.inputs.iter().enumerate().map(|(i, port)| fed(i, port)).collect();
    let out = outputs(&graph, &fed);
    let h = 1e-4f64.log2().round().exp2();
    let moved = |by: f64| {
        let mut inputs = fed.clone();
        (2..7).for_each(|i| inputs[i] = inputs[i].zip_reals(&fed[i + 5], |x, d| x + by * d));
        outputs(&graph, &inputs)
    };
    let (a, b, c, d) = (moved(h), moved(-h), moved(2.0 * h), moved(-2.0 * h));
    for i in 0..5 {
        let one = |j: usize| (8.0 * (a[i][j] - b[i][j]) - (c[i][j] - d[i][j])) / (12.0 * h);
        let slope: Vec<f64> = (0..a[i].len()).map(one).collect();
        assert!(agree(&out[5 + i], &slope, 1e-7), "p{i}: {:?} {slope:?}", out[5 + i]);
        assert!(agree(&out[5 + i], &out[10 + i], 1e-11), "p{i}: {:?} {:?}", out[5 + i], out[10 + i]);
        assert!(size(&slope) > 1e-3);
    }
}
