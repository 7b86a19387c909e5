//! Averages of the parameters, against `torch.optim.swa_utils` and timm's formula.

use crate::common::{State, assert_close, call, first_state, get, set};
use crate::{linear, numbers, recorded, step};
use onestep_ir::interp::run_arrays;
use onestep_ir::{Array, DType, Graph, GraphBuilder, Init, Role};
use onestep_optim::{
    Adam, Average, LayoutRole, OptimError, Params, Sgd, StepOptions, Warmup, averaged, training_step,
};

fn averaging(dtype: DType, average: Average) -> Graph {
    let options = StepOptions { average: Some(average), ..StepOptions::default() };
    step(&linear(dtype), &Sgd::new(1.0), &options)
}

/// One step to `target`: the gradient is the way there.
fn go(graph: &Graph, state: &mut State, target: &[f64]) {
    let way: Vec<f64> = get(state, "w").iter().zip(target).map(|(w, t)| w - t).collect();
    let x = Array::from_f64(graph.ty(graph.inputs[0].value).dtype, &[3], &way).unwrap();
    run_arrays(graph, &[x], state).unwrap();
}

#[test]
fn the_courses_are_those_of_pytorch_and_timm() {
    let recorded = &recorded()["averages"];
    let course: Vec<Vec<f64>> = recorded["course"].as_array().unwrap().iter().map(numbers).collect();
    let power = Warmup::Power { gamma: 1.0, power: 2.0 / 3.0 };
    let kinds = [
        ("ema-0.9", Average::ema(0.9), "ema/w"),
        ("ema-0.25", Average::ema(0.25), "ema/w"),
        ("swa", Average::swa(), "swa/w"),
        ("warmup", Average::ema(0.9).warmup(power), "ema/w"),
    ];
    for (name, average, path) in kinds {
        let graph = averaging(DType::F64, average);
        let mut state = first_state(&graph);
        for (target, want) in course.iter().zip(recorded[name].as_array().unwrap()) {
            go(&graph, &mut state, target);
            assert_close(&get(&state, path), &numbers(want), 1e-12);
        }
        assert_eq!(get(&state, "opt/average/count"), [course.len() as f64]);
    }
}

#[test]
fn a_corrected_average_has_adam_s_weights() {
    let graph = averaging(DType::F64, Average::ema(0.8).warmup(Warmup::Corrected));
    let mut state = first_state(&graph);
    let mut m = [0.0; 3];
    for t in 1..=20 {
        let target = [t as f64, (t * t % 7) as f64, -1.5];
        go(&graph, &mut state, &target);
        m = [0, 1, 2].map(|i| 0.8 * m[i] + 0.2 * target[i]);
        assert_close(&get(&state, "ema/w"), &m.map(|m| m / (1.0 - 0.8f64.powi(t))), 1e-12);
    }
}

#[test]
fn it_is_written_with_the_step_or_not_at_all() {
    let graph = averaging(DType::F32, Average::ema(0.5));
    let mut state = first_state(&graph);
    call(&graph, &mut state, &[&[1.0; 3]]);
    assert_eq!(get(&state, "ema/w"), [0.0; 3]);
    call(&graph, &mut state, &[&[-4.0; 3]]);
    assert_eq!((get(&state, "w"), get(&state, "ema/w")), (vec![4.0; 3], vec![2.0; 3]));
    call(&graph, &mut state, &[&[1.0, f32::INFINITY, 1.0]]);
    assert_eq!((get(&state, "ema/w"), get(&state, "opt/average/count")), (vec![2.0; 3], vec![2.0]));
    // The decay is state.
    set(&mut state, "opt/average/one_minus_decay", &[0.25]);
    call(&graph, &mut state, &[&[-2.0; 3]]);
    assert_eq!(get(&state, "ema/w"), [3.0; 3]);
}

#[test]
fn over_several_calls_it_follows_the_steps() {
    let options =
        StepOptions { average: Some(Average::swa()), accumulate: Some(2), ..StepOptions::default() };
    let graph = step(&linear(DType::F32), &Sgd::new(1.0), &options);
    let mut state = first_state(&graph);
    for x in [1.0f32, 3.0, -2.0, -4.0] {
        call(&graph, &mut state, &[&[x; 3]]);
    }
    // w = 1 − 2 = −1, then −1 + 3 = 2.
    assert_eq!((get(&state, "w"), get(&state, "swa/w")), (vec![2.0; 3], vec![0.5; 3]));
    assert_eq!(get(&state, "opt/average/count"), [2.0]);
}

#[test]
fn it_may_begin_later_and_rest_between() {
    let graph = averaging(DType::F32, Average::swa().after(2).every(3));
    let mut state = first_state(&graph);
    let mut counts = vec![];
    for t in 1..=8 {
        go(&graph, &mut state, &[t as f64; 3]);
        counts.push(get(&state, "opt/average/count")[0]);
    }
    assert_eq!(counts, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0]);
    assert_eq!(get(&state, "swa/w"), [6.5; 3]);
}

#[test]
fn a_program_reads_averages_in_place_of_parameters() {
    let g = GraphBuilder::new("model");
    let (w, frozen) = (g.parameter("w", &[3], Init::ONES), g.parameter("frozen", &[3], Init::ONES));
    let x = g.input("x", DType::F32, [3]);
    let forward = g.finish((w * x * frozen).sum_all()).unwrap();
    let options = StepOptions { average: Some(Average::ema(0.5)), ..StepOptions::default() };
    let made = training_step(&forward, "loss", ["w"].into(), &Adam::new(0.1), &options).unwrap();
    let roles: Vec<_> = made.layout.iter().map(|e| (e.name.as_str(), e.role)).collect();
    assert_eq!(roles[4], ("ema/w", LayoutRole::Average));
    let evaluate = averaged(&forward, &made.graph).unwrap();
    let names: Vec<_> = evaluate.states.iter().map(|s| (&*s.name, s.role)).collect();
    assert_eq!(names, [("ema/w", Role::Buffer), ("frozen", Role::Parameter)]);
    let mut state = first_state(&made.graph);
    set(&mut state, "ema/w", &[2.0, 3.0, 4.0]);
    assert_eq!(call(&evaluate, &mut state, &[&[1.0; 3]])[0].to_f64(), [9.0]);

    let plain = step(&forward, &Adam::new(0.1), &StepOptions::default());
    assert!(matches!(averaged(&forward, &plain), Err(OptimError::NoAverages)));
}

#[test]
fn numbers_out_of_range_are_named() {
    let wrong = [
        (Average::ema(1.0), "decay"),
        (Average::ema(-0.1), "decay"),
        (Average::swa().every(0), "every"),
        (Average::swa().after(u32::MAX), "start"),
        (Average::ema(0.9).warmup(Warmup::Power { gamma: 0.0, power: 1.0 }), "gamma"),
        (Average::ema(0.9).warmup(Warmup::Power { gamma: 1.0, power: -1.0 }), "power"),
    ];
    for (average, name) in wrong {
        let options = StepOptions { average: Some(average), ..StepOptions::default() };
        let error =
            training_step(&linear(DType::F32), "loss", Params::All, &Sgd::new(1.0), &options).unwrap_err();
        assert!(matches!(&error, OptimError::Hyper { name: n, .. } if *n == name), "{error}");
    }
}
