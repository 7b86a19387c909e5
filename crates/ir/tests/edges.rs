//! Ops at their edges: cases that users of other systems have reported, each with its whole kind.

use onestep_ir::interp::{Mode, run};
use onestep_ir::ops::{Attention, AttentionGrad, AttentionLayout, CrossEntropy, CtcLoss, Mean};
use onestep_ir::testing::{self, Rng};
use onestep_ir::{
    Array, AttentionOptions, DType, Dense, Graph, GraphBuilder, GraphError, Op, Tensor, concat, op::Range,
    stack,
};
use std::collections::BTreeMap;

fn real(shape: &[usize], data: &[f64]) -> Dense {
    Dense::from_reals(DType::F32, shape, data.to_vec())
}

fn int(shape: &[usize], data: &[i64]) -> Dense {
    Dense::from_ints(DType::I32, shape, data.to_vec())
}

/// Builds a graph over inputs of the values' types and runs it, rounding to declared dtypes.
fn eval(
    values: &[Dense],
    f: impl for<'g> FnOnce(&'g GraphBuilder, &[Tensor<'g>]) -> Vec<Tensor<'g>>,
) -> Result<Vec<Dense>, GraphError> {
    let g = GraphBuilder::new("edge");
    let inputs: Vec<_> =
        values.iter().enumerate().map(|(i, v)| g.input(&format!("x{i}"), v.dtype, &v.shape[..])).collect();
    for (i, y) in f(&g, &inputs).into_iter().enumerate() {
        g.output(&format!("y{i}"), y);
    }
    Ok(run(&g.build()?, values, &BTreeMap::new(), Mode::Declared)?.outputs)
}

/// The op by its reference, and by its decomposition.
fn both_ways(op: impl Into<Op>, values: &[Dense]) -> [Result<Vec<Dense>, GraphError>; 2] {
    let op = op.into();
    let types: Vec<_> = values.iter().map(Dense::ty).collect();
    let whole = testing::graph_of(&op, &types).unwrap();
    let parts = testing::decomposed(&op, &types).unwrap().unwrap();
    [whole, parts].map(|g| Ok(run(&g, values, &BTreeMap::new(), Mode::Declared)?.outputs))
}

#[track_caller]
fn near(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!(g == w || (g - w).abs() <= tolerance || g.is_nan() && w.is_nan(), "{got:?} is not {want:?}");
    }
}

#[test]
fn huge_equal_logits() {
    let logits = real(&[1, 2], &[1e8, 1e8]);
    let out = eval(&[logits.clone(), int(&[1], &[0])], |_, x| {
        vec![x[0].cross_entropy(x[1]), x[0].softmax(-1), x[0].log_softmax(-1)]
    });
    let out = out.unwrap();
    near(out[0].reals(), &[std::f64::consts::LN_2], 1e-7);
    near(out[1].reals(), &[0.5, 0.5], 0.0);
    near(out[2].reals(), &[-std::f64::consts::LN_2; 2], 1e-7);
    for r in both_ways(CrossEntropy { ignore_index: -100 }, &[logits, int(&[1], &[0])]) {
        near(r.unwrap()[0].reals(), &[std::f64::consts::LN_2], 1e-7);
    }
}

#[test]
fn rows_of_minus_infinity() {
    let x = real(&[2, 2], &[f64::NEG_INFINITY, f64::NEG_INFINITY, 0.0, f64::NEG_INFINITY]);
    for r in both_ways(onestep_ir::ops::Softmax { axis: 1 }, std::slice::from_ref(&x)) {
        near(r.unwrap()[0].reals(), &[0.0, 0.0, 1.0, 0.0], 0.0);
    }
    for r in both_ways(onestep_ir::ops::LogSoftmax { axis: 1 }, &[x]) {
        let inf = f64::NEG_INFINITY;
        near(r.unwrap()[0].reals(), &[inf, inf, 0.0, inf], 0.0);
    }
}

#[test]
fn nan_is_not_lost() {
    let x = real(&[2], &[f64::NAN, -1.0]);
    let out = eval(&[x], |_, x| {
        vec![
            x[0].relu(),
            x[0].maximum(1.0),
            x[0].minimum(1.0),
            x[0].max(&[0]),
            x[0].min(&[0]),
            x[0].softmax(0),
            x[0].gelu(),
            x[0].silu(),
            x[0].mean(),
        ]
    });
    for (i, y) in out.unwrap().iter().enumerate() {
        assert!(y.reals()[0].is_nan(), "result {i} is {y:?}");
    }
}

#[test]
fn layer_norm_with_a_big_mean() {
    let values =
        [real(&[4], &[40000.0, 40001.0, 40002.0, 40003.0]), real(&[4], &[1.0; 4]), real(&[4], &[0.0; 4])];
    let op = onestep_ir::ops::LayerNorm { eps: 1e-5.into() };
    for r in both_ways(op, &values) {
        near(r.unwrap()[0].reals(), &[-1.341635, -0.447212, 0.447212, 1.341635], 1e-6);
    }
}

#[test]
fn empty_tensors() {
    let out = eval(&[real(&[2, 0], &[]), real(&[0, 3], &[]), real(&[0], &[])], |_, x| {
        vec![
            x[0].matmul(x[1]),
            x[2].sum_all(),
            x[2].mean(),
            x[0].softmax(-1),
            x[1].transpose_last().flatten(),
        ]
    });
    let out = out.unwrap();
    assert_eq!((out[0].shape.as_slice(), out[0].reals()), ([2, 3].as_slice(), [0.0; 6].as_slice()));
    assert_eq!(out[1].reals(), [0.0]);
    assert!(out[2].reals()[0].is_nan());
    for r in both_ways(Mean { axes: vec![0] }, &[real(&[0, 2], &[])]) {
        near(r.unwrap()[0].reals(), &[f64::NAN; 2], 0.0);
    }
}

#[test]
fn labels_out_of_range() {
    let op = CrossEntropy { ignore_index: -100 };
    for bad in [9, 3, -1] {
        let [whole, parts] = both_ways(op, &[real(&[2, 3], &[0.5; 6]), int(&[2], &[bad, 1])]);
        let message = whole.unwrap_err().to_string();
        assert!(message.contains(&format!("label {bad} (row 0) is outside 0..3")), "{message}");
        // Without a check on the device: NaN in that row, and no other row's data.
        near(parts.unwrap()[0].reals(), &[f64::NAN, 3f64.ln()], 1e-6);
    }
    // An unsigned label never passes for the ignored one, nor wraps in a count of classes.
    let labels = Dense::from_ints(DType::U8, &[2], vec![0, 156]);
    let logits = real(&[2, 300], &[0.0; 600]);
    for r in both_ways(op, &[logits.clone(), labels.clone()]) {
        near(r.unwrap()[0].reals(), &[300f64.ln(); 2], 1e-5);
    }
    let mean = eval(&[logits, labels], |_, x| vec![x[0].cross_entropy(x[1])]).unwrap();
    near(mean[0].reals(), &[300f64.ln()], 1e-5);
}

#[test]
fn ignored_labels() {
    let logits = real(&[3, 2], &[0.0, 1.0, 5.0, -5.0, f64::NAN, 0.0]);
    let loss = |labels: &[i64]| {
        let out = eval(&[logits.clone(), int(&[3], labels)], |_, x| vec![x[0].cross_entropy(x[1])]);
        out.unwrap()[0].reals()[0]
    };
    assert_eq!(loss(&[-100, -100, -100]), 0.0);
    near(&[loss(&[1, -100, -100])], &[(1.0 + (-1f64).exp()).ln()], 1e-6);
    for r in both_ways(CrossEntropy { ignore_index: 1 }, &[logits, int(&[3], &[0, 1, 1])]) {
        near(r.unwrap()[0].reals(), &[(1.0 + 1f64.exp()).ln(), 0.0, 0.0], 1e-6);
    }
}

#[test]
fn indices_out_of_range() {
    let data = real(&[4, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let refuse = |what: &str, r: Result<Vec<Dense>, GraphError>| {
        let message = r.unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
    };
    for bad in [7, 4, -1] {
        let ids = int(&[2], &[1, bad]);
        let what = format!("index {bad} (element 1 of the indices) is outside 0..4");
        refuse(&what, eval(&[data.clone(), ids.clone()], |_, x| vec![x[0].gather(0, x[1])]));
        refuse(
            &what,
            eval(&[data.clone(), ids.clone(), real(&[2, 2], &[1.0; 4])], |_, x| {
                vec![x[0].scatter_add(0, x[1], x[2])]
            }),
        );
        let along = int(&[1, 2], &[1, bad]);
        refuse(&what, eval(&[data.clone(), along.clone()], |_, x| vec![x[0].gather_along(0, x[1])]));
        refuse(
            &what,
            eval(&[data.clone(), along, real(&[1, 2], &[1.0; 2])], |_, x| {
                vec![x[0].scatter_add_along(0, x[1], x[2])]
            }),
        );
    }
    for bad in [3, -1, i64::from(i32::MAX)] {
        let what = format!("2 element(s) from index {bad} do not lie in 0..4");
        refuse(&what, eval(&[data.clone(), int(&[], &[bad])], |_, x| vec![x[0].dynamic_slice(0, x[1], 2)]));
        refuse(
            &what,
            eval(&[data.clone(), int(&[], &[bad]), real(&[2, 2], &[1.0; 4])], |_, x| {
                vec![x[0].dynamic_update_slice(0, x[2], x[1])]
            }),
        );
    }
}

fn attention(layout: AttentionLayout, causal: bool) -> Attention {
    Attention { causal, ..Attention::new(layout, 1.0) }
}

fn grad(a: Attention) -> AttentionGrad {
    AttentionGrad { forward: a, mask_grad: false }
}

#[test]
fn fully_masked_attention_row() {
    let mut rng = Rng::new(3);
    let mut draw = |shape: &[usize]| {
        rng.dense(&real(shape, &vec![0.0; shape.iter().product()]).ty(), Range::Real(-1.0, 1.0))
    };
    let (q, k, v) = (draw(&[1, 1, 2, 2]), draw(&[1, 1, 3, 2]), draw(&[1, 1, 3, 2]));
    let dout = draw(&[1, 1, 2, 2]);
    let inf = f64::NEG_INFINITY;
    let additive = real(&[1, 1, 2, 3], &[0.0, 0.0, 0.0, inf, inf, inf]);
    let boolean = Dense::from_ints(DType::Bool, &[1, 1, 2, 3], vec![1, 1, 1, 0, 0, 0]);
    for mask in [additive, boolean] {
        let op = attention(AttentionLayout::Bhtd, false);
        for r in both_ways(op, &[q.clone(), k.clone(), v.clone(), mask.clone()]) {
            let r = r.unwrap();
            assert_eq!(r[0].reals()[2..], [0.0, 0.0]);
            assert!(r[0].reals()[0] != 0.0 && r[0].reals().iter().all(|x| x.is_finite()));
            assert_eq!(r[1].reals()[1], inf);
            let all = [&q, &k, &v, &mask, &r[0], &r[1], &dout].map(Dense::clone);
            for d in both_ways(grad(op), &all) {
                let d = d.unwrap();
                assert_eq!(d[0].reals()[2..], [0.0, 0.0], "dq of the masked row");
                assert!(d.iter().all(|x| x.reals().iter().all(|v| v.is_finite())));
                assert!(d[1].reals().iter().any(|v| *v != 0.0) && d[2].reals().iter().any(|v| *v != 0.0));
            }
        }
    }
}

/// Causal attention aligns at the top left, also when there are more queries than keys or the other way round.
#[test]
fn causal_is_aligned_at_the_top_left() {
    let ones = |t: usize| real(&[1, 1, t, 1], &vec![1.0; t]);
    let v = real(&[1, 1, 3, 1], &[1.0, 2.0, 3.0]);
    for r in both_ways(attention(AttentionLayout::Bhtd, true), &[ones(2), ones(3), v.clone()]) {
        near(r.unwrap()[0].reals(), &[1.0, 1.5], 1e-6);
    }
    for r in both_ways(attention(AttentionLayout::Bhtd, true), &[ones(4), ones(3), v.clone()]) {
        near(r.unwrap()[0].reals(), &[1.0, 1.5, 2.0, 2.0], 1e-6);
    }
}

/// With as many positions as heads, and with more, the two layouts give the same numbers.
#[test]
fn attention_layout_is_declared() {
    for (s, h) in [(4, 4), (3, 4), (5, 2)] {
        let mut rng = Rng::new(9);
        let ty = real(&[2, s, h, 3], &vec![0.0; 2 * s * h * 3]).ty();
        let values: Vec<Dense> = (0..3).map(|_| rng.dense(&ty, Range::Real(-2.0, 2.0))).collect();
        for causal in [false, true] {
            let out = eval(&values, |_, x| {
                let options =
                    AttentionOptions { layout: AttentionLayout::Bthd, causal, ..Default::default() };
                let one = x[0].attention(x[1], x[2], None, options);
                let [q, k, v] = [0, 1, 2].map(|i| x[i].transpose(&[0, 2, 1, 3]));
                let other = q.attention(k, v, None, AttentionOptions { causal, ..Default::default() });
                // And written out, head by head.
                let heads: Vec<_> = (0..h)
                    .map(|i| {
                        let [q, k, v] = [q, k, v].map(|t| t.at(1, i));
                        let scores = q.matmul_t(k, false, true) * (1.0 / 3f64.sqrt());
                        let row = x[0].graph().iota(DType::I32, [s, s], 0);
                        let seen = x[0].graph().iota(DType::I32, [s, s], 1).less_equal(row);
                        let scores = if causal { seen.expand(0).select(scores, -1e30) } else { scores };
                        scores.softmax(-1).matmul(v)
                    })
                    .collect();
                let written = x[0].graph().stack(&heads, 2);
                vec![one, other.transpose(&[0, 2, 1, 3]), written]
            });
            let out = out.unwrap();
            near(out[0].reals(), out[1].reals(), 0.0);
            near(out[0].reals(), out[2].reals(), 1e-5);
        }
    }
}

/// The gradient op against finite differences of the attention, with every kind of mask.
#[test]
fn attention_grad_is_the_gradient() {
    for sample in onestep_ir::Op::samples() {
        let Op::AttentionGrad(op) = sample.op else { continue };
        let values = testing::operand_values(&sample, 5);
        if values[0].dtype != DType::F64 {
            continue;
        }
        let forward: Op = op.forward.into();
        let operands = &values[..values.len() - 3];
        let dout = &values[values.len() - 1];
        let of = |operands: &[Dense]| {
            let refs: Vec<&Dense> = operands.iter().collect();
            let types: Vec<_> = operands.iter().map(Dense::ty).collect();
            forward.rule().reference(&refs, &forward.rule().infer(&types).unwrap()).unwrap()
        };
        let loss = |operands: &[Dense]| {
            of(operands)[0].reals().iter().zip(dout.reals()).map(|(a, b)| a * b).sum::<f64>()
        };
        let mut all = operands.to_vec();
        all.extend(of(operands));
        all.push(dout.clone());
        let refs: Vec<&Dense> = all.iter().collect();
        let grads = sample.op.rule().reference(&refs, &[]).unwrap();
        for (which, grad) in grads.iter().enumerate() {
            for i in 0..grad.len() {
                let nudged = |by: f64| {
                    let mut operands = operands.to_vec();
                    let mut x = operands[which].reals().to_vec();
                    x[i] += by;
                    operands[which] = Dense::from_reals(DType::F64, &grad.shape, x);
                    loss(&operands)
                };
                let slope = (nudged(1e-5) - nudged(-1e-5)) / 2e-5;
                near(&[grad.reals()[i]], &[slope], 1e-7);
            }
        }
    }
}

#[test]
fn dropout_keeps_its_share() {
    let n = 100_000;
    let key = Dense::from_ints(DType::U32, &[2], vec![11, 0]);
    let draw = |counter: i64| {
        let counter = Dense::from_ints(DType::U32, &[], vec![counter]);
        let out = eval(&[key.clone(), counter], |g, x| {
            let bits = g.random_bits("drop", x[0], x[1], [n]);
            let ones = g.full(DType::F32, [n], 1.0);
            vec![ones.dropout(0.5, bits), ones.dropout(0.0, bits), ones.dropout(1.0, bits)]
        });
        out.unwrap()
    };
    let (first, again, next) = (draw(0), draw(0), draw(1));
    for step in [&first, &next] {
        let kept = step[0].reals().iter().filter(|x| **x != 0.0).count() as f64 / n as f64;
        assert!((kept - 0.5).abs() < 0.01, "kept {kept}");
        assert!(step[0].reals().iter().all(|x| *x == 0.0 || *x == 2.0));
        assert!(step[1].reals().iter().all(|x| *x == 1.0));
        assert!(step[2].reals().iter().all(|x| *x == 0.0));
    }
    assert_eq!(first[0], again[0]);
    assert_ne!(first[0], next[0]);
}

#[test]
fn one_path_draws_once() {
    let g = GraphBuilder::new("twice");
    let (key, counter) = (g.input("key", DType::U32, [2]), g.input("counter", DType::U32, ()));
    let a = g.random_bits("drop", key, counter, [4]);
    let b = g.scope("block", || g.random_bits("drop", key, counter, [4]));
    assert!(a.value().is_some() && b.value().is_some());
    assert!(g.random_bits("drop", key, counter, [4]).value().is_none());
    assert!(g.errors()[0].to_string().contains("drawn twice at path 'drop'"));
}

#[test]
fn parts_of_tensors() {
    let x = int(&[2, 4], &[0, 1, 2, 3, 4, 5, 6, 7]);
    let out = eval(&[x], |g, x| {
        let x = x[0];
        let halves = x.chunk(-1, 2);
        let rows = [x.at(0, 1), x.at(0, 0)];
        vec![
            concat(&[halves[1], halves[0]], 1),
            g.concat(&x.split(1, &[1, 3]), 1),
            stack(&rows, -1),
            x.slice_step(1, 1, 4, 2),
            x.pad(0, 0, 1, -1.0).flatten(),
            x.argmax(1),
            x.greater(3.0).mean(),
            x.mean_keep(&[0]),
        ]
    });
    let out = out.unwrap();
    assert_eq!(out[0].ints(), [2, 3, 0, 1, 6, 7, 4, 5]);
    assert_eq!(out[1].ints(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(
        (out[2].shape.as_slice(), out[2].ints()),
        ([4, 2].as_slice(), [4, 0, 5, 1, 6, 2, 7, 3].as_slice())
    );
    assert_eq!(out[3].ints(), [1, 3, 5, 7]);
    assert_eq!(out[4].ints(), [0, 1, 2, 3, 4, 5, 6, 7, -1, -1, -1, -1]);
    assert_eq!(out[5].ints(), [3, 3]);
    assert_eq!(out[6].reals(), [0.5]);
    assert_eq!(
        (out[7].shape.as_slice(), out[7].reals()),
        ([1, 4].as_slice(), [2.0, 3.0, 4.0, 5.0].as_slice())
    );
}

/// Between the elements of an axis of one there is no gap, however large the padding asked for.
#[test]
fn padding_without_neighbours() {
    let op = onestep_ir::ops::Pad { axis: 0, low: 1, high: 0, interior: usize::MAX, value: 9.0.into() };
    let out = eval(&[real(&[1], &[3.0])], |g, x| vec![g.emit1(op, x)]).unwrap();
    assert_eq!(out[0].reals(), [9.0, 3.0]);
}

/// Every call here is a mistake; each is on record, and none panics.
#[test]
fn mistakes_are_recorded() {
    let g = GraphBuilder::new("mistakes");
    let x = g.input("x", DType::F32, [2, 3]);
    let ids = g.input("ids", DType::I32, [5]);
    let scalar = g.scalar(DType::F32, 1.0);
    let wrong = [
        x.slice(1, 2, 9),
        x.slice(7, 0, 1),
        x.slice_step(1, 0, 3, 0),
        x.at(1, usize::MAX),
        x.pad(0, usize::MAX, 1, 0.0),
        g.concat(&[], 0),
        concat(&[x, scalar], 0),
        stack(&[x], 5),
        x.gather(0, x),
        x.gather_along(0, ids),
        x.scatter_add(0, ids, x),
        x.dynamic_slice(0, ids, 1),
        x.dynamic_slice(0, ids.at(0, 0), 3),
        x.squeeze(0),
        scalar.argmax(0),
        scalar.softmax(-1),
        scalar.cross_entropy(ids),
        x.cross_entropy(x),
        x.mse(scalar),
        x.layer_norm(x, x, 1e-5),
        scalar.rms_norm(scalar, 1e-5),
        ids.gelu(),
        x.dropout(1.5, x),
        x.dropout(f64::NAN, x),
        x.attention(x, x, None, AttentionOptions::default()),
        x.mean_over(&[0, 0]),
        x.mean_keep(&[4]),
        g.random_bits("r", x, x, [2]),
        x.split(1, &[1, 1])[0],
        x.chunk(1, 2)[0],
        g.constant(Array::scalar(1f32)).flatten().slice(0, 1, 0),
    ];
    for (i, t) in wrong.iter().enumerate() {
        assert!(t.value().is_none(), "call {i} was accepted");
    }
    // One message each: what follows from a mistake is silent.
    assert_eq!(g.errors().len(), wrong.len(), "{:#?}", g.errors());
    for e in g.errors() {
        assert!(e.to_string().contains("edges.rs"), "{e}");
    }
}

#[test]
fn eight_bits_are_moved_and_cast_but_not_computed_with() {
    let g = GraphBuilder::new("storage");
    let x = g.input("x", DType::F8E4M3, [2, 4]);
    let ids = g.input("ids", DType::I32, [3]);
    let moved =
        [x.transpose(&[1, 0]), x.gather(0, ids), x.slice(1, 0, 2), x.cast(DType::F8E5M2), x.cast(DType::F32)];
    assert!(moved.iter().all(|t| t.value().is_some()), "{:#?}", g.errors());
    let wrong = [x + x, x.relu(), x.sum_all(), x.greater(x), x.softmax(-1)];
    assert!(wrong.iter().all(|t| t.value().is_none()));
    for e in g.errors() {
        assert!(e.to_string().contains("cast"), "{e}");
    }
    let before = g.errors().len();
    let product = x.matmul_t(x.cast(DType::F8E5M2), false, true);
    assert_eq!(product.ty().unwrap().to_string(), "f32[2, 2]");
    assert!(x.matmul(x.transpose_last()).value().is_none());
    assert!(
        g.errors()[before].to_string().contains("b is [n, k] with transpose_b"),
        "{}",
        g.errors()[before]
    );
    let text = "graph \"g\" {\n  input \"x\" %0: f8e5m2[2]\n  %1 = neg %0\n  output \"y\" %1\n}\n";
    assert!(Graph::parse(text).unwrap_err().to_string().contains("does not compute in f8e5m2"));
}

/// Losses and posteriors by the op and by its decomposition; classes 0 to 2, of which 0 is the blank, all equally likely.
fn ctc(time: usize, targets: &[i64], times: i64, labels: i64) -> [(f64, Vec<f64>); 2] {
    let log_probs = real(&[time, 1, 3], &vec![-(3f64.ln()); time * 3]);
    let operands = [log_probs, int(&[1, targets.len()], targets), int(&[1], &[times]), int(&[1], &[labels])];
    both_ways(CtcLoss { blank: 0 }, &operands).map(|r| {
        let r = r.unwrap();
        (r[0].reals()[0], r[1].reals().to_vec())
    })
}

#[test]
fn ctc_counts_alignments() {
    for (time, targets, times, labels, paths) in [
        // a, aa, a_, _a; and ab alone in two times.
        (2, &[1, 2][..], 2, 1, 3.0),
        (2, &[1, 2], 2, 2, 1.0),
        // A repeated label needs a blank between: a_a.
        (3, &[1, 1], 3, 2, 1.0),
        // Only blanks stand for nothing.
        (3, &[], 3, 0, 1.0),
        (3, &[2, 2, 7], 2, 0, 1.0),
        // Of no time and no label, the empty path.
        (0, &[], 0, 0, 1.0),
        (3, &[1], 0, 0, 1.0),
    ] {
        for (loss, posterior) in ctc(time, targets, times, labels) {
            let want = times as f64 * 3f64.ln() - f64::ln(paths);
            assert!((loss - want).abs() < 1e-6, "{targets:?}: {loss}, not {want}");
            for (t, row) in posterior.chunks(3).enumerate() {
                let sum = if (t as i64) < times { 1.0 } else { 0.0 };
                assert!((row.iter().sum::<f64>() - sum).abs() < 1e-6, "{targets:?}: {posterior:?}");
            }
        }
    }
    // Too short, even of no time.
    for (targets, times, labels) in [(&[1, 1][..], 2, 2), (&[1, 2], 1, 2), (&[1], 0, 1)] {
        for (loss, posterior) in ctc(2, targets, times, labels) {
            assert_eq!(loss, f64::INFINITY);
            assert_eq!(posterior, [0.0; 6]);
        }
    }
}

#[test]
fn ctc_is_stable_far_from_normal() {
    // Log-probabilities that underflow as probabilities, and a class that is impossible.
    let low = f64::NEG_INFINITY;
    let log_probs = real(&[2, 1, 2], &[-1e6, -2e6, low, -3e6]);
    let operands = [log_probs, int(&[1, 1], &[1]), int(&[1], &[2]), int(&[1], &[1])];
    for result in both_ways(CtcLoss { blank: 0 }, &operands) {
        let result = result.unwrap();
        near(result[0].reals(), &[4e6], 0.0);
        near(result[1].reals(), &[1.0, 0.0, 0.0, 1.0], 0.0);
    }
}

#[test]
fn ctc_names_what_is_out_of_range() {
    let text = |targets: &[i64], times: i64, labels: i64| {
        let operands =
            [real(&[2, 1, 3], &[-1.0; 6]), int(&[1, 2], targets), int(&[1], &[times]), int(&[1], &[labels])];
        let [whole, _] = both_ways(CtcLoss { blank: 0 }, &operands);
        whole.unwrap_err().to_string()
    };
    assert!(text(&[1, 2], 3, 1).contains("length 3 (element 0 of the lengths) is outside 0..=2"));
    assert!(text(&[1, 2], 2, -1).contains("length -1"));
    assert!(text(&[1, 3], 2, 2).contains("index 3 (element 1 of the indices) is outside 0..3"));
}
