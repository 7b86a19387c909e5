//! The Llama architecture at any size.

use crate::attention::{NamedMix, causal};
use crate::cache::{Cache, fits};
use crate::transformer::block_with;
use crate::{Activation, Block, LinearOptions, Mlp, Norm, WeightInit, linear_with};
use onestep_ir::{DType, GraphBuilder, RotaryOptions, RotaryScaling, Tensor};

/// A decoder-only transformer as Llama is (Touvron and others, "Llama 2", 2023; Llama team, "The Llama 3 herd of models",
/// 2024): token embeddings, pre-norm blocks with RMS norms, rotary positions, grouped queries and a SwiGLU MLP, no biases,
/// a last norm, and a head, of its own weight or tied to the embedding's.
///
/// | parameter | shape | in Hugging Face's checkpoints |
/// |---|---|---|
/// | `tok.weight` | `[vocab, width]` | `model.embed_tokens.weight` |
/// | `block.<i>.norm1.weight` | `[width]` | `model.layers.<i>.input_layernorm.weight` |
/// | `block.<i>.attn.q.weight` | `[width, width]` | `model.layers.<i>.self_attn.q_proj.weight` |
/// | `block.<i>.attn.{k,v}.weight` | `[kv_heads · width / heads, width]` | `model.layers.<i>.self_attn.{k,v}_proj.weight` |
/// | `block.<i>.attn.proj.weight` | `[width, width]` | `model.layers.<i>.self_attn.o_proj.weight` |
/// | `block.<i>.norm2.weight` | `[width]` | `model.layers.<i>.post_attention_layernorm.weight` |
/// | `block.<i>.mlp.{gate,up}.weight` | `[hidden, width]` | `model.layers.<i>.mlp.{gate,up}_proj.weight` |
/// | `block.<i>.mlp.down.weight` | `[width, hidden]` | `model.layers.<i>.mlp.down_proj.weight` |
/// | `norm.weight` | `[width]` | `model.norm.weight` |
/// | `head.weight`, unless tied | `[vocab, width]` | `lm_head.weight` |
///
/// The pairs of the rotary embedding are split in halves, as these checkpoints have them; Meta's own files interleave
/// them. Weights start normal with standard deviation 0.02.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Llama {
    /// Tokens: ids from 0 to `vocab − 1`.
    pub vocab: usize,
    /// Features of each position.
    pub width: usize,
    /// Features inside the MLP.
    pub hidden: usize,
    /// Blocks.
    pub layers: usize,
    /// Heads of the queries; they divide the width into an even number.
    pub heads: usize,
    /// Heads of keys and values; they divide those of the queries.
    pub kv_heads: usize,
    /// The most positions that a sequence may have. No parameter depends on it, but caches do.
    pub context: usize,
    /// The base of the rotary frequencies.
    pub rotary_base: f64,
    /// How they are changed.
    pub rotary_scaling: Option<RotaryScaling>,
    /// The `eps` of the norms.
    pub eps: f64,
    /// Whether the head has the embedding's weight.
    pub tied: bool,
}

impl Llama {
    /// TinyLlama 1.1B (Zhang and others, 2024): 1,100,048,384 parameters.
    pub const TINY_1_1B: Llama = Llama {
        vocab: 32_000,
        width: 2048,
        hidden: 5632,
        layers: 22,
        heads: 32,
        kv_heads: 4,
        context: 2048,
        rotary_base: 10_000.0,
        rotary_scaling: None,
        eps: 1e-5,
        tied: false,
    };

    /// Llama 2 7B: 6,738,415,616 parameters.
    pub const LLAMA_2_7B: Llama =
        Llama { width: 4096, hidden: 11_008, layers: 32, kv_heads: 32, context: 4096, ..Llama::TINY_1_1B };

    /// Llama 3.1 8B: 8,030,261,248 parameters.
    pub const LLAMA_3_1_8B: Llama = Llama {
        vocab: 128_256,
        width: 4096,
        hidden: 14_336,
        layers: 32,
        kv_heads: 8,
        context: 131_072,
        rotary_base: 500_000.0,
        rotary_scaling: Some(RotaryScaling::LLAMA_3_1),
        ..Llama::TINY_1_1B
    };

    /// Llama 3.2 1B: 1,235,814,400 parameters, the head tied to the embedding.
    pub const LLAMA_3_2_1B: Llama = Llama {
        width: 2048,
        hidden: 8192,
        layers: 16,
        rotary_scaling: Some(RotaryScaling::LLAMA_3_2),
        tied: true,
        ..Llama::LLAMA_3_1_8B
    };

    /// The logits, `[batch, time, vocab]` of `f32`, of integer `tokens`, `[batch, time]`. They are ready for `cross_entropy`
    /// with the tokens one place further. `time` is at most `context`, as a number or as a variable's bound.
    #[track_caller]
    pub fn build<'g>(&self, g: &'g GraphBuilder, tokens: Tensor<'g>) -> Tensor<'g> {
        if !fits(g, "llama", tokens, self.context) {
            return tokens.poison();
        }
        let positions = g.iota(DType::I32, vec![tokens.shape().0[1].clone()], 0);
        self.logits(g, tokens, positions, &|_, q, k, v| causal(q, k, v))
    }

    /// The logits, `[time, vocab]` of `f32`, of the integer `tokens`, `[time]`, that follow those of the calls before: what
    /// [`Llama::build`] gives for the whole text, for these positions.
    ///
    /// | state | shape | |
    /// |---|---|---|
    /// | `cache/length` | `i32[]` | tokens so far; 0 begins a new text |
    /// | `block.<i>.attn.cache.{k,v}` | `[context, kv_heads, width / heads]` | their keys, turned by their positions, and values |
    ///
    /// Calls, errors and what they leave are as in [`crate::Gpt::decode`]. The published contexts are long: give the model a
    /// shorter one where memory is short.
    #[track_caller]
    pub fn decode<'g>(&self, g: &'g GraphBuilder, tokens: Tensor<'g>) -> Tensor<'g> {
        let cache = match Cache::new(g, "llama", tokens, self.context) {
            Ok(cache) => cache,
            Err(poisoned) => return poisoned,
        };
        let mix: NamedMix<'_, 'g> = &|name, q, k, v| cache.mix(name, q, k, v);
        let logits = self.logits(g, tokens.expand(0), cache.positions(), mix);
        cache.advance();
        logits.squeeze(0)
    }

    /// The logits of `[batch, time]` tokens at these positions, `[time]`.
    #[track_caller]
    fn logits<'g>(
        &self,
        g: &'g GraphBuilder,
        tokens: Tensor<'g>,
        positions: Tensor<'g>,
        mix: NamedMix<'_, 'g>,
    ) -> Tensor<'g> {
        let Llama { vocab, width, hidden, layers, heads, kv_heads, eps, .. } = *self;
        // Heads that do not divide the width are the attention's to refuse.
        if let Some(size) = width.checked_div(heads).filter(|size| size * heads == width && size % 2 == 1) {
            let what = format!("the {size} features of a head do not turn in pairs");
            return tokens.mistake("llama", what, "give each head an even number of the width's features");
        }
        let (base, scaling) = (self.rotary_base, self.rotary_scaling);
        let rotary = RotaryOptions { base, scaling, ..RotaryOptions::default() };
        let linear = LinearOptions { weight: WeightInit::Normal(0.02), bias: None };
        let (norm, mlp) = (Norm::Rms(eps), Mlp::Gated(Activation::Silu));
        let block =
            Block { kv_heads, hidden, mlp, norm, inner: linear, last: linear, ..Block::new(width, heads) };

        let table = g.parameter("tok.weight", &[vocab, width], WeightInit::Normal(0.02).init(vocab, width));
        let mut x = table.gather(0, tokens);
        for i in 0..layers {
            let name = format!("block.{i}");
            x = block_with(g, &name, x, block, &|q, k, v| {
                mix(&name, q.rotary(positions, rotary), k.rotary(positions, rotary), v)
            });
        }
        x = norm.apply(g, "norm", x);
        if self.tied { x.matmul_t(table, false, true) } else { linear_with(g, "head", x, vocab, linear) }
    }
}
