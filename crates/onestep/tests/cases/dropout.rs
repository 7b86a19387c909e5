//! Dropout's random numbers over calls and runs: they come from a seed and a counter in the state, and nothing else.

use crate::common::*;
use onestep::nn;
use onestep::prelude::*;

const N: usize = 100_000;

fn masks(seed: u64, threads: usize) -> Vec<Vec<u8>> {
    let g = GraphBuilder::new("dropout");
    let x = g.input("x", F32, [N]);
    g.output("kept", nn::dropout(&g, "one", x, 0.5));
    g.output("other", nn::dropout(&g, "two", x, 0.5));
    let mut program = compile(&g.build().unwrap(), &cpu(threads)).unwrap();
    let mut state = program.init(seed).unwrap();
    let mut all = vec![];
    for step in 0..3 {
        let out = program.run(&mut state, [floats(&[N], &[1.0; N])]).unwrap();
        for name in ["kept", "other"] {
            let mask = out.array(name).unwrap().to_f64();
            assert!(mask.iter().all(|&x| x == 0.0 || x == 2.0));
            let kept = mask.iter().filter(|&&x| x != 0.0).count() as f64 / N as f64;
            assert!((kept - 0.5).abs() < 0.01, "step {step}, {name}: kept {kept}");
            all.push(mask.iter().map(|&x| (x != 0.0) as u8).collect());
        }
        assert_eq!(values(&state, "rng/counter"), [step as f64 + 1.0]);
    }
    all
}

#[test]
fn masks_differ_between_steps_and_layers_and_agree_between_runs() {
    let first = masks(1, 2);
    assert!(first == masks(1, 1), "another run of the same seed, on another number of threads");
    let other = masks(2, 2);
    for (i, a) in first.iter().enumerate() {
        for b in first[i + 1..].iter().chain(&other) {
            let agree = a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / N as f64;
            assert!((agree - 0.5).abs() < 0.01, "two masks agree at {agree} of their places");
        }
    }
}

/// The gradient falls out where the element did.
#[test]
fn the_backward_pass_uses_the_same_mask() {
    let g = GraphBuilder::new("dropout");
    let w = g.parameter("w", &[1000], Init::ONES);
    let dropped = nn::dropout(&g, "d", w, 0.3);
    g.output("dropped", dropped);
    let graph = g.finish(dropped.sum_all()).unwrap();
    let params = onestep::Params::All;
    let mut step =
        onestep::compile_with_backward(&graph, "loss", params, &cpu(2), &Default::default()).unwrap();
    let mut state = step.init(3).unwrap();
    let mut before = vec![];
    for _ in 0..3 {
        let dropped = step.run(&mut state, ()).unwrap().array("dropped").unwrap().to_f64();
        assert_eq!(dropped, values(&state, "grad/w"));
        assert_ne!(dropped, before);
        before = dropped;
    }
}
