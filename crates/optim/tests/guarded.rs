//! Clipping and the commit guard: steps that go ahead, and steps that must not happen at all.

mod common;

use common::{State, assert_close, call, first_state, get, given_gradients, set};
use onestep_ir::{Array, DType, Graph, GraphBuilder, Init, Role, interp::run_arrays};
use onestep_optim::{Adam, AdamW, Clip, Params, Sgd, StepOptions, UpdateRule, all_finite, training_step};

const SHAPES: [(&str, &[usize]); 2] = [("w", &[3]), ("b", &[1])];

fn graph(rule: &dyn UpdateRule, clip: Option<Clip>) -> Graph {
    given_gradients(DType::F32, &SHAPES, rule, &StepOptions { clip, ..StepOptions::default() })
}

const CLIPS: [Option<Clip>; 3] = [None, Some(Clip::GlobalNorm(1.0)), Some(Clip::Value(1.0))];

#[test]
fn norm_clipping_scales_all_gradients_together() {
    let graph = graph(&Sgd::new(1.0), Some(Clip::GlobalNorm(1.0)));
    let mut state = first_state(&graph);
    let outputs = call(&graph, &mut state, &[&[3.0, 0.0, 0.0], &[4.0]]);
    assert_close(&outputs[0].to_f64(), &[5.0], 1e-6);
    assert_close(&get(&state, "w"), &[-0.6, 0.0, 0.0], 1e-6);
    assert_close(&get(&state, "b"), &[-0.8], 1e-6);
    // Below the limit nothing is scaled.
    let mut state = first_state(&graph);
    call(&graph, &mut state, &[&[0.5, 0.0, 0.0], &[0.25]]);
    assert_eq!(get(&state, "w"), [-0.5, 0.0, 0.0]);
    // The limit is state.
    set(&mut state, "opt/clip_norm", &[10.0]);
    call(&graph, &mut state, &[&[3.0, 0.0, 0.0], &[4.0]]);
    assert_eq!(get(&state, "w"), [-3.5, 0.0, 0.0]);
    // PyTorch's 1e-6 in the denominator shows at a small norm.
    let mut state = first_state(&graph);
    set(&mut state, "opt/clip_norm", &[1e-6]);
    call(&graph, &mut state, &[&[3e-6, 0.0, 0.0], &[0.0]]);
    assert_close(&get(&state, "w"), &[-0.75e-6, 0.0, 0.0], 1e-12);
}

#[test]
fn value_clipping_limits_each_element() {
    let graph = graph(&Sgd::new(1.0), Some(Clip::Value(1.0)));
    let mut state = first_state(&graph);
    let outputs = call(&graph, &mut state, &[&[3.0, -0.5, -7.0], &[4.0]]);
    assert_close(&outputs[0].to_f64(), &[f64::sqrt(9.0 + 0.25 + 49.0 + 16.0)], 1e-5);
    assert_eq!(get(&state, "w"), [-1.0, 0.5, 1.0]);
    assert_eq!(get(&state, "b"), [-1.0]);
}

#[test]
fn gradients_of_zero_give_zeros() {
    for clip in CLIPS {
        for rule in [&Sgd::new(1.0).momentum(0.9) as &dyn UpdateRule, &Adam::new(1.0), &AdamW::new(1.0)] {
            let graph = graph(rule, clip);
            let mut state = first_state(&graph);
            call(&graph, &mut state, &[&[0.0; 3], &[0.0]]);
            let moved = |path: &str| ["w", "b"].contains(&path) || path.starts_with("opt/w/");
            for (path, array) in state.iter().filter(|(path, _)| moved(path)) {
                assert!(array.to_f64().iter().all(|x| *x == 0.0), "{path}: {array:?} under {clip:?}");
            }
            assert_eq!((get(&state, "opt/step"), get(&state, "opt/skipped")), (vec![1.0], vec![0.0]));
        }
    }
}

#[test]
fn a_norm_that_overflows_skips_the_step() {
    let graph = graph(&Sgd::new(0.1), Some(Clip::GlobalNorm(1.0)));
    let mut state = first_state(&graph);
    call(&graph, &mut state, &[&[1e30, 0.0, 0.0], &[1.0]]);
    assert_eq!((get(&state, "opt/step"), get(&state, "opt/skipped")), (vec![0.0], vec![1.0]));
}

#[test]
fn one_bad_element_in_more_than_2_to_the_24() {
    let n = (1 << 24) + 3;
    let g = GraphBuilder::new("many");
    let x = g.input("x", DType::F32, [n]);
    let y = g.input("y", DType::F32, [2]);
    g.output("finite", all_finite(&g, &[y, x]));
    let graph = g.build().unwrap();
    let mut values = vec![1f32; n];
    let y = Array::new(&[2], &[0f32, 1.0]).unwrap();
    for (bad, want) in [(1.0, 1), (f32::NAN, 0)] {
        values[n - 2] = bad;
        let x = Array::new(&[n], &values).unwrap();
        let outputs = run_arrays(&graph, &[x, y.clone()], &mut State::new()).unwrap();
        assert_eq!(outputs[0].to_i64(), [want]);
    }
}

#[test]
fn the_graph_s_own_guard_still_holds() {
    let g = GraphBuilder::new("own guard");
    let x = g.input("x", DType::F32, [1]);
    let w = g.parameter("w", &[1], Init::ZEROS);
    let mean = g.state("mean", Role::Buffer, DType::F32, &[1], Init::ZEROS);
    let seen = g.state("seen", Role::Buffer, DType::F32, &[1], Init::ZEROS);
    g.update(mean, mean * 0.5 + x, true);
    g.update(seen, seen + 1.0, false);
    g.set_guard(x.less(10.0).all());
    let graph = g.finish((w * x).sum_all()).unwrap();
    let step = training_step(&graph, "loss", Params::All, &Sgd::new(1.0), &StepOptions::default()).unwrap();
    let mut state = first_state(&step.graph);
    for (x, w, mean, skipped) in [(1.0, -1.0, 1.0, 0.0), (11.0, -1.0, 1.0, 1.0), (f32::NAN, -1.0, 1.0, 2.0)] {
        call(&step.graph, &mut state, &[&[x]]);
        assert_eq!((get(&state, "w"), get(&state, "mean")), (vec![w], vec![mean]), "x = {x}");
        assert_eq!(get(&state, "opt/skipped"), [skipped]);
    }
    // Statistics are guarded by the finite gradients too; what is always written is not guarded.
    assert_eq!(get(&state, "seen"), [3.0]);
}
