//! Where the others gave a null pointer, a message on abort or a panic: a `Result` with an error that can be matched.

use crate::common::*;
use onestep::optim::OptimError;
use onestep::prelude::*;
use onestep::{Executable, Options};

#[test]
fn every_stage_has_an_error_of_its_own() {
    let graph = regression();
    let device = device();

    // Building.
    let g = GraphBuilder::new("wrong");
    let x = g.input("x", F32, [2, 3]);
    g.output("y", x.matmul(x));
    let error = Error::from(g.build().unwrap_err());
    assert!(matches!(&error, Error::Graph(_)) && error.to_string().contains("typed_errors.rs"), "{error}");

    // Choosing a device.
    assert!(matches!(Device::named("abacus", None), Err(Error::NoDevice { .. })));
    assert!(matches!(Device::cpu_with(0), Err(Error::Threads { threads: 0 })));

    // Differentiating.
    let refused = |step: TrainingStep| match step.compile(&device).unwrap_err() {
        Error::Build(source) => *source.downcast::<OptimError>().unwrap(),
        other => panic!("{other}"),
    };
    let unknown = refused(TrainingStep::new(graph.clone()).loss("nope").optimizer(Sgd::new(0.1)));
    assert!(matches!(unknown, OptimError::UnknownLoss { .. }), "{unknown}");
    assert!(matches!(refused(TrainingStep::new(graph.clone())), OptimError::NoOptimizer));

    // Compiling.
    let g = GraphBuilder::new("open");
    g.output("y", g.input("x", F32, [dim("B").at_most(2)]));
    let open = g.build().unwrap();
    let error = Executable::compile(&open, &device, &Options::default()).unwrap_err();
    assert!(matches!(&error, Error::Graph(_)) && error.to_string().contains('B'), "{error}");

    // Running.
    let mut program = compile(&graph, &device).unwrap();
    let mut state = program.init(0).unwrap();
    assert!(matches!(program.run(&mut State::new(), batch(0.1)), Err(Error::MissingState { .. })));
    assert!(matches!(program.run(&mut state, ()), Err(Error::InputCount { want: 2, got: 0, .. })));
    let (x, y) = (waves(&[4, 3], 0.1), waves(&[4, 2], 0.1));
    let error = program.run(&mut state, [("x", &x), ("z", &y)]).unwrap_err();
    assert!(matches!(&error, Error::NoInput { name, .. } if name == "z"), "{error}");
    assert!(matches!(program.run(&mut state, [&y, &y]), Err(Error::Graph(_))));

    // Reading.
    let out = program.run(&mut state, [&x, &y]).unwrap();
    assert!(matches!(out.scalar("lost"), Err(Error::NoOutput { .. })));
    assert!(
        matches!(state.get("fc1.wait"), Err(Error::NoState { nearest: Some(n), .. }) if n.starts_with("fc1."))
    );
    assert!(matches!(state.remove("nothing at all"), Err(Error::NoState { .. })));

    // Files.
    assert!(matches!(state.load("/nowhere/at/all.safetensors"), Err(Error::Io(_))));
    assert!(matches!(state.save("/nowhere/at/all.safetensors"), Err(Error::Io(_))));
}
