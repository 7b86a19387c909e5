//! A population's members go as they would alone: by their own seeds, learning rates, random numbers and guards.

use crate::common::*;
use onestep::nn::Cnn;
use onestep::prelude::*;
use onestep::{CompiledPopulation, Error};

/// A training step with everything that has state: clipping, a schedule, AdamW's slots.
fn step(graph: Graph) -> TrainingStep {
    TrainingStep::new(graph)
        .optimizer(AdamW::new(1e-2).weight_decay(0.1))
        .clip_global_norm(1.0)
        .schedule(Schedule::WarmupCosine { warmup: 2, total: 10, floor: 0.1 })
}

const SEEDS: [u64; 3] = [3, 11, 4];
const RATES: [f64; 3] = [1e-2, 3e-3, 5e-2];

fn population(graph: Graph) -> (CompiledPopulation, State) {
    let population = step(graph).population(SEEDS.len()).compile(&cpu(2)).unwrap();
    let mut state = population.init(SEEDS).unwrap();
    population.set(&mut state, "opt/lr", &RATES).unwrap();
    (population, state)
}

/// Asserts that losses and state of every member are those of a run alone, to within a tolerance (0: bit for bit).
fn as_alone(graph: Graph, batches: &[[Array; 2]], tolerance: f64) {
    let (mut population, mut state) = population(graph.clone());
    let mut single = step(graph).compile(&cpu(2)).unwrap();
    let mut alone: Vec<State> = SEEDS.iter().map(|&seed| single.init(seed).unwrap()).collect();
    alone.iter_mut().zip(RATES).for_each(|(s, lr)| s.set_scalar("opt/lr", lr).unwrap());
    for (k, s) in alone.iter().enumerate() {
        assert_eq!(snapshot(&population.member(&state, k).unwrap()), snapshot(s), "before the first step");
    }
    for batch in batches {
        let losses = population.run(&mut state, batch).unwrap().array("loss").unwrap().to_f64();
        for (k, s) in alone.iter_mut().enumerate() {
            let loss = single.run(s, batch).unwrap().loss().unwrap();
            assert_close(&[losses[k]], &[loss], tolerance);
        }
    }
    let mut moved = 0;
    for (k, s) in alone.iter().enumerate() {
        let member = population.member(&state, k).unwrap();
        assert!(member.names().eq(s.names()));
        for name in s.names() {
            let (got, want) = (values(&member, name), values(s, name));
            let near = |(g, w): (&f64, &f64)| (g - w).abs() <= tolerance;
            assert!(got.iter().zip(&want).all(near), "member {k}, {name}:\n{got:?}\n{want:?}");
        }
        moved += (member.scalar("opt/step").unwrap() == batches.len() as f64) as usize;
    }
    assert_eq!(moved, SEEDS.len());
    // The members differ: else their comparison would show little.
    let own = |k| snapshot(&population.member(&state, k).unwrap());
    assert!(own(0) != own(1) && own(1) != own(2));
}

#[test]
fn classifiers() {
    let batches: Vec<_> = [8, 8, 5, 8].iter().zip(1..).map(|(&n, seed)| rows(n, seed)).collect();
    as_alone(classifier(8), &batches, 0.0);
}

/// A batch for each member, of sizes that vary from call to call.
#[test]
fn members_with_data_of_their_own() {
    let graph = classifier(8);
    let mut population = step(graph.clone()).population(2).own_inputs(["x", "y"]).compile(&cpu(2)).unwrap();
    let mut state = population.init([1, 1]).unwrap();
    let mut single = step(graph.clone()).compile(&cpu(2)).unwrap();
    let mut alone = [single.init(1).unwrap(), single.init(1).unwrap()];
    let both = |[a, b]: [&Array; 2]| {
        let shape = [&[2], a.shape()].concat();
        Array::from_bytes(a.dtype(), &shape, &[a.bytes(), b.bytes()].concat()).unwrap()
    };
    for (n, seed) in [(8, 1), (5, 3), (8, 5)] {
        let [[xa, ya], [xb, yb]] = [rows(n, seed), rows(n, seed + 1)];
        let fed = [both([&xa, &xb]), both([&ya, &yb])];
        population.run(&mut state, &fed).unwrap();
        single.run(&mut alone[0], [&xa, &ya]).unwrap();
        single.run(&mut alone[1], [&xb, &yb]).unwrap();
    }
    let members = [0, 1].map(|k| snapshot(&population.member(&state, k).unwrap()));
    assert_eq!(members, [snapshot(&alone[0]), snapshot(&alone[1])]);
    assert!(members[0] != members[1]);
    // One input of each member's own, and one for all.
    let mut mixed = step(graph).population(2).own_inputs(["x"]).compile(&cpu(2)).unwrap();
    let mut state = mixed.init([1, 1]).unwrap();
    let ([xa, y], [xb, _]) = (rows(4, 1), rows(4, 2));
    let losses = mixed.run(&mut state, [&both([&xa, &xb]), &y]).unwrap().array("loss").unwrap().to_f64();
    assert!(losses[0] != losses[1]);
    let wrong = step(classifier(8)).population(2).own_inputs(["xx"]).compile(&cpu(1)).map(drop);
    assert!(wrong.unwrap_err().to_string().contains("no input 'xx'"));
}

/// Attention, embeddings, norms, and dropout from each member's own key.
#[test]
fn language_models() {
    let batches: Vec<_> = (0..3).map(|seed| tokens(2, seed)).collect();
    as_alone(language_model(2, 0.1), &batches, 0.0);
}

/// More groups of channels than one convolution has.
#[test]
fn networks_of_convolutions() {
    let g = GraphBuilder::new("cnn");
    let (x, y) = (g.input("x", F32, [4, 1, 8, 8]), g.input("y", I32, [4]));
    let logits = Cnn { channels: [3, 4], hidden: 8, classes: 3 }.build(&g, x);
    let graph = g.finish(logits.cross_entropy(y)).unwrap();
    let batches: Vec<_> = (0..3).map(|s| [random(&[4, 1, 8, 8], s), random_ints(&[4], 3, s + 9)]).collect();
    as_alone(graph, &batches, 0.0);
}

/// One member whose gradient overflows skips its step; the others' goes on.
#[test]
fn each_member_has_its_own_guard() {
    let graph = classifier(8);
    let (mut population, mut state) = population(graph.clone());
    let path = "fc2.weight";
    let mut weights = state.get(path).unwrap().to_f64();
    let each = weights.len() / SEEDS.len();
    weights[each..2 * each].fill(f32::MAX as f64);
    state.set(path, &Array::from_f64(F32, state.get(path).unwrap().shape(), &weights).unwrap());
    let before: Vec<State> = (0..3).map(|k| population.member(&state, k).unwrap()).collect();
    let mut single = step(graph).compile(&cpu(2)).unwrap();
    for seed in 0..2 {
        population.run(&mut state, rows(8, seed)).unwrap();
    }
    for (k, mut alone) in before.into_iter().enumerate() {
        let (member, first) = (population.member(&state, k).unwrap(), guarded(&alone));
        for seed in 0..2 {
            single.run(&mut alone, rows(8, seed)).unwrap();
        }
        assert_eq!(snapshot(&member), snapshot(&alone), "member {k}");
        let skipped = if k == 1 { 2.0 } else { 0.0 };
        assert_eq!(member.scalar("opt/skipped").unwrap(), skipped, "member {k}");
        assert_eq!(guarded(&member) == first, k == 1, "member {k}");
    }
}

/// A label that is no class: an error, and no member has moved.
#[test]
fn a_bad_index_stops_every_member() {
    let (mut population, mut state) = population(classifier(8));
    let before = guarded(&state);
    let [x, _] = rows(8, 1);
    let wrong = ints(&[8], &[0, 1, 2, 3, 0, 1, 2, 0]);
    let error = population.run(&mut state, [&x, &wrong]).unwrap_err().to_string();
    assert!(error.contains("an index is out of range"), "{error}");
    assert_eq!(guarded(&state), before);
    assert_eq!(values(&state, "opt/skipped"), [1.0; 3]);
    population.run(&mut state, rows(8, 1)).unwrap();
    assert_eq!(values(&state, "opt/step"), [1.0; 3]);
}

/// The same for an index that is computed for each member, into what each has for itself.
#[test]
fn a_bad_index_of_one_member_stops_every_member() {
    let g = GraphBuilder::new("table");
    let table = g.parameter("table", &[4, 2], Init::ONES);
    let shift = g.state("shift", Role::Buffer, I32, &[], Init::ZEROS);
    let y = table.gather(0, g.input("i", I32, [3]) + shift);
    let graph = g.finish(y.square().sum_all()).unwrap();
    let mut population =
        TrainingStep::new(graph).optimizer(Sgd::new(0.1)).population(2).compile(&cpu(2)).unwrap();
    let mut state = population.init([0, 1]).unwrap();
    let indices = ints(&[3], &[0, 1, 2]);
    population.run(&mut state, [&indices]).unwrap();
    population.set(&mut state, "shift", &[0.0, 2.0]).unwrap();
    let before = guarded(&state);
    let error = population.run(&mut state, [&indices]).unwrap_err().to_string();
    assert!(error.contains("an index is out of range"), "{error}");
    assert_eq!(guarded(&state), before);
}

#[test]
fn a_member_goes_on_alone() {
    let graph = classifier(8);
    let (mut population, mut state) = population(graph.clone());
    population.run(&mut state, rows(8, 1)).unwrap();
    let mut second = population.member(&state, 1).unwrap();
    let mut single = step(graph.clone()).compile(&cpu(2)).unwrap();
    population.run(&mut state, rows(8, 2)).unwrap();
    single.run(&mut second, rows(8, 2)).unwrap();
    assert_eq!(snapshot(&second), snapshot(&population.member(&state, 1).unwrap()));
    compile(&graph, &cpu(2)).unwrap().run(&mut second, rows(8, 3)).unwrap();
}

/// Tensors of the whole population are bound like any other: the declared types have the axis.
#[test]
fn state_is_declared_with_the_axis() {
    let (mut population, mut state) = population(classifier(8));
    population.run(&mut state, rows(8, 1)).unwrap();
    let all = state.get("fc1.bias").unwrap();
    assert_eq!(all.shape(), [3, 16]);
    state.bind("fc1.bias", &all).unwrap();
    assert!(state.bind("fc1.bias", &floats(&[16], &[0.0; 16])).is_err());
    let entry = population.layout().iter().find(|e| e.name == "fc1.bias").unwrap();
    assert_eq!(entry.shape, [3, 16]);
    assert_eq!(population.layout()[0].shape, [3]);
}

#[test]
fn errors_say_what_to_do() {
    let (population, mut state) = population(classifier(8));
    let text = |e: Result<(), Error>| e.unwrap_err().to_string();
    assert!(
        text(population.init([1, 2]).map(drop)).contains("seeds: 2 for a population of 3; give one for each")
    );
    assert!(
        text(population.set(&mut state, "opt/lr", &[0.1])).contains("values of 'opt/lr': 1 for a population")
    );
    assert!(text(population.set(&mut state, "opt/rl", &[0.1; 3])).contains("did you mean 'opt/lr'?"));
    assert!(text(population.set(&mut state, "fc1.bias", &[0.1; 3])).contains("needs 48"));
    assert!(text(population.member(&state, 3).map(drop)).contains("no member 3 in a population of 3"));
    let empty = step(classifier(8)).population(0).compile(&cpu(1)).map(drop);
    assert!(text(empty).contains("0 members"));
    let g = GraphBuilder::new("cache");
    let w = g.parameter("w", &[1], Init::ONES);
    let cache = g.cache("cache", F32, [dim("T").at_most(4)]);
    let graph = g.finish((cache * w).sum_all()).unwrap();
    assert!(
        text(step(graph).population(2).compile(&cpu(1)).map(drop)).contains("'cache' has a variable size")
    );
}
