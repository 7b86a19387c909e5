//! Writes a text with a GPT: the prompt is read in one call, then every call takes one token. Keys and values stay on
//! the device as state, updated in place; both programs run on one state.
//!
//! `cargo run --release -p onestep --example kv_cache`

use onestep::nn::Gpt;
use onestep::prelude::*;

/// The program that reads `time` tokens.
pub fn decoder(model: &Gpt, time: usize) -> Result<Graph, Error> {
    let g = GraphBuilder::new("decode");
    let tokens = g.input("tokens", I32, [time]);
    let logits = model.decode(&g, tokens);
    g.output("logits", logits);
    g.output("next", logits.argmax(-1).at(0, time - 1));
    Ok(g.build()?)
}

/// The prompt and what follows it, each time the likeliest token; `seed` draws the parameters.
pub fn run(model: &Gpt, prompt: &[i32], tokens: usize, seed: u64) -> Result<Vec<i32>, Error> {
    let device = Device::cpu()?;
    let mut read = compile(&decoder(model, prompt.len())?, &device)?;
    let mut write = compile(&decoder(model, 1)?, &device)?;
    let mut state = read.init(seed)?;

    let mut text = prompt.to_vec();
    let feed = Array::new(&[prompt.len()], prompt)?;
    // The logits are not asked for, so that they are not given out.
    let mut next = read.run_selected(&mut state, [feed], &["next"])?.scalar("next")? as i32;
    text.push(next);
    while text.len() < tokens.min(model.context) {
        let feed = Array::new(&[1], &[next])?;
        next = write.run_selected(&mut state, [feed], &["next"])?.scalar("next")? as i32;
        text.push(next);
    }
    Ok(text)
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    let text = run(&Gpt::MINI, &[1, 2, 3], 100, 7)?;
    println!("{text:?}");
    Ok(())
}
