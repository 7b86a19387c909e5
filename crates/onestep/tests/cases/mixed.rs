//! Mixed precision, loss scaling, micro-batches and averages on the compiled program.

use crate::common::*;
use onestep::io::safetensors;
use onestep::ir::interp;
use onestep::nn::Cnn;
use onestep::prelude::*;
use onestep::{Average, LossScale, Options, Precision, Warmup};
use std::collections::BTreeMap;
use std::sync::Arc;

const LOW: [(Precision, DType); 2] = [(Precision::Bf16, BF16), (Precision::F16, F16)];

/// The losses of `n` steps and the state after them.
fn train(step: TrainingStep, n: u64, batches: impl Fn(u64) -> [Array; 2]) -> (Vec<f64>, State, CompiledStep) {
    let mut step = step.compile(&cpu(2)).unwrap();
    let mut state = step.init(3).unwrap();
    let losses = (0..n).map(|i| step.run(&mut state, batches(i)).unwrap().loss().unwrap()).collect();
    (losses, state, step)
}

fn adam(graph: Graph, precision: Precision) -> TrainingStep {
    TrainingStep::new(graph).optimizer(AdamW::new(1e-2)).precision(precision).clip_global_norm(1.0)
}

/// A low trajectory stays near that of `f32` and learns as much; what is resident is `f32`, what is multiplied is low.
#[test]
fn low_trajectories_stay_near_and_masters_stay_f32() {
    let same = |_| tokens(4, 7);
    let (want, _, _) = train(adam(language_model(4, 0.0), Precision::F32), 60, same);
    assert!(want[59] < 0.5 * want[0], "{want:?}");
    for (precision, low) in LOW {
        let (got, state, mut step) = train(adam(language_model(4, 0.0), precision), 60, same);
        assert_ne!(got, want, "{precision:?} is f32");
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            assert!((g - w).abs() < 0.03 * w + 0.02, "{precision:?}, step {i}: {g}, not {w}");
        }
        assert!(state.names().all(|n| state.get(n).unwrap().dtype() != low), "a resident tensor is {low}");
        let graph = step.program().interface();
        let products: Vec<_> =
            graph.nodes.iter().filter(|n| ["matmul", "attention"].contains(&n.op.rule().name())).collect();
        assert!(products.len() > 30);
        for product in products {
            assert_eq!(graph.ty(product.operands[0]).dtype, low, "{:?}", product.op);
        }
        let scaled = state.names().any(|n| n == "opt/loss_scale/scale");
        assert_eq!(scaled, precision == Precision::F16, "f16 scales the loss, bf16 need not");
    }
}

/// Products in 8 bits: near `bf16`, and everything but the layers' own products is as there.
#[test]
fn an_8_bit_trajectory_stays_near_that_of_bf16() {
    let same = |_| tokens(4, 7);
    let (want, _, _) = train(adam(language_model(4, 0.0), Precision::Bf16), 60, same);
    let (got, state, mut step) = train(adam(language_model(4, 0.0), Precision::F8), 60, same);
    assert_ne!(got, want, "the products are in bf16");
    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
        assert!((g - w).abs() < 0.06 * w + 0.04, "step {i}: {g}, not {w}");
    }
    assert!(state.names().all(|n| state.get(n).unwrap().dtype() != BF16), "masters are f32");
    let graph = step.program().interface();
    let count = |of: &dyn Fn(DType, DType) -> bool| {
        let products = graph.nodes.iter().filter(|n| n.op.rule().name() == "matmul");
        products.filter(|n| of(graph.ty(n.operands[0]).dtype, graph.ty(n.operands[1]).dtype)).count()
    };
    // Six products of weights in each of two layers, each with two gradients; the logits' three stay.
    assert_eq!(count(&|a, b| a == F8E4M3 && b == F8E4M3), 12);
    assert_eq!(count(&|a, _| a == F8E5M2), 24);
    assert_eq!(count(&|a, b| a == BF16 && b == BF16), 3);
}

fn images() -> Graph {
    let g = GraphBuilder::new("cnn");
    let (x, y) = (g.input("x", F32, [2, 1, 8, 8]), g.input("y", I32, [2]));
    let logits = Cnn { channels: [3, 4], hidden: 6, classes: 3 }.build(&g, x);
    g.finish(logits.cross_entropy(y)).unwrap()
}

/// The compiled step and the interpreter on the same graph: both round at each op, so that they differ where a sum in `f32`
/// falls on the other side of a rounding to 16 bits.
#[test]
fn a_low_step_is_what_the_interpreter_computes() {
    let networks: [(Graph, [Array; 2]); 3] = [
        (language_model(2, 0.1), tokens(2, 5)),
        (onestep::ir::bind(&classifier(6), &BTreeMap::from([("B".into(), 6)])).unwrap(), rows(6, 5)),
        (images(), [random(&[2, 1, 8, 8], 1), random_ints(&[2], 3, 2)]),
    ];
    for ((network, feeds), (precision, low)) in networks.iter().flat_map(|n| LOW.map(|l| (n, l))) {
        let step = TrainingStep::new(network.clone()).optimizer(Sgd::new(0.1)).precision(precision);
        let mut step = step.compile(&cpu(2)).unwrap();
        let mut state = step.init(9).unwrap();
        let graph = step.program().interface().clone();
        let mut reference: BTreeMap<Arc<str>, Array> =
            state.names().map(|n| (n.into(), state.get(n).unwrap())).collect();
        let want = interp::run_arrays(&graph, feeds, &mut reference).unwrap();
        let loss = step.run(&mut state, feeds).unwrap().loss().unwrap();
        let epsilon = onestep::ir::testing::epsilon(low);
        let want = want[0].to_f64()[0];
        assert!((loss - want).abs() < 0.5 * epsilon * want, "{}: {loss}, not {want}", network.name);
        for (path, want) in &reference {
            let (got, want) = (values(&state, path), want.to_f64());
            let scale = want.iter().fold(1e-2f64, |m, x| m.max(x.abs()));
            for (g, w) in got.iter().zip(&want) {
                assert!((g - w).abs() <= epsilon * scale, "{} {low} {path}: {g}, not {w}", network.name);
            }
        }
    }
}

fn everything() -> CompiledStep {
    let step = TrainingStep::new(language_model(2, 0.2)).optimizer(AdamW::new(1e-2).weight_decay(0.1));
    let scale = LossScale::dynamic(1024.0).growth(2.0, 2);
    let average = Average::ema(0.9).warmup(Warmup::Corrected);
    let step = step.precision(Precision::F16).loss_scale(scale).accumulate(3).average(average);
    step.clip_global_norm(1.0).compile(&cpu(2)).unwrap()
}

/// Saved between two calls of one step, with sums, scale, averages and random counters under way.
#[test]
fn a_run_stopped_between_micro_batches_has_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    let mut step = everything();
    let mut straight = step.init(11).unwrap();
    let go = |step: &mut CompiledStep, state: &mut State, calls: std::ops::Range<u64>| {
        calls.for_each(|n| assert!(step.run(state, tokens(2, n)).unwrap().loss().unwrap().is_finite()));
    };
    go(&mut step, &mut straight, 0..7);
    straight.save(&path).unwrap();
    assert_eq!(values(&straight, "opt/accumulate/count"), [1.0]);
    go(&mut step, &mut straight, 7..14);
    let (_, mut again) = (safetensors::load(&path).unwrap(), everything());
    let mut resumed = State::new();
    resumed.load(&path).unwrap();
    assert_eq!(again.missing(&resumed), [""; 0]);
    go(&mut again, &mut resumed, 7..14);
    let (resumed, straight) = (snapshot(&resumed), snapshot(&straight));
    assert_eq!(resumed.keys().collect::<Vec<_>>(), straight.keys().collect::<Vec<_>>());
    for (name, bytes) in &straight {
        assert!(resumed[name] == *bytes, "{name} differs");
    }
    assert_eq!(straight["opt/step"], 4i32.to_le_bytes());
    assert_eq!(straight["opt/loss_scale/scale"], 4096f32.to_le_bytes(), "it grew twice in four steps");
    assert_eq!(straight["rng/counter"], 14u32.to_le_bytes());
}

/// Weights in 8 bits with a scale: kept so, saved so, and cast where they are multiplied.
#[test]
fn weights_are_stored_in_8_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    for dtype in [F8E4M3, F8E5M2] {
        let g = GraphBuilder::new("stored");
        let x = g.input("x", F32, [3, 8]);
        let w = g.state("w", Role::Buffer, dtype, &[5, 8], Init::Uniform { low: -400.0, high: 400.0 });
        let scale = g.state("scale", Role::Buffer, F32, &[5], Init::Constant(1.0 / 512.0));
        g.output("y", x.matmul_t(w.cast(F32), false, true) * scale);
        g.output("rows", w.gather(0, g.constant(ints(&[2], &[4, 1]))));
        let graph = g.build().unwrap();
        let mut program = compile(&graph, &cpu(2)).unwrap();
        program.init(1).unwrap().save(&path).unwrap();
        let mut state = State::new();
        state.load(&path).unwrap();
        assert_eq!((state.get("w").unwrap().dtype(), state.get("w").unwrap().bytes().len()), (dtype, 40));
        let mut reference = state.names().map(|n| (n.into(), state.get(n).unwrap())).collect();
        let feed = random(&[3, 8], 2);
        let want = interp::run_arrays(&graph, std::slice::from_ref(&feed), &mut reference).unwrap();
        let out = program.run(&mut state, [feed]).unwrap();
        assert_close(&out.array("y").unwrap().to_f64(), &want[0].to_f64(), 1e-5);
        assert_eq!(out.array("rows").unwrap().bytes(), want[1].bytes());
    }
}

fn narrow(dropout: f64, threads: usize) -> CompiledStep {
    let step = adam(language_model(4, dropout), Precision::Bf16);
    let step = step.parameters_in(Storage::Bf16).slots_in(Storage::Bf16);
    step.compile(&cpu(threads)).unwrap()
}

/// Without `f32` masters, and with moments of 8 bits, a model learns nearly as it does with them, in half the memory.
#[test]
fn parameters_and_slots_of_bf16_learn() {
    let same = |_| tokens(4, 7);
    let (want, wide, mut step) = train(adam(language_model(4, 0.0), Precision::Bf16), 60, same);
    let masters = step.report().unwrap().memory.state;
    step = narrow(0.0, 2);
    let mut state = step.init(3).unwrap();
    let mut losses = vec![];
    for n in 0..60 {
        losses.push(step.run(&mut state, same(n)).unwrap().loss().unwrap());
    }
    for (i, (got, want)) in losses.iter().zip(&want).enumerate() {
        assert!((got - want).abs() < 0.1 * want + 0.05, "step {i}: {got}, not {want}");
    }
    for name in state.names() {
        let dtype = state.get(name).unwrap().dtype();
        let scalar = state.get(name).unwrap().shape().is_empty();
        assert_eq!(dtype == BF16, !scalar && dtype.is_float(), "{name} is {dtype}");
        assert!(dtype != BF16 || wide.get(name).unwrap().dtype() == F32, "{name}");
    }
    let halved = step.report().unwrap().memory.state as f64 / masters as f64;
    assert!((halved - 0.5).abs() < 0.02, "{halved} of the bytes of state");
}

/// Stopped and taken up again, and on another number of threads.
#[test]
fn rounding_by_chance_has_the_same_bits_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    let go = |step: &mut CompiledStep, state: &mut State, calls: std::ops::Range<u64>| {
        calls.for_each(|n| assert!(step.run(state, tokens(4, n)).unwrap().loss().unwrap().is_finite()));
    };
    let mut step = narrow(0.1, 2);
    let mut straight = step.init(11).unwrap();
    go(&mut step, &mut straight, 0..3);
    straight.save(&path).unwrap();
    go(&mut step, &mut straight, 3..6);
    let (mut again, mut resumed) = (narrow(0.1, 1), State::new());
    resumed.load(&path).unwrap();
    assert_eq!(again.missing(&resumed), [""; 0]);
    go(&mut again, &mut resumed, 3..6);
    let (resumed, straight) = (snapshot(&resumed), snapshot(&straight));
    for (name, bytes) in &straight {
        assert!(resumed[name] == *bytes, "{name} differs");
    }
}

/// Each member of a population rounds by its own seed, as it would alone.
#[test]
fn members_round_as_they_would_alone() {
    let step = || {
        let step = TrainingStep::new(classifier(6)).optimizer(AdamW::new(1e-2));
        step.parameters_in(Storage::Bf16).slots_in(Storage::Bf16)
    };
    let mut population = step().population(2).compile(&cpu(2)).unwrap();
    let mut together = population.init([5, 6]).unwrap();
    for n in 0..3 {
        population.run(&mut together, rows(6, n)).unwrap();
    }
    for (member, seed) in [5, 6].into_iter().enumerate() {
        let mut alone = step().compile(&cpu(1)).unwrap();
        let mut state = alone.init(seed).unwrap();
        for n in 0..3 {
            alone.run(&mut state, rows(6, n)).unwrap();
        }
        assert!(snapshot(&population.member(&together, member).unwrap()) == snapshot(&state), "seed {seed}");
    }
}

/// A graph whose loss is the mean over `n` tokens of `w·x`.
fn by_tokens(step: impl Fn(TrainingStep) -> TrainingStep) -> CompiledStep {
    let g = GraphBuilder::new("tokens");
    let (x, n) = (g.input("x", F32, [1]), g.input("n", I32, ()));
    let w = g.parameter("w", &[1], Init::ONES);
    let (large, count) = ((w * x).square().sum_all(), n * 2.0);
    let graph = g.finish((w * x).sum_all()).unwrap();
    let training = TrainingStep::new(graph).optimizer(Sgd::new(1.0)).weighted_by(n);
    step(training.metric_sum("count", count).metric("large", large)).compile(&cpu(1)).unwrap()
}

#[test]
fn micro_batches_weigh_what_they_hold() {
    let number = |x: f32| floats(&[1], &[x]);
    let mut calls = by_tokens(|s| s.accumulate(2));
    let mut state = calls.init(0).unwrap();
    calls.run(&mut state, [number(4.0), ints(&[], &[1])]).unwrap();
    let out = calls.run(&mut state, [number(0.0), ints(&[], &[3])]).unwrap();
    let of = |out: &Outputs<'_>| ["loss", "weight", "count", "large"].map(|n| out.scalar(n).unwrap());
    assert_eq!(of(&out), [1.0, 4.0, 8.0, 4.0]);
    assert_eq!(values(&state, "w"), [0.0]);

    let mut within = by_tokens(|s| s.micro_batches(2));
    let mut state = within.init(0).unwrap();
    let out = within.run(&mut state, [floats(&[2, 1], &[4.0, 0.0]), ints(&[2], &[1, 3])]).unwrap();
    assert_eq!(of(&out), [1.0, 4.0, 8.0, 4.0]);
    assert_eq!(values(&state, "w"), [0.0]);

    // Two calls of two micro-batches make the one step too.
    let mut both = by_tokens(|s| s.micro_batches(2).accumulate(2));
    let mut state = both.init(0).unwrap();
    both.run(&mut state, [floats(&[2, 1], &[4.0, 8.0]), ints(&[2], &[1, 1])]).unwrap();
    let out = both.run(&mut state, [floats(&[2, 1], &[0.0, 2.0]), ints(&[2], &[4, 2])]).unwrap();
    assert_eq!(of(&out), [2.0, 8.0, 16.0, (16.0 + 64.0 + 2.0 * 4.0) / 8.0]);
    assert_eq!((values(&state, "w"), values(&state, "opt/step")), (vec![-1.0], vec![1.0]));
}

/// A language model in one batch of four, in four calls, and in one call of four micro-batches.
#[test]
fn micro_batches_learn_as_the_one_batch() {
    let parts: Vec<[Array; 2]> = (0..4).map(|i| tokens(1, i)).collect();
    let stacked = |shape: &[usize]| {
        [0, 1].map(|i| {
            let all = parts.iter().flat_map(|p| p[i].as_slice::<i32>().unwrap().to_vec());
            ints(shape, &all.collect::<Vec<_>>())
        })
    };
    let whole = stacked(&[4, TINY.context]);
    let rule = || Adam::new(1e-2).eps(1e-3);
    let run = |step: TrainingStep, feeds: &[[Array; 2]]| {
        let mut step = step.optimizer(rule()).clip_global_norm(0.5).compile(&cpu(2)).unwrap();
        let mut state = step.init(1).unwrap();
        let mut loss = 0.0;
        for _ in 0..5 {
            feeds.iter().for_each(|f| loss = step.run(&mut state, f).unwrap().loss().unwrap());
        }
        (loss, state)
    };
    let (want, one) = run(TrainingStep::new(language_model(4, 0.0)), &[whole]);
    let (calls, several) = run(TrainingStep::new(language_model(1, 0.0)).accumulate(4), &parts);
    let within = TrainingStep::new(language_model(1, 0.0)).micro_batches(4);
    let (inside, once) = run(within, &[stacked(&[4, 1, TINY.context])]);
    assert_close(&[calls, inside], &[want, want], 1e-5);
    for path in one.names().filter(|n| !n.starts_with("opt/")) {
        assert_close(&values(&several, path), &values(&one, path), 1e-5);
        assert_close(&values(&once, path), &values(&one, path), 1e-5);
    }
    assert_eq!(values(&several, "opt/step"), [5.0]);
}

/// Random counters go on from one micro-batch to the next in either form, so that both drop the same elements.
#[test]
fn micro_batches_draw_the_same_numbers_in_either_form() {
    let training = || TrainingStep::new(language_model(1, 0.3)).optimizer(Sgd::new(0.1));
    let mut calls = training().accumulate(3).compile(&cpu(2)).unwrap();
    let mut within = training().micro_batches(3).compile(&cpu(2)).unwrap();
    let (mut a, mut b) = (calls.init(4).unwrap(), within.init(4).unwrap());
    let parts: Vec<[Array; 2]> = (0..3).map(|i| tokens(1, i)).collect();
    let whole = [0, 1].map(|i| {
        let all = parts.iter().flat_map(|p| p[i].as_slice::<i32>().unwrap().to_vec());
        ints(&[3, 1, TINY.context], &all.collect::<Vec<_>>())
    });
    let losses: Vec<f64> = parts.iter().map(|p| calls.run(&mut a, p).unwrap().loss().unwrap()).collect();
    let loss = within.run(&mut b, &whole).unwrap().loss().unwrap();
    assert_close(&[losses[2]], &[loss], 1e-5);
    for path in b.names() {
        assert_close(&values(&a, path), &values(&b, path), 1e-5);
    }
    assert_eq!(values(&b, "rng/counter"), [3.0]);
}

#[test]
fn micro_batches_of_any_size() {
    let step = TrainingStep::new(classifier(8)).optimizer(Sgd::new(0.1)).micro_batches(2);
    let mut step = step.compile(&cpu(2)).unwrap();
    let mut state = step.init(0).unwrap();
    for n in [5, 3, 5] {
        let feeds = [random(&[2, n, 12], n as u64), random_ints(&[2, n], 3, n as u64)];
        let mut plain = TrainingStep::new(classifier(16)).optimizer(Sgd::new(0.1)).compile(&cpu(2)).unwrap();
        let mut other = state.try_clone().unwrap();
        let flat = floats(&[2 * n, 12], feeds[0].as_slice::<f32>().unwrap());
        let labels = ints(&[2 * n], feeds[1].as_slice::<i32>().unwrap());
        let want = plain.run(&mut other, [flat, labels]).unwrap();
        let want = [want.loss().unwrap(), want.scalar("accuracy").unwrap()];
        let got = step.run(&mut state, &feeds).unwrap();
        assert_close(&[got.loss().unwrap(), got.scalar("accuracy").unwrap()], &want, 1e-5);
        for path in other.names() {
            assert_close(&values(&state, path), &values(&other, path), 1e-5);
        }
    }
    assert_eq!(step.compilations().len(), 2);
}

/// A bad index is an error that names it, and the call adds nothing to the sums.
#[test]
fn a_bad_index_leaves_the_sums_alone() {
    let step = TrainingStep::new(language_model(1, 0.2)).optimizer(Adam::new(0.01)).accumulate(2).ema(0.9);
    let mut step = step.compile(&cpu(2)).unwrap();
    let mut state = step.init(0).unwrap();
    step.run(&mut state, tokens(1, 0)).unwrap();
    let before = guarded(&state);
    let mut bad = tokens(1, 1);
    bad[0] = ints(&[1, TINY.context], &[TINY.vocab as i32; 8]);
    let refused = step.run(&mut state, bad).unwrap_err().to_string();
    assert!(refused.contains("index"), "{refused}");
    assert!(guarded(&state) == before, "a refused call moved something");
    step.run(&mut state, tokens(1, 1)).unwrap();
    let mut straight = step.init(0).unwrap();
    for n in 0..2 {
        step.run(&mut straight, tokens(1, n)).unwrap();
    }
    assert!(guarded(&state) == guarded(&straight), "a refused call left a trace");
    assert_eq!(values(&state, "opt/step"), [1.0]);
}

#[test]
fn an_evaluation_reads_the_averages_on_the_same_state() {
    let graph = language_model(2, 0.0);
    let (_, mut state, step) = train(adam(graph.clone(), Precision::F32).ema(0.5), 6, |n| tokens(2, n));
    let mut evaluate = compile(&step.averaged(&graph).unwrap(), &cpu(2)).unwrap();
    let got = evaluate.run(&mut state, tokens(2, 50)).unwrap().loss().unwrap();
    // The same by hand: a state whose parameters are the averages.
    let mut by_hand = state.try_clone().unwrap();
    for s in &graph.states {
        by_hand.set(&s.name, &state.get(&format!("ema/{}", s.name)).unwrap());
    }
    let mut plain = compile(&graph, &cpu(2)).unwrap();
    assert_eq!(plain.run(&mut by_hand, tokens(2, 50)).unwrap().loss().unwrap(), got);
    assert_ne!(plain.run(&mut state, tokens(2, 50)).unwrap().loss().unwrap(), got);
    assert_eq!(step.compilations().len(), 1);

    let without = adam(graph.clone(), Precision::F32).compile(&cpu(1)).unwrap();
    let refused = without.averaged(&graph).unwrap_err().to_string();
    assert!(refused.contains(".ema("), "{refused}");
}

/// Loss scaling changes no bit of a step in `f32`: a power of two scales exactly. Fused and unfused agree to the bit too.
#[test]
fn a_power_of_two_scales_exactly() {
    let after = |scale: Option<f64>, fuse| {
        let mut step =
            adam(language_model(2, 0.1), Precision::F32).options(Options { fuse, ..Options::default() });
        if let Some(scale) = scale {
            step = step.loss_scale(LossScale::dynamic(scale));
        }
        let mut state = snapshot(&train(step, 3, |n| tokens(2, n)).1);
        state.retain(|name, _| !name.contains("loss_scale"));
        state
    };
    let want = after(None, true);
    assert_eq!(after(Some(4096.0), true), want);
    assert_eq!(after(Some(4096.0), false), want);
}
