//! Gradients that are not finite: nothing moves, the counter included, and the next step is as if nothing had been.

use crate::common::*;
use onestep::prelude::*;
use onestep::{Clip, LossScale, UpdateRule};
use std::sync::Arc;

/// Two parameters whose gradients are the inputs, a statistic that the commit guard holds back, and a counter that it does
/// not.
fn linear() -> Graph {
    let g = GraphBuilder::new("linear");
    let (w, x) = (g.parameter("w", &[3, 5], Init::ONES), g.input("x", F32, [3, 5]));
    let (b, y) = (g.parameter("b", &[2], Init::ONES), g.input("y", F32, [2]));
    let mean = g.state("mean", Role::Buffer, F32, &[2], Init::ZEROS);
    g.update(mean, mean * 0.9 + y * 0.1, true);
    let seen = g.state("seen", Role::Buffer, I32, &[], Init::ZEROS);
    g.update(seen, seen + 1.0, false);
    g.finish((w * x).sum_all() + (b * y).sum_all()).unwrap()
}

fn compile_with(rule: Arc<dyn UpdateRule>, clip: Option<Clip>) -> CompiledStep {
    let options = onestep::optim::StepOptions { clip, ..Default::default() };
    let params = onestep::Params::All;
    onestep::compile_training_step(&linear(), "loss", params, rule, &options, &cpu(2), &Default::default())
        .unwrap()
}

#[test]
fn one_bad_element_and_nothing_moves() {
    let rules: [Arc<dyn UpdateRule>; 3] = [
        Arc::new(Sgd::new(0.1).momentum(0.9)),
        Arc::new(Adam::new(0.1).amsgrad(true)),
        Arc::new(AdamW::new(0.1).weight_decay(0.1)),
    ];
    for (rule, clip) in
        rules.iter().flat_map(|r| [None, Some(Clip::GlobalNorm(1.0)), Some(Clip::Value(1.0))].map(|c| (r, c)))
    {
        let mut step = compile_with(rule.clone(), clip);
        let mut state = step.init(0).unwrap();
        let good = || [random(&[3, 5], 1), random(&[2], 2)];
        step.run(&mut state, good()).unwrap();
        let mut before = guarded(&state);
        let mut bad_calls = 0;
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for (input, place) in [(0, 0), (0, 7), (0, 14), (1, 1)] {
                let mut feeds = good();
                let mut numbers = feeds[input].as_slice::<f32>().unwrap().to_vec();
                numbers[place] = bad;
                feeds[input] = floats(feeds[input].shape(), &numbers);
                step.run(&mut state, feeds).unwrap();
                bad_calls += 1;
                before.insert("seen".to_string(), (bad_calls + 1i32).to_le_bytes().to_vec());
                assert!(guarded(&state) == before, "{rule:?}, {clip:?}: {bad} at {place} of input {input}");
                assert_eq!(values(&state, "opt/skipped"), [bad_calls as f64]);
            }
        }
        assert_eq!(values(&state, "opt/step"), [1.0]);
        step.run(&mut state, good()).unwrap();
        assert_eq!(values(&state, "opt/step"), [2.0]);
        let mut straight = step.init(0).unwrap();
        step.run(&mut straight, good()).unwrap();
        step.run(&mut straight, good()).unwrap();
        straight.set("seen", &state.get("seen").unwrap());
        assert!(guarded(&straight) == guarded(&state), "{rule:?}, {clip:?}: the skipped steps left a trace");
    }
}

/// More than 2^24 gradient elements in two tensors, plain and with a scaled loss: one infinity or NaN, and nothing moves but
/// the scale.
#[test]
fn one_bad_element_in_more_than_2_to_the_24() {
    let n = (1 << 24) + 3;
    let g = GraphBuilder::new("many");
    let (w, x) = (g.parameter("w", &[n], Init::ZEROS), g.input("x", F32, [n]));
    let (v, y) = (g.parameter("v", &[2], Init::ZEROS), g.input("y", F32, [2]));
    let seen = g.state("seen", Role::Buffer, F32, &[2], Init::ZEROS);
    g.update(seen, seen + y, true);
    g.output("mean", (x * 0.0 + 1.0).mean());
    g.output("count", x.not_equal(f64::INFINITY).cast(I32).sum_all());
    let graph = g.finish((w * x).sum_all() + (v * y).sum_all()).unwrap();
    let mut numbers = vec![1f32; n];
    let y = floats(&[2], &[1.0, 1.0]);
    for scale in [None, Some(LossScale::dynamic(1024.0))] {
        let step = TrainingStep::new(graph.clone()).optimizer(Sgd::new(1.0));
        let step = if let Some(scale) = scale { step.loss_scale(scale) } else { step };
        let mut step = step.compile(&cpu(2)).unwrap();
        let mut state = step.init(0).unwrap();
        let out = step.run(&mut state, [&floats(&[n], &numbers), &y]).unwrap();
        assert_close(&[out.scalar("mean").unwrap(), out.scalar("count").unwrap()], &[1.0, n as f64], 1e-6);
        let bads = [(n - 1, f32::INFINITY), (1 << 23, f32::NAN), (0, f32::NEG_INFINITY)];
        for (skipped, (place, bad)) in (1..).zip(bads) {
            numbers[place] = bad;
            let out = step.run(&mut state, [&floats(&[n], &numbers), &y]).unwrap();
            assert_eq!(out.scalar("count").unwrap(), n as f64 - (bad == f32::INFINITY) as u8 as f64);
            let w = state.get("w").unwrap();
            assert!(w.as_slice::<f32>().unwrap().iter().all(|&w| w == -1.0));
            assert_eq!((values(&state, "v"), values(&state, "seen")), (vec![-1.0; 2], vec![1.0; 2]));
            let counted = (values(&state, "opt/step"), values(&state, "opt/skipped"));
            assert_eq!(counted, (vec![1.0], vec![skipped as f64]));
            if scale.is_some() {
                let want = 1024.0 * 0.5f64.powi(skipped);
                assert_eq!(values(&state, "opt/loss_scale/scale"), [want]);
            }
            numbers[place] = 1.0;
        }
    }
}
