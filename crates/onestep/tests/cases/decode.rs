//! Writing text token by token: keys and values are state that each call appends to. The logits are those of a forward
//! pass over the whole text, and the cache is updated in place.

use crate::common::*;
use onestep::ir::AttentionOptions;
use onestep::ir::ops::AttentionLayout;
use onestep::passes::plan::PlanOptions;
use onestep::prelude::*;
use onestep::{Executable, Options, Shape};

const VOCAB: usize = 24;
const WIDTH: usize = 16;
const HEADS: usize = 4;
const LAYERS: usize = 2;
const CONTEXT: usize = 64;
const PROMPT: usize = 9;

/// How the attention sees what came before.
#[derive(Clone, Copy)]
enum Past {
    /// All of it is in this call.
    Here,
    /// This call begins the text, and keeps its keys and values.
    Kept,
    /// It is in the cache, up to the input `position`.
    Cached,
}

/// Logits of `tokens` tokens.
fn model(tokens: usize, past: Past) -> Graph {
    let g = GraphBuilder::new("decoder");
    let ids = g.input("ids", I32, [1, tokens]);
    let position = match past {
        Past::Cached => g.input("position", I32, ()),
        _ => g.scalar(I32, 0.0),
    };
    let places = g.parameter("pos.weight", &[CONTEXT, WIDTH], Init::Normal { mean: 0.0, std: 1.0 });
    let mut x = nn::embedding(&g, "tok", ids, VOCAB, WIDTH) + places.dynamic_slice(0, position, tokens);
    for i in 0..LAYERS {
        g.scope(&format!("block.{i}"), || {
            let y = nn::layer_norm(&g, "norm1", x, 1e-5);
            let heads = |name: &str| nn::linear(&g, name, y, WIDTH).reshape(heads_of(tokens));
            let (q, k, v) = (heads("q"), heads("k"), heads("v"));
            let mixed = attend(&g, position, past, q, k, v).reshape([1, tokens, WIDTH]);
            x = x + nn::linear(&g, "proj", mixed, WIDTH);
            let y = nn::linear(&g, "up", nn::layer_norm(&g, "norm2", x, 1e-5), 4 * WIDTH).gelu();
            x = x + nn::linear(&g, "down", y, WIDTH);
        });
    }
    g.output("logits", nn::linear(&g, "head", nn::layer_norm(&g, "norm", x, 1e-5), VOCAB));
    g.build().unwrap()
}

fn heads_of(tokens: usize) -> Shape {
    Shape::fixed(&[1, tokens, HEADS, WIDTH / HEADS])
}

fn attend<'g>(
    g: &'g GraphBuilder,
    position: Tensor<'g>,
    past: Past,
    q: Tensor<'g>,
    k: Tensor<'g>,
    v: Tensor<'g>,
) -> Tensor<'g> {
    let layout = AttentionLayout::Bthd;
    let causal = AttentionOptions { layout, causal: true, ..AttentionOptions::default() };
    if let Past::Here = past {
        return q.attention(k, v, None, causal);
    }
    let [keys, values] = [("cache.k", k), ("cache.v", v)].map(|(name, new)| {
        let shape = [1, CONTEXT, HEADS, WIDTH / HEADS];
        let cache = g.state(name, Role::Buffer, F32, &shape, Init::Constant(f64::NAN));
        let appended = cache.dynamic_update_slice(1, new, position);
        g.update(cache, appended, true);
        appended
    });
    match past {
        Past::Cached => {
            // What lies behind the position was never written: it may hold anything, so it is cut off, not multiplied by 0.
            let seen = g.iota(I32, [CONTEXT], 0).less_equal(position);
            let clean = |x: Tensor<'g>| seen.reshape([1, CONTEXT, 1, 1]).select(x, 0.0);
            let (keys, values) = (clean(keys), clean(values));
            q.attention(keys, values, Some(seen), AttentionOptions { causal: false, ..causal })
        }
        _ => q.attention(k, v, None, causal),
    }
}

fn best(logits: &[f64]) -> usize {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap()
}

#[test]
fn decoding_equals_the_forward_pass() {
    let device = cpu(2);
    let mut prefill = compile(&model(PROMPT, Past::Kept), &device).unwrap();
    let decode = model(1, Past::Cached);
    let strict =
        Options { plan: PlanOptions { strict: true, ..PlanOptions::default() }, ..Options::default() };
    let executable = Executable::compile(&decode, &device, &strict).unwrap();
    let report = executable.report();
    for i in 0..LAYERS {
        for name in ["k", "v"] {
            let cache = format!("block.{i}.cache.{name}");
            assert!(report.in_place.contains(&cache), "{cache}: {:?}", report.refusals);
        }
    }
    let mut decode = onestep::Program::new(&decode, &device, &strict).unwrap();

    // The text is what the model itself writes.
    let prompt: Vec<i32> =
        random_ints(&[PROMPT], VOCAB as i64, 5).to_i64().iter().map(|&i| i as i32).collect();
    let mut text = prompt.clone();
    let mut state = prefill.init(7).unwrap();
    assert_eq!(decode.missing(&state), [""; 0]);
    let out = prefill.run(&mut state, [ints(&[1, PROMPT], &prompt)]).unwrap();
    let mut all: Vec<f64> = out.array("logits").unwrap().to_f64();
    for position in PROMPT..PROMPT + 50 {
        text.push(best(&all[all.len() - VOCAB..]) as i32 ^ (position % 3 == 0) as i32);
        let feeds = [ints(&[1, 1], &text[position..]), Array::scalar(position as i32)];
        let out = decode.run(&mut state, &feeds).unwrap();
        all.extend(out.array("logits").unwrap().to_f64());
        if position == PROMPT || position == PROMPT + 49 {
            let mut forward = compile(&model(position + 1, Past::Here), &device).unwrap();
            let whole = forward.run(&mut state, [ints(&[1, position + 1], &text)]).unwrap();
            let whole = whole.array("logits").unwrap().to_f64();
            assert_close(&all, &whole, 1e-5);
            for (a, b) in all.chunks(VOCAB).zip(whole.chunks(VOCAB)) {
                assert_eq!(best(a), best(b));
            }
        }
    }
    assert_eq!((decode.compilations().len(), decode.rebinds()), (1, 0));

    // A full cache is an error, and stays as it is.
    let before = snapshot(&state);
    let error = decode.run(&mut state, [ints(&[1, 1], &[1]), Array::scalar(CONTEXT as i32)]).unwrap_err();
    assert!(error.to_string().contains("out of range (valid: 0 to 63)"), "{error}");
    assert!(snapshot(&state) == before);
}
