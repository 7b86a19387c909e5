//! `compile_with_backward`: loss, gradients, metrics; the gradients stay resident and readable, apart from parameters.

use crate::common::*;
use onestep::passes::plan::Place;
use onestep::prelude::*;
use onestep::{LayoutRole, Options, Params, compile_with_backward};

fn compiled(params: Params) -> CompiledStep {
    compile_with_backward(&regression(), "loss", params, &device(), &Options::default()).unwrap()
}

#[test]
fn gradients_are_state_and_right() {
    let mut backward = compiled(Params::from(["fc2.bias", "fc1.weight"]));
    let layout: Vec<(String, LayoutRole)> =
        backward.layout().iter().map(|e| (e.name.clone(), e.role)).collect();
    assert_eq!(
        layout,
        [
            ("loss".to_string(), LayoutRole::Loss),
            ("grad/fc2.bias".to_string(), LayoutRole::Gradient),
            ("grad/fc1.weight".to_string(), LayoutRole::Gradient),
            ("largest".to_string(), LayoutRole::Metric),
        ]
    );
    let mut state = backward.init(4).unwrap();
    let parameters = values(&state, "fc1.weight");
    backward.run(&mut state, batch(0.4)).unwrap();
    assert_eq!(values(&state, "fc1.weight"), parameters, "nothing but gradients changes");
    for path in ["fc2.bias", "fc1.weight"] {
        let gradient = values(&state, &format!("grad/{path}"));
        for i in 0..gradient.len() {
            let mut at = |shift: f32| {
                let mut moved = state.try_clone().unwrap();
                moved.as_mut_slice::<f32>(path).unwrap()[i] += shift;
                backward.run(&mut moved, batch(0.4)).unwrap().loss().unwrap()
            };
            let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!((slope - gradient[i] as f64).abs() < 1e-3, "{path}[{i}]: {} or {slope}", gradient[i]);
        }
    }
    // Another batch, other gradients, in the same place.
    let address = state.as_slice::<f32>("grad/fc1.weight").unwrap().as_ptr();
    let before = values(&state, "grad/fc1.weight");
    backward.run(&mut state, batch(0.9)).unwrap();
    assert_ne!(values(&state, "grad/fc1.weight"), before);
    assert_eq!(state.as_slice::<f32>("grad/fc1.weight").unwrap().as_ptr(), address);
}

#[test]
fn the_plan_keeps_gradients_apart_from_parameters() {
    let mut backward = compiled(Params::All);
    let executable = backward.program().executable().unwrap();
    let (schedule, plan) = (&executable.compiled().schedule, &executable.compiled().plan);
    let gradients = schedule.states.iter().enumerate().filter(|(_, s)| s.name.starts_with("grad/"));
    let mut n = 0;
    for (i, state) in gradients {
        let update = state.update.unwrap();
        match plan.places[update.index()] {
            Place::State(place) => assert_eq!(place, i, "{} is written to its own storage", state.name),
            other => {
                assert!(matches!(other, Place::Arena(_)), "{}: {other:?}", state.name);
                assert!(plan.commits.contains(&(update, i)));
            }
        }
        n += 1;
    }
    assert_eq!(n, 4);
    for (i, state) in schedule.states.iter().enumerate().filter(|(_, s)| !s.name.starts_with("grad/")) {
        assert!(state.update.is_none() && plan.commits.iter().all(|(_, to)| *to != i), "{}", state.name);
    }

    // And so do the bytes: no two tensors of a state overlap.
    let state = backward.init(0).unwrap();
    let mut ranges: Vec<_> =
        state.names().map(|n| state.as_slice::<f32>(n).unwrap().as_ptr_range()).collect();
    ranges.sort_by_key(|r| r.start);
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
}
