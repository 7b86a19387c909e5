//! Checkpoints: the same numbers, bit for bit, in less memory.

use onestep::autodiff::{activations_again, segmented};
use onestep::ir::testing::{RandomOptions, Rng, random_graph, random_inputs, random_state};
use onestep::optim::{Params, StepOptions, UnusedParameter, training_step};
use onestep::prelude::*;
use onestep::{Executable, Options, Recompute, Remedy};

const LAYERS: usize = 12;
const BATCH: usize = 256;

fn maybe<R>(g: &GraphBuilder, marked: bool, name: &str, part: impl FnOnce() -> R) -> R {
    if marked { g.checkpoint(name, part) } else { part() }
}

/// A stack of blocks with dropout, which draws the same masks when it is computed again.
fn stack(checkpoints: bool) -> Graph {
    let g = GraphBuilder::new("stack");
    let mut x = g.input("x", F32, [BATCH, 64]);
    let y = g.input("y", F32, [BATCH, 64]);
    for i in 0..LAYERS {
        let name = format!("block.{i}");
        x = maybe(&g, checkpoints, &name, || {
            let h = nn::linear(&g, &format!("{name}.up"), x, 128).gelu();
            let h = nn::dropout(&g, &format!("{name}.dropout"), h, 0.2);
            x + nn::linear(&g, &format!("{name}.down"), h, 64)
        });
    }
    g.finish((x - y).square().mean_all()).unwrap()
}

fn batch() -> [Array; 2] {
    let mut random = Rng::new(3);
    [(); 2].map(|_| {
        let numbers: Vec<f32> = (0..BATCH * 64).map(|_| random.real(-1.0, 1.0) as f32).collect();
        Array::new(&[BATCH, 64], &numbers).unwrap()
    })
}

/// Every state tensor and the loss of each of three steps.
fn train(step: TrainingStep) -> (Vec<f32>, Vec<Array>, usize) {
    let mut step =
        step.optimizer(AdamW::new(1e-2)).clip_global_norm(1.0).compile(&Device::cpu().unwrap()).unwrap();
    let mut state = step.init(7).unwrap();
    let [x, y] = batch();
    let losses = (0..3).map(|_| step.run(&mut state, [&x, &y]).unwrap().loss().unwrap() as f32).collect();
    let names: Vec<String> = state.names().map(str::to_string).collect();
    let tensors = names.iter().map(|n| state.get(n).unwrap()).collect();
    (losses, tensors, step.report().unwrap().memory.peak())
}

#[test]
fn a_checkpoint_changes_memory_and_no_bit() {
    let (losses, tensors, peak) = train(TrainingStep::new(stack(false)));
    let (losses_again, tensors_again, less) = train(TrainingStep::new(stack(true)));
    assert_eq!(losses, losses_again);
    assert!(tensors == tensors_again);
    // Of a block, two values of [BATCH, 128] and the mask are not kept; its input is.
    let saved = (LAYERS - 2) * 2 * BATCH * 128 * 4;
    assert!(less + saved <= peak, "{less} + {saved} > {peak}");
}

#[test]
fn a_step_is_made_to_fit() {
    let (losses, tensors, peak) = train(TrainingStep::new(stack(false)));
    let state: usize = tensors.iter().map(|t| t.bytes().len()).sum();
    for share in [0.9, 0.7] {
        let budget = state + ((peak - state) as f64 * share) as usize;
        let (losses_again, tensors_again, took) =
            train(TrainingStep::new(stack(false)).recompute(Recompute::FitIn(budget)));
        assert!(took <= budget, "{took} of {budget}");
        assert_eq!(losses, losses_again);
        assert!(tensors == tensors_again);
    }
    // What fits is left as it is.
    let (_, _, same) = train(TrainingStep::new(stack(false)).recompute(Recompute::FitIn(peak)));
    assert_eq!(same, peak);
}

/// Activations are computed again before any product is.
#[test]
fn a_step_that_nearly_fits_computes_no_product_twice() {
    let compiled = |recompute| {
        let step = TrainingStep::new(stack(false)).optimizer(Sgd::new(0.1)).recompute(recompute);
        let step = step.compile(&Device::cpu().unwrap()).unwrap();
        let report = step.report().unwrap();
        let products = report.kernels.iter().filter(|k| k.kind == "matmul").count();
        (report.memory.peak(), products)
    };
    let (peak, products) = compiled(Recompute::Marked);
    let activation = BATCH * 128 * 4;
    let (less, the_same) = compiled(Recompute::FitIn(peak - (LAYERS - 2) * activation));
    assert!(less <= peak - (LAYERS - 2) * activation);
    assert_eq!(the_same, products);
    let (_, more) = compiled(Recompute::FitIn(peak * 6 / 10));
    assert!(more > products, "{more} {products}");
}

#[test]
fn what_cannot_fit_says_how_much_it_needs() {
    let step = TrainingStep::new(stack(false)).optimizer(Sgd::new(0.1)).recompute(Recompute::FitIn(100_000));
    let error = step.compile(&Device::cpu().unwrap()).unwrap_err();
    let Error::DoesNotFit { bytes: 100_000, least, without } = error else { panic!("{error}") };
    assert!(least < without && least > 100_000, "{least} {without}");
}

/// A device that has too little for the step refuses it, and names the budget that would do.
#[test]
fn short_memory_names_its_remedy() {
    let device = Device::cpu_with(1).unwrap();
    let compile =
        |step: TrainingStep, device: &Device| step.optimizer(Sgd::new(0.1)).compile(device).unwrap();
    let peak = compile(TrainingStep::new(stack(false)), &device).report().unwrap().memory.peak();
    let refused = |limit: usize| {
        let mut step = compile(TrainingStep::new(stack(false)), &device.clone().limited(limit));
        let mut state = step.init(7).unwrap();
        let [x, y] = batch();
        step.run(&mut state, [&x, &y]).map(|_| ()).unwrap_err()
    };
    let limit = peak * 3 / 4;
    let error = refused(limit);
    assert!(
        error.to_string().contains(&format!("`.recompute(Recompute::FitIn({limit}))` would bring it to")),
        "{error}"
    );
    let Error::OutOfMemory { needed, free, remedy: Remedy::Recompute { budget, peak: less }, .. } = error
    else {
        panic!("{error}")
    };
    assert_eq!((needed, free, budget), (peak, limit, limit));
    let smaller = TrainingStep::new(stack(false)).recompute(Recompute::FitIn(budget));
    let mut smaller = compile(smaller, &device.clone().limited(limit));
    assert_eq!(smaller.report().unwrap().memory.peak(), less);
    let mut state = smaller.init(7).unwrap();
    let [x, y] = batch();
    assert!(smaller.run(&mut state, [&x, &y]).unwrap().loss().unwrap().is_finite());
    // Where nothing helps, that is said.
    let error = refused(100_000);
    assert!(
        matches!(error, Error::OutOfMemory { remedy: Remedy::NotEnough { least }, .. } if least < peak),
        "{error}"
    );
}

#[test]
fn checkpoints_nest_and_what_leaves_them_is_kept() {
    let graph = |marked: bool| {
        let g = GraphBuilder::new("nested");
        let x = g.input("x", F32, [4, 8]);
        let mean = g.state("mean", Role::Buffer, F32, &[8], Init::ZEROS);
        let (out, inner) = maybe(&g, marked, "outer", || {
            let h = maybe(&g, marked, "one", || nn::linear(&g, "one", x, 8).tanh());
            // A running statistic is written from inside.
            g.update(mean, mean * 0.9 + h.mean_over(&[0]) * 0.1, true);
            (maybe(&g, marked, "two", || nn::linear(&g, "two", h * 2.0, 8).tanh()), h)
        });
        g.output("inner", inner.sum_all());
        g.finish(out.square().sum_all()).unwrap()
    };
    let run = |graph: Graph| {
        let mut step =
            TrainingStep::new(graph).optimizer(Sgd::new(0.1)).compile(&Device::cpu().unwrap()).unwrap();
        let mut state = step.init(1).unwrap();
        let x = Array::new(&[4, 8], &(0..32).map(|i| i as f32 / 32.0).collect::<Vec<_>>()).unwrap();
        let values = (0..3).map(|_| {
            let out = step.run(&mut state, [&x]).unwrap();
            (out.loss().unwrap(), out.scalar("inner").unwrap())
        });
        (values.collect::<Vec<_>>(), state.get("mean").unwrap(), state.get("one.weight").unwrap())
    };
    assert_eq!(run(graph(true)), run(graph(false)));
}

#[test]
fn a_metric_that_stays_inside_a_checkpoint_is_refused() {
    let g = GraphBuilder::new("inside");
    let x = g.input("x", F32, [4]);
    let w = g.parameter("w", &[4], Init::ONES);
    let mut inner = None;
    let loss = g.checkpoint("part", || {
        let h = (x * w).exp();
        inner = Some(h.sum_all());
        h.square().sum_all()
    });
    let graph = g.finish(loss).unwrap();
    let step = TrainingStep::new(graph).metric("inner", inner.unwrap()).optimizer(Sgd::new(0.1));
    let error = step.compile(&Device::cpu().unwrap()).unwrap_err().to_string();
    assert!(
        error.contains("'inner' is not a value") || error.contains("stays inside a checkpoint"),
        "{error}"
    );
}

#[test]
fn inference_pays_nothing_for_checkpoints() {
    let device = Device::cpu().unwrap();
    let kernels = |graph: Graph| {
        Executable::compile(&graph, &device, &Options::default()).unwrap().report().kernels.len()
    };
    assert_eq!(kernels(stack(true)), kernels(stack(false)));
}

fn bits(a: &Array) -> Vec<u64> {
    a.to_f64().into_iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits() }).collect()
}

fn random_forward(seed: u64) -> Graph {
    let mut forward = random_graph(seed, RandomOptions { steps: 16, ..RandomOptions::default() });
    // The graph's own updates would be of the states that are trained.
    forward.updates.clear();
    forward.guard = None;
    forward
}

/// Every loss, output and state of two calls of the training step of a random graph.
fn random_step(seed: u64, forward: Graph) -> Option<Vec<Vec<u64>>> {
    let params: Vec<String> = forward.states.iter().map(|s| s.name.to_string()).collect();
    let options = StepOptions { unused: UnusedParameter::Zero, ..StepOptions::default() };
    let rule = AdamW::new(0.01);
    let graph = training_step(&forward, "loss", Params::Paths(params), &rule, &options).ok()?.graph;
    let executable = Executable::compile(&graph, &Device::cpu().unwrap(), &Options::default()).unwrap();
    let mut state = State::new();
    random_state(&graph, seed).iter().for_each(|(name, a)| state.set(name, a));
    let mut bound = executable.bind(&state).unwrap();
    let inputs = random_inputs(&graph, seed);
    let mut all = vec![];
    for _ in 0..2 {
        let out = bound.run(&mut state, &inputs[..]).unwrap();
        all.extend(graph.outputs.iter().map(|o| bits(&out.array(&o.name).unwrap())));
        all.extend(graph.states.iter().map(|s| bits(&state.get(&s.name).unwrap())));
    }
    Some(all)
}

#[test]
fn random_steps_are_the_same_however_they_are_cut() {
    let mut steps = 0;
    for seed in 0..60 {
        let forward = random_forward(seed);
        let Some(whole) = random_step(seed, forward.clone()) else { continue };
        for segments in [2, 5] {
            let cut = segmented(&forward, segments, segments);
            assert!(random_step(seed, cut).unwrap() == whole, "seed {seed}, {segments} segments");
        }
        steps += 1;
    }
    assert!(steps > 45, "only {steps} steps");
}

#[test]
fn random_steps_are_the_same_with_activations_again() {
    let mut activations = 0;
    for seed in 0..300 {
        let forward = random_forward(seed);
        let (again, found) = activations_again(&forward, usize::MAX);
        if found == 0 {
            continue;
        }
        let Some(whole) = random_step(seed, forward) else { continue };
        assert!(random_step(seed, again).unwrap() == whole, "seed {seed}");
        activations += found;
    }
    assert!(activations > 30, "only {activations} activations");
}
