//! Micro-batches, over several calls and within one: against the one batch that holds all of them.

use crate::common::{State, assert_close, call, first_state, get, set};
use crate::{linear, step};
use onestep_ir::testing::Rng;
use onestep_ir::{Array, DType, Graph, GraphBuilder, Init, Role, interp::run_arrays};
use onestep_optim::{
    Adam, Clip, Combine, LossScale, OptimError, Params, Sgd, StepOptions, micro_batches, training_step,
};
use std::collections::BTreeMap;

fn by_token() -> Combine {
    Combine { weight: Some("tokens".into()), sums: vec!["right".into()] }
}

/// A mean over the rows whose mask is 1, of losses and of hits, of a linear model; with a statistic and a counter.
fn masked(rows: usize) -> Graph {
    let g = GraphBuilder::new("masked");
    let (x, y) = (g.input("x", DType::F32, [rows, 2]), g.input("y", DType::F32, [rows]));
    let mask = g.input("mask", DType::F32, [rows]);
    let (w, b) = (g.parameter("w", &[2, 1], Init::ONES), g.parameter("b", &[1], Init::ZEROS));
    let error = (x.matmul(w) + b).reshape([rows]) - y;
    let tokens = mask.sum_all();
    let seen = g.state("seen", Role::Buffer, DType::F32, &[], Init::ZEROS);
    g.update(seen, seen * 0.5 + x.sum_all(), true);
    g.output("hits", (error.abs().less(1.0).cast(DType::F32) * mask).sum_all() / tokens);
    g.output("right", (error.abs().less(1.0).cast(DType::F32) * mask).sum_all().cast(DType::I32));
    g.output("tokens", tokens);
    g.output("error", error);
    g.finish((error.square() * mask).sum_all() / tokens).unwrap()
}

/// Feeds of `masked`, of whole numbers or of any, with this mask.
fn rows(mask: &[f32], whole: bool, seed: u64) -> [Vec<f32>; 3] {
    let mut rng = Rng::new(seed);
    let mut draw = |n: usize| -> Vec<f32> {
        let one = |_| if whole { rng.int(-3, 4) as f32 } else { rng.real(-2.0, 2.0) as f32 };
        (0..n).map(one).collect()
    };
    [draw(2 * mask.len()), draw(mask.len()), mask.to_vec()]
}

fn joined(parts: &[[Vec<f32>; 3]]) -> [Vec<f32>; 3] {
    [0, 1, 2].map(|i| parts.iter().flat_map(|p| p[i].clone()).collect())
}

fn run(graph: &Graph, state: &mut State, feeds: &[Vec<f32>; 3]) -> BTreeMap<String, Vec<f64>> {
    let feeds: Vec<&[f32]> = feeds.iter().map(|f| &f[..]).collect();
    let outputs = call(graph, state, &feeds);
    let names = graph.outputs.iter().map(|o| o.name.to_string());
    names.zip(outputs.iter().map(Array::to_f64)).collect()
}

#[test]
fn one_token_of_loss_4_and_three_of_loss_0_make_1() {
    let g = GraphBuilder::new("tokens");
    let (x, n) = (g.input("x", DType::F32, [1]), g.input("n", DType::F32, ()));
    let w = g.parameter("w", &[1], Init::ONES);
    g.output("tokens", n);
    let forward = g.finish((w * x).sum_all()).unwrap();
    let combine = Combine { weight: Some("tokens".into()), sums: vec![] };
    // Over two calls, each of which shows the mean so far.
    let options = StepOptions { accumulate: Some(2), combine: combine.clone(), ..StepOptions::default() };
    let graph = step(&forward, &Sgd::new(1.0), &options);
    let mut state = first_state(&graph);
    let first = call(&graph, &mut state, &[&[4.0], &[1.0]]);
    assert_eq!((first[0].to_f64(), get(&state, "w")), (vec![4.0], vec![1.0]));
    let second = call(&graph, &mut state, &[&[0.0], &[3.0]]);
    assert_eq!((second[0].to_f64(), second[1].to_f64()), (vec![1.0], vec![4.0]));
    assert_eq!((get(&state, "w"), get(&state, "opt/step")), (vec![0.0], vec![1.0]));
    // Within one.
    let both = micro_batches(&forward, 2, &combine).unwrap();
    let graph = step(&both, &Sgd::new(1.0), &StepOptions::default());
    let mut state = first_state(&graph);
    let outputs = call(&graph, &mut state, &[&[4.0, 0.0], &[1.0, 3.0]]);
    assert_eq!(
        (outputs[0].to_f64(), outputs[1].to_f64(), get(&state, "w")),
        (vec![1.0], vec![4.0], vec![0.0])
    );
    // Without weights both micro-batches are alike.
    let both = micro_batches(&forward, 2, &Combine::default()).unwrap();
    let graph = step(&both, &Sgd::new(1.0), &StepOptions::default());
    let outputs = call(&graph, &mut first_state(&graph), &[&[4.0, 0.0], &[1.0, 3.0]]);
    assert_eq!(outputs[0].to_f64(), [2.0]);
}

const MASKS: [&[f32]; 3] = [&[1.0, 0.0, 0.0, 0.0], &[1.0, 1.0, 1.0, 0.0], &[1.0, 1.0, 1.0, 1.0]];

/// Four steps of three micro-batches, by calls, within one call, and as one batch of all rows. Sums of whole numbers are
/// exact where the count of tokens is a power of two; else rounding differs.
#[test]
fn micro_batches_are_the_one_batch() {
    let scale = Some(LossScale::dynamic(1024.0));
    for (whole, clip, loss_scale) in [
        (true, None, None),
        (true, None, scale),
        (false, Some(Clip::GlobalNorm(0.5)), None),
        (false, Some(Clip::GlobalNorm(0.5)), scale),
        (false, Some(Clip::Value(0.1)), scale),
    ] {
        let options = StepOptions { clip, loss_scale, ..StepOptions::default() };
        let calls = StepOptions { accumulate: Some(3), combine: by_token(), ..options.clone() };
        let rule = Adam::new(0.25).eps(1e-3);
        let one = step(&masked(12), &rule, &options);
        let several = step(&masked(4), &rule, &calls);
        let within = step(&micro_batches(&masked(4), 3, &by_token()).unwrap(), &rule, &options);
        let mut states = [&one, &several, &within].map(first_state);
        for n in 0..4 {
            let parts: Vec<_> = MASKS.iter().zip(0..).map(|(m, i)| rows(m, whole, 10 * n + i)).collect();
            let all = joined(&parts);
            let want = run(&one, &mut states[0], &all);
            let inside = run(&within, &mut states[2], &all);
            for (i, part) in parts.iter().enumerate() {
                let before = states[1].clone();
                let got = run(&several, &mut states[1], part);
                if i < 2 {
                    for path in ["w", "b", "opt/w/m", "opt/b/v", "opt/step"] {
                        assert_eq!(states[1][path], before[path], "{path} waits for the last call");
                    }
                    continue;
                }
                for name in ["loss", "hits", "right", "tokens"] {
                    assert_close(&got[name], &want[name], 2e-6);
                    assert_close(&inside[name], &want[name], 2e-6);
                }
                // Any other output is that of the last one.
                let last = &want["error"][8..];
                assert_close(&inside["error"], last, 1e-5);
                assert_close(&got["error"], last, 1e-5);
            }
            for path in ["w", "b", "opt/w/m", "opt/w/v", "opt/b/m", "opt/b/v", "opt/step"] {
                let want = get(&states[0], path);
                let exact = whole && n == 0 && path.ends_with("/m");
                let tolerance = if exact { 0.0 } else { 1e-5 };
                assert_close(&get(&states[1], path), &want, tolerance);
                assert_close(&get(&states[2], path), &want, tolerance);
            }
            // Statistics advance with every micro-batch, in either form.
            assert_eq!(get(&states[1], "seen"), get(&states[2], "seen"));
            assert_eq!(get(&states[1], "opt/accumulate/count"), [0.0]);
            assert_eq!(get(&states[1], "opt/accumulate/gradient/w"), [0.0; 2]);
        }
        assert_eq!(get(&states[0], "opt/skipped"), [0.0]);
    }
}

#[test]
fn a_refused_call_adds_nothing_and_another_takes_its_place() {
    let scaled = Some(LossScale::dynamic(16.0).growth(2.0, 2));
    let options = StepOptions { accumulate: Some(2), loss_scale: scaled, ..StepOptions::default() };
    let graph = step(&linear(DType::F32), &Adam::new(0.1), &options);
    let (mut state, mut straight) = (first_state(&graph), first_state(&graph));
    let feeds: [&[f32]; 4] = [&[1.0, 2.0, 3.0], &[-1.0, 0.5, 8.0], &[2.0, 2.0, 2.0], &[0.0, 1.0, 0.0]];
    for (i, feed) in feeds.iter().enumerate() {
        let before = state.clone();
        call(&graph, &mut state, &[&[0.0, f32::NAN, 1.0]]);
        let always = |path: &&std::sync::Arc<str>| path.contains("loss_scale/") || &***path == "opt/skipped";
        let moved: Vec<_> = state.keys().filter(|p| state[*p] != before[*p]).collect();
        assert!(!moved.is_empty() && moved.iter().all(always), "call {i}: {moved:?}");
        call(&graph, &mut state, &[feed]);
        call(&graph, &mut straight, &[feed]);
    }
    assert_eq!((get(&state, "opt/skipped"), get(&state, "opt/step")), (vec![4.0], vec![2.0]));
    // The scale falls at once, and grows by steps, not by calls.
    assert_eq!(get(&straight, "opt/loss_scale/scale"), [32.0]);
    assert_eq!(get(&state, "opt/loss_scale/scale"), [1.0]);
    for (path, array) in straight.iter().filter(|(p, _)| !p.contains("loss_scale/") && &***p != "opt/skipped")
    {
        assert_eq!(&state[path], array, "{path}");
    }
}

#[test]
fn a_sum_that_overflows_is_refused_before_it_is_kept() {
    let options =
        StepOptions { accumulate: Some(2), clip: Some(Clip::GlobalNorm(1.0)), ..StepOptions::default() };
    let graph = step(&linear(DType::F32), &Sgd::new(1.0), &options);
    let mut state = first_state(&graph);
    call(&graph, &mut state, &[&[1e30, 0.0, 0.0]]);
    assert_eq!((get(&state, "opt/skipped"), get(&state, "opt/accumulate/count")), (vec![1.0], vec![0.0]));
    call(&graph, &mut state, &[&[0.5, 0.0, 0.0]]);
    call(&graph, &mut state, &[&[0.25, 0.0, 0.0]]);
    assert_eq!((get(&state, "w"), get(&state, "opt/step")), (vec![0.625, 1.0, 1.0], vec![1.0]));
}

#[test]
fn the_number_of_calls_changes_in_state() {
    let options = StepOptions { accumulate: Some(1), ..StepOptions::default() };
    let graph = step(&linear(DType::F32), &Sgd::new(1.0), &options);
    let mut state = first_state(&graph);
    call(&graph, &mut state, &[&[0.5; 3]]);
    assert_eq!((get(&state, "w"), get(&state, "opt/step")), (vec![0.5; 3], vec![1.0]));
    set(&mut state, "opt/accumulate/calls", &[3.0]);
    for x in [1.0f32, 2.0, -6.0] {
        call(&graph, &mut state, &[&[x; 3]]);
    }
    assert_eq!((get(&state, "w"), get(&state, "opt/step")), (vec![1.5; 3], vec![2.0]));
}

#[test]
fn what_weighs_nothing_counts_for_nothing() {
    let calls = StepOptions { accumulate: Some(2), combine: by_token(), ..StepOptions::default() };
    let several = step(&masked(2), &Sgd::new(1.0), &calls);
    let within =
        step(&micro_batches(&masked(2), 2, &by_token()).unwrap(), &Sgd::new(1.0), &StepOptions::default());
    // The mean of no rows is 0/0: it must not reach what has rows.
    let (none, some) = (rows(&[0.0; 2], true, 1), rows(&[1.0; 2], true, 2));
    let alone = step(&masked(2), &Sgd::new(1.0), &StepOptions::default());
    let mut want = first_state(&alone);
    run(&alone, &mut want, &some);
    let mut state = first_state(&several);
    run(&several, &mut state, &none);
    let out = run(&several, &mut state, &some);
    assert!(out["loss"][0].is_finite());
    assert_eq!((get(&state, "w"), get(&state, "b")), (get(&want, "w"), get(&want, "b")));
    assert_eq!((get(&state, "opt/step"), get(&state, "opt/skipped")), (vec![1.0], vec![0.0]));
    // All of them empty: no gradient, no NaN.
    let mut state = first_state(&several);
    run(&several, &mut state, &none);
    let out = run(&several, &mut state, &none);
    ["loss", "hits", "tokens"].iter().for_each(|name| assert_eq!(out[*name], [0.0], "{name}"));
    assert_eq!((get(&state, "w"), get(&state, "opt/step")), (vec![1.0; 2], vec![1.0]));
    let out = run(&within, &mut first_state(&within), &joined(&[none.clone(), none]));
    ["loss", "hits"].iter().for_each(|name| assert_eq!(out[*name], [0.0], "{name}"));
}

#[test]
fn the_graph_s_own_guard_refuses_the_whole_call() {
    let g = GraphBuilder::new("own guard");
    let (x, w) = (g.input("x", DType::F32, ()), g.parameter("w", &[], Init::ZEROS));
    let n = g.state("n", Role::Buffer, DType::I32, &[], Init::ZEROS);
    g.update(n, n + 1.0, true);
    g.set_guard(x.less(10.0));
    let forward = g.finish(w * x).unwrap();
    let graph = step(
        &micro_batches(&forward, 3, &Combine::default()).unwrap(),
        &Sgd::new(1.0),
        &StepOptions::default(),
    );
    let mut state = first_state(&graph);
    call(&graph, &mut state, &[&[1.0, 20.0, 3.0]]);
    assert_eq!((get(&state, "w"), get(&state, "n")), (vec![0.0], vec![0.0]));
    call(&graph, &mut state, &[&[1.0, 2.0, 3.0]]);
    assert_eq!((get(&state, "w"), get(&state, "n")), (vec![-2.0], vec![3.0]));
}

#[test]
fn micro_batches_of_a_graph_with_variables() {
    let g = GraphBuilder::new("variable");
    let x = g.input("x", DType::F32, (onestep_ir::dim("B").at_most(8),));
    let w = g.parameter("w", &[], Init::ONES);
    let both = micro_batches(&g.finish((x * w).mean()).unwrap(), 2, &Combine::default()).unwrap();
    both.verify().unwrap();
    let bound = onestep_ir::bind(&both, &BTreeMap::from([("B".into(), 3)])).unwrap();
    let x = Array::new(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let outputs = run_arrays(&bound, &[x], &mut first_state(&bound)).unwrap();
    assert_eq!(outputs[0].to_f64(), [3.5]);
}

#[test]
fn wrong_names_and_counts_are_refused() {
    let refused = |accumulate, weight: &str| {
        let combine = Combine { weight: Some(weight.into()), sums: vec![] };
        let options = StepOptions { accumulate: Some(accumulate), combine, ..StepOptions::default() };
        training_step(&masked(2), "loss", Params::All, &Sgd::new(1.0), &options).unwrap_err()
    };
    let error = refused(2, "token");
    assert!(matches!(&error, OptimError::UnknownOutput { nearest: Some(n), .. } if n == "tokens"), "{error}");
    assert!(matches!(refused(2, "error"), OptimError::NotCombined { .. }));
    assert!(matches!(refused(0, "tokens"), OptimError::Hyper { name: "calls", .. }));
    let error = micro_batches(&masked(2), 0, &Combine::default()).unwrap_err();
    assert!(matches!(error, OptimError::Hyper { name: "count", .. }), "{error}");
}
