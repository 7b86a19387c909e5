//! `state.append_row(name, row)`, `state.get(name)` and `run_selected(inputs, [outputs])`.

use crate::common::*;
use onestep::prelude::*;

#[test]
fn rows_are_appended_until_the_cache_is_full() {
    let g = GraphBuilder::new("mean");
    let cache = g.cache("cache", F32, [4, 2]);
    g.output("sum", cache.sum(&[0]));
    let mut program = compile(&g.build().unwrap(), &device()).unwrap();
    let mut state = program.init(0).unwrap();
    let address = state.as_slice::<f32>("cache").unwrap().as_ptr();
    for i in 0..4 {
        let row = floats(&[2], &[i as f32, 1.0]);
        assert_eq!(state.append_row("cache", &row).unwrap(), i);
        assert_eq!(state.scalar("cache/length").unwrap(), i as f64 + 1.0);
        let out = program.run(&mut state, ()).unwrap().array("sum").unwrap();
        assert_eq!(out.to_f64(), [(0..=i).sum::<usize>() as f64, i as f64 + 1.0]);
    }
    assert_eq!(state.as_slice::<f32>("cache").unwrap().as_ptr(), address);
    assert!(program.rebinds() <= 1, "for the counter that the first row made");
    assert_eq!(program.traffic().fed, 0);
    let before = state.get("cache").unwrap();
    let error = state.append_row("cache", &floats(&[2], &[9.0, 9.0])).unwrap_err();
    assert!(matches!(error, Error::NoRow { at: 4, rows: 4, .. }), "{error}");
    assert_eq!(state.get("cache").unwrap(), before);
    assert_eq!(state.scalar("cache/length").unwrap(), 4.0);

    // At a place of the caller's choice.
    state.write_row("cache", 1, &floats(&[2], &[-1.0, -2.0])).unwrap();
    assert_eq!(state.get("cache").unwrap().to_f64(), [0.0, 1.0, -1.0, -2.0, 2.0, 1.0, 3.0, 1.0]);
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let mut state = State::new();
    state.bind("cache", &floats(&[4, 2], &[0.0; 8])).unwrap();
    state.bind("scalar", &Array::scalar(1f32)).unwrap();
    let row = floats(&[2], &[1.0, 1.0]);
    assert!(
        matches!(state.append_row("cahce", &row), Err(Error::NoState { nearest: Some(n), .. }) if n == "cache")
    );
    assert!(matches!(state.append_row("scalar", &row), Err(Error::StateType { .. })));
    assert!(matches!(state.append_row("cache", &floats(&[3], &[0.0; 3])), Err(Error::StateType { .. })));
    let doubles = Array::zeros(F64, &[2]).unwrap();
    assert!(matches!(state.append_row("cache", &doubles), Err(Error::StateType { .. })));
    assert!(!state.contains("cache/length"), "a refused row leaves nothing behind");
    assert!(matches!(state.write_row("cache", usize::MAX, &row), Err(Error::NoRow { .. })));
    state.set("cache/length", &Array::scalar(-1i32));
    assert!(matches!(state.append_row("cache", &row), Err(Error::NoRow { .. })));
}

/// A cheap output, and one that needs a matrix product.
fn two_outputs() -> Graph {
    let g = GraphBuilder::new("two");
    let x = g.input("x", F32, (dim("B").at_most(64), 8));
    let calls = g.state("calls", Role::Scalar, I32, &[], Init::ZEROS);
    g.update(calls, calls + 1.0, true);
    g.output("cheap", x.sum(&[0, 1]));
    g.output("dear", nn::linear(&g, "fc", x, 8).square());
    g.build().unwrap()
}

#[test]
fn only_what_is_selected_is_computed() {
    let mut program = compile(&two_outputs(), &device()).unwrap();
    let mut state = program.init(0).unwrap();
    let x = waves(&[4, 8], 0.3);
    let all = program.run(&mut state, [&x]).unwrap();
    let want = (all.array("cheap").unwrap(), all.array("dear").unwrap());
    let kernels = |program: &Program| program.executable().unwrap().report().kernels.len();
    let whole = kernels(&program);

    let out = program.run_selected(&mut state, [&x], &["cheap"]).unwrap();
    assert_eq!(out.names().collect::<Vec<_>>(), ["cheap"]);
    assert_eq!(out.array("cheap").unwrap(), want.0, "the same bits");
    assert!(matches!(out.array("dear"), Err(Error::NoOutput { .. })));
    assert!(kernels(&program) < whole, "the product is not computed");
    assert!(program.executable().unwrap().report().kernels.iter().all(|k| k.kind != "matmul"));

    for _ in 0..3 {
        program.run_selected(&mut state, [&x], &["cheap"]).unwrap();
        program.run_selected(&mut state, [("x", &x)], &["dear"]).unwrap();
    }
    assert_eq!(state.scalar("calls").unwrap(), 8.0, "state is updated whatever is read");
    let events = program.compilations();
    assert_eq!(events.len(), 3, "each selection is compiled once");
    assert_eq!(events[1].outputs.as_deref(), Some(&["cheap".to_string()][..]));
    assert_eq!(events[1].reason, "outputs not selected before");
    let dear = program.run_selected(&mut state, [&x], &["dear", "cheap"]).unwrap();
    assert_eq!(dear.array("dear").unwrap(), want.1);

    let error = program.run_selected(&mut state, [&x], &["chaep"]).unwrap_err();
    assert!(matches!(error, Error::NoOutput { .. }), "{error}");
    let none = program.run_selected(&mut state, [&x], &[]).unwrap();
    assert_eq!(none.names().count(), 0);
}

#[test]
fn unread_outputs_are_not_copied() {
    let mut program = compile(&two_outputs(), &device()).unwrap();
    let mut state = program.init(0).unwrap();
    let out = program.run(&mut state, [waves(&[64, 8], 0.1)]).unwrap();
    out.scalar("cheap").unwrap();
    assert_eq!(program.traffic().read, 4);
    program.run(&mut state, [waves(&[64, 8], 0.1)]).unwrap().array("dear").unwrap();
    assert_eq!(program.traffic().read, 4 + 64 * 8 * 4);
}

#[test]
fn an_executable_selects_too() {
    let mut step = TrainingStep::new(regression()).optimizer(Sgd::new(0.1)).compile(&device()).unwrap();
    let mut state = step.init(0).unwrap();
    let quiet = step.program().executable().unwrap().select(&[]).unwrap();
    let mut bound = quiet.bind(&state).unwrap();
    let mut same = state.try_clone().unwrap();
    bound.run(&mut state, batch(0.2)).unwrap();
    step.run(&mut same, batch(0.2)).unwrap();
    assert_eq!(values(&state, "fc1.weight"), values(&same, "fc1.weight"));
    assert!(quiet.select(&["loss"]).is_err(), "what is gone cannot be selected again");
}
