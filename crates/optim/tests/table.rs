//! What holds for every rule of the table, on a matrix and a vector, with each kind of clipping.

mod common;

use common::{State, call, first_state, get, given_gradients, set};
use onestep_ir::{DType, Graph, Init, Role};
use onestep_optim::rules::RULES;
use onestep_optim::{Clip, Schedule, StepOptions, UpdateRule};

const SHAPES: [(&str, &[usize]); 2] = [("w", &[2, 3]), ("b", &[2])];
const CLIPS: [Option<Clip>; 3] = [None, Some(Clip::GlobalNorm(1.0)), Some(Clip::Value(1.0))];

fn graph(rule: &dyn UpdateRule, options: &StepOptions) -> Graph {
    given_gradients(DType::F32, &SHAPES, rule, options)
}

/// Calls `f` with each rule and kind of clipping: the graph, its first state with parameters that are not 0, and a name.
fn each(f: impl Fn(&Graph, State, &str)) {
    for row in RULES {
        for clip in CLIPS {
            let graph = graph(&*(row.with_lr)(0.1), &StepOptions { clip, ..StepOptions::default() });
            let mut state = first_state(&graph);
            set(&mut state, "w", &[1.0, 2.0, 3.0, -1.0, 0.5, 0.0]);
            set(&mut state, "b", &[1.0, -2.0]);
            f(&graph, state, &format!("{} under {clip:?}", row.name));
        }
    }
}

#[test]
fn every_number_is_state() {
    for row in RULES {
        let rule = (row.with_lr)(0.5);
        assert_eq!(rule.name(), row.name);
        let options = StepOptions {
            clip: Some(Clip::GlobalNorm(1.0)),
            schedule: Schedule::WarmupCosine { warmup: 2, total: 9, floor: 0.5 },
            ..StepOptions::default()
        };
        let graph = graph(&*rule, &options);
        assert!(rule.hyper().iter().any(|h| h.name == "lr" && h.value == 0.5));
        for h in rule.hyper().iter().chain(&rule.scalars()) {
            let state = graph.state(&format!("opt/{}", h.name)).unwrap();
            assert_eq!((state.role, state.init), (Role::Scalar, Init::Constant(h.value)), "{}", h.name);
        }
        for name in ["step", "skipped", "clip_norm", "schedule/warmup", "schedule/total", "schedule/floor"] {
            assert!(graph.state(&format!("opt/{name}")).is_some(), "{name}");
        }
        let read: Vec<_> = graph.nodes.iter().flat_map(|n| n.operands.clone()).collect();
        for state in graph.states.iter().filter(|s| s.role == Role::Scalar) {
            assert!(read.contains(&state.value), "{} of {} is never read", state.name, row.name);
        }
    }
}

#[test]
fn gradients_of_zero_give_no_nan() {
    each(|graph, mut state, name| {
        for zeroed in [false, true] {
            if zeroed {
                SHAPES
                    .iter()
                    .for_each(|(path, shape)| set(&mut state, path, &vec![0.0; shape.iter().product()]));
            }
            for step in 0..3 {
                call(graph, &mut state, &[&[0.0; 6], &[0.0; 2]]);
                let bad = state.iter().find(|(_, a)| a.to_f64().iter().any(|x| !x.is_finite()));
                assert!(bad.is_none(), "{name}, step {step}: {bad:?}");
            }
        }
        assert_eq!(get(&state, "w"), [0.0; 6], "{name} moves without a gradient");
        assert_eq!(get(&state, "opt/step"), [6.0], "{name}");
    });
}

/// The state without the count of skipped steps.
fn guarded(state: &State) -> State {
    let mut state = state.clone();
    state.remove("opt/skipped");
    state
}

#[test]
fn one_bad_element_and_nothing_moves() {
    each(|graph, first, name| {
        let good = |state: &mut State, sign: f32| {
            let w = [1.0, -1.0, 0.5, 0.25, 2.0, -3.0].map(|x| sign * x);
            call(graph, state, &[&w, &[2.0, -0.5]]);
        };
        let mut state = first.clone();
        good(&mut state, 1.0);
        let before = guarded(&state);
        assert_ne!(before, guarded(&first), "{name}");
        for (i, bad) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().enumerate() {
            call(graph, &mut state, &[&[1.0, bad, 0.5, 0.0, 0.0, 1.0], &[2.0, 1.0]]);
            call(graph, &mut state, &[&[1.0, -1.0, 0.5, 0.0, 0.0, 1.0], &[2.0, bad]]);
            assert_eq!(guarded(&state), before, "{name} with {bad}");
            assert_eq!(get(&state, "opt/skipped"), [2.0 * (i + 1) as f64], "{name}");
        }
        // Goes on as if the skipped steps had not been.
        let mut straight = first;
        good(&mut straight, 1.0);
        for s in [&mut state, &mut straight] {
            good(s, -1.0);
        }
        assert_eq!(guarded(&state), guarded(&straight), "{name}");
        assert_eq!(get(&straight, "opt/step"), [2.0], "{name}");
    });
}
