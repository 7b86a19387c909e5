//! `executable.bind(state)`: once; addresses are fixed; only a replaced state tensor binds again, which is counted.

use crate::common::*;
use onestep::Executable;
use onestep::prelude::*;

#[test]
fn one_binding_serves_every_call() {
    let mut step = TrainingStep::new(regression()).optimizer(AdamW::new(0.1)).compile(&device()).unwrap();
    let mut state = step.init(2).unwrap();
    let executable: Executable = step.program().executable().unwrap().clone();
    let mut bound = executable.bind(&state).unwrap();
    let addresses = |state: &State| -> Vec<usize> {
        let floats = state.names().filter(|n| state.get(n).unwrap().dtype() == F32);
        floats.map(|n| state.as_slice::<f32>(n).unwrap().as_ptr() as usize).collect()
    };
    let first = addresses(&state);
    for i in 0..20 {
        bound.run(&mut state, batch(0.1 * i as f32)).unwrap();
        // Writing a tensor in place is no reason to bind again.
        state.set_scalar("opt/lr", 0.01).unwrap();
        let weights = state.get("fc1.weight").unwrap();
        state.set("fc1.weight", &weights);
    }
    assert_eq!(addresses(&state), first);
    assert_eq!(bound.rebinds(), 0);
    let traffic = bound.traffic();
    assert_eq!((traffic.runs, traffic.fed), (20, 20 * (12 + 8) * 4), "only the inputs are uploaded");
    assert_eq!(traffic.read, 0, "outputs that are not read are not copied");

    // A replaced tensor, and another state.
    let weights = values(&state, "fc1.weight");
    state.adopt("fc1.weight", &[5, 3], weights).unwrap();
    bound.run(&mut state, batch(0.1)).unwrap();
    bound.run(&mut state, batch(0.1)).unwrap();
    assert_eq!(bound.rebinds(), 1);
    let mut other = state.try_clone().unwrap();
    let a = bound.run(&mut other, batch(0.2)).unwrap().loss().unwrap();
    let b = bound.run(&mut state, batch(0.2)).unwrap().loss().unwrap();
    assert_eq!((a, bound.rebinds()), (b, 3));
}

#[test]
fn a_state_that_no_longer_fits_is_refused_at_the_next_run() {
    let mut step = TrainingStep::new(regression()).optimizer(Sgd::new(0.1)).compile(&device()).unwrap();
    let mut state = step.init(2).unwrap();
    let mut bound = step.program().executable().unwrap().bind(&state).unwrap();
    bound.run(&mut state, batch(0.5)).unwrap();
    state.set("fc1.bias", &floats(&[6], &[0.0; 6]));
    let error = bound.run(&mut state, batch(0.5)).unwrap_err();
    assert!(matches!(&error, Error::StateType { name, .. } if name == "fc1.bias"), "{error}");
    state.set("fc1.bias", &floats(&[5], &[0.0; 5]));
    bound.run(&mut state, batch(0.5)).unwrap();
}
