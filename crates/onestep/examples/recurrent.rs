//! Trains a small LSTM to add: each step of a sequence has a number and a mark, and the answer is the sum of the two
//! marked numbers (Hochreiter and Schmidhuber, "Long short-term memory", 1997). The sequences have different lengths.
//!
//! `cargo run --release -p onestep --example recurrent`

use onestep::ir::testing::Rng;
use onestep::nn::{self, Recurrent};
use onestep::prelude::*;

/// The most steps of a sequence.
pub const TIME: usize = 20;

/// A network of one layer over `[batch, TIME, 2]`; its answer is read off the state after each sequence's last step.
pub fn graph(batch: usize) -> Result<Graph, Error> {
    let g = GraphBuilder::new("recurrent");
    let x = g.input("x", F32, [batch, TIME, 2]);
    let lengths = g.input("lengths", I32, [batch]);
    let y = g.input("y", F32, [batch]);
    let read = Recurrent::lstm(16).build_with(&g, "lstm", x, Some(lengths), None);
    let answer = nn::linear(&g, "answer", read.state.hidden.at(0, 0), 1).squeeze(1);
    Ok(g.finish((answer - y).square().mean())?)
}

/// Numbers within ±1 with two marks, the sequences' lengths, and the sums.
fn batch(rng: &mut Rng, size: usize) -> Result<[Array; 3], Error> {
    let (mut x, mut lengths, mut y) = (vec![0f32; size * TIME * 2], vec![], vec![]);
    for i in 0..size {
        let length = rng.int(TIME as i64 / 2, TIME as i64 + 1) as usize;
        // One mark in each half.
        let half = length / 2;
        let marks = [rng.int(0, half as i64) as usize, rng.int(half as i64, length as i64) as usize];
        let mut sum = 0.0;
        for t in 0..length {
            let number = rng.real(-1.0, 1.0) as f32;
            x[(i * TIME + t) * 2] = number;
            if marks.contains(&t) {
                x[(i * TIME + t) * 2 + 1] = 1.0;
                sum += number;
            }
        }
        lengths.push(length as i32);
        y.push(sum);
    }
    Ok([Array::new(&[size, TIME, 2], &x)?, Array::new(&[size], &lengths)?, Array::new(&[size], &y)?])
}

/// The mean loss of the first ten and of the last ten steps.
pub fn run(steps: usize, size: usize) -> Result<[f64; 2], Error> {
    let mut step = TrainingStep::new(graph(size)?)
        .optimizer(AdamW::new(1e-2))
        .clip_global_norm(1.0)
        .compile(&Device::cpu()?)?;
    let mut state = step.init(1)?;
    let mut rng = Rng::new(2);
    let mut losses = vec![];
    for i in 0..steps {
        losses.push(step.run(&mut state, &batch(&mut rng, size)?)?.loss()?);
        if i % 100 == 0 {
            println!("step {i:>4}  loss {:.4}", losses[i]);
        }
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let some = losses.len().min(10);
    Ok([mean(&losses[..some]), mean(&losses[losses.len() - some..])])
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    let [first, last] = run(1000, 32)?;
    println!("loss {first:.4} at first, {last:.4} at last");
    Ok(())
}
