//! Trains a tiny byte-level GPT to count: every window is a run of consecutive bytes.
//!
//! `cargo run --release -p onestep --example gpt`

use onestep::ir::testing::Rng;
use onestep::nn::Gpt;
use onestep::prelude::*;

/// The model.
pub const MODEL: Gpt = Gpt { vocab: 32, width: 32, layers: 2, heads: 2, context: 16, ..Gpt::MINI };

/// The loss of the first and of the last step.
pub fn run(steps: usize, batch: usize) -> Result<[f64; 2], Error> {
    let shape = [batch, MODEL.context];
    let g = GraphBuilder::new("gpt");
    let x = g.input("x", I32, shape);
    let y = g.input("y", I32, shape);
    let logits = MODEL.build(&g, x);
    let mut step = TrainingStep::new(g.finish(logits.cross_entropy(y))?)
        .optimizer(AdamW::new(3e-3).weight_decay(0.1))
        .clip_global_norm(1.0)
        .compile(&Device::cpu()?)?;

    let mut state = step.init(3)?;
    let mut rng = Rng::new(5);
    let mut losses = vec![];
    for i in 0..steps {
        let starts: Vec<i32> = (0..batch).map(|_| rng.int(0, MODEL.vocab as i64 - 1) as i32).collect();
        let window = |shift: i32| -> Vec<i32> {
            let places = starts.iter().flat_map(|s| (0..MODEL.context as i32).map(move |t| s + t + shift));
            places.map(|i| i % MODEL.vocab as i32).collect()
        };
        let feeds = [Array::new(&shape, &window(0))?, Array::new(&shape, &window(1))?];
        losses.push(step.run(&mut state, &feeds)?.loss()?);
        if i % 20 == 0 {
            println!("step {i:>4}  loss {:.4}", losses[i]);
        }
    }
    let last = losses.last().copied().unwrap_or(f64::NAN);
    Ok([losses.first().copied().unwrap_or(f64::NAN), last])
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    let [first, last] = run(200, 8)?;
    println!("loss {first:.3} at first, {last:.3} at last");
    Ok(())
}
