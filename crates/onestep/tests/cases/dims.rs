//! Programs over named dimensions: two variables and their product, sizes that alternate, a bounded cache, one state.

use crate::common::{assert_close, cpu, random, random_ints, snapshot, values};
use onestep::ir::Dim;
use onestep::prelude::*;

const WIDTH: usize = 6;
const CLASSES: usize = 5;

/// A tagger of sequences: inputs `x`, `[B, T, 6]`, and `y`, `[B·T]`. The product of both dimensions is an axis of the loss.
fn tagger() -> Graph {
    let g = GraphBuilder::new("tagger");
    let x = g.input("x", F32, (dim("B").at_most(8), dim("T").at_most(16), WIDTH));
    let tokens = Dim::var("B").times(&Dim::var("T")).unwrap();
    let y = g.input("y", I32, [tokens.clone()]);
    let (w, b) = (
        g.parameter("w", &[WIDTH, CLASSES], Init::Normal { mean: 0.0, std: 0.3 }),
        g.parameter("b", &[CLASSES], Init::ONES),
    );
    // Each row's mean over T enters the scores, so that both dimensions are reduced over.
    let hidden = x + x.mean_keep(&[1]);
    let logits = hidden.matmul(w) + b;
    let flat = logits.reshape(vec![tokens, Dim::fixed(CLASSES)]);
    g.output("hits", flat.argmax(-1).equals(y).cast(F32).sum_all());
    g.finish(flat.cross_entropy(y)).unwrap()
}

fn batch(b: usize, t: usize, seed: u64) -> [Array; 2] {
    [random(&[b, t, WIDTH], seed), random_ints(&[b * t], CLASSES as i64, seed + 100)]
}

fn trained() -> onestep::CompiledStep {
    TrainingStep::new(tagger()).optimizer(Adam::new(1e-2)).compile(&cpu(2)).unwrap()
}

#[test]
fn two_variables_alternate_without_compiling_again() {
    let mut step = trained();
    let mut state = step.init(3).unwrap();
    let shapes = [(4, 6), (2, 6), (4, 3), (1, 1), (8, 16)];
    for round in 0..3 {
        for (i, &(b, t)) in shapes.iter().enumerate() {
            let feeds = batch(b, t, round * 10 + i as u64);
            let before = state.try_clone().unwrap();
            let loss = step.run(&mut state, feeds.clone()).unwrap().loss().unwrap();
            assert!(loss.is_finite());
            // What a program that knows no other sizes makes of the same state, bit for bit.
            let mut other = before;
            let alone = trained().run(&mut other, feeds).unwrap().loss().unwrap();
            assert_eq!(loss.to_bits(), alone.to_bits(), "at {b}×{t}");
            assert_eq!(snapshot(&state), snapshot(&other), "at {b}×{t}");
        }
    }
    assert_eq!(values(&state, "opt/step"), [15.0]);
    let met: Vec<_> =
        step.compilations().iter().map(|e| (e.binding["B"], e.binding["T"], e.reason)).collect();
    let new = "sizes not met before";
    assert_eq!(met, [(4, 6, "first compilation"), (2, 6, new), (4, 3, new), (1, 1, new), (8, 16, new)]);
    assert_eq!(step.program().rebinds(), 0, "one state throughout");
}

#[test]
fn the_cache_is_bounded_and_drops_what_was_used_longest_ago() {
    let graph = tagger();
    let mut program = Program::new(&graph, &cpu(1), &onestep::Options::default()).unwrap();
    program.set_capacity(2);
    let mut state = program.init(1).unwrap();
    let mut run = |program: &mut Program, b, t| {
        program.run(&mut state, batch(b, t, 7)).unwrap().scalar("loss").unwrap()
    };
    let first = run(&mut program, 2, 2);
    run(&mut program, 3, 2);
    run(&mut program, 2, 2); // again: now 3×2 was used longest ago
    run(&mut program, 4, 2);
    run(&mut program, 2, 2);
    assert_eq!(program.compilations().len(), 3, "2×2 stayed");
    run(&mut program, 3, 2);
    let last = program.compilations().last().unwrap();
    assert_eq!(last.binding["B"], 3);
    assert_eq!(last.reason, "these sizes were met before, but their executable had to make room");
    // What was compiled again gives the same.
    run(&mut program, 4, 2);
    assert_eq!(run(&mut program, 2, 2).to_bits(), first.to_bits());
    assert!(format!("{program:?}").contains("2 executables"), "{program:?}");
}

#[test]
fn sizes_that_do_not_fit_are_named_and_compile_nothing() {
    let mut step = trained();
    let mut state = step.init(3).unwrap();
    step.run(&mut state, batch(2, 3, 0)).unwrap();
    let wrong = [random(&[2, 3, WIDTH], 0), random_ints(&[7], CLASSES as i64, 1)];
    let error = step.run(&mut state, wrong).unwrap_err().to_string();
    assert!(error.contains("B*T must be 6"), "{error}");
    let error = step.run(&mut state, batch(9, 3, 0)).unwrap_err().to_string();
    assert!(error.contains("size 9 is above its bound 8"), "{error}");
    assert_eq!(step.compilations().len(), 1);
    assert_eq!(values(&state, "opt/step"), [1.0], "the state is as it was");
}

/// A batch without rows: the loss is a mean over no label, which is 0, and nothing moves but the counter and what the
/// optimizer does without a gradient.
#[test]
fn an_empty_batch_is_a_batch() {
    let mut step = trained();
    let mut state = step.init(3).unwrap();
    let before = values(&state, "w");
    let loss = step.run(&mut state, batch(0, 4, 0)).unwrap().loss().unwrap();
    assert_eq!(loss, 0.0);
    assert_eq!(values(&state, "w"), before);
}

/// Products of which any size is 0, with what fuses around them: all sums are 0, and nothing divides by a size.
#[test]
fn products_without_rows_columns_or_terms() {
    for (m, k, n) in (0..8).map(|i| (i / 4 * 3, i / 2 % 2 * 4, i % 2 * 5)) {
        let g = GraphBuilder::new("product");
        let (x, w, b) = (g.input("x", F32, [2, m, k]), g.input("w", F32, [k, n]), g.input("b", F32, [n]));
        let y = (x.matmul(w) + b).relu();
        g.output("y", y);
        g.output("rows", y.sum(&[-1]) * 2.0);
        g.output("columns", (y * 3.0).sum(&[0, 1]));
        let graph = g.build().unwrap();
        let feeds = [random(&[2, m, k], 1), random(&[k, n], 2), random(&[n], 3)];
        let want = onestep::ir::interp::run_arrays(&graph, &feeds, &mut Default::default()).unwrap();
        let mut program = compile(&graph, &cpu(2)).unwrap();
        let mut state = program.init(0).unwrap();
        let out = program.run(&mut state, &feeds[..]).unwrap();
        for (name, want) in ["y", "rows", "columns"].into_iter().zip(&want) {
            let got = out.array(name).unwrap();
            assert_eq!(got.shape(), want.shape(), "{m}×{k}×{n}");
            assert_close(&got.to_f64(), &want.to_f64(), 1e-5);
        }
    }
}

/// What is made for the interface, at the largest sizes, is what is compiled for them.
#[test]
fn the_largest_sizes_are_transformed_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let transform = move |graph: &Graph| {
        count.fetch_add(1, Relaxed);
        Ok(graph.clone())
    };
    let g = GraphBuilder::new("double");
    let x = g.input("x", F32, [dim("B").at_most(4)]);
    g.output("y", x * 2.0);
    let graph = g.build().unwrap();
    let mut program =
        Program::with(&graph, Arc::new(transform), &cpu(1), &onestep::Options::default()).unwrap();
    let mut state = program.init(0).unwrap();
    for (size, times) in [(4, 1), (3, 2), (4, 2)] {
        let x = Array::new(&[size], &vec![1.5f32; size]).unwrap();
        let y = program.run(&mut state, [&x]).unwrap().array("y").unwrap();
        assert_eq!(y.to_f64(), vec![3.0; size]);
        assert_eq!(made.load(Relaxed), times);
    }
}
