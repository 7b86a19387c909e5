//! The GPT-2 architecture at any size.

use crate::attention::EPS;
use crate::layers::{LinearOptions, embedding_with, layer_norm, linear_with};
use crate::{Block, WeightInit, dropout, transformer_block};
use onestep_ir::{DType, Dim, GraphBuilder, Init, Tensor};

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
/// 2019): token and learned position embeddings, pre-norm blocks with exact GELU and an MLP of four times the width, a
/// last layer norm, and a head of its own weight, with a bias.
///
/// | parameter | shape |
/// |---|---|
/// | `tok.weight` | `[vocab, width]` |
/// | `pos.weight` | `[context, width]` |
/// | `block.<i>.norm1.{weight,bias}`, `block.<i>.norm2.{weight,bias}` | `[width]` |
/// | `block.<i>.attn.{q,k,v,proj}.weight` | `[width, width]` |
/// | `block.<i>.attn.{q,k,v,proj}.bias` | `[width]` |
/// | `block.<i>.mlp.up.{weight,bias}` | `[4·width, width]`, `[4·width]` |
/// | `block.<i>.mlp.down.{weight,bias}` | `[width, 4·width]`, `[width]` |
/// | `norm.{weight,bias}` | `[width]` |
/// | `head.{weight,bias}` | `[vocab, width]`, `[vocab]` |
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
}

impl Gpt {
    /// The benchmark's small model: 256 tokens (bytes), width 128, 4 layers of 4 heads, 128 positions; 875,520 parameters.
    pub const MINI: Gpt =
        Gpt { vocab: 256, width: 128, layers: 4, heads: 4, context: 128, dropout: 0.0, init: GptInit::Torch };

    /// The same model without dropout: what a graph that evaluates is built from. Its parameters are the same.
    pub const fn eval(self) -> Gpt {
        Gpt { dropout: 0.0, ..self }
    }

    /// The logits, `[batch, time, vocab]` of `f32`, of integer `tokens`, `[batch, time]`. They are ready for `cross_entropy`
    /// with the tokens one place further. `time` is at most `context`, as a number or as a variable's bound.
    #[track_caller]
    pub fn build<'g>(&self, g: &'g GraphBuilder, tokens: Tensor<'g>) -> Tensor<'g> {
        let Gpt { vocab, width, layers, heads, context, dropout: p, init } = *self;
        let shape = tokens.shape();
        let [_, time] = &shape.0[..] else {
            return match tokens.value() {
                None => tokens,
                Some(_) => tokens.mistake(
                    "gpt",
                    format!("the tokens have shape {shape}"),
                    "give them as [batch, time]",
                ),
            };
        };
        let Inits { embedding, inner, last } = Inits::new(init, layers);
        let table = embedding_with(g, "tok", tokens, vocab, width, embedding);
        let mut x = table + positions(g, tokens, time, context, width, embedding);
        x = dropout(g, "dropout", x, p);
        for i in 0..layers {
            let block = Block { dropout: p, inner, last, ..Block::new(width, heads) };
            x = transformer_block(g, &format!("block.{i}"), x, block);
        }
        x = layer_norm(g, "norm", x, EPS);
        linear_with(g, "head", x, vocab, inner)
    }
}

/// The first values of the parts of a GPT.
pub(crate) struct Inits {
    pub embedding: Init,
    pub inner: LinearOptions,
    pub last: LinearOptions,
}

impl Inits {
    pub fn new(init: GptInit, layers: usize) -> Inits {
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

/// The embeddings of the positions of a sequence, `[time, width]`.
#[track_caller]
fn positions<'g>(
    g: &'g GraphBuilder,
    tokens: Tensor<'g>,
    time: &Dim,
    context: usize,
    width: usize,
    init: Init,
) -> Tensor<'g> {
    let bound = g.with_graph(|graph| {
        time.vars().iter().try_fold(time.coef(), |n, var| n.checked_mul(*graph.dims.get(var)?))
    });
    if bound.is_none_or(|longest| longest > context) {
        let longest = bound.map_or("too many".to_string(), |n| n.to_string());
        let what = format!("sequences may have {longest} positions, and the model has {context}");
        return tokens.mistake("gpt", what, "shorten the sequences, or give the model a longer context");
    }
    match time.size() {
        Some(n) if n == context => g.parameter("pos.weight", &[context, width], init),
        Some(n) => g.parameter("pos.weight", &[context, width], init).slice(0, 0, n),
        None => embedding_with(g, "pos", g.iota(DType::I32, vec![time.clone()], 0), context, width, init),
    }
}
