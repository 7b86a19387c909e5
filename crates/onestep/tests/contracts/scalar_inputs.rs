//! Per-step scalars are state by default; a graph may declare them as inputs of no dimension.

use crate::common::*;
use onestep::prelude::*;

#[test]
fn a_learning_rate_may_be_fed_at_each_step() {
    let g = GraphBuilder::new("fed");
    let rate = g.input("rate", F32, ());
    let w = g.parameter("w", &[2], Init::ZEROS);
    g.output("loss", (w - 1.0).square().sum_all());
    g.update(w, w - (w - 1.0) * 2.0 * rate.broadcast(&w.shape()), true);
    let mut program = compile(&g.build().unwrap(), &device()).unwrap();
    let mut state = program.init(0).unwrap();
    let mut w = 0f32;
    for step in 0..100 {
        let rate = 0.001 * (step + 1) as f32;
        program.run(&mut state, [Array::scalar(rate)]).unwrap();
        w -= (w - 1.0) * 2.0 * rate;
        assert!((values(&state, "w")[0] - w).abs() < 1e-6);
    }
    assert_eq!((program.compilations().len(), program.rebinds()), (1, 0));
    assert_eq!(program.traffic().fed, 400, "four bytes a step");
}

#[test]
fn a_learning_rate_in_state_compiles_once() {
    let mut step = TrainingStep::new(regression()).optimizer(AdamW::new(0.1)).compile(&device()).unwrap();
    let mut state = step.init(0).unwrap();
    for i in 1..=100 {
        state.set_scalar("opt/lr", 0.1 / i as f64).unwrap();
        step.run(&mut state, batch(0.5)).unwrap();
    }
    assert_eq!(step.compilations().len(), 1);
    assert_eq!(step.program().rebinds(), 0);
}
