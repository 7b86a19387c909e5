//! `Bound::run`: state is updated in place, and the loss of a call stays what it was after the next call.

use crate::common::*;
use onestep::prelude::*;

#[test]
fn a_loss_that_was_read_does_not_change() {
    let mut step = TrainingStep::new(regression()).optimizer(Sgd::new(0.2)).compile(&device()).unwrap();
    let mut state = step.init(2).unwrap();
    let mut bound = step.program().executable().unwrap().bind(&state).unwrap();
    let mut losses: Vec<(Array, Vec<u8>)> = vec![];
    for _ in 0..5 {
        let loss = bound.run(&mut state, batch(0.6)).unwrap().array("loss").unwrap();
        losses.push((loss.clone(), loss.bytes().to_vec()));
    }
    for (array, then) in &losses {
        assert_eq!(array.bytes(), then, "an output that was kept is the caller's own");
    }
    let numbers: Vec<f64> = losses.iter().map(|(a, _)| a.to_f64()[0]).collect();
    assert!(numbers.windows(2).all(|w| w[1] < w[0]), "{numbers:?}");
    assert_eq!(bound.traffic().committed, 0, "state was updated where it is");
}

#[test]
fn an_output_that_is_state_is_read_as_the_call_left_it() {
    let g = GraphBuilder::new("count");
    let n = g.state("n", Role::Buffer, F32, &[3], Init::ZEROS);
    g.update(n, n + 1.0, false);
    g.output("before", n);
    g.output("after", n + 1.0);
    let mut program = compile(&g.build().unwrap(), &device()).unwrap();
    let mut state = program.init(0).unwrap();
    let mut kept = vec![];
    for _ in 0..3 {
        let out = program.run(&mut state, ()).unwrap();
        kept.push((out.array("before").unwrap(), out.array("after").unwrap()));
    }
    for (i, (before, after)) in kept.iter().enumerate() {
        assert_eq!(before.to_f64(), [i as f64; 3]);
        assert_eq!(after.to_f64(), [i as f64 + 1.0; 3]);
    }
}
