//! Schedules: their closed forms, PyTorch's schedulers, and what happens to them while steps are skipped.

mod common;

use common::recorded::Recorded;
use common::{State, assert_close, call, first_state, get, given_gradients, set};
use onestep_ir::{DType, Graph, Role};
use onestep_optim::{OptimError, Schedule, Sgd, StepOptions};

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
        let graph = scheduled(schedule.clone());
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

/// Every kind of schedule, under the name that PyTorch's course of it is recorded by.
fn schedules() -> Vec<(&'static str, Schedule)> {
    use Schedule::*;
    let doubling = CosineRestarts { period: 7, growth: 2, floor: 0.0 };
    let linear_cycle = OneCycle { total: 300, rise: 0.37, start: 0.2, end: 0.02, linear: true };
    let cosine = OneCycle { total: 300, rise: 0.3, start: 0.04, end: 4e-6, linear: false };
    let rise = |steps| Linear { from: 0.1, to: 1.0, steps };
    let fall = Cosine { steps: 200, floor: 0.1 };
    vec![
        ("linear", Linear { from: 0.25, to: 0.75, steps: 120 }),
        ("cosine", Cosine { steps: 299, floor: 0.1 }),
        ("cosine_restarts", CosineRestarts { period: 40, growth: 1, floor: 0.05 }),
        ("cosine_restarts_doubling", doubling),
        ("cosine_restarts_tripling", CosineRestarts { period: 1, growth: 3, floor: 0.2 }),
        ("step", Step { every: 30, factor: 0.5 }),
        ("multi_step", MultiStep { at: vec![10, 50, 51, 200], factor: 0.3 }),
        ("exponential", Exponential { factor: 0.99 }),
        ("inverse_sqrt", InverseSqrt { warmup: 40 }),
        ("one_cycle", cosine),
        ("one_cycle_linear", linear_cycle),
        ("polynomial", Polynomial { steps: 250, power: 2.5 }),
        ("sequence", Sequence(vec![(0, rise(20)), (20, fall), (220, Exponential { factor: 0.98 })])),
        ("product", Product(vec![rise(30), Exponential { factor: 0.99 }, Step { every: 100, factor: 0.5 }])),
        ("warmup_step", Step { every: 50, factor: 0.7 }.after_warmup(25)),
    ]
}

#[test]
fn every_kind_follows_pytorch_for_300_steps() {
    let recorded = Recorded::read("torch-schedules");
    let all = schedules();
    assert!(recorded.tensors.keys().all(|name| all.iter().any(|(n, _)| n == name)));
    for (name, schedule) in all {
        let want = recorded.tensors[name].to_f64();
        let host: Vec<f64> = (1..=300).map(|t| schedule.multiplier(t)).collect();
        for (n, (got, want)) in host.iter().zip(&want).enumerate() {
            assert!((got - want).abs() < 1e-12 * want.abs() + 1e-14, "{name} at {n}: {got}, not {want}");
        }
        // In f32, as a step uses it.
        let graph = scheduled(schedule);
        let got: Vec<f64> = rates(&graph, &mut first_state(&graph), 300);
        for (n, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!((got / 2.0 - want).abs() < 2e-5 * want.abs() + 1e-7, "{name} at {n}: {got}, not {want}");
        }
    }
}

#[test]
fn cosine_restarts_keep_their_periods_for_a_million_steps() {
    for growth in 2..=10 {
        let graph = scheduled(Schedule::CosineRestarts { period: 3, growth, floor: 0.0 });
        let mut state = first_state(&graph);
        let (mut begin, mut length) = (0i64, 3i64);
        while begin < 1_000_000 {
            for (n, restarts) in [(begin, true), (begin + length - 1, false)] {
                set(&mut state, "opt/step", &[n as f64]);
                let rate = rates(&graph, &mut state, 1)[0];
                assert_eq!(rate == 2.0, restarts, "period of {length} from {begin}, at {n}: {rate}");
            }
            (begin, length) = (begin + length, length * growth as i64);
        }
    }
}

#[test]
fn every_number_of_every_kind_is_state() {
    for (name, schedule) in schedules() {
        let graph = scheduled(schedule);
        let numbers = graph.states.iter().filter(|s| s.name.starts_with("opt/schedule/"));
        let read: Vec<_> = graph.nodes.iter().flat_map(|n| n.operands.clone()).collect();
        let count = numbers.inspect(|s| assert!(s.role == Role::Scalar && read.contains(&s.value))).count();
        assert!(count > 0, "{name}");
    }
    let part = scheduled(Schedule::Step { every: 50, factor: 0.7 }.after_warmup(25));
    for path in ["0/from", "0/steps", "1/start", "1/every", "1/factor"] {
        assert!(part.state(&format!("opt/schedule/{path}")).is_some(), "{path}");
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    use Schedule::*;
    let bad = [
        (Linear { from: -1.0, to: 1.0, steps: 3 }, "from"),
        (Linear { from: 0.0, to: 1.0, steps: 0 }, "steps"),
        (Cosine { steps: 0, floor: 0.0 }, "steps"),
        (CosineRestarts { period: 3, growth: 0, floor: 0.0 }, "growth"),
        (Step { every: 0, factor: 0.5 }, "every"),
        (MultiStep { at: vec![u32::MAX], factor: 0.5 }, "at"),
        (Exponential { factor: f64::NAN }, "factor"),
        (InverseSqrt { warmup: 0 }, "warmup"),
        (OneCycle { total: 10, rise: 1.5, start: 0.1, end: 0.1, linear: true }, "rise"),
        (Polynomial { steps: 3, power: -1.0 }, "power"),
        (Sequence(vec![]), "start"),
        (Sequence(vec![(1, Constant)]), "start"),
        (Sequence(vec![(0, Constant), (5, Constant), (5, Constant)]), "start"),
        (Product(vec![Constant, Cosine { steps: 3, floor: -1.0 }]), "floor"),
    ];
    for (schedule, number) in bad {
        let error = schedule.check().unwrap_err();
        assert!(matches!(error, OptimError::Hyper { name, .. } if name == number), "{error}");
        assert!(schedule.multiplier(1).is_nan());
    }
}

#[test]
fn no_number_of_the_state_makes_a_nan() {
    for (name, schedule) in schedules() {
        let graph = scheduled(schedule);
        let mut state = first_state(&graph);
        let numbers: Vec<_> = state.keys().filter(|p| p.starts_with("opt/schedule/")).cloned().collect();
        numbers.iter().for_each(|path| set(&mut state, path, &[0.0]));
        for rate in rates(&graph, &mut state, 3) {
            assert!(rate.is_finite(), "{name}: {rate}");
        }
    }
}
