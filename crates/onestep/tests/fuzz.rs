//! Random graphs on the CPU: fused = unfused = without reuse = on one thread = on two, bit for bit, over several calls; and
//! the interpreter within a tolerance.

use onestep::ir::Dense;
use onestep::ir::interp::{self, Mode};
use onestep::ir::testing::{RandomOptions, difference, random_graph, random_inputs, random_state};
use onestep::optim::rules::RULES;
use onestep::optim::{Clip, Group, Params, StepOptions, UnusedParameter, training_step};
use onestep::passes::plan::PlanOptions;
use onestep::{Array, Device, Executable, Graph, Options, State};

fn bits(a: &Array) -> Vec<u64> {
    a.to_f64().into_iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits() }).collect()
}

#[test]
fn every_way_to_compile_gives_the_same_bits() {
    for seed in 0..300 {
        check(&random_graph(seed, RandomOptions::default()), seed, 1e-3);
    }
}

/// A training step of a random graph's loss: its gradients, clipped or not, and an update rule.
fn step(seed: u64) -> Option<Graph> {
    let options = RandomOptions { steps: 16, integers: seed.is_multiple_of(2), ..RandomOptions::default() };
    let mut graph = random_graph(seed, options);
    // The graph's own updates would be of the states that are trained.
    graph.updates.clear();
    graph.guard = None;
    let params: Vec<String> = graph.states.iter().map(|s| s.name.to_string()).collect();
    let rule = (RULES[seed as usize % RULES.len()].with_lr)(0.01);
    let groups = match params.split_first() {
        Some((first, [_, ..])) if seed.is_multiple_of(7) => vec![Group::new("first", [first]).lr_scale(0.5)],
        _ => vec![],
    };
    let options = StepOptions {
        clip: (seed % 5 < 3).then_some(Clip::GlobalNorm(1.0)),
        unused: UnusedParameter::Zero,
        groups,
        ..StepOptions::default()
    };
    training_step(&graph, "loss", Params::Paths(params), &*rule, &options).ok().map(|s| s.graph)
}

#[test]
fn training_steps_give_the_same_bits() {
    let mut steps = 0;
    for seed in 0..100 {
        if let Some(graph) = step(seed) {
            check(&graph, seed, 2e-2);
            steps += 1;
        }
    }
    assert!(steps > 80, "only {steps} steps");
}

fn check(graph: &Graph, seed: u64, tolerance: f64) {
    let one = Device::cpu_with(1).unwrap();
    let two = Device::cpu_with(2).unwrap();
    let options = |fuse, reuse| Options {
        fuse,
        plan: PlanOptions { reuse, ..PlanOptions::default() },
        ..Options::default()
    };
    let inputs = random_inputs(graph, seed);
    let first = random_state(graph, seed);
    let ways = [
        (true, true, &two),
        (true, true, &one),
        (true, false, &two),
        (false, false, &one),
        (false, true, &two),
    ];
    let mut results: Vec<Vec<Vec<u64>>> = vec![];
    for (fuse, reuse, device) in ways {
        let executable = Executable::compile(graph, device, &options(fuse, reuse))
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
        let mut state = State::new();
        first.iter().for_each(|(name, a)| state.set(name, a));
        let mut bound = executable.bind(&state).unwrap();
        let mut all = vec![];
        for call in 0..3 {
            let out = bound.run(&mut state, &inputs[..]).unwrap();
            let names: Vec<String> = out.names().map(str::to_string).collect();
            for name in names {
                let a = out.array(&name).unwrap();
                if call == 0 && results.is_empty() {
                    compare(graph, &inputs, &first, &name, &a, seed, &executable, tolerance);
                }
                all.push(bits(&a));
            }
            let names: Vec<String> = state.names().map(str::to_string).collect();
            all.extend(names.iter().map(|n| bits(&state.get(n).unwrap())));
        }
        results.push(all);
    }
    for (way, r) in ways.iter().zip(&results).skip(1) {
        let at = results[0].iter().zip(r).position(|(a, b)| a != b);
        assert!(
            at.is_none(),
            "seed {seed}: fuse {} reuse {} {:?} differs at {at:?}\n{graph}",
            way.0,
            way.1,
            way.2
        );
    }
}

fn compare(
    graph: &Graph,
    inputs: &[Array],
    state: &std::collections::BTreeMap<std::sync::Arc<str>, Array>,
    name: &str,
    got: &Array,
    seed: u64,
    executable: &Executable,
    tolerance: f64,
) {
    let dense: Vec<Dense> = inputs.iter().map(Dense::from_array).collect();
    let before = state.iter().map(|(k, v)| (k.clone(), Dense::from_array(v))).collect();
    let want = interp::run(graph, &dense, &before, Mode::Declared).unwrap();
    let at = graph.outputs.iter().position(|o| &*o.name == name).unwrap();
    let diff = difference(&Dense::from_array(got), &want.outputs[at]);
    assert!(
        diff < tolerance,
        "seed {seed}: output {name} differs by {diff}\n{graph}\n{}",
        executable.compiled().schedule
    );
}

/// Graphs mapped over members, and the tangents of graphs along their states.
#[test]
fn transformed_graphs_give_the_same_bits() {
    use onestep::{GraphBuilder, Names, Over, Tensor, jvp, vmap};
    let mut moved = 0;
    for seed in 0..60 {
        let options = RandomOptions { steps: 16, ..RandomOptions::default() };
        let single = random_graph(seed, options);
        let over = Over { states: Names::All, ..Over::default() };
        check(&vmap(&single, 3, &over).unwrap(), seed, 1e-3);

        let g = GraphBuilder::edit(single.clone());
        let float = |v| single.ty(v).dtype.is_float();
        let outputs: Vec<Tensor<'_>> =
            single.outputs.iter().map(|o| o.value).filter(|v| float(*v)).map(|v| g.tensor(v)).collect();
        let states = single.states.iter().map(|s| s.value).filter(|v| float(*v)).map(|v| g.tensor(v));
        let along: Vec<_> = states.map(|s| (s, g.full(s.dtype(), s.shape(), 1.0))).collect();
        for (i, t) in jvp(&g, &outputs, &along).unwrap().into_iter().enumerate() {
            if let Some(t) = t {
                // Slopes may be steep where two ways to compute differ in the last bit.
                g.output(&format!("tangent{i}"), t.tanh());
                moved += 1;
            }
        }
        check(&g.build().unwrap(), seed, 2e-2);
    }
    assert!(moved > 40, "{moved}");
}
