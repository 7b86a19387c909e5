//! The numeric contract over whole training runs: twenty steps give the same bits, in every tensor of the state and every
//! output, with one thread and with two, fused and not, with shared storage and without.

use crate::common::*;
use onestep::Options;
use onestep::passes::plan::PlanOptions;
use onestep::prelude::*;
use std::collections::BTreeMap;

/// Every output of every step, and the state at the end.
type Run = (Vec<Vec<u8>>, BTreeMap<String, Vec<u8>>);

fn run(
    graph: &Graph,
    device: &Device,
    (fuse, reuse): (bool, bool),
    batch: &dyn Fn(u64) -> [Array; 2],
) -> Run {
    let options =
        Options { fuse, plan: PlanOptions { reuse, ..PlanOptions::default() }, ..Options::default() };
    let step = TrainingStep::new(graph.clone()).optimizer(AdamW::new(1e-2).weight_decay(0.1));
    let step =
        step.clip_global_norm(1.0).schedule(Schedule::WarmupCosine { warmup: 3, total: 20, floor: 0.1 });
    let mut step = step.options(options).compile(device).unwrap();
    let mut state = step.init(9).unwrap();
    let mut outputs = vec![];
    for n in 0..20 {
        let out = step.run(&mut state, batch(n)).unwrap();
        outputs.extend(out.names().map(|name| out.array(name).unwrap().bytes().to_vec()));
    }
    (outputs, snapshot(&state))
}

fn every_way(graph: &Graph, batch: &dyn Fn(u64) -> [Array; 2]) {
    let (one, two) = (cpu(1), cpu(2));
    let (outputs, state) = run(graph, &one, (true, true), batch);
    for (device, way) in [
        (&two, (true, true)),
        (&two, (true, true)),
        (&two, (true, false)),
        (&two, (false, true)),
        (&one, (false, false)),
    ] {
        let (other_outputs, other) = run(graph, device, way, batch);
        for (name, bytes) in &state {
            assert!(other[name] == *bytes, "{name} differs: {device:?}, (fuse, reuse) = {way:?}");
        }
        assert!(outputs == other_outputs, "outputs differ: {device:?}, (fuse, reuse) = {way:?}");
    }
    assert_eq!(state["opt/step"], 20i32.to_le_bytes());
}

#[test]
fn a_classifier() {
    // The last batch of each pass is smaller.
    every_way(&classifier(32), &|n| rows(if n % 4 == 3 { 17 } else { 32 }, n));
}

#[test]
fn a_gpt_with_dropout() {
    every_way(&language_model(3, 0.2), &|n| tokens(3, n));
}

/// Programs of one device on threads of their own, at the same time.
#[test]
fn programs_that_run_at_once_do_not_disturb_each_other() {
    let device = cpu(2);
    let graph = language_model(2, 0.2);
    let alone = run(&graph, &device, (true, true), &|n| tokens(2, n));
    let together: Vec<Run> = std::thread::scope(|scope| {
        let start = |_| scope.spawn(|| run(&graph, &device, (true, true), &|n| tokens(2, n)));
        let running: Vec<_> = (0..4).map(start).collect();
        running.into_iter().map(|r| r.join().unwrap()).collect()
    });
    assert!(together.iter().all(|r| *r == alone));
}
