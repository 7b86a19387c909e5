//! A GPT that continues a text: keys and values of what came before stay as state.

use crate::attention::{EPS, block_with};
use crate::gpt::Inits;
use crate::layers::{embedding_with, layer_norm, linear_with};
use crate::{Block, Gpt};
use onestep_ir::ops::AttentionLayout;
use onestep_ir::{AttentionOptions, DType, GraphBuilder, Init, Role, Shape, Tensor};

/// Path of the number of tokens so far.
const LENGTH: &str = "cache/length";

impl Gpt {
    /// The logits, `[time, vocab]` of `f32`, of the integer `tokens`, `[time]`, that follow those of the calls before: what
    /// [`Gpt::build`] gives for the whole text, for these positions. Without dropout.
    ///
    /// | state | shape | |
    /// |---|---|---|
    /// | `cache/length` | `i32[]` | tokens so far; 0 begins a new text |
    /// | `block.<i>.attn.cache.{k,v}` | `[context, heads, width / heads]` | their keys and values |
    ///
    /// A call writes its rows of the caches in place and adds `time` to the length; more than `context` tokens, or one out
    /// of range, are an error and leave the length as it was. `time` is a number: 1 to write a text, more to read a prompt
    /// in one call; both programs run on one state. What lies behind the length in the caches is masked, and must be
    /// finite, as it is unless a call of several tokens failed: then zero the caches.
    #[track_caller]
    pub fn decode<'g>(&self, g: &'g GraphBuilder, tokens: Tensor<'g>) -> Tensor<'g> {
        let Gpt { vocab, width, layers, heads, context, init, .. } = *self;
        if tokens.value().is_none() {
            return tokens;
        }
        let shape = tokens.shape();
        let time = match shape.sizes().as_deref() {
            Some(&[time]) if 0 < time && time <= context => time,
            _ => {
                let what = format!("the tokens have shape {shape}");
                return tokens.mistake("gpt", what, format!("give them as [time], of 1 to {context}"));
            }
        };
        let length = g.state(LENGTH, Role::Scalar, DType::I32, &[], Init::ZEROS);
        let seen = {
            let square = [1, 1, time, context];
            let query = g.iota(DType::I32, square, 2) + length.broadcast(&Shape::fixed(&square));
            g.iota(DType::I32, square, 3).less_equal(query)
        };
        let Inits { embedding, inner, last } = Inits::new(init, layers);
        let table = embedding_with(g, "tok", tokens, vocab, width, embedding);
        let places = g.parameter("pos.weight", &[context, width], embedding).dynamic_slice(0, length, time);
        let mut x = (table + places).expand(0);
        for i in 0..layers {
            let block = Block { inner, last, ..Block::new(width, heads) };
            let name = format!("block.{i}");
            x = block_with(g, &name, x, block, &|q, k, v| {
                let [k, v] = [("k", k), ("v", v)].map(|(what, rows)| {
                    // Not guarded: a range that does not fit is not written, and other rows are written again.
                    let cache = &[context, heads, width / heads];
                    let cache = g.state(
                        &format!("{name}.attn.cache.{what}"),
                        Role::Buffer,
                        rows.dtype(),
                        cache,
                        Init::ZEROS,
                    );
                    let grown = cache.dynamic_update_slice(0, rows.squeeze(0), length);
                    g.update(cache, grown, false);
                    grown.expand(0)
                });
                let layout = AttentionLayout::Bthd;
                let options = AttentionOptions { layout, causal: false, ..AttentionOptions::default() };
                q.attention(k, v, Some(seen), options)
            });
        }
        g.update(length, length + time as f64, true);
        linear_with(g, "head", layer_norm(g, "norm", x, EPS), vocab, inner).squeeze(0)
    }
}
