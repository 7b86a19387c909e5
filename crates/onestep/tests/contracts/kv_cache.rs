//! A cache of keys and values as state: written in place, and decoding gives what the whole text would.

use crate::common::*;
use crate::examples::kv_cache::decoder;
use onestep::ir::RotaryScaling;
use onestep::nn::{Gpt, Llama};
use onestep::passes::plan::PlanOptions;
use onestep::prelude::*;
use onestep::{Executable, Options, precision, store};

const MODEL: Gpt = Gpt { vocab: 50, width: 32, layers: 2, heads: 4, context: 208, ..Gpt::MINI };

#[test]
fn decoding_equals_the_forward_pass() {
    const TIME: usize = 200;
    const PROMPT: usize = 7;
    let device = device();
    let g = GraphBuilder::new("forward");
    g.output("logits", MODEL.build(&g, g.input("tokens", I32, [1, TIME])));
    let mut forward = compile(&g.build().unwrap(), &device).unwrap();
    let mut read = compile(&decoder(&MODEL, PROMPT).unwrap(), &device).unwrap();
    let mut write = compile(&decoder(&MODEL, 1).unwrap(), &device).unwrap();
    let mut state = write.init(9).unwrap();
    assert_eq!(forward.missing(&state), [""; 0], "the parameters are those of the whole model");

    let text: Vec<i32> = (0..TIME as i32).map(|i| (i * i + 3 * i) % 50).collect();
    let whole = Array::new(&[1, TIME], &text).unwrap();
    let want = forward.run(&mut state, [whole]).unwrap().array("logits").unwrap().to_f64();
    let prompt = Array::new(&[PROMPT], &text[..PROMPT]).unwrap();
    let mut got = read.run(&mut state, [prompt]).unwrap().array("logits").unwrap().to_f64();
    for token in &text[PROMPT..] {
        let token = Array::new(&[1], &[*token]).unwrap();
        got.extend(write.run(&mut state, [token]).unwrap().array("logits").unwrap().to_f64());
    }
    assert_eq!(got.len(), want.len());
    let most = got.iter().zip(&want).fold(0f64, |m, (a, b)| m.max((a - b).abs()));
    assert!(most <= 1e-5, "differs by {most}");
    assert_eq!(state.scalar("cache/length").unwrap(), TIME as f64);
    assert_eq!((write.compilations().len(), write.rebinds()), (1, 0));

    // A new text begins with length 0, whatever the caches hold.
    state.set_scalar("cache/length", 0.0).unwrap();
    let prompt = Array::new(&[PROMPT], &text[..PROMPT]).unwrap();
    let again = read.run(&mut state, [prompt]).unwrap().array("logits").unwrap().to_f64();
    assert_eq!(again, got[..again.len()]);
}

const LLAMA: Llama = Llama {
    vocab: 50,
    width: 32,
    hidden: 48,
    layers: 2,
    heads: 4,
    kv_heads: 2,
    context: 96,
    rotary_scaling: Some(RotaryScaling { context: 40, ..RotaryScaling::LLAMA_3_2 }),
    tied: true,
    ..Llama::TINY_1_1B
};

fn llama_decoder(time: usize) -> Graph {
    let g = GraphBuilder::new("decode");
    g.output("logits", LLAMA.decode(&g, g.input("tokens", I32, [time])));
    g.build().unwrap()
}

/// With grouped queries and rotary positions; the caches hold NaN behind the length, and nobody reads them.
#[test]
fn a_llama_decodes_what_its_forward_pass_gives() {
    const TIME: usize = 90;
    const PROMPT: usize = 11;
    let device = device();
    let g = GraphBuilder::new("forward");
    g.output("logits", LLAMA.build(&g, g.input("tokens", I32, [1, TIME])));
    let mut forward = compile(&g.build().unwrap(), &device).unwrap();
    let mut read = compile(&llama_decoder(PROMPT), &device).unwrap();
    let plan = PlanOptions { strict: true, ..PlanOptions::default() };
    let options = Options { plan, ..Options::default() };
    let executable = Executable::compile(&llama_decoder(1), &device, &options).unwrap();
    let mut write = compile(&llama_decoder(1), &device).unwrap();
    let mut state = write.init(4).unwrap();
    assert_eq!(forward.missing(&state), [""; 0], "the parameters are those of the whole model");
    for i in 0..LLAMA.layers {
        for what in ["k", "v"] {
            let cache = format!("block.{i}.attn.cache.{what}");
            assert!(executable.report().in_place.contains(&cache), "{cache}");
            let shape = state.get(&cache).unwrap().shape().to_vec();
            assert_eq!(shape, [96, 2, 8], "a cache of the heads that keys have");
            state.set(&cache, &Array::from_f64(F32, &shape, &vec![f64::NAN; 96 * 2 * 8]).unwrap());
        }
    }

    let text: Vec<i32> = (0..TIME as i32).map(|i| (i * i + 3 * i) % 50).collect();
    let whole = Array::new(&[1, TIME], &text).unwrap();
    let want = forward.run(&mut state, [whole]).unwrap().array("logits").unwrap().to_f64();
    let prompt = Array::new(&[PROMPT], &text[..PROMPT]).unwrap();
    let mut got = read.run(&mut state, [prompt]).unwrap().array("logits").unwrap().to_f64();
    for token in &text[PROMPT..] {
        let token = Array::new(&[1], &[*token]).unwrap();
        got.extend(write.run(&mut state, [token]).unwrap().array("logits").unwrap().to_f64());
    }
    assert_eq!(got.len(), want.len());
    let most = got.iter().zip(&want).fold(0f64, |m, (a, b)| m.max((a - b).abs()));
    assert!(most <= 1e-5, "differs by {most}");
    let spread = want.iter().fold(0f64, |m, x| m.max(x.abs()));
    assert!(spread > 0.05, "logits of {spread} show nothing");
    assert_eq!(state.scalar("cache/length").unwrap(), TIME as f64);
    assert_eq!((write.compilations().len(), write.rebinds()), (1, 0));
}

/// In bf16, weights and caches included, with the last token as state: what a call writes is the likeliest token of the
/// forward pass over all tokens so far, or one that is as likely but for rounding.
#[test]
fn a_llama_writes_in_bf16_what_its_forward_pass_finds_likeliest() {
    const TOKENS: usize = 40;
    let low = |graph: &Graph| precision(&store(graph, Precision::Bf16).unwrap(), Precision::Bf16).unwrap();
    let device = device();
    let g = GraphBuilder::new("writer");
    let token = g.state("token", Role::Buffer, I32, &[1], Init::ZEROS);
    let next = LLAMA.decode(&g, token).argmax(-1);
    g.update(token, next, true);
    g.output("next", next);
    let graph = low(&g.build().unwrap());
    let plan = PlanOptions { strict: true, ..PlanOptions::default() };
    let executable = Executable::compile(&graph, &device, &Options { plan, ..Options::default() }).unwrap();
    let mut write = compile(&graph, &device).unwrap();
    let mut state = write.init(4).unwrap();
    for name in ["tok.weight", "block.0.attn.q.weight", "norm.weight", "block.1.attn.cache.v"] {
        assert_eq!(state.get(name).unwrap().dtype(), BF16, "{name}");
    }
    for cache in ["block.0.attn.cache.k", "block.1.attn.cache.v"] {
        assert!(executable.report().in_place.contains(&cache.to_string()), "{cache}");
    }
    let mut text = vec![0];
    for _ in 0..TOKENS {
        let next = write.run(&mut state, ()).unwrap().array("next").unwrap();
        text.push(next.to_i64()[0] as i32);
    }
    assert_eq!(state.scalar("cache/length").unwrap(), TOKENS as f64);

    let g = GraphBuilder::new("forward");
    g.output("logits", LLAMA.build(&g, g.input("tokens", I32, [1, TOKENS])));
    let mut forward = compile(&low(&g.build().unwrap()), &device).unwrap();
    let tokens = Array::new(&[1, TOKENS], &text[..TOKENS]).unwrap();
    let logits = forward.run(&mut state, [tokens]).unwrap().array("logits").unwrap().to_f64();
    for (row, &token) in logits.chunks(LLAMA.vocab).zip(&text[1..]) {
        let top = row.iter().fold(f64::NEG_INFINITY, |m, x| m.max(*x));
        assert!(row[token as usize] >= top - 0.02 * top.abs().max(0.1), "{token} of {row:?}");
    }
}

/// Tensors in f32 are refused by name, with what converts them.
#[test]
fn trained_weights_are_not_rounded_unasked() {
    let g = GraphBuilder::new("half");
    let w = g.parameter("w", &[4, 4], Init::ONES);
    g.output("y", g.input("x", F32, [1, 4]).matmul(w));
    let graph = g.build().unwrap();
    let device = device();
    let mut state = compile(&graph, &device).unwrap().init(0).unwrap();
    let mut half = compile(&store(&graph, Precision::Bf16).unwrap(), &device).unwrap();
    let x = Array::new(&[1, 4], &[1f32; 4]).unwrap();
    let error = half.run(&mut state, [&x]).unwrap_err().to_string();
    assert!(error.contains("'w' is f32") && error.contains("bf16") && error.contains("bind_as"), "{error}");
    let trained = state.get("w").unwrap();
    let mut state = half.init(0).unwrap();
    state.bind_as("w", &trained, BF16).unwrap();
    assert_eq!(half.run(&mut state, [&x]).unwrap().array("y").unwrap().to_f64(), [4.0; 4]);
}

fn compiled(context: usize) -> Executable {
    let graph = decoder(&Gpt { context, ..MODEL }, 1).unwrap();
    // Strict: a state that is not updated in place is an error.
    let plan = PlanOptions { strict: true, ..PlanOptions::default() };
    Executable::compile(&graph, &device(), &Options { plan, ..Options::default() }).unwrap()
}

#[test]
fn the_plan_writes_the_caches_in_place() {
    let (small, large) = (compiled(256), compiled(4096));
    for executable in [&small, &large] {
        let report = executable.report();
        for block in 0..MODEL.layers {
            for what in ["k", "v"] {
                let cache = format!("block.{block}.attn.cache.{what}");
                assert!(report.in_place.contains(&cache), "{cache}\n{report}");
            }
        }
    }
    // No buffer is as large as a cache, and nothing grows with the context.
    let cache = 4096 * MODEL.width * 4;
    assert!(large.report().buffers.iter().all(|b| {
        let resident = matches!(b.place, onestep::passes::plan::Place::State(_));
        resident || b.bytes < cache / 8
    }));
    let grown = large.memory().arena as i64 - small.memory().arena as i64;
    assert_eq!(grown, 0, "the arena grew");
    let copied: usize = {
        let compiled = large.compiled();
        compiled.plan.commits.iter().map(|(b, _)| compiled.schedule.buffer(*b).bytes()).sum()
    };
    assert_eq!(copied, 0, "bytes that are copied after each call");
}

#[test]
fn a_full_cache_and_a_bad_token_are_errors_that_change_no_length() {
    let graph = decoder(&Gpt { context: 4, ..MODEL }, 1).unwrap();
    let mut program = compile(&graph, &device()).unwrap();
    let mut state = program.init(1).unwrap();
    let token = |t: i32| [Array::new(&[1], &[t]).unwrap()];
    let error = program.run(&mut state, token(50)).unwrap_err();
    assert!(matches!(error, Error::BadIndex { .. }), "{error}");
    assert_eq!(state.scalar("cache/length").unwrap(), 0.0);
    let mut fresh = program.init(1).unwrap();
    for i in 0..4 {
        let a = program.run(&mut state, token(i)).unwrap().array("logits").unwrap();
        let b = program.run(&mut fresh, token(i)).unwrap().array("logits").unwrap();
        assert_eq!(a, b, "the token that failed left nothing behind");
    }
    let keys = state.get("block.0.attn.cache.k").unwrap();
    assert!(matches!(program.run(&mut state, token(1)), Err(Error::BadIndex { .. })));
    assert_eq!(state.scalar("cache/length").unwrap(), 4.0);
    assert_eq!(state.get("block.0.attn.cache.k").unwrap(), keys);
}

#[test]
fn mistakes_are_named() {
    for (shape, heads, want) in [
        (vec![1, 1], 4, "[time]"),
        (vec![0], 4, "of 1 to 208"),
        (vec![209], 4, "of 1 to 208"),
        (vec![1], 0, "does not divide into 0 heads"),
        (vec![1], 5, "does not divide into 5 heads"),
    ] {
        let g = GraphBuilder::new("wrong");
        let tokens = g.input("tokens", I32, shape);
        g.output("logits", Gpt { heads, ..MODEL }.decode(&g, tokens));
        let error = g.build().unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}
