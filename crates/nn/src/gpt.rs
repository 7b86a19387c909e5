//! The GPT-2 architecture at any size.

use crate::attention::{NamedMix, causal};
use crate::cache::{Cache, fits, learned_positions};
use crate::layers::{LinearOptions, embedding_with, layer_norm, linear_with};
use crate::transformer::{EPS, Mlp, block_with};
use crate::{Activation, Block, WeightInit, dropout};
use onestep_ir::{GraphBuilder, Init, Tensor};

/// How a GPT's parameters start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum GptInit {
    /// PyTorch's defaults: embeddings standard normal, linear layers uniform in `±1/√inputs`.
    #[default]
    Torch,
    /// GPT-2's: weights and embeddings normal with standard deviation 0.02, divided by `√(2 · layers)` where a layer ends a
    /// residual branch; biases zero (Radford and others, 2019, and their code).
    Gpt2,
}

/// A decoder-only transformer as GPT-2 is (Radford and others, "Language models are unsupervised multitask learners",
/// 2019): token and learned position embeddings, pre-norm blocks with GELU and an MLP of four times the width, a last
/// layer norm, and a head: of its own weight, with a bias, or tied to the embedding's.
///
/// | parameter | shape |
/// |---|---|
/// | `tok.weight` | `[vocab, width]` |
/// | `pos.weight` | `[context, width]` |
/// | `block.<i>.norm1.{weight,bias}`, `block.<i>.norm2.{weight,bias}` | `[width]` |
/// | `block.<i>.attn.{q,k,v,proj}.weight` | `[width, width]` |
/// | `block.<i>.attn.{q,k,v,proj}.bias` | `[width]` |
/// | `block.<i>.attn.qkv.{weight,bias}`, if packed, for the first three | `[3·width, width]`, `[3·width]` |
/// | `block.<i>.mlp.up.{weight,bias}` | `[4·width, width]`, `[4·width]` |
/// | `block.<i>.mlp.down.{weight,bias}` | `[width, 4·width]`, `[width]` |
/// | `norm.{weight,bias}` | `[width]` |
/// | `head.{weight,bias}`, unless tied | `[vocab, width]`, `[vocab]` |
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gpt {
    /// Tokens: ids from 0 to `vocab − 1`.
    pub vocab: usize,
    /// Features of each position.
    pub width: usize,
    /// Blocks.
    pub layers: usize,
    /// Heads of each attention; they divide the width.
    pub heads: usize,
    /// The most positions that a sequence may have.
    pub context: usize,
    /// The probability with which an element of the embeddings and of each branch's end becomes 0. The weights of the
    /// attention are left whole, so that it stays one kernel.
    pub dropout: f64,
    /// How the parameters start.
    pub init: GptInit,
    /// What is between the layers of the MLP.
    pub activation: Activation,
    /// Whether queries, keys and values are parts of one linear layer.
    pub packed: bool,
    /// Whether the head has the embedding's weight, and no bias.
    pub tied: bool,
}

impl Gpt {
    /// The benchmark's small model: 256 tokens (bytes), width 128, 4 layers of 4 heads, 128 positions; 875,520 parameters.
    pub const MINI: Gpt = Gpt {
        vocab: 256,
        width: 128,
        layers: 4,
        heads: 4,
        context: 128,
        dropout: 0.0,
        init: GptInit::Torch,
        activation: Activation::Gelu,
        packed: false,
        tied: false,
    };

    /// GPT-2's smallest: 124,439,808 parameters, the head tied to the embedding, tanh GELU, queries, keys and values packed.
    /// For speed on a GPU, a vocabulary of 50,304 wastes no part of a tile.
    pub const GPT2: Gpt = Gpt {
        vocab: 50_257,
        width: 768,
        layers: 12,
        heads: 12,
        context: 1024,
        dropout: 0.0,
        init: GptInit::Gpt2,
        activation: Activation::GeluTanh,
        packed: true,
        tied: true,
    };

    /// The same model without dropout: what a graph that evaluates is built from. Its parameters are the same.
    pub const fn eval(self) -> Gpt {
        Gpt { dropout: 0.0, ..self }
    }

    /// The logits, `[batch, time, vocab]` of `f32`, of integer `tokens`, `[batch, time]`. They are ready for `cross_entropy`
    /// with the tokens one place further. `time` is at most `context`, as a number or as a variable's bound.
    #[track_caller]
    pub fn build<'g>(&self, g: &'g GraphBuilder, tokens: Tensor<'g>) -> Tensor<'g> {
        let Gpt { vocab, width, context, .. } = *self;
        if !fits(g, "gpt", tokens, context) {
            return tokens.poison();
        }
        let init = Inits::new(self.init, self.layers).embedding;
        let table = embedding_with(g, "tok", tokens, vocab, width, init);
        let x =
            dropout(g, "dropout", table + learned_positions(g, tokens, context, width, init), self.dropout);
        self.logits(g, x, &|_, q, k, v| causal(q, k, v))
    }

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
    /// in one call; both programs run on one state. What lies behind the length in the caches is not read.
    #[track_caller]
    pub fn decode<'g>(&self, g: &'g GraphBuilder, tokens: Tensor<'g>) -> Tensor<'g> {
        let Gpt { vocab, width, context, .. } = *self;
        let cache = match Cache::new(g, "gpt", tokens, context) {
            Ok(cache) => cache,
            Err(poisoned) => return poisoned,
        };
        let init = Inits::new(self.init, self.layers).embedding;
        let table = embedding_with(g, "tok", tokens, vocab, width, init);
        let places = g.parameter("pos.weight", &[context, width], init);
        let x = table + places.dynamic_slice(0, cache.length, cache.time);
        let logits = self.eval().logits(g, x.expand(0), &|name, q, k, v| cache.mix(name, q, k, v));
        cache.advance();
        logits.squeeze(0)
    }

    /// The blocks, the last norm and the head, from embeddings `[batch, time, width]`.
    #[track_caller]
    fn logits<'g>(&self, g: &'g GraphBuilder, x: Tensor<'g>, mix: NamedMix<'_, 'g>) -> Tensor<'g> {
        let Gpt { vocab, width, layers, heads, dropout, init, activation, packed, tied, .. } = *self;
        let Inits { inner, last, .. } = Inits::new(init, layers);
        let mlp = Mlp::Plain(activation);
        let block = Block { packed, mlp, dropout, inner, last, ..Block::new(width, heads) };
        let mut x = x;
        for i in 0..layers {
            let name = format!("block.{i}");
            x = block_with(g, &name, x, block, &|q, k, v| mix(&name, q, k, v));
        }
        let x = layer_norm(g, "norm", x, EPS);
        match g.find_state(&g.path("tok.weight")).filter(|_| tied) {
            Some(table) => x.matmul_t(table, false, true),
            None => linear_with(g, "head", x, vocab, inner),
        }
    }
}

/// The first values of the parts of a GPT.
struct Inits {
    embedding: Init,
    inner: LinearOptions,
    last: LinearOptions,
}

impl Inits {
    fn new(init: GptInit, layers: usize) -> Inits {
        match init {
            GptInit::Torch => {
                let (inner, last) = Default::default();
                Inits { embedding: Init::Normal { mean: 0.0, std: 1.0 }, inner, last }
            }
            GptInit::Gpt2 => {
                let residual = 0.02 / (2.0 * layers.max(1) as f64).sqrt();
                Inits {
                    embedding: WeightInit::GPT2.init(0, 0),
                    inner: LinearOptions::zero_bias(WeightInit::GPT2),
                    last: LinearOptions::zero_bias(WeightInit::Normal(residual)),
                }
            }
        }
    }
}
