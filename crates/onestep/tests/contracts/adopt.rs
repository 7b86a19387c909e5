//! `state.adopt(name, storage)`: a caller's own storage is state, without a copy either way.

use crate::common::*;
use onestep::prelude::*;

#[test]
fn a_callers_storage_is_the_target_of_updates() {
    let mut step = TrainingStep::new(regression()).optimizer(Sgd::new(0.1)).compile(&device()).unwrap();
    let mut usual = step.init(1).unwrap();
    let mut own = usual.try_clone().unwrap();
    for shift in 0..3 {
        let mut weights: Vec<f32> = Vec::with_capacity(64);
        weights.extend(values(&own, "fc1.weight"));
        let address = weights.as_ptr();
        own.adopt("fc1.weight", &[5, 3], weights).unwrap();
        assert_eq!(own.as_slice::<f32>("fc1.weight").unwrap().as_ptr(), address);

        for _ in 0..2 {
            let pitch = 0.3 + shift as f32;
            let a = step.run(&mut usual, batch(pitch)).unwrap().loss().unwrap();
            let b = step.run(&mut own, batch(pitch)).unwrap().loss().unwrap();
            assert_eq!(a, b);
        }
        for path in ["fc1.weight", "fc2.bias"] {
            assert_eq!(values(&own, path), values(&usual, path));
        }
        // Writing a tensor of the same type goes to the same place.
        own.set("fc1.weight", &usual.get("fc1.weight").unwrap());
        assert_eq!(own.as_slice::<f32>("fc1.weight").unwrap().as_ptr(), address);

        let back: Vec<f32> = own.release("fc1.weight").unwrap();
        assert_eq!((back.as_ptr(), back.len(), back.capacity()), (address, 15, 64));
        assert_eq!(back, values(&usual, "fc1.weight"));
        assert_eq!(step.missing(&own), ["fc1.weight"], "what was given back is no longer there");
        own.adopt("fc1.weight", &[5, 3], back).unwrap();
    }
}

#[test]
fn every_element_type_and_no_element_at_all() {
    let mut state = State::new();
    state.adopt("f64", &[2], vec![1f64, 2.0]).unwrap();
    state.adopt("u8", &[3], vec![1u8, 2, 3]).unwrap();
    state.adopt("i64", &[1, 2], vec![1i64, 2]).unwrap();
    state.adopt("none", &[0, 4], Vec::<f32>::new()).unwrap();
    assert_eq!(state.as_slice::<u8>("u8").unwrap(), [1, 2, 3]);
    assert_eq!(state.get("i64").unwrap().shape(), [1, 2]);
    assert!(state.as_slice::<f32>("none").unwrap().is_empty());
    let copy = state.try_clone().unwrap();
    state.as_mut_slice::<f64>("f64").unwrap()[0] = 5.0;
    assert_eq!(state.release::<f64>("f64").unwrap(), [5.0, 2.0]);
    assert_eq!(copy.as_slice::<f64>("f64").unwrap(), [1.0, 2.0], "a clone has storage of its own");
    assert_eq!(state.release::<f32>("none").unwrap(), [0f32; 0]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let step = TrainingStep::new(regression()).optimizer(Sgd::new(0.1)).compile(&device()).unwrap();
    let mut state = step.init(1).unwrap();
    let before = values(&state, "fc1.bias");
    let refused = [
        state.adopt("fc1.bias", &[5], vec![0f32; 4]),
        state.adopt("fc1.bias", &[4], vec![0f32; 4]),
        state.adopt("fc1.bias", &[5], vec![0f64; 5]),
        state.adopt("fc1.bias", &[usize::MAX, 3], vec![0f32; 5]),
        state.release::<f32>("fc1.bias").map(drop),
        state.release::<f32>("fc1.bais").map(drop),
        state.as_slice::<f64>("fc1.bias").map(drop),
    ];
    let said =
        ["5 elements", "f32[5]", "f32[5]", "", "not adopted", "did you mean 'fc1.bias'?", "elements of f64"];
    for (got, want) in refused.into_iter().zip(said) {
        let error = got.unwrap_err().to_string();
        assert!(error.contains(want) || want == "5 elements", "{error}");
    }
    assert_eq!(values(&state, "fc1.bias"), before);
}
