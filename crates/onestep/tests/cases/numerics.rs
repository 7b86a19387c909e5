//! Numbers at the edges: huge logits, powers at zero, rows that see nothing, means far from zero, NaN, empty tensors.

use crate::common::*;
use onestep::ir::AttentionOptions;
use onestep::ir::ops::AttentionLayout;
use onestep::prelude::*;

const LN_2: f64 = std::f64::consts::LN_2;

fn parameter<'g>(g: &'g GraphBuilder, name: &str, shape: &[usize]) -> Tensor<'g> {
    g.parameter(name, shape, Init::ZEROS)
}

#[test]
fn cross_entropy_of_huge_logits() {
    for (logits, loss, gradient) in [
        ([1e8, 1e8], LN_2, [-0.5, 0.5]),
        ([-1e8, -1e8], LN_2, [-0.5, 0.5]),
        ([1e8, -1e8], 0.0, [0.0, 0.0]),
        ([-1e8, 1e8], 2e8, [-1.0, 1.0]),
        ([f32::MAX, 0.0], 0.0, [0.0, 0.0]),
    ] {
        let g = GraphBuilder::new("huge");
        let labels = g.constant(ints(&[1], &[0]));
        let graph = g.finish(parameter(&g, "x", &[1, 2]).cross_entropy(labels)).unwrap();
        let (got, gradients) = gradients(&graph, &[("x", floats(&[1, 2], &logits))]);
        assert_close(&[got], &[loss], 1e-7);
        assert_close(&gradients["x"], &gradient, 1e-7);
    }
}

#[test]
fn a_mean_loss_with_every_label_ignored_is_zero() {
    let g = GraphBuilder::new("ignored");
    let labels = g.constant(ints(&[2], &[-100, -100]));
    let graph = g.finish(parameter(&g, "x", &[2, 3]).cross_entropy(labels)).unwrap();
    let (loss, gradients) = gradients(&graph, &[("x", random(&[2, 3], 1))]);
    assert_eq!((loss, &gradients["x"]), (0.0, &vec![0.0; 6]));
}

/// There is no op for it; this is its stable form, and the compiler must keep it stable.
#[test]
fn binary_cross_entropy_with_logits() {
    for (x, y, loss, gradient) in [
        (100.0, 0.0, 100.0, 1.0),
        (-100.0, 1.0, 100.0, -1.0),
        (100.0, 1.0, 0.0, 0.0),
        (0.5, 1.0, 0.474077, -0.377541),
    ] {
        let g = GraphBuilder::new("bce");
        let logit = parameter(&g, "x", &[1]);
        let target = g.constant(floats(&[1], &[y]));
        let losses = logit.relu() - logit * target + logit.abs().negate().exp().log_1p();
        let (got, gradients) = gradients(&g.finish(losses.mean()).unwrap(), &[("x", floats(&[1], &[x]))]);
        assert_close(&[got, gradients["x"][0]], &[loss, gradient], 1e-6);
    }
}

#[test]
fn powers_at_zero() {
    let difference = |exponent: Option<f64>, a: f32, b: f32, cotangent: f64| {
        let g = GraphBuilder::new("power");
        let (x, y) = (parameter(&g, "a", &[1]), parameter(&g, "b", &[1]));
        let power = match exponent {
            Some(n) => (x - y).pow(n),
            None => (x - y).pow(y),
        };
        let graph = g.finish((power * cotangent).sum_all()).unwrap();
        let at = [("a", floats(&[1], &[a])), ("b", floats(&[1], &[b]))];
        let (loss, gradients) = gradients(&graph, &at);
        [loss, gradients["a"][0], gradients["b"][0]]
    };
    assert_eq!(difference(Some(2.0), 0.0, 0.0, 1.0), [0.0, 0.0, 0.0]);
    assert_eq!(difference(Some(3.0), 2.0, 2.0, 1.0), [0.0, 0.0, 0.0]);
    assert_eq!(difference(Some(1.0), 1.0, 1.0, 1.0), [0.0, 1.0, -1.0]);
    assert_eq!(difference(Some(0.0), 1.0, 1.0, 1.0), [1.0, 0.0, 0.0]);
    assert_eq!(difference(None, 1.0, 1.0, 123.0), [0.0, 123.0, -123.0]);
}

/// Loss, output and gradients of attention of these queries over three keys, under an additive mask.
fn masked(mask: &[f32; 6], layout: AttentionLayout) -> (Vec<f64>, [Vec<f64>; 3]) {
    let shape = |n: usize| layout.arrange([1, 1, n, 4]);
    let g = GraphBuilder::new("masked");
    let [q, k, v] = [("q", 2), ("k", 3), ("v", 3)].map(|(name, n)| parameter(&g, name, &shape(n)));
    let options = AttentionOptions { layout, ..AttentionOptions::default() };
    let out = q.attention(k, v, Some(g.constant(floats(&[2, 3], mask))), options);
    g.output("out", out);
    let graph = g.finish((out * out).sum_all()).unwrap();
    let at = [("q", 2, 1), ("k", 3, 2), ("v", 3, 3)].map(|(n, len, seed)| (n, random(&shape(len), seed)));
    let (_, gradients) = gradients(&graph, &at);
    let mut program = compile(&graph, &cpu(1)).unwrap();
    let mut state = State::new();
    at.iter().for_each(|(name, a)| state.set(name, a));
    let out = program.run(&mut state, ()).unwrap().array("out").unwrap().to_f64();
    (out, ["q", "k", "v"].map(|n| gradients[n].clone()))
}

#[test]
fn a_row_that_sees_nothing_is_zero() {
    const NO: f32 = f32::NEG_INFINITY;
    for layout in [AttentionLayout::Bhtd, AttentionLayout::Bthd] {
        let (out, [dq, dk, dv]) = masked(&[0.0, 0.5, NO, NO, NO, NO], layout);
        assert_eq!((&out[4..], &dq[4..]), (&[0.0; 4][..], &[0.0; 4][..]));
        assert!(out[..4].iter().chain(&dq).chain(&dk).chain(&dv).all(|x| x.is_finite()));
        assert!(out[..4].iter().chain(&dq[..4]).chain(&dv[..8]).all(|&x| x != 0.0));
        assert_eq!((&dk[8..], &dv[8..]), (&[0.0; 4][..], &[0.0; 4][..]), "nobody sees the last key");
    }
    // Softmax alone, of rows and of nothing but them.
    let g = GraphBuilder::new("softmax");
    let rows = g.input("x", F32, [2, 2]);
    g.output("weights", rows.softmax(-1));
    let got = outputs(&g.build().unwrap(), &[floats(&[2, 2], &[NO, NO, 0.0, NO])]);
    assert_eq!(got["weights"], [0.0, 0.0, 1.0, 0.0]);
}

/// The same heads in both layouts: where the sequence is as long as there are heads, sizes tell nothing.
#[test]
fn the_layout_of_attention_is_declared() {
    for (sequence, heads) in [(4, 4), (3, 4), (4, 3), (1, 4)] {
        let run = |layout: AttentionLayout| {
            let g = GraphBuilder::new("layout");
            let shape = [1, heads, sequence, 4];
            let turn = |x: Tensor<'_>| match layout {
                AttentionLayout::Bhtd => x.value(),
                AttentionLayout::Bthd => x.transpose(&[0, 2, 1, 3]).value(),
            };
            let [q, k, v] = ["q", "k", "v"].map(|n| g.tensor(turn(g.input(n, F32, shape)).unwrap()));
            let options = AttentionOptions { layout, causal: true, ..AttentionOptions::default() };
            g.output("out", g.tensor(turn(q.attention(k, v, None, options)).unwrap()));
            let feeds = [1, 2, 3].map(|seed| random(&shape, seed));
            outputs(&g.build().unwrap(), &feeds).remove("out").unwrap()
        };
        let (a, b) = (run(AttentionLayout::Bhtd), run(AttentionLayout::Bthd));
        assert_close(&a, &b, 1e-6);
        // And by hand: the first query of each head sees the first key alone.
        let v = random(&[1, heads, sequence, 4], 3).to_f64();
        for h in 0..heads {
            let at = h * sequence * 4;
            assert_close(&a[at..at + 4], &v[at..at + 4], 1e-6);
        }
    }
}

#[test]
fn layer_norm_far_from_zero() {
    let g = GraphBuilder::new("norm");
    let x = g.input("x", F32, [1, 4]);
    let (weight, bias) = (g.full(F32, [4], 1.0), g.full(F32, [4], 0.0));
    g.output("y", x.layer_norm(weight, bias, 1e-5));
    let got = outputs(&g.build().unwrap(), &[floats(&[1, 4], &[40000.0, 40001.0, 40002.0, 40003.0])]);
    assert_close(&got["y"], &[-1.341635, -0.447212, 0.447212, 1.341635], 1e-5);
}

#[test]
fn nan_is_never_lost() {
    const NAN: f32 = f32::NAN;
    // In every place of a vector, since kernels treat blocks and their rests apart.
    for n in [1, 4, 8, 9, 17, 33] {
        for place in 0..n {
            let g = GraphBuilder::new("nan");
            let x = g.input("x", F32, [n]);
            let one = g.full(F32, [n], 1.0);
            g.output("relu", x.relu());
            g.output("max", x.maximum(1.0));
            g.output("max of", one.maximum(x));
            g.output("min", x.minimum(-1.0));
            g.output("clamp", x.minimum(1.0).maximum(-1.0));
            g.output("largest", x.max(&[0]));
            g.output("smallest", x.min(&[0]));
            g.output("softmax", x.softmax(0));
            let mut numbers = vec![0.5f32; n];
            numbers[place] = NAN;
            for (name, got) in outputs(&g.build().unwrap(), &[floats(&[n], &numbers)]) {
                match name.as_str() {
                    "largest" | "smallest" | "softmax" => {
                        assert!(got.iter().all(|x| x.is_nan()), "{name} of {n}, NaN at {place}: {got:?}")
                    }
                    _ => assert!(
                        got.iter().enumerate().all(|(i, x)| x.is_nan() == (i == place)),
                        "{name} of {n}, NaN at {place}: {got:?}"
                    ),
                }
            }
        }
    }
}

#[test]
fn empty_tensors() {
    let g = GraphBuilder::new("empty");
    let (a, b) = (g.input("a", F32, [2, 0]), g.input("b", F32, [0, 3]));
    let nothing = g.input("nothing", F32, [0]);
    g.output("product", a.matmul(b));
    g.output("sum", nothing.sum_all());
    g.output("mean", nothing.mean());
    g.output("prod", nothing.prod(&[0]));
    g.output("all", a.is_finite().all());
    g.output("any", a.is_finite().any());
    g.output("rows", b.sum(&[0]));
    g.output("doubled", b * 2.0);
    g.output("softmax", b.softmax(-1));
    let empty = |shape: &[usize]| floats(shape, &[]);
    let got = outputs(&g.build().unwrap(), &[empty(&[2, 0]), empty(&[0, 3]), empty(&[0])]);
    assert_eq!((&got["product"], &got["rows"]), (&vec![0.0; 6], &vec![0.0; 3]));
    assert_eq!((got["sum"][0], got["prod"][0], got["all"][0], got["any"][0]), (0.0, 1.0, 1.0, 0.0));
    assert!(got["mean"][0].is_nan());
    assert_eq!((got["doubled"].len(), got["softmax"].len()), (0, 0));
}

/// A batch of no rows: its mean loss is 0, as of one whose every label is ignored, and nothing moves.
#[test]
fn a_training_step_on_no_rows() {
    let mut step = TrainingStep::new(classifier(4)).optimizer(Sgd::new(0.1)).compile(&cpu(2)).unwrap();
    let mut state = step.init(0).unwrap();
    let before = guarded(&state);
    let loss = step.run(&mut state, rows(0, 1)).unwrap().loss().unwrap();
    assert_eq!(loss, 0.0);
    let mut after = guarded(&state);
    after.insert("opt/step".into(), before["opt/step"].clone());
    assert!(after == before);
    assert!(step.run(&mut state, rows(4, 1)).unwrap().loss().unwrap() > 0.0);
}

/// Sums whose results are padded to the size of the axis that they are over: the pad is about results, not about terms.
#[test]
fn padded_sums() {
    for (low, high) in [(0, 3), (3, 0), (1, 2)] {
        let g = GraphBuilder::new("padded");
        let x = g.input("x", F32, [4, 4]);
        let sum = x.sum_keep(&[1]);
        g.output("columns", sum.pad(1, low, high, 7.0));
        g.output("scaled", (sum * 2.0 + x.max_keep(&[1])).pad(1, low, high, 0.0) * x);
        g.output("rows", x.sum_keep(&[0]).pad(0, low, high, -1.0) + x);
        let graph = g.build().unwrap();
        let feeds = [random(&[4, 4], 3)];
        let want = onestep::ir::interp::run_arrays(&graph, &feeds, &mut Default::default()).unwrap();
        let got = outputs(&graph, &feeds);
        for (name, want) in ["columns", "scaled", "rows"].into_iter().zip(&want) {
            assert_close(&got[name], &want.to_f64(), 1e-5);
        }
    }
}
