//! `compile(graph)`: a graph as it is.

use crate::common::*;
use onestep::prelude::*;

#[test]
fn inference_shares_the_state_of_training() {
    let (device, graph) = (device(), regression());
    let mut step = TrainingStep::new(graph.clone()).optimizer(Sgd::new(0.1)).compile(&device).unwrap();
    let mut program = compile(&graph, &device).unwrap();
    let mut state = step.init(3).unwrap();
    for _ in 0..3 {
        let seen = program.run(&mut state, batch(0.8)).unwrap().loss().unwrap();
        let trained = step.run(&mut state, batch(0.8)).unwrap().loss().unwrap();
        assert_eq!(seen, trained);
    }
    let names: Vec<_> = program.interface().outputs.iter().map(|o| o.name.to_string()).collect();
    assert_eq!(names.len(), 2);
}
