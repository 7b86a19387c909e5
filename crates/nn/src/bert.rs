//! The BERT architecture at any size.

use crate::cache::{fits, learned_positions};
use crate::layers::features;
use crate::{
    Activation, Block, LinearOptions, Norm, NormOrder, WeightInit, dropout, embedding_with, encoder_block,
    linear_with,
};
use onestep_ir::{GraphBuilder, Init, Tensor};

/// An encoder-only transformer as BERT is (Devlin and others, "BERT: pre-training of deep bidirectional transformers",
/// 2018): embeddings of tokens, learned positions and token types, a norm, and post-norm blocks with exact GELU in which
/// each position sees all of its sequence.
///
/// | parameter | shape | in Hugging Face's checkpoints |
/// |---|---|---|
/// | `tok.weight` | `[vocab, width]` | `bert.embeddings.word_embeddings.weight` |
/// | `pos.weight` | `[context, width]` | `bert.embeddings.position_embeddings.weight` |
/// | `type.weight` | `[types, width]` | `bert.embeddings.token_type_embeddings.weight` |
/// | `norm.{weight,bias}` | `[width]` | `bert.embeddings.LayerNorm.{weight,bias}` |
/// | `block.<i>.attn.{q,k,v}.{weight,bias}` | `[width, width]`, `[width]` | `bert.encoder.layer.<i>.attention.self.{query,key,value}.{weight,bias}` |
/// | `block.<i>.attn.proj.{weight,bias}` | `[width, width]`, `[width]` | `bert.encoder.layer.<i>.attention.output.dense.{weight,bias}` |
/// | `block.<i>.norm1.{weight,bias}` | `[width]` | `bert.encoder.layer.<i>.attention.output.LayerNorm.{weight,bias}` |
/// | `block.<i>.mlp.up.{weight,bias}` | `[hidden, width]`, `[hidden]` | `bert.encoder.layer.<i>.intermediate.dense.{weight,bias}` |
/// | `block.<i>.mlp.down.{weight,bias}` | `[width, hidden]`, `[width]` | `bert.encoder.layer.<i>.output.dense.{weight,bias}` |
/// | `block.<i>.norm2.{weight,bias}` | `[width]` | `bert.encoder.layer.<i>.output.LayerNorm.{weight,bias}` |
/// | `pooler.{weight,bias}` | `[width, width]`, `[width]` | `bert.pooler.dense.{weight,bias}` |
/// | `mlm.dense.{weight,bias}` | `[width, width]`, `[width]` | `cls.predictions.transform.dense.{weight,bias}` |
/// | `mlm.norm.{weight,bias}` | `[width]` | `cls.predictions.transform.LayerNorm.{weight,bias}` |
/// | `mlm.bias` | `[vocab]` | `cls.predictions.bias` |
///
/// Weights and embeddings start normal with standard deviation 0.02, cut at two of them; biases at zero.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bert {
    /// Tokens: ids from 0 to `vocab − 1`.
    pub vocab: usize,
    /// Features of each position.
    pub width: usize,
    /// Features inside the MLP.
    pub hidden: usize,
    /// Blocks.
    pub layers: usize,
    /// Heads of each attention; they divide the width.
    pub heads: usize,
    /// The most positions that a sequence may have.
    pub context: usize,
    /// Types of tokens: two, for the two sentences of a pair.
    pub types: usize,
    /// The `eps` of the norms.
    pub eps: f64,
    /// The probability with which an element of the embeddings and of each branch's end becomes 0. The weights of the
    /// attention are left whole, so that it stays one kernel.
    pub dropout: f64,
}

impl Bert {
    /// BERT base, uncased: 109,482,240 parameters with the pooler. Without dropout, for inference; it was trained with 0.1.
    pub const BASE: Bert = Bert {
        vocab: 30_522,
        width: 768,
        hidden: 3072,
        layers: 12,
        heads: 12,
        context: 512,
        types: 2,
        eps: 1e-12,
        dropout: 0.0,
    };

    /// BERT large, uncased: 335,141,888 parameters with the pooler.
    pub const LARGE: Bert = Bert { width: 1024, hidden: 4096, layers: 24, heads: 16, ..Bert::BASE };

    /// How a weight or an embedding starts.
    const WEIGHT: WeightInit = WeightInit::TruncatedNormal(0.02);

    /// The features, `[batch, time, width]` of `f32`, of integer `tokens`, `[batch, time]`. `time` is at most `context`, as a
    /// number or as a variable's bound.
    ///
    /// `types` are integers of the tokens' shape; without them, every token has type 0. Of sequence `b` only the first
    /// `lengths[b]` tokens are there, `i32` of `[batch]`, and no position sees the padding behind; without lengths, all.
    #[track_caller]
    pub fn encode<'g>(
        &self,
        g: &'g GraphBuilder,
        tokens: Tensor<'g>,
        types: Option<Tensor<'g>>,
        lengths: Option<Tensor<'g>>,
    ) -> Tensor<'g> {
        let Bert { vocab, width, hidden, layers, heads, context, eps, dropout: p, .. } = *self;
        if !fits(g, "bert", tokens, context) {
            return tokens.poison();
        }
        let init = Self::WEIGHT.init(vocab, width);
        let words = embedding_with(g, "tok", tokens, vocab, width, init);
        let places = learned_positions(g, tokens, context, width, init);
        let kinds = g.parameter("type.weight", &[self.types, width], init);
        let kind = match types {
            Some(types) => kinds.gather(0, types),
            None => kinds.slice(0, 0, 1).squeeze(0),
        };
        let norm = Norm::Layer(eps);
        let mut x = dropout(g, "dropout", norm.apply(g, "norm", words + places + kind), p);
        let linear = LinearOptions::zero_bias(Self::WEIGHT);
        let block = Block { hidden, norm, order: NormOrder::Post, dropout: p, ..Block::new(width, heads) };
        for i in 0..layers {
            let block = Block { inner: linear, last: linear, ..block };
            x = encoder_block(g, &format!("block.{i}"), x, lengths, block);
        }
        x
    }

    /// What stands for the whole sequence, `[batch, width]`: the first token's features through a linear layer and tanh.
    #[track_caller]
    pub fn pool<'g>(&self, g: &'g GraphBuilder, features: Tensor<'g>) -> Tensor<'g> {
        linear_with(g, "pooler", features.at(1, 0), self.width, LinearOptions::zero_bias(Self::WEIGHT)).tanh()
    }

    /// The logits of the masked tokens, `[.., vocab]`, from features `[.., width]`: a linear layer, GELU, a norm, and the
    /// embedding's weight with a bias. It stands in one graph and scope with [`Bert::encode`], whose weight it takes.
    #[track_caller]
    pub fn masked_lm<'g>(&self, g: &'g GraphBuilder, x: Tensor<'g>) -> Tensor<'g> {
        if features(x, "bert").is_none() {
            return x.poison();
        }
        let Some(table) = g.find_state(&g.path("tok.weight")) else {
            let what = "there is no embedding 'tok.weight' to tie the head to";
            return x.mistake("bert", what, "build the features with `encode` first, in the same scope");
        };
        let y = linear_with(g, "mlm.dense", x, self.width, LinearOptions::zero_bias(Self::WEIGHT));
        let y = Norm::Layer(self.eps).apply(g, "mlm.norm", Activation::Gelu.apply(y));
        let bias = g.parameter("mlm.bias", &[self.vocab], Init::ZEROS);
        y.matmul_t(table.cast(y.dtype()), false, true) + bias.cast(y.dtype())
    }
}
