//! Random graphs on the CPU: fused = unfused = without reuse = on one thread = on two, bit for bit, over several calls; and
//! the interpreter within a tolerance.

use onestep::ir::Dense;
use onestep::ir::interp::{self, Mode};
use onestep::ir::testing::{RandomOptions, difference, random_graph, random_inputs, random_state};
use onestep::passes::plan::PlanOptions;
use onestep::{Array, Device, Executable, Options, State};

fn bits(a: &Array) -> Vec<u64> {
    a.to_f64().into_iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits() }).collect()
}

#[test]
fn every_way_to_compile_gives_the_same_bits() {
    let one = Device::cpu_with(1).unwrap();
    let two = Device::cpu_with(2).unwrap();
    let options =
        |fuse, reuse| Options { fuse, plan: PlanOptions { reuse, ..PlanOptions::default() }, dump: false };
    for seed in 0..300 {
        let graph = random_graph(seed, RandomOptions::default());
        let inputs = random_inputs(&graph, seed);
        let first = random_state(&graph, seed);
        let ways = [
            (true, true, &two),
            (true, true, &one),
            (true, false, &two),
            (false, false, &one),
            (false, true, &two),
        ];
        let mut results: Vec<Vec<Vec<u64>>> = vec![];
        for (fuse, reuse, device) in ways {
            let executable = Executable::compile(&graph, device, &options(fuse, reuse))
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
                        compare(&graph, &inputs, &first, &name, &a, seed, &executable);
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
}

fn compare(
    graph: &onestep::Graph,
    inputs: &[Array],
    state: &std::collections::BTreeMap<std::sync::Arc<str>, Array>,
    name: &str,
    got: &Array,
    seed: u64,
    executable: &Executable,
) {
    let dense: Vec<Dense> = inputs.iter().map(Dense::from_array).collect();
    let before = state.iter().map(|(k, v)| (k.clone(), Dense::from_array(v))).collect();
    let want = interp::run(graph, &dense, &before, Mode::Declared).unwrap();
    let at = graph.outputs.iter().position(|o| &*o.name == name).unwrap();
    let diff = difference(&Dense::from_array(got), &want.outputs[at]);
    assert!(
        diff < 1e-3,
        "seed {seed}: output {name} differs by {diff}\n{graph}\n{}",
        executable.compiled().schedule
    );
}
