//! Schedules: their closed forms, PyTorch's schedulers, and what happens to them while steps are skipped.

mod common;

use common::{State, assert_close, call, first_state, get, given_gradients, set};
use onestep_ir::{DType, Graph};
use onestep_optim::{Schedule, Sgd, StepOptions};

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
