//! Wrong feeds and wrong state: an error that names what is wrong and the nearest right name, before anything runs.

use crate::common::*;
use onestep::ir::GraphError;
use onestep::prelude::*;

fn step() -> (CompiledStep, State) {
    let step = TrainingStep::new(classifier(32)).optimizer(Adam::new(0.1)).compile(&cpu(2)).unwrap();
    let state = step.init(1).unwrap();
    (step, state)
}

#[test]
fn wrong_feeds() {
    let (mut step, mut state) = step();
    let [x, y] = rows(8, 1);
    step.run(&mut state, [("y", &y), ("x", &x)]).expect("the order of named feeds is free");
    let before = snapshot(&state);
    // Sizes that are compiled for, and sizes that are not.
    for n in [8, 9] {
        let [x, y] = rows(n, 1);
        let short = random(&[n - 1, 12], 1);
        let narrow = random(&[n, 11], 1);
        let flat = random(&[n * 12], 1);
        let (wide, floating) = (
            Array::from_f64(F64, &[n, 12], &vec![0.0; 12 * n]).unwrap(),
            Array::from_f64(F32, &[n], &vec![0.0; n]).unwrap(),
        );
        let mut says = |feeds: &[(&str, &Array)], words: &[&str]| {
            let error = step.run(&mut state, feeds).unwrap_err().to_string();
            assert!(words.iter().all(|w| error.contains(w)), "{error:?} does not say all of {words:?}");
        };
        says(&[("x", &x), ("yy", &y)], &["'yy'", "did you mean 'y'"]);
        says(&[("X", &x), ("y", &y)], &["'X'", "did you mean 'x'"]);
        says(&[("x", &x)], &["'y'"]);
        says(&[("y", &y)], &["'x'"]);
        says(&[("x", &x), ("x", &x)], &["'y'"]);
        says(&[("x", &x), ("y", &y), ("x", &x)], &["2 inputs (x, y), got 3"]);
        says(&[], &["x"]);
        says(&[("x", &short), ("y", &y)], &["'y'", "B"]);
        says(&[("x", &narrow), ("y", &y)], &["'x'", "12", "11"]);
        says(&[("x", &flat), ("y", &y)], &["'x'"]);
        says(&[("x", &wide), ("y", &y)], &["'x'", "f32", "f64"]);
        says(&[("x", &x), ("y", &floating)], &["'y'", "i32", "f32"]);
        for wrong in [vec![x.clone()], vec![x.clone(), y.clone(), y.clone()], vec![], vec![y, x]] {
            assert!(step.run(&mut state, wrong).is_err());
        }
    }
    let error = step.run(&mut state, rows(33, 1)).unwrap_err().to_string();
    assert!(error.contains("'B'") && error.contains("33") && error.contains("32"), "{error}");
    assert!(snapshot(&state) == before, "something ran");
    assert_eq!(step.compilations().len(), 1, "something was compiled: {:?}", step.compilations());
    step.run(&mut state, rows(8, 2)).unwrap();
}

#[test]
fn wrong_state() {
    let (mut step, full) = step();
    // A parameter, a slot, a scalar.
    for gone in ["fc1.weight", "opt/fc2.bias/v", "opt/lr"] {
        let mut state = full.try_clone().unwrap();
        state.remove(gone).unwrap();
        assert_eq!(step.missing(&state), [gone]);
        let before = snapshot(&state);
        let error = step.run(&mut state, rows(8, 1)).unwrap_err().to_string();
        assert!(error.contains(&format!("'{gone}'")), "{error}");
        assert!(snapshot(&state) == before);
        // Bound to a whole state, and then it goes.
        let mut state = full.try_clone().unwrap();
        step.run(&mut state, rows(8, 1)).unwrap();
        let kept = state.get(gone).unwrap();
        state.remove(gone).unwrap();
        let before = snapshot(&state);
        let error = step.run(&mut state, rows(8, 1)).unwrap_err().to_string();
        assert!(error.contains(&format!("'{gone}'")), "{error}");
        assert!(snapshot(&state) == before);
        state.set(gone, &kept);
        step.run(&mut state, rows(8, 1)).unwrap();
    }
    // Everything is missing, and everything is named.
    let error = step.run(&mut State::new(), rows(8, 1)).unwrap_err().to_string();
    assert!(full.names().all(|n| error.contains(&format!("'{n}'"))), "{error}");
    for (wrong, got) in [
        (Array::from_f64(F64, &[3], &[0.0; 3]).unwrap(), "f64"),
        (floats(&[4], &[0.0; 4]), "[4]"),
        (floats(&[3, 1], &[0.0; 3]), "[3, 1]"),
    ] {
        let mut state = full.try_clone().unwrap();
        state.set("fc2.bias", &wrong);
        let before = snapshot(&state);
        let error = step.run(&mut state, rows(8, 1)).unwrap_err().to_string();
        assert!(error.contains("'fc2.bias'") && error.contains("f32[3]") && error.contains(got), "{error}");
        assert!(snapshot(&state) == before);
    }
}

#[test]
fn names_that_nothing_has() {
    let (mut step, mut state) = step();
    let says = |error: Error, words: &[&str]| {
        let error = error.to_string();
        assert!(words.iter().all(|w| error.contains(w)), "{error}");
    };
    says(state.get("fc1.wieght").unwrap_err(), &["'fc1.wieght'", "did you mean 'fc1.weight'"]);
    says(state.set_scalar("opt/lt", 1.0).unwrap_err(), &["'opt/lt'", "did you mean 'opt/lr'"]);
    says(state.set_scalar("fc1.weight", 1.0).unwrap_err(), &["1"]);
    says(state.scalar("fc2.bias").unwrap_err(), &["'fc2.bias'", "scalar", "f32[3]"]);
    says(state.remove("fc3.bias").unwrap_err(), &["'fc3.bias'"]);
    let out = step.run(&mut state, rows(8, 1)).unwrap();
    says(out.scalar("acuracy").unwrap_err(), &["'acuracy'", "accuracy"]);
    says(out.array("lss").unwrap_err(), &["'lss'", "loss"]);
    assert!(Device::named("metal", None).unwrap_err().to_string().contains("'metal'"));
    for threads in [0, 1025, usize::MAX] {
        assert!(matches!(Device::cpu_with(threads), Err(Error::Threads { .. })));
    }
}

#[test]
fn steps_that_cannot_be_built() {
    let refused = |step: TrainingStep| step.compile(&cpu(1)).unwrap_err().to_string();
    let step = || TrainingStep::new(classifier(8)).optimizer(Sgd::new(0.1));
    let text = refused(TrainingStep::new(classifier(8)));
    assert!(text.contains("optimizer"), "{text}");
    let text = refused(step().loss("los"));
    assert!(text.contains("'los'") && text.contains("'loss'"), "{text}");
    let text = refused(step().parameters(["fc1.weigth"]));
    assert!(text.contains("fc1.weigth") && text.contains("fc1.weight"), "{text}");
    let text = refused(step().parameters(["fc1.bias", "fc1.bias"]));
    assert!(text.contains("fc1.bias"), "{text}");
    let text = refused(step().clip_global_norm(-1.0));
    assert!(text.contains("above 0"), "{text}");
    let text = refused(step().optimizer(Adam::new(f64::NAN)));
    assert!(text.contains("lr"), "{text}");

    let g = GraphBuilder::new("rows");
    let x = g.input("x", F32, [4]);
    g.output("rows", x * g.parameter("w", &[4], Init::ONES));
    let graph = g.build().unwrap();
    let text = refused(TrainingStep::new(graph).loss("rows").optimizer(Sgd::new(0.1)));
    assert!(text.contains("'rows'") && text.contains("mean"), "says how to reduce it: {text}");

    // A tensor of another graph as a metric.
    let other = GraphBuilder::new("other");
    let first = other.input("x", F32, ());
    let last = (0..200).fold(first, |x, _| x + 1.0);
    for tensor in [first, last, last.matmul(last)] {
        let text = refused(step().metric("m", tensor));
        assert!(text.contains("'m'"), "{text}");
    }
    // Mistakes are errors with the line of each, all at once.
    let g = GraphBuilder::new("mistakes");
    let (a, b) = (g.input("a", F32, [2, 3]), g.input("b", F32, [2, 3]));
    let line = line!() + 1;
    let (product, sum) = (a.matmul(b), a + b.reshape([5]));
    g.output("product", product);
    let Err(GraphError::Build(mistakes)) = g.finish(sum.mean()) else { panic!("two mistakes") };
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
    for (mistake, op) in mistakes.iter().zip(["matmul", "reshape"]) {
        assert_eq!(mistake.op, op);
        assert!(mistake.to_string().contains(&format!("errors.rs:{line}:")), "{mistake}");
    }
}

/// Sizes that no machine has are errors, not aborts.
#[test]
fn memory_that_there_is_not() {
    let g = GraphBuilder::new("huge");
    let x = g.input("x", F32, [1 << 24]);
    let huge = x.reshape([1 << 24, 1]) + x.reshape([1, 1 << 24]);
    g.output("sum", huge.matmul(huge).sum_all());
    let error = match compile(&g.build().unwrap(), &cpu(1)) {
        Err(e) => e,
        Ok(mut program) => {
            program.run(&mut State::new(), [floats(&[1 << 24], &vec![0.0; 1 << 24])]).unwrap_err()
        }
    };
    assert!(error.to_string().contains("bytes"), "{error}");

    let g = GraphBuilder::new("parameter");
    let w = g.parameter("w", &[1 << 24, 1 << 24], Init::ZEROS);
    let program = compile(&g.finish(w.sum_all()).unwrap(), &cpu(1)).unwrap();
    let error = program.init(0).unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
}

/// The compiler's own output has a name that a user may have thought of too.
#[test]
fn a_name_that_the_compiler_uses() {
    let name = onestep::passes::indices::OUTPUT;
    let g = GraphBuilder::new("reserved");
    g.output(name, g.input("x", F32, [2]) + 1.0);
    let got = outputs(&g.build().unwrap(), &[floats(&[2], &[1.0, 2.0])]);
    assert_eq!(got[name], [2.0, 3.0]);
    let g = GraphBuilder::new("reserved");
    let x = g.input("x", F32, [2]);
    g.output(name, x.gather(0, g.input("i", I32, [1])));
    let error = compile(&g.build().unwrap(), &cpu(1)).unwrap_err().to_string();
    assert!(error.contains(name), "{error}");
}
