//! Clipping and the commit guard: steps that go ahead, and steps that must not happen at all.

mod common;

use common::{State, assert_close, call, first_state, get, given_gradients, set};
use onestep_ir::{Array, DType, Graph, GraphBuilder, Init, Role, interp::run_arrays};
use onestep_optim::{
    Adam, AdamW, Clip, Params, Schedule, Sgd, StepOptions, UpdateRule, all_finite, training_step,
};

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

/// The state without the count of skipped steps.
fn guarded(state: &State) -> State {
    let mut state = state.clone();
    state.remove("opt/skipped");
    state
}

#[test]
fn one_bad_element_and_nothing_moves() {
    let rules: [&dyn UpdateRule; 3] =
        [&Sgd::new(0.1).momentum(0.9), &Adam::new(0.1).amsgrad(true), &AdamW::new(0.1)];
    for (rule, clip) in rules.iter().flat_map(|r| CLIPS.map(|c| (*r, c))) {
        let graph = graph(rule, clip);
        let mut state = first_state(&graph);
        set(&mut state, "w", &[1.0, 2.0, 3.0]);
        call(&graph, &mut state, &[&[1.0, -1.0, 0.5], &[2.0]]);
        let before = guarded(&state);
        for (i, bad) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().enumerate() {
            call(&graph, &mut state, &[&[1.0, bad, 0.5], &[2.0]]);
            call(&graph, &mut state, &[&[1.0, -1.0, 0.5], &[bad]]);
            assert_eq!(guarded(&state), before, "{} under {clip:?} with {bad}", rule.name());
            assert_eq!(get(&state, "opt/skipped"), [2.0 * (i + 1) as f64]);
        }
        assert_eq!(get(&state, "opt/step"), [1.0]);
        // Goes on as if the skipped steps had not been.
        let mut straight = first_state(&graph);
        set(&mut straight, "w", &[1.0, 2.0, 3.0]);
        call(&graph, &mut straight, &[&[1.0, -1.0, 0.5], &[2.0]]);
        for s in [&mut state, &mut straight] {
            call(&graph, s, &[&[-1.0, 1.0, 0.5], &[2.0]]);
        }
        assert_eq!(guarded(&state), guarded(&straight));
        assert_eq!(get(&straight, "opt/step"), [2.0]);
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

/// The learning rate of each step, as the moves of a parameter whose gradient is −1.
fn rates(graph: &Graph, state: &mut State, steps: usize) -> Vec<f64> {
    let mut one = || {
        set(state, "w", &[0.0]);
        call(graph, state, &[&[-1.0]]);
        get(state, "w")[0]
    };
    (0..steps).map(|_| one()).collect()
}

fn scheduled(schedule: Schedule) -> Graph {
    let options = StepOptions { schedule, ..StepOptions::default() };
    given_gradients(DType::F32, &[("w", &[1])], &Sgd::new(2.0), &options)
}

#[test]
fn warm_up_and_cosine_follow_the_closed_form() {
    let graph = scheduled(Schedule::WarmupCosine { warmup: 4, total: 12, floor: 0.1 });
    let mut state = first_state(&graph);
    let got = rates(&graph, &mut state, 15);
    let want: Vec<f64> = (1..=15)
        .map(|t: i32| match t {
            1..=4 => 2.0 * t as f64 / 4.0,
            5..=12 => 2.0 * (0.1 + 0.9 * (1.0 + (std::f64::consts::PI * (t - 4) as f64 / 8.0).cos()) / 2.0),
            _ => 0.2,
        })
        .collect();
    assert_close(&got, &want, 1e-6);
    assert_close(&[got[0], got[3], got[7], got[11]], &[0.5, 2.0, 1.1, 0.2], 1e-6);
}

#[test]
fn the_host_form_of_a_schedule_is_the_graph_s() {
    let schedules = [(0, 1, 0.0), (0, 10, 0.5), (3, 3, 0.25), (5, 9, 0.0), (1, 7, 1.0)];
    for (warmup, total, floor) in schedules {
        let schedule = Schedule::WarmupCosine { warmup, total, floor };
        let graph = scheduled(schedule);
        let want: Vec<f64> = (1..=12).map(|t| 2.0 * schedule.multiplier(t)).collect();
        assert_close(&rates(&graph, &mut first_state(&graph), 12), &want, 1e-6);
    }
    let constant = scheduled(Schedule::Constant);
    assert_eq!(rates(&constant, &mut first_state(&constant), 3), [2.0; 3]);
}

#[test]
fn a_schedule_changes_in_state_and_stands_still_while_steps_are_skipped() {
    let graph = scheduled(Schedule::WarmupCosine { warmup: 4, total: 12, floor: 0.0 });
    let mut state = first_state(&graph);
    call(&graph, &mut state, &[&[f32::NAN]]);
    assert_close(&rates(&graph, &mut state, 2), &[0.5, 1.0], 1e-6);
    set(&mut state, "opt/schedule/warmup", &[6.0]);
    set(&mut state, "opt/lr", &[6.0]);
    assert_close(&rates(&graph, &mut state, 1), &[3.0], 1e-6);
    // Numbers that make no sense do not divide by zero.
    set(&mut state, "opt/schedule/warmup", &[0.0]);
    set(&mut state, "opt/schedule/total", &[0.0]);
    assert_close(&rates(&graph, &mut state, 1), &[0.0], 1e-6);
}
