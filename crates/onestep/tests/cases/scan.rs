//! Scans on the device: equal to their unrolled form to the bit, on any number of threads; compiled once whatever their
//! length or depth; a bad index in one iteration is found.

use crate::common::*;
use onestep::autodiff::gradients;
use onestep::ir::ScanOptions;
use onestep::nn::{Activation, Block, Recurrent, transformer_block};
use onestep::prelude::*;
use onestep::{Executable, Options};

/// Bits of every output of one call.
fn bits(graph: &Graph, state: &State, inputs: &[Array], threads: usize) -> Vec<Vec<u64>> {
    let executable = Executable::compile(graph, &cpu(threads), &Options::default()).unwrap();
    let mut own = State::new();
    state.names().for_each(|n| own.set(n, &state.get(n).unwrap()));
    let mut bound = executable.bind(&own).unwrap();
    // Twice: what the first call leaves in the arena is nothing to the second.
    bound.run(&mut own, inputs).unwrap();
    let out = bound.run(&mut own, inputs).unwrap();
    let names: Vec<String> = out.names().map(str::to_string).collect();
    let one = |n: &String| out.array(n).unwrap().to_f64().iter().map(|x| (x + 0.0).to_bits()).collect();
    names.iter().map(one).collect()
}

/// A GRU-like recurrence over matrices that are large enough to be shared among threads, with its gradients.
fn recurrence(length: usize, unrolled: bool) -> Graph {
    const N: usize = 96;
    let g = GraphBuilder::new("recurrence");
    let x = g.input("x", F32, [length, 32, N]);
    let (w, b) = (g.parameter("w", &[2 * N, N], Init::ZEROS), g.parameter("b", &[2 * N], Init::ZEROS));
    let first = g.input("h", F32, [32, N]);
    let step = |h: Tensor<'_>, x: Tensor<'_>| {
        let (h, x) = (g.tensor(h.value().unwrap()), g.tensor(x.value().unwrap()));
        let parts = (h.matmul_t(w, false, true) + b).split(-1, &[N, N]);
        let keep = (parts[0] + x).sigmoid();
        let next = keep * h + (1.0 - keep) * (parts[1] * x).tanh();
        (next, next.layer_norm(g.full(F32, [N], 1.0), g.full(F32, [N], 0.0), 1e-5))
    };
    let (last, outputs) = if unrolled {
        let (mut h, mut all) = (first, vec![]);
        for i in 0..length {
            let (next, y) = step(h, x.at(0, i));
            h = next;
            all.push(y);
        }
        (h, g.stack(&all, 0))
    } else {
        let done = g.scan(&[first], &[x], ScanOptions::default(), |c, x| {
            let (next, y) = step(c[0], x[0]);
            (vec![next], vec![y])
        });
        (done.carries[0], done.outputs[0])
    };
    let loss = (outputs * outputs * x).mean() + last.square().mean();
    for (i, d) in gradients(&g, loss, &[w, b, first, x]).unwrap().into_iter().enumerate() {
        g.output(&format!("d{i}"), d.unwrap());
    }
    g.output("last", last);
    g.output("outputs", outputs);
    g.finish(loss).unwrap()
}

#[test]
fn a_scan_gives_the_bits_of_its_unrolled_form() {
    let (scan, flat) = (recurrence(4, false), recurrence(4, true));
    let mut state = State::new();
    state.set("w", &random(&[192, 96], 1));
    state.set("b", &random(&[192], 2));
    let inputs = [random(&[4, 32, 96], 3), random(&[32, 96], 4)];
    let want = bits(&flat, &state, &inputs, 1);
    assert!(want.iter().flatten().any(|x| *x != 0));
    let mut first: Option<Vec<Vec<u64>>> = None;
    for threads in [1, 2, 3] {
        let got = bits(&scan, &state, &inputs, threads);
        for (i, (port, (a, b))) in scan.outputs.iter().zip(got.iter().zip(&want)).enumerate() {
            // Cotangents that come through a carry are one sum before they meet others: another order, but always that.
            let gradient = port.name.starts_with('d');
            let want = if gradient { &first.get_or_insert_with(|| got.clone())[i] } else { b };
            assert!(a == want, "{} with {threads} threads", port.name);
            let real = |v: &[u64]| v.iter().map(|x| f64::from_bits(*x)).collect::<Vec<_>>();
            assert_close(&real(a), &real(b), if gradient { 1e-6 } else { 0.0 });
        }
    }
}

fn blocks(depth: usize, stacked: bool) -> Graph {
    let g = GraphBuilder::new("blocks");
    let x = g.input("x", F32, [2, 6, 16]);
    let options = Block { mlp: nn::Mlp::Plain(Activation::Silu), ..Block::new(16, 2) };
    let y = if stacked {
        g.repeat(depth, x, |x, _| transformer_block(&g, "block", x, options))
    } else {
        (0..depth).fold(x, |x, i| g.scope(&i.to_string(), || transformer_block(&g, "block", x, options)))
    };
    g.output("y", y);
    g.finish(y.square().mean()).unwrap()
}

/// A stack of equal blocks is compiled once: as many kernels, however deep; and it trains as the blocks one by one do.
#[test]
fn depth_does_not_lengthen_a_program() {
    const DEPTH: usize = 3;
    let train = |graph: Graph| TrainingStep::new(graph).optimizer(Sgd::new(0.1)).compile(&cpu(2)).unwrap();
    let (mut deep, mut flat) = (train(blocks(DEPTH, true)), train(blocks(DEPTH, false)));
    let mut state = deep.init(5).unwrap();
    let mut apart = flat.init(5).unwrap();
    let paths: Vec<String> = state.names().filter(|n| n.starts_with("block.")).map(str::to_string).collect();
    for path in &paths {
        let whole = state.get(path).unwrap();
        let n = whole.to_f64().len() / DEPTH;
        for (i, part) in whole.as_slice::<f32>().unwrap().chunks(n).enumerate() {
            apart.set(&format!("{i}.{path}"), &floats(&whole.shape()[1..], part));
        }
    }
    let x = random(&[2, 6, 16], 9);
    for _ in 0..3 {
        let a = deep.run(&mut state, [&x]).unwrap().loss().unwrap();
        let b = flat.run(&mut apart, [&x]).unwrap().loss().unwrap();
        assert_eq!(a, b);
    }
    for path in &paths {
        let parts = (0..DEPTH).flat_map(|i| values(&apart, &format!("{i}.{path}")));
        // Sums of gradients may be of another order where a value has several readers.
        assert_close(&values(&state, path), &parts.collect::<Vec<_>>(), 1e-5);
    }
    let kernels = |depth: usize| {
        let mut step = train(blocks(depth, true));
        let mut state = step.init(5).unwrap();
        step.run(&mut state, [&x]).unwrap();
        step.program().executable().unwrap().compiled().schedule.kernel_count()
    };
    assert_eq!(kernels(2), kernels(24));
}

#[test]
fn a_bad_index_in_one_iteration_is_found() {
    let g = GraphBuilder::new("ids");
    let ids = g.input("ids", I32, [4, 3]);
    let table = g.parameter("table", &[5, 2], Init::Uniform { low: -1.0, high: 1.0 });
    let zero = g.full(F32, [2], 0.0);
    let line = line!() + 2;
    let done = g.scan(&[zero], &[ids], ScanOptions::default(), |c, ids| {
        let rows = table.gather(0, ids[0]);
        (vec![(c[0] + rows.sum(&[0])).tanh()], vec![])
    });
    let graph = g.finish(done.carries[0].square().mean()).unwrap();
    let mut step = TrainingStep::new(graph).optimizer(Sgd::new(0.1)).compile(&cpu(2)).unwrap();
    let mut state = step.init(3).unwrap();
    let mut all = vec![0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1];
    step.run(&mut state, [ints(&[4, 3], &all)]).unwrap();
    let before = guarded(&state);
    all[7] = 5;
    match step.run(&mut state, [ints(&[4, 3], &all)]).unwrap_err() {
        Error::BadIndex { op, loc, bound } => {
            assert_eq!((op.as_str(), bound), ("gather", 4));
            assert!(loc.contains(&format!("scan.rs:{line}:")), "{loc}");
        }
        other => panic!("{other}"),
    }
    assert!(guarded(&state) == before, "state moved");
}

/// An LSTM's training step against the interpreter, and the same bits on one thread and on two.
#[test]
fn a_recurrent_network_trains_alike_everywhere() {
    let g = GraphBuilder::new("lstm");
    let x = g.input("x", F32, (dim("B").at_most(4), dim("T").at_most(9), 3));
    let lengths = g.input("lengths", I32, [dim("B")]);
    let network = Recurrent { layers: 2, bidirectional: true, dropout: 0.25, ..Recurrent::lstm(5) };
    let done = network.build_with(&g, "lstm", x, Some(lengths), None);
    let graph = g.finish(done.output.square().mean() + done.state.hidden.sum_all()).unwrap();
    let inputs = [random(&[3, 7, 3], 1), ints(&[3], &[7, 2, 5])];
    let train = |threads: usize| {
        let step = TrainingStep::new(graph.clone()).optimizer(AdamW::new(1e-2)).clip_global_norm(1.0);
        let mut step = step.compile(&cpu(threads)).unwrap();
        let mut state = step.init(7).unwrap();
        let losses: Vec<f64> =
            (0..4).map(|_| step.run(&mut state, &inputs).unwrap().loss().unwrap()).collect();
        (losses, snapshot(&state))
    };
    let (one, two) = (train(1), train(2));
    assert!(one == two);
    assert!(one.0[3] < one.0[0], "{:?}", one.0);
}
