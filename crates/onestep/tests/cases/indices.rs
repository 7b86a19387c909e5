//! Indices out of range: an error that names the op and its line, nothing guarded moves, and no other row's data is given
//! out or changed.

use crate::common::*;
use onestep::prelude::*;

/// Runs the step on a bad batch after a good one: the error, and proof that nothing moved.
#[track_caller]
fn refused(step: &mut CompiledStep, good: &[Array], bad: &[Array]) -> (String, String, usize) {
    let mut state = step.init(3).unwrap();
    step.run(&mut state, good).unwrap();
    let before = guarded(&state);
    let error = step.run(&mut state, bad).unwrap_err();
    assert!(guarded(&state) == before, "state moved: {error}");
    assert_eq!(values(&state, "opt/skipped"), [1.0], "the refused step was not counted: {error}");
    step.run(&mut state, good).expect("the next step goes on");
    assert_eq!(values(&state, "opt/step"), [2.0]);
    match error {
        Error::BadIndex { op, loc, bound } => (op, loc, bound),
        other => panic!("{other}"),
    }
}

#[test]
fn labels_out_of_range() {
    let g = GraphBuilder::new("labels");
    let (x, y) = (g.input("x", F32, [2, 4]), g.input("y", I32, [2]));
    let logits = nn::linear(&g, "fc", x, 3);
    let line = line!() + 1;
    let graph = g.finish(logits.cross_entropy(y)).unwrap();
    let mut step = TrainingStep::new(graph).optimizer(Adam::new(0.1)).compile(&cpu(2)).unwrap();
    let batch = |labels: [i32; 2]| [random(&[2, 4], 1), ints(&[2], &labels)];
    for bad in [3, 9, -1, -99, -101, i32::MAX, i32::MIN] {
        for labels in [[bad, 0], [2, bad], [bad, bad]] {
            let (op, loc, bound) = refused(&mut step, &batch([0, 2]), &batch(labels));
            assert_eq!((op.as_str(), bound), ("cross_entropy", 2));
            assert!(loc.contains(&format!("indices.rs:{line}:")), "{loc}");
        }
    }
    // The ignored label is none of them.
    let mut state = step.init(3).unwrap();
    step.run(&mut state, batch([-100, 1])).unwrap();
}

/// A length beyond its axis, and a label that is no class; what stands behind a length may be anything.
#[test]
fn ctc_lengths_and_labels_out_of_range() {
    let g = GraphBuilder::new("ctc");
    let (x, targets) = (g.input("x", F32, [5, 2, 4]), g.input("targets", I32, [2, 3]));
    let (times, labels) = (g.input("times", I32, [2]), g.input("labels", I32, [2]));
    let log_probs = nn::linear(&g, "fc", x, 4).log_softmax(-1);
    let line = line!() + 1;
    let loss = log_probs.ctc_loss(targets, times, labels, Default::default());
    let graph = g.finish(loss).unwrap();
    let mut step = TrainingStep::new(graph).optimizer(Adam::new(0.1)).compile(&cpu(2)).unwrap();
    let batch = |targets: [i32; 6], times: [i32; 2], labels: [i32; 2]| {
        [random(&[5, 2, 4], 1), ints(&[2, 3], &targets), ints(&[2], &times), ints(&[2], &labels)]
    };
    let good = batch([1, 2, 3, 3, -7, 99], [5, 4], [3, 1]);
    for (bad, most) in [
        (batch([1, 2, 3, 3, 0, 0], [6, 4], [3, 1]), 5),
        (batch([1, 2, 3, 3, 0, 0], [5, -1], [3, 1]), 5),
        (batch([1, 2, 3, 3, 0, 0], [5, 4], [4, 1]), 3),
        (batch([1, 4, 3, 3, 0, 0], [5, 4], [3, 1]), 3),
        (batch([1, 2, 3, 3, -7, 0], [5, 4], [3, 2]), 3),
    ] {
        let (op, loc, bound) = refused(&mut step, &good, &bad);
        assert_eq!((op.as_str(), bound), ("ctc_loss", most));
        assert!(loc.contains(&format!("indices.rs:{line}:")), "{loc}");
    }
}

#[test]
fn token_ids_out_of_range() {
    let g = GraphBuilder::new("ids");
    let ids = g.input("ids", I32, [3]);
    let (first, line) = (nn::embedding(&g, "table", ids, 4, 2), line!());
    let graph = g.finish(first.square().mean()).unwrap();
    let mut step = TrainingStep::new(graph).optimizer(Sgd::new(0.1)).compile(&cpu(1)).unwrap();
    for bad in [4, 7, -1, i32::MIN, i32::MAX] {
        let (op, loc, bound) = refused(&mut step, &[ints(&[3], &[0, 3, 1])], &[ints(&[3], &[0, 3, bad])]);
        assert_eq!((op.as_str(), bound), ("gather", 3));
        // The layer passes its caller's line on.
        assert!(loc.contains("layers.rs") || loc.contains(&format!("indices.rs:{line}:")), "{loc}");
    }
}

#[test]
fn lengths_of_an_attention_out_of_range() {
    let g = GraphBuilder::new("lengths");
    let (x, lengths) = (g.input("x", F32, [2, 1, 4, 3]), g.input("lengths", I32, [2]));
    let y = nn::linear(&g, "fc", x, 3);
    let (y, line) = (y.attention_with(x, y, None, Some(lengths), Default::default()), line!());
    let graph = g.finish(y.square().mean()).unwrap();
    let mut step = TrainingStep::new(graph).optimizer(Sgd::new(0.1)).compile(&cpu(2)).unwrap();
    let batch = |lengths: [i32; 2]| [random(&[2, 1, 4, 3], 1), ints(&[2], &lengths)];
    for bad in [5, -1, i32::MIN, i32::MAX] {
        let (op, loc, bound) = refused(&mut step, &batch([0, 4]), &batch([2, bad]));
        assert_eq!((op.as_str(), bound), ("attention", 4));
        assert!(loc.contains(&format!("indices.rs:{line}:")), "{loc}");
    }
}

type Build = for<'g> fn(&'g GraphBuilder, Tensor<'g>);

fn table(g: &GraphBuilder) -> Tensor<'_> {
    g.constant(random(&[4, 5], 1))
}

fn cache(g: &GraphBuilder) -> Tensor<'_> {
    g.state("cache", Role::Buffer, F32, &[4, 5], Init::Constant(7.0))
}

/// Every op that takes an index, on an axis of 4 with one index, and the largest that it takes.
const OPS: [(&str, f64, Build); 6] = [
    ("gather", 3.0, |g, i| g.output("row", table(g).gather(0, i))),
    ("gather_along", 3.0, |g, i| {
        let row = onestep::Shape::fixed(&[1, 5]);
        g.output("row", table(g).gather_along(0, i.reshape([1, 1]).broadcast(&row)));
    }),
    // Three rows of four: they may begin at 0 or 1.
    ("dynamic_slice", 1.0, |g, i| g.output("rows", table(g).dynamic_slice(0, i, 3))),
    ("dynamic_update_slice", 3.0, |g, i| {
        let cache = cache(g);
        g.update(cache, cache.dynamic_update_slice(0, g.full(F32, [1, 5], 1.0), i), true);
    }),
    ("scatter_add", 3.0, |g, i| {
        let cache = cache(g);
        g.update(cache, cache.scatter_add(0, i, g.full(F32, [5], 1.0)), true);
    }),
    ("scatter_add_along", 3.0, |g, i| {
        let row = onestep::Shape::fixed(&[1, 5]);
        let cache = cache(g);
        g.update(
            cache,
            cache.scatter_add_along(0, i.reshape([1, 1]).broadcast(&row), g.full(F32, [1, 5], 1.0)),
            true,
        );
    }),
];

#[test]
fn every_op_that_takes_an_index() {
    // The third and later ones are in range once cut down to 32 bits, or to 8.
    let wide = [4.0, -1.0, 4294967296.0, -4294967295.0, 4294967297.0, 256.0];
    let narrow = [4.0, 7.0, -1.0, -4.0, 2147483647.0, -2147483648.0, 256.0];
    for (op, last, build) in OPS {
        for (dtype, bad) in
            [(I32, &narrow[..]), (I64, &wide[..]), (U32, &[4.0, 4294967295.0][..]), (U8, &[4.0, 255.0][..])]
        {
            let g = GraphBuilder::new("asked");
            build(&g, g.input("i", dtype, ()));
            let mut program = compile(&g.build().unwrap(), &cpu(2)).unwrap();
            let mut state = program.init(0).unwrap();
            let index = |i: f64| [Array::from_f64(dtype, &[], &[i]).unwrap()];
            program.run(&mut state, index(last)).unwrap();
            let before = snapshot(&state);
            for &i in bad {
                let Err(error) = program.run(&mut state, index(i)) else { panic!("{op} took {dtype} {i}") };
                let error = error.to_string();
                let words = [format!("{op} at "), "indices.rs".into(), format!("0 to {last})")];
                assert!(words.iter().all(|w| error.contains(w)), "{error:?} does not say all of {words:?}");
                assert!(snapshot(&state) == before, "{op} of {dtype} {i} wrote");
            }
        }
    }
}

/// The first bad site is named, also where a later one is bad too.
#[test]
fn the_first_of_several_is_named() {
    let g = GraphBuilder::new("two");
    let (a, b) = (g.input("a", I32, [1]), g.input("b", I32, [1]));
    let table = g.constant(random(&[4, 2], 1));
    let first = (table.gather(0, a), line!()).0;
    let first_line = line!() - 1;
    g.output("out", first + table.gather(0, b));
    let mut program = compile(&g.build().unwrap(), &cpu(1)).unwrap();
    let mut state = State::new();
    let mut ask = |a, b| program.run(&mut state, [ints(&[1], &[a]), ints(&[1], &[b])]).map(|_| ());
    let line = |e: Error| e.to_string().split(':').nth(1).unwrap().parse::<u32>().unwrap();
    assert_eq!(line(ask(9, 9).unwrap_err()), first_line);
    assert_eq!(line(ask(0, 9).unwrap_err()), first_line + 2);
    ask(0, 3).unwrap();
}
