//! What the public API promises about results, state, rebinding and the compile cache.

use crate::common::*;
use onestep::passes::plan::PlanOptions;
use onestep::prelude::*;
use onestep::{Executable, LayoutRole, Options};

#[test]
fn a_loss_that_was_kept_does_not_change() {
    let mut step = TrainingStep::new(classifier(8)).optimizer(Sgd::new(0.5)).compile(&cpu(2)).unwrap();
    let mut state = step.init(1).unwrap();
    let mut kept = vec![];
    for i in 0..3 {
        let out = step.run(&mut state, rows(8, i)).unwrap();
        let (number, array) = (out.loss().unwrap(), out.array("loss").unwrap());
        assert_eq!(array.to_f64(), [number]);
        kept.push((number, array));
    }
    for (i, (number, array)) in kept.iter().enumerate() {
        assert_eq!(array.to_f64(), [*number], "loss {i} was changed by a later call");
    }
    assert!(kept[0].0 != kept[1].0 && kept[1].0 != kept[2].0);
}

#[test]
fn outputs_and_layout_have_the_documented_order() {
    let step = TrainingStep::new(classifier(8)).optimizer(Adam::new(0.1)).clip_global_norm(1.0);
    let mut step = step.compile(&cpu(1)).unwrap();
    let params = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"];
    let mut want = vec![("loss".to_string(), LayoutRole::Loss)];
    want.extend(params.iter().map(|p| (p.to_string(), LayoutRole::Parameter)));
    for p in params {
        want.extend(["m", "v"].map(|slot| (format!("opt/{p}/{slot}"), LayoutRole::Slot)));
    }
    want.extend(["accuracy", "grad_norm"].map(|m| (m.to_string(), LayoutRole::Metric)));
    let layout: Vec<_> = step.layout().iter().map(|e| (e.name.clone(), e.role)).collect();
    assert_eq!(layout, want);
    let mut state = step.init(0).unwrap();
    for e in step.layout() {
        let stays = matches!(e.role, LayoutRole::Loss | LayoutRole::Metric);
        assert_eq!(e.overwrites, (!stays).then(|| e.name.clone()));
        if !stays {
            let held = state.get(&e.name).unwrap();
            assert_eq!((held.dtype(), held.shape()), (e.dtype, &e.shape[..]), "{}", e.name);
        }
    }
    let out = step.run(&mut state, rows(8, 1)).unwrap();
    assert_eq!(out.names().collect::<Vec<_>>(), ["loss", "accuracy", "grad_norm"]);
    // The loss comes first also where it was not built first, and a metric of the step's own last.
    let g = GraphBuilder::new("late");
    let w = g.parameter("w", &[2], Init::ONES);
    g.output("first", w * 2.0);
    let sum = (w * 3.0).sum_all();
    let step = TrainingStep::new(g.finish(w.square().sum_all()).unwrap()).metric("sum", sum);
    let mut step = step.optimizer(Sgd::new(0.1)).compile(&cpu(1)).unwrap();
    let mut state = step.init(0).unwrap();
    let out = step.run(&mut state, ()).unwrap();
    assert_eq!(out.names().collect::<Vec<_>>(), ["loss", "first", "sum"]);
    assert_eq!(out.scalar("sum").unwrap(), 6.0);
}

#[test]
fn gradients_stay_resident() {
    let params = onestep::Params::from(["fc2.bias"]);
    let mut step =
        onestep::compile_with_backward(&classifier(8), "loss", params, &cpu(2), &Options::default()).unwrap();
    let names: Vec<_> = step.layout().iter().map(|e| e.name.clone()).collect();
    assert_eq!(names, ["loss", "grad/fc2.bias", "accuracy"]);
    let mut state = step.init(0).unwrap();
    let before = values(&state, "fc2.bias");
    step.run(&mut state, rows(8, 1)).unwrap();
    let gradient = values(&state, "grad/fc2.bias");
    assert!(gradient.iter().all(|&g| g != 0.0) && gradient.iter().sum::<f64>().abs() < 1e-6);
    assert_eq!(values(&state, "fc2.bias"), before);
    step.run(&mut state, rows(8, 2)).unwrap();
    assert_ne!(values(&state, "grad/fc2.bias"), gradient);
}

#[test]
fn training_and_evaluation_share_a_state() {
    let mut step = TrainingStep::new(classifier(32)).optimizer(AdamW::new(0.05)).compile(&cpu(2)).unwrap();
    let mut evaluation = compile(&classifier(32), &cpu(1)).unwrap();
    let mut state = step.init(1).unwrap();
    assert_eq!(evaluation.missing(&state), [""; 0]);
    let (batch, mut losses) = (rows(32, 1), vec![]);
    for _ in 0..20 {
        let seen = evaluation.run(&mut state, &batch).unwrap().loss().unwrap();
        let trained = step.run(&mut state, &batch).unwrap().loss().unwrap();
        assert_eq!(seen, trained, "both saw the same parameters");
        losses.push(seen);
    }
    assert!(losses[19] < 0.7 * losses[0], "{losses:?}");
    assert_eq!((step.program().rebinds(), evaluation.rebinds()), (0, 0));
}

#[test]
fn a_replaced_tensor_is_bound_again_and_counted() {
    let g = GraphBuilder::new("double");
    let (w, x) = (g.state("w", Role::Parameter, F32, &[2], Init::ONES), g.input("x", F32, [2]));
    g.output("y", w * x);
    let mut program = compile(&g.build().unwrap(), &cpu(1)).unwrap();
    let mut state = program.init(0).unwrap();
    let mut ask = |state: &mut State| {
        let out = program.run(state, [floats(&[2], &[1.0, 10.0])]).unwrap().array("y").unwrap().to_f64();
        (out, program.rebinds(), program.compilations().len())
    };
    assert_eq!(ask(&mut state), (vec![1.0, 10.0], 0, 1));
    state.set("w", &floats(&[2], &[2.0, 3.0])); // the same type: the same storage
    assert_eq!(ask(&mut state), (vec![2.0, 30.0], 0, 1));
    state.remove("w").unwrap();
    state.set("w", &floats(&[2], &[4.0, 5.0]));
    assert_eq!(ask(&mut state), (vec![4.0, 50.0], 1, 1));
    assert_eq!(ask(&mut state), (vec![4.0, 50.0], 1, 1));
    // A copy of the state, and the first one again.
    let mut copy = state.try_clone().unwrap();
    copy.set("w", &floats(&[2], &[6.0, 7.0]));
    assert_eq!(ask(&mut copy), (vec![6.0, 70.0], 2, 1));
    assert_eq!(ask(&mut state), (vec![4.0, 50.0], 3, 1));
}

/// `w <- w + mean(w)` needs all of `w` before it writes any.
fn not_in_place() -> Graph {
    let g = GraphBuilder::new("order");
    let w = g.state("w", Role::Parameter, F32, &[3], Init::ONES);
    let reversed = g.concat(&[w.slice(0, 1, 3), w.slice(0, 0, 1)], 0);
    g.update(w, reversed * 2.0, true);
    g.output("old", w);
    g.build().unwrap()
}

#[test]
fn what_is_not_in_place_is_named_and_right() {
    let graph = not_in_place();
    let executable = Executable::compile(&graph, &cpu(2), &Options::default()).unwrap();
    let refusals = executable.report().refusals;
    assert!(refusals.len() == 1 && refusals[0].contains("'w'"), "{refusals:?}");
    let mut state = State::new();
    state.set("w", &floats(&[3], &[1.0, 2.0, 3.0]));
    let mut bound = executable.bind(&state).unwrap();
    let old = bound.run(&mut state, ()).unwrap().array("old").unwrap();
    assert_eq!((old.to_f64(), values(&state, "w")), (vec![1.0, 2.0, 3.0], vec![4.0, 6.0, 2.0]));
    let strict = PlanOptions { strict: true, ..PlanOptions::default() };
    let strict = Options { plan: strict, ..Options::default() };
    let error = Executable::compile(&graph, &cpu(2), &strict).unwrap_err().to_string();
    assert!(error.contains("'w'") && error.contains("in place"), "{error}");
    // A whole training step is.
    let step = TrainingStep::new(language_model(2, 0.1)).optimizer(AdamW::new(0.1)).clip_global_norm(1.0);
    let step = step.options(strict).compile(&cpu(2)).unwrap();
    let report = step.report().unwrap();
    assert_eq!(report.in_place.len(), report_updates(&step), "{:?}", report.refusals);
}

/// The state that a step's graph writes.
fn report_updates(step: &CompiledStep) -> usize {
    // Parameters, slots, the step's counter, skipped steps, and dropout's counter.
    step.layout().iter().filter(|e| e.overwrites.is_some()).count() + 3
}

/// States that take each other's old values, and an output of each old and new value.
#[test]
fn states_that_trade_places() {
    let g = GraphBuilder::new("trade");
    let [a, b, c] = ["a", "b", "c"].map(|n| g.state(n, Role::Buffer, F32, &[2], Init::ZEROS));
    g.update(a, b, true);
    g.update(b, c, true);
    g.update(c, a + 1.0, true);
    g.output("old a", a);
    g.output("new c", a + 1.0);
    let mut program = compile(&g.build().unwrap(), &cpu(2)).unwrap();
    let mut state = State::new();
    for (name, x) in [("a", 1.0), ("b", 2.0), ("c", 3.0)] {
        state.set(name, &floats(&[2], &[x, x]));
    }
    let mut want = [1.0, 2.0, 3.0];
    for _ in 0..4 {
        let out = program.run(&mut state, ()).unwrap();
        let (old, new) = (out.array("old a").unwrap().to_f64(), out.array("new c").unwrap().to_f64());
        assert_eq!((old, new), (vec![want[0]; 2], vec![want[0] + 1.0; 2]));
        want = [want[1], want[2], want[0] + 1.0];
        assert_eq!(["a", "b", "c"].map(|n| values(&state, n)[0]), want);
    }
}

#[test]
fn the_compile_cache_is_bounded_and_says_why() {
    let g = GraphBuilder::new("sum");
    let x = g.input("x", F32, (dim("N").at_most(100),));
    g.output("sum", (x * 2.0).sum_all());
    let mut program = compile(&g.build().unwrap(), &cpu(1)).unwrap();
    program.set_capacity(3);
    let mut state = State::new();
    let mut ask = |n: usize| {
        let out = program.run(&mut state, [floats(&[n], &vec![1.5; n])]).unwrap();
        let sum = out.scalar("sum").unwrap();
        (sum, program.compilations().len(), program.compilations().last().unwrap().reason)
    };
    let (first, new) = ("first compilation", "sizes not met before");
    let again = "these sizes were met before, but their executable had to make room";
    assert_eq!(ask(1), (3.0, 1, first));
    assert_eq!(ask(2), (6.0, 2, new));
    assert_eq!(ask(3), (9.0, 3, new));
    assert_eq!(ask(1), (3.0, 3, new), "no compilation");
    assert_eq!(ask(4), (12.0, 4, new), "2 makes room");
    assert_eq!(ask(1), (3.0, 4, new));
    assert_eq!(ask(2), (6.0, 5, again));
    for round in 0..3 {
        for n in 1..=5 {
            assert_eq!(ask(n).0, 3.0 * n as f64, "round {round}");
        }
    }
}

#[test]
fn equal_shapes_are_not_equal_inputs() {
    let g = GraphBuilder::new("two");
    let (a, b) = (g.input("a", F32, [3]), g.input("b", F32, [3]));
    g.output("y", a * 2.0 - b);
    let mut program = compile(&g.build().unwrap(), &cpu(1)).unwrap();
    let mut state = State::new();
    let (x, y) = (floats(&[3], &[1.0, 2.0, 3.0]), floats(&[3], &[5.0, 7.0, 9.0]));
    let mut ask =
        |a: &Array, b: &Array| program.run(&mut state, [a, b]).unwrap().array("y").unwrap().to_f64();
    assert_eq!(ask(&x, &x), [1.0, 2.0, 3.0]);
    assert_eq!(ask(&x, &y), [-3.0, -3.0, -3.0], "the second input is y's");
    assert_eq!(ask(&y, &x), [9.0, 12.0, 15.0]);
    assert_eq!(ask(&x, &x), [1.0, 2.0, 3.0]);
}

#[test]
fn equal_ops_wired_otherwise() {
    let build = |swapped: bool| {
        let g = GraphBuilder::new("wiring");
        let (a, b) = (g.input("a", F32, [2]), g.input("b", F32, [2]));
        let y = if swapped { b - a.relu() } else { a.relu() - b };
        g.output("y", y);
        // Both ways in one graph must not be taken for one.
        g.output("both", (a.relu() - b) * 10.0 + (b - a.relu()));
        g.build().unwrap()
    };
    let feeds = [floats(&[2], &[-1.0, 4.0]), floats(&[2], &[1.0, 1.0])];
    let (one, other) = (outputs(&build(false), &feeds), outputs(&build(true), &feeds));
    assert_eq!((&one["y"], &other["y"]), (&vec![-1.0, 3.0], &vec![1.0, -3.0]));
    assert_eq!((&one["both"], &other["both"]), (&vec![-9.0, 27.0], &vec![-9.0, 27.0]));
}
