//! The composites' gradients at the edges: huge logits, ignored rows, rows that see nothing, and which op attention
//! becomes.

mod support;

use onestep_autodiff::gradients;
use onestep_ir::interp::{Mode, run};
use onestep_ir::ops::{Attention, AttentionLayout, CrossEntropy, LayerNorm, Softmax};
use onestep_ir::{DType, Dense, Graph, GraphBuilder, Tensor};
use std::collections::BTreeMap;

fn f32s(shape: &[usize], v: &[f64]) -> Dense {
    Dense::from_reals(DType::F32, shape, v.to_vec())
}

fn run_f32(graph: &Graph, inputs: &[Dense]) -> Vec<Vec<f64>> {
    let outcome = run(graph, inputs, &BTreeMap::new(), Mode::Declared).unwrap();
    outcome.outputs.iter().map(|d| d.reals().to_vec()).collect()
}

/// The losses and the gradient of their sum.
fn cross_entropy(op: CrossEntropy, logits: &Dense, labels: &[i64]) -> Vec<Vec<f64>> {
    let g = GraphBuilder::new("loss");
    let x = g.input("x", DType::F32, logits.shape.as_slice());
    let y = g.input("y", DType::I32, [labels.len()]);
    let loss = g.emit1(op, &[x, y]);
    g.output("loss", loss);
    g.output("d", gradients(&g, loss.sum_all(), &[x]).unwrap()[0].unwrap());
    let labels = Dense::from_ints(DType::I32, &[labels.len()], labels.to_vec());
    run_f32(&g.build().unwrap(), &[logits.clone(), labels])
}

#[test]
fn cross_entropy_with_huge_equal_logits() {
    let op = CrossEntropy { ignore_index: -100 };
    let out = cross_entropy(op, &f32s(&[1, 2], &[1e8, 1e8]), &[0]);
    assert!((out[0][0] - std::f64::consts::LN_2).abs() < 1e-7);
    assert_eq!(out[1], [-0.5, 0.5]);
}

/// Also when the ignored label is a class, as padding tokens often are.
#[test]
fn ignored_rows_have_no_gradient() {
    let logits = f32s(&[3, 2], &[1.0, f64::INFINITY, 0.0, 0.0, 3.0, 3.0]);
    let out = cross_entropy(CrossEntropy { ignore_index: 1 }, &logits, &[0, 0, 1]);
    assert_eq!(out[1][2..], [-0.5, 0.5, 0.0, 0.0]);
    assert!(out[1][0].is_nan());
    let all = cross_entropy(CrossEntropy { ignore_index: -1 }, &f32s(&[1, 2], &[1.0, 2.0]), &[-1]);
    assert_eq!(all, [vec![0.0], vec![0.0, 0.0]]);
}

#[test]
fn softmax_of_a_masked_row() {
    let g = GraphBuilder::new("softmax");
    let x = g.input("x", DType::F32, [2, 2]);
    let loss = g.emit1(Softmax { axis: 1 }, &[x]).square().sum_all();
    let d = gradients(&g, loss, &[x]).unwrap()[0].unwrap();
    g.output("d", d);
    g.output("dd", gradients(&g, d.square().sum_all(), &[x]).unwrap()[0].unwrap());
    let low = f64::NEG_INFINITY;
    let out = run_f32(&g.build().unwrap(), &[f32s(&[2, 2], &[low, low, 0.0, low])]);
    assert_eq!(out, [[0.0; 4], [0.0; 4]]);
}

#[test]
fn layer_norm_with_a_big_mean() {
    let g = GraphBuilder::new("norm");
    let (x, w) = (g.input("x", DType::F32, [1, 4]), g.input("w", DType::F32, [4]));
    let y = g.emit1(LayerNorm { eps: 1e-5.into() }, &[x, w, w * 0.0]);
    let first = g.iota(DType::F32, [1, 4], 1).equals(0.0).cast(DType::F32);
    g.output("dx", gradients(&g, (y * first).sum_all(), &[x]).unwrap()[0].unwrap());
    let out = run_f32(
        &g.build().unwrap(),
        &[f32s(&[1, 4], &[4e4, 40001.0, 40002.0, 40003.0]), f32s(&[4], &[1.0; 4])],
    );
    // r·(e₀ − 1/4 − x̂·x̂₀/4)
    let want = [0.268332, -0.357768, -0.089444, 0.178879];
    out[0].iter().zip(want).for_each(|(a, b)| assert!((a - b).abs() < 1e-4, "{:?}", out[0]));
}

/// Two queries and three keys; the second query sees nothing.
fn masked(fed: Dense, with_lse: bool) -> (Vec<&'static str>, Vec<Vec<f64>>) {
    let g = GraphBuilder::new("attention");
    let (q, k) = (g.input("q", DType::F32, [1, 1, 2, 2]), g.input("k", DType::F32, [1, 1, 3, 2]));
    let v = g.input("v", DType::F32, [1, 1, 3, 2]);
    let mask = g.input("mask", fed.dtype, [1, 1, 2, 3]);
    let op = Attention::new(AttentionLayout::Bhtd, 0.5);
    let results = g.emit(op, &[q, k, v, mask]);
    let mut loss = results[0].square().sum_all();
    if with_lse {
        loss = loss + results[1].is_finite().select(results[1], 0.0).sum_all();
    }
    let wrt: Vec<Tensor<'_>> = [q, k, v, mask].into_iter().filter(|t| t.dtype().is_float()).collect();
    g.output("out", results[0]);
    for (i, d) in gradients(&g, loss, &wrt).unwrap().into_iter().enumerate() {
        g.output(&format!("d{i}"), d.unwrap());
    }
    let graph = g.build().unwrap();
    let numbers = |n: usize| (0..n).map(|i| (i as f64).sin()).collect::<Vec<_>>();
    let x = |shape: &[usize]| f32s(shape, &numbers(shape.iter().product()));
    let out = run_f32(&graph, &[x(&[1, 1, 2, 2]), x(&[1, 1, 3, 2]), x(&[1, 1, 3, 2]), fed]);
    (graph.body_nodes().map(|n| n.op.rule().name()).collect(), out)
}

#[test]
fn an_attention_row_that_sees_nothing() {
    let low = f64::NEG_INFINITY;
    let seen = Dense::from_ints(DType::Bool, &[1, 1, 2, 3], vec![1, 1, 0, 0, 0, 0]);
    let added = f32s(&[1, 1, 2, 3], &[0.0, 0.0, low, low, low, low]);
    let (names, plain) = masked(seen.clone(), false);
    assert!(names.contains(&"attention_grad") && !names.contains(&"matmul"), "{names:?}");
    // So with a mask that wants a gradient. A log-sum-exp that has a cotangent needs the decomposition.
    let (names, additive) = masked(added.clone(), false);
    assert!(names.contains(&"attention_grad") && !names.contains(&"matmul"), "{names:?}");
    let (names, with_lse) = masked(seen, true);
    assert!(!names.contains(&"attention_grad"));
    let (names, added_with_lse) = masked(added, true);
    assert!(!names.contains(&"attention_grad"));
    for out in [&additive, &added_with_lse] {
        assert_eq!(out[4][2..], [0.0; 4], "dMask where it is −inf");
        assert!(out[4][..2].iter().all(|x| *x != 0.0));
    }
    for out in [&plain, &additive, &with_lse, &added_with_lse] {
        assert_eq!(out[0][2..], [0.0, 0.0]);
        assert_eq!(out[1][2..], [0.0, 0.0], "dQ of the row");
        assert!(out.iter().flatten().all(|x| x.is_finite()), "{out:?}");
        assert!(out[1][..2].iter().any(|x| *x != 0.0));
    }
    for (a, b) in plain.iter().zip(&additive) {
        assert!(support::agree(a, b, 1e-5), "{a:?} {b:?}");
    }
}
