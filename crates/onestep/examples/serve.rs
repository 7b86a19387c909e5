//! A small Llama that is trained, saved, and then writes from its cache, as a server would: one program reads the prompt in one
//! call, another writes a token a call; both work on one state, in which keys and values are updated in place.
//!
//! `cargo run --release -p onestep --example serve`

use onestep::nn::Llama;
use onestep::prelude::*;
use std::path::Path;

const CONTEXT: usize = 32;
const VOCAB: usize = 16;

fn model() -> Llama {
    Llama {
        vocab: VOCAB,
        width: 32,
        hidden: 64,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        context: CONTEXT,
        ..Llama::TINY_1_1B
    }
}

/// Sequences that count up, from different numbers on.
fn counting(n: usize, from: usize) -> Result<[Array; 2], Error> {
    let at = |shift: usize| -> Vec<i32> {
        (0..n * CONTEXT).map(|i| ((i / CONTEXT * 3 + i % CONTEXT + from + shift) % VOCAB) as i32).collect()
    };
    Ok([Array::new(&[n, CONTEXT], &at(0))?, Array::new(&[n, CONTEXT], &at(1))?])
}

/// Trains, saves to `path`, loads it again, and continues `prompt` to `length` tokens.
pub fn run(steps: usize, path: &Path, prompt: &[i32], length: usize) -> Result<Vec<i32>, Error> {
    let device = Device::cpu()?;
    let g = GraphBuilder::new("train");
    let (x, y) = (g.input("x", I32, [8, CONTEXT]), g.input("y", I32, [8, CONTEXT]));
    let loss = model().build(&g, x).cross_entropy(y);
    let mut step = TrainingStep::new(g.finish(loss)?)
        .optimizer(AdamW::new(5e-3))
        .clip_global_norm(1.0)
        .compile(&device)?;
    let mut state = step.init(1)?;
    for n in 0..steps {
        step.run(&mut state, &counting(8, n)?)?;
    }
    state.save(path)?;

    // A program that reads or writes so many tokens at once.
    let decoder = |time: usize| -> Result<Program, Error> {
        let g = GraphBuilder::new("decode");
        let tokens = g.input("tokens", I32, [time]);
        g.output("next", model().decode(&g, tokens).slice(0, time - 1, time).argmax(-1));
        compile(&g.build()?, &device)
    };
    let (mut read, mut write) = (decoder(prompt.len())?, decoder(1)?);
    let mut state = write.init(0)?; // the caches, empty
    state.load(path)?;
    let mut text = prompt.to_vec();
    let mut next = read.run(&mut state, [&Array::new(&[prompt.len()], prompt)?])?.array("next")?;
    while text.len() < length.min(CONTEXT) {
        text.extend(next.to_f64().iter().map(|t| *t as i32));
        next = write.run(&mut state, [&Array::new(&[1], &text[text.len() - 1..])?])?.array("next")?;
    }
    Ok(text)
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    let path = std::env::temp_dir().join("onestep-serve.safetensors");
    println!("{:?}", run(150, &path, &[3, 4, 5, 6], 24)?);
    Ok(())
}
