//! Parameters that move differently, in one executable: Muon for the matrices, AdamW for the rest, no decay of biases, a
//! frozen embedding, and a learning rate that warms up and falls along a cosine.
//!
//! `cargo run --release -p onestep --example groups`

use onestep::prelude::*;

/// The first and last loss, and how far the frozen table moved.
pub fn run(steps: usize) -> Result<[f64; 3], Error> {
    let g = GraphBuilder::new("digits-sum");
    let (x, y) = (g.input("x", I32, [64, 3]), g.input("y", I32, [64]));
    let table = nn::embedding(&g, "tok", x, 10, 16).reshape([64, 48]);
    let hidden = nn::linear(&g, "fc1", table, 64).relu();
    let logits = nn::linear(&g, "head", hidden, 28);
    let graph = g.finish(logits.cross_entropy(y))?;

    let mut step = TrainingStep::new(graph)
        .optimizer(AdamW::new(3e-3).weight_decay(0.1))
        .group(Group::new("frozen", ["tok.*"]).frozen())
        .group(Group::new("matrices", ["fc1.weight"]).rule(Muon::new(0.02)))
        .group(Group::new("no_decay", ["*.bias"]).weight_decay(0.0))
        .schedule(Schedule::WarmupCosine { warmup: 5, total: steps as u32, floor: 0.1 })
        .clip_global_norm(1.0)
        .compile(&Device::cpu()?)?;
    let mut state = step.init(1)?;
    let before = state.get("tok.weight")?;

    let mut losses = vec![];
    for n in 0..steps {
        let digits: Vec<i32> = (0..64 * 3).map(|i| ((i * 7 + n * 13 + i * i / 3) % 10) as i32).collect();
        let sums: Vec<i32> = digits.chunks(3).map(|d| d.iter().sum()).collect();
        let batch = [Array::new(&[64, 3], &digits)?, Array::new(&[64], &sums)?];
        losses.push(step.run(&mut state, &batch)?.loss()?);
        if n == steps / 2 {
            state.set_scalar("opt/lr", 2e-3)?; // never compiles again
        }
    }
    let after = state.get("tok.weight")?;
    let moved = before.to_f64().iter().zip(after.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    Ok([losses[0], losses[steps - 1], moved])
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    let [first, last, moved] = run(200)?;
    println!("loss {first:.3} → {last:.3}; the frozen embedding moved by {moved}");
    Ok(())
}
