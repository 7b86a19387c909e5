//! A step taken apart: what is recorded of its ops is what the step itself computes, on any number of threads.

use crate::common::*;
use onestep::ValueDigest;
use onestep::io::Digest;
use onestep::prelude::*;
use std::collections::BTreeMap;

fn step(graph: Graph, threads: usize) -> CompiledStep {
    TrainingStep::new(graph).optimizer(AdamW::new(1e-2)).clip_global_norm(1.0).compile(&cpu(threads)).unwrap()
}

#[test]
fn the_values_of_ops_are_those_of_the_step() {
    for (graph, batch) in [(language_model(2, 0.2), tokens(2, 1)), (classifier(16), rows(9, 1))] {
        let mut seen: Vec<Vec<ValueDigest>> = vec![];
        for threads in [1, 3] {
            let mut step = step(graph.clone(), threads);
            let mut state = step.init(5).unwrap();
            step.run(&mut state, &batch).unwrap();
            let before: BTreeMap<String, Digest> =
                state.digests().unwrap().into_iter().map(|(name, d)| (name.to_string(), d)).collect();
            let executable = step.program().executable_for(&batch).unwrap().clone();
            let values = executable.values(&state, &batch).unwrap();
            let same = state.digests().unwrap().into_iter().all(|(name, d)| before[name] == d);
            assert!(same, "the state is as it was");
            step.run(&mut state, &batch).unwrap();
            let after: BTreeMap<&str, Digest> = state.digests().unwrap().into_iter().collect();
            let by_name: BTreeMap<&str, Digest> =
                values.iter().map(|v| (v.value.as_str(), v.digest)).collect();
            let graph = executable.graph();
            let mut compared = 0;
            for update in &graph.updates {
                let name = &*graph.states[update.state].name;
                if let Some(computed) = by_name.get(format!("%{}", update.value.0).as_str()) {
                    assert_eq!(*computed, after[name], "{name} on {threads} threads");
                    compared += usize::from(*computed != before[name]);
                }
            }
            assert!(compared > 10, "parameters, slots and the counter have moved");
            seen.push(values);
        }
        assert_eq!(seen[0], seen[1]);
        assert!(seen[0].iter().any(|v| v.op == "matmul" && v.loc.is_some()));
    }
}
