//! `missing()` names what a state lacks; `run` refuses, and names it.

use crate::common::*;
use onestep::prelude::*;

#[test]
fn every_parameter_slot_and_scalar_must_be_there() {
    let mut step = TrainingStep::new(regression()).optimizer(AdamW::new(0.1)).compile(&device()).unwrap();
    let whole = step.init(0).unwrap();
    assert_eq!(step.missing(&whole), [""; 0]);
    let all: Vec<String> = whole.names().map(String::from).collect();
    for path in ["fc1.weight", "opt/fc2.bias/v", "opt/lr", "opt/step"] {
        assert!(all.iter().any(|n| n == path), "{path} of {all:?}");
    }
    assert_eq!(step.missing(&State::new()).len(), all.len());
    for path in &all {
        let mut state = whole.try_clone().unwrap();
        state.remove(path).unwrap();
        assert_eq!(step.missing(&state), [&**path]);
        let before = state.try_clone().unwrap();
        match step.run(&mut state, batch(0.3)).unwrap_err() {
            Error::MissingState { names } => {
                assert!(names.len() == 1 && names[0].contains(path), "{names:?}")
            }
            other => panic!("{path}: {other}"),
        }
        for name in before.names() {
            assert_eq!(state.get(name).unwrap(), before.get(name).unwrap(), "nothing ran");
        }
    }
}
