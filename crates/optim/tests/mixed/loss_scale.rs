//! Dynamic loss scaling, against PyTorch's `GradScaler` and at its edges.

use crate::common::{State, assert_close, call, first_state, get, set};
use crate::{linear, numbers, recorded, step};
use onestep_ir::{Array, DType, Graph, GraphBuilder, Init, interp::run_arrays};
use onestep_optim::{Adam, Clip, LossScale, OptimError, Params, Sgd, StepOptions, training_step};

fn scaled(numbers: LossScale) -> Graph {
    let options = StepOptions { loss_scale: Some(numbers), ..StepOptions::default() };
    step(&linear(DType::F32), &Sgd::new(0.1), &options)
}

const GOOD: &[f32] = &[1.0; 3];
const BAD: &[f32] = &[1.0, f32::INFINITY, 1.0];

fn scale(state: &State) -> f64 {
    get(state, "opt/loss_scale/scale")[0]
}

fn tracker(state: &State) -> f64 {
    get(state, "opt/loss_scale/growth_tracker")[0]
}

#[test]
fn the_course_is_that_of_pytorch() {
    for run in recorded()["scaler"].as_array().unwrap() {
        let option = |name: &str| run["options"][name].as_f64().unwrap();
        let scale_of = LossScale::dynamic(option("init_scale"))
            .growth(option("growth_factor"), option("growth_interval") as u32)
            .backoff(option("backoff_factor"))
            .bounds(f32::MIN_POSITIVE as f64, f32::MAX as f64);
        let graph = scaled(scale_of);
        let mut state = first_state(&graph);
        let (mut scales, mut trackers, mut parameter, mut skipped) = (vec![], vec![], vec![], 0.0);
        for overflow in numbers(&run["overflows"]) {
            let outputs = call(&graph, &mut state, &[if overflow == 1.0 { BAD } else { GOOD }]);
            skipped += overflow;
            assert_eq!(outputs[graph.outputs.len() - 1].to_f64(), [overflow], "the output 'skipped'");
            assert_eq!(get(&state, "opt/skipped"), [skipped]);
            scales.push(scale(&state));
            trackers.push(tracker(&state));
            parameter.push(get(&state, "w")[0]);
        }
        assert_eq!(scales, numbers(&run["scales"]));
        assert_eq!(trackers, numbers(&run["trackers"]));
        assert_close(&parameter, &numbers(&run["parameter"]), 1e-6);
    }
}

#[test]
fn an_overflow_moves_nothing_but_the_scale() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let options = StepOptions { loss_scale: Some(LossScale::default()), ..StepOptions::default() };
        let graph = step(&linear(DType::F32), &Adam::new(0.1), &options);
        let mut state = first_state(&graph);
        call(&graph, &mut state, &[GOOD]);
        let mut before = state.clone();
        call(&graph, &mut state, &[&[1.0, 2.0, bad]]);
        assert_eq!((scale(&state), tracker(&state)), (32_768.0, 0.0));
        for moved in ["opt/loss_scale/scale", "opt/loss_scale/growth_tracker", "opt/skipped"] {
            before.insert(moved.into(), state[moved].clone());
        }
        assert_eq!(state, before);
    }
}

#[test]
fn the_scale_stays_between_floor_and_ceiling() {
    let graph = scaled(LossScale::dynamic(8.0).growth(3.0, 2).backoff(0.25).bounds(4.0, 20.0));
    let mut state = first_state(&graph);
    let mut after = |feeds: &[f32]| {
        call(&graph, &mut state, &[feeds]);
        scale(&state)
    };
    assert_eq!([after(GOOD), after(GOOD), after(GOOD), after(GOOD)], [8.0, 20.0, 20.0, 20.0]);
    assert_eq!([after(BAD), after(BAD), after(GOOD), after(GOOD)], [5.0, 4.0, 4.0, 12.0]);
}

#[test]
fn every_number_may_change_in_state() {
    let graph = scaled(LossScale::dynamic(8.0).growth(2.0, 1000));
    let mut state = first_state(&graph);
    let sets =
        [("growth_interval", 1.0), ("growth_factor", 4.0), ("backoff_factor", 0.125), ("ceiling", 16.0)];
    sets.iter().for_each(|(name, x)| set(&mut state, &format!("opt/loss_scale/{name}"), &[*x]));
    call(&graph, &mut state, &[GOOD]);
    assert_eq!(scale(&state), 16.0);
    set(&mut state, "opt/loss_scale/floor", &[3.0]);
    call(&graph, &mut state, &[BAD]);
    assert_eq!(scale(&state), 3.0);
}

#[test]
fn gradients_are_unscaled_before_they_are_clipped() {
    for clip in [Clip::GlobalNorm(1.0), Clip::Value(1.0)] {
        let course = |loss_scale| {
            let options = StepOptions { clip: Some(clip), loss_scale, ..StepOptions::default() };
            let graph = step(&linear(DType::F32), &Sgd::new(1.0), &options);
            let mut state = first_state(&graph);
            let norm = graph.outputs.iter().position(|o| &*o.name == "grad_norm").unwrap();
            let outputs = call(&graph, &mut state, &[&[3.0, 0.0, -4.0]]);
            call(&graph, &mut state, &[&[0.0; 3]]);
            (get(&state, "w"), get(&state, "opt/step"), outputs[norm].to_f64())
        };
        let plain = course(None);
        assert_close(&plain.2, &[5.0], 1e-6);
        assert_eq!(course(Some(LossScale::dynamic(1024.0))), plain);
    }
}

#[test]
fn a_graph_of_f64_keeps_its_digits() {
    let w = |loss_scale| {
        let options = StepOptions { loss_scale, ..StepOptions::default() };
        let graph = step(&linear(DType::F64), &Adam::new(0.1), &options);
        let mut state = first_state(&graph);
        let x = Array::from_f64(DType::F64, &[3], &[0.1, 1e-30, 3.0]).unwrap();
        for _ in 0..3 {
            run_arrays(&graph, std::slice::from_ref(&x), &mut state).unwrap();
        }
        get(&state, "w")
    };
    assert_eq!(w(Some(LossScale::default())), w(None));
}

#[test]
fn small_gradients_survive_f16() {
    let g = GraphBuilder::new("half");
    let (w, x) = (g.parameter("w", &[1], Init::ONES), g.input("x", DType::F32, [1]));
    let forward =
        g.finish((w.cast(DType::F16) * x.cast(DType::F16)).cast(DType::F32).sum_all() * 1e-8).unwrap();
    let moved = |loss_scale| {
        let options = StepOptions { loss_scale, ..StepOptions::default() };
        let graph = step(&forward, &Sgd::new(1e8), &options);
        let mut state = first_state(&graph);
        call(&graph, &mut state, &[&[0.5]]);
        1.0 - get(&state, "w")[0]
    };
    assert_eq!(moved(None), 0.0, "1e-8 is 0 in f16");
    assert_close(&[moved(Some(LossScale::default()))], &[0.5], 1e-3);
}

#[test]
fn a_constant_scale_stays() {
    let graph = scaled(LossScale::constant(256.0));
    let mut state = first_state(&graph);
    for feeds in [GOOD, BAD, GOOD] {
        call(&graph, &mut state, &[feeds]);
        assert_eq!(scale(&state), 256.0);
    }
    assert_eq!((get(&state, "opt/step"), get(&state, "opt/skipped")), (vec![2.0], vec![1.0]));
}

#[test]
fn numbers_out_of_range_are_named() {
    let wrong = [
        (LossScale::dynamic(0.5), "initial"),
        (LossScale::dynamic(f64::NAN), "initial"),
        (LossScale::default().growth(0.5, 10), "growth_factor"),
        (LossScale::default().growth(2.0, 0), "growth_interval"),
        (LossScale::default().backoff(0.0), "backoff_factor"),
        (LossScale::default().backoff(1.5), "backoff_factor"),
        (LossScale::default().bounds(0.0, 1e9), "floor"),
        (LossScale::default().bounds(1.0, f64::INFINITY), "ceiling"),
    ];
    for (numbers, name) in wrong {
        let options = StepOptions { loss_scale: Some(numbers), ..StepOptions::default() };
        let error =
            training_step(&linear(DType::F32), "loss", Params::All, &Sgd::new(1.0), &options).unwrap_err();
        assert!(matches!(&error, OptimError::Hyper { name: n, .. } if *n == name), "{error}");
    }
}
