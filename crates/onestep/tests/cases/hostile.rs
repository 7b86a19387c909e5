//! Graph files that nobody meant well: numbers in the text of real programs become absurd ones. Whatever can still be read
//! is compiled, and, if it is small, run. Every answer is a result or an error, never a panic.

use crate::common::*;
use onestep::ir::testing::{RandomOptions, Rng, random_graph};
use onestep::optim::{StepOptions, training_step};
use onestep::prelude::*;
use onestep::{Executable, Options, Params};

/// The positions of the numbers in a text.
fn numbers(text: &str) -> Vec<(usize, usize)> {
    let mut found = vec![];
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if end > at {
            // The number in `%12` names a value; one in a word is part of it.
            let before = at.checked_sub(1).map(|i| bytes[i]).unwrap_or(b' ');
            if before != b'%' && !before.is_ascii_alphabetic() {
                found.push((at, end));
            }
            at = end;
        } else {
            at += 1;
        }
    }
    found
}

const ABSURD: [&str; 12] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "65536",
    "2147483647",
    "4294967296",
    "1099511627776",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999",
];

fn mutated(text: &str, rng: &mut Rng) -> String {
    let found = numbers(text);
    let (start, end) = found[rng.int(0, found.len() as i64 - 1) as usize];
    let new = ABSURD[rng.int(0, ABSURD.len() as i64 - 1) as usize];
    // One number alone, or the same one everywhere: a size that still fits its neighbours.
    if rng.int(0, 2) > 0 {
        let old = &text[start..end];
        let mut out = String::new();
        let mut last = 0;
        for (s, e) in found.into_iter().filter(|&(s, e)| &text[s..e] == old) {
            out += &text[last..s];
            out += new;
            last = e;
        }
        out + &text[last..]
    } else {
        format!("{}{new}{}", &text[..start], &text[end..])
    }
}

/// How far a text came: read, compiled, run.
#[derive(Default, Debug)]
struct Reached([usize; 3]);

fn attempt(text: &str, device: &Device, reached: &mut Reached) -> Result<(), Error> {
    let graph = Graph::parse(text)?;
    let graph = onestep::ir::bind(&graph, &graph.dims)?;
    reached.0[0] += 1;
    let executable = Executable::compile(&graph, device, &Options::default())?;
    assert!(!executable.report().to_string().is_empty());
    reached.0[1] += 1;
    let peak = executable.memory().peak();
    if peak > 1 << 24 || graph.nodes.iter().any(|n| n.results.iter().any(|v| graph.ty(*v).numel() > 1 << 20))
    {
        return Ok(());
    }
    let mut state = State::new();
    state.initialise(&graph, 1)?;
    let mut bound = executable.bind(&state)?;
    let zeros = |p: &onestep::ir::Port| Array::zeros(graph.ty(p.value).dtype, &graph.ty(p.value).sizes());
    let feeds = graph.inputs.iter().map(zeros).collect::<Result<Vec<Array>, _>>()?;
    bound.run(&mut state, &feeds)?;
    reached.0[2] += 1;
    Ok(())
}

#[test]
fn absurd_numbers_in_the_text_of_real_programs() {
    let options = StepOptions { clip: Some(onestep::Clip::GlobalNorm(1.0)), ..StepOptions::default() };
    let gpt =
        training_step(&language_model(2, 0.1), "loss", Params::All, &AdamW::new(0.1), &options).unwrap();
    let mut texts =
        vec![gpt.graph.to_string(), classifier(8).to_string(), language_model(2, 0.0).to_string()];
    texts.extend((0..20).map(|seed| random_graph(seed, RandomOptions::default()).to_string()));
    let device = cpu(2);
    let mut rng = Rng::new(1);
    let mut reached = Reached::default();
    for round in 0..ROUNDS {
        let text =
            mutated(&texts[if round % 4 == 0 { rng.int(0, 2) } else { rng.int(3, 22) } as usize], &mut rng);
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = attempt(&text, &device, &mut reached);
        }));
        assert!(tried.is_ok(), "round {round} panicked on\n{text}");
    }
    assert!(reached.0.iter().all(|&n| n > ROUNDS / 20), "most texts were refused at once: {reached:?}");
}

const ROUNDS: usize = 600;

#[test]
fn texts_that_nest_without_end() {
    for open in ["(", "[", "{", "[[", "{(", "\"", "%0 = ", "((f32[2]) "] {
        for head in
            ["", "graph \"x\" ", "graph \"x\" {\n", "graph \"x\" {\n  input \"x\": f32[2]\n  %1 = add("]
        {
            let text = format!("{head}{}", open.repeat(200_000));
            assert!(Graph::parse(&text).is_err());
        }
    }
}
