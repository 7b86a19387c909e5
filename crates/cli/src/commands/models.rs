//! The models that the program trains and times, as graphs.

use onestep::nn::{Activation, Cnn, Gpt, GptInit, Llama, mlp_classifier};
use onestep::prelude::*;
use onestep::{precision, store};

/// Sizes of a byte-level GPT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GptShape {
    /// Features of each position.
    pub width: usize,
    /// Blocks.
    pub layers: usize,
    /// Heads of each attention.
    pub heads: usize,
    /// Bytes that the model sees at once.
    pub context: usize,
}

impl Default for GptShape {
    fn default() -> Self {
        GptShape { width: 128, layers: 4, heads: 4, context: 128 }
    }
}

impl GptShape {
    /// The model, over the 256 byte values.
    pub fn model(&self, init: GptInit) -> Gpt {
        let GptShape { width, layers, heads, context } = *self;
        Gpt { width, layers, heads, context, init, ..Gpt::MINI }
    }
}

/// GPT-2 124M with the vocabulary of 50,304 that fills whole tiles.
pub const GPT2: Gpt = Gpt { vocab: 50_304, ..Gpt::GPT2 };

/// FLOPs of one training step of a GPT on so many tokens: the matrix products, forward and both gradients, attention counted
/// in full.
pub fn gpt_training_flops(gpt: &Gpt, tokens: usize) -> f64 {
    let [d, l, t, v] = [gpt.width, gpt.layers, gpt.context, gpt.vocab].map(|n| n as f64);
    tokens as f64 * (6.0 * (12.0 * l * d * d + v * d) + 12.0 * l * d * t)
}

/// A language model's graph: inputs `x` and `y`, `[batch, context]` of `i32`, and the mean cross-entropy as its loss.
pub fn gpt_graph(gpt: &Gpt, batch: usize) -> Result<Graph, Error> {
    let g = GraphBuilder::new("gpt");
    let x = g.input("x", I32, [batch, gpt.context]);
    let y = g.input("y", I32, [batch, gpt.context]);
    let logits = gpt.build(&g, x);
    Ok(g.finish(logits.cross_entropy(y))?)
}

/// The same model for writing text: input `token`, `[1]`, and output `logits`, `[1, 256]`, of the byte after it; what came
/// before is state.
pub fn gpt_writer(shape: &GptShape) -> Result<Graph, Error> {
    let g = GraphBuilder::new("gpt-writer");
    let token = g.input("token", I32, [1]);
    g.output("logits", shape.model(GptInit::default()).decode(&g, token));
    Ok(g.build()?)
}

/// A Llama that writes a text by itself, the likeliest token each time, with weights and caches in a precision: the last
/// token is state, `token`, so that a call takes no input. Output `next`, `[1]` of `i32`, is the new one.
pub fn llama_writer(model: &Llama, low: Precision) -> Result<Graph, Error> {
    let g = GraphBuilder::new("llama-writer");
    let token = g.state("token", Role::Buffer, I32, &[1], Init::ZEROS);
    let next = model.decode(&g, token).argmax(-1);
    g.update(token, next, true);
    g.output("next", next);
    Ok(precision(&store(&g.build()?, low)?, low)?)
}

/// A classifier with one hidden layer and ReLU: inputs `x`, `[B, inputs]` of `f32`, and `y`, `[B]` of `i32`; outputs `loss`
/// and `accuracy`.
pub fn mlp_graph(inputs: usize, hidden: usize, classes: usize, batch: usize) -> Result<Graph, Error> {
    let g = GraphBuilder::new("mlp");
    let x = g.input("x", F32, (dim("B").at_most(batch), inputs));
    let y = g.input("y", I32, (dim("B"),));
    let logits = mlp_classifier(&g, x, &[hidden], classes, Activation::Relu);
    g.output("accuracy", logits.argmax(-1).equals(y).mean());
    Ok(g.finish(logits.cross_entropy(y))?)
}

/// A classifier of square images by convolutions: inputs `x`, `[B, side²]` of `f32`, and `y`, `[B]` of `i32`; outputs `loss`
/// and `accuracy`.
pub fn cnn_graph(side: usize, batch: usize) -> Result<Graph, Error> {
    let g = GraphBuilder::new("cnn");
    let x = g.input("x", F32, (dim("B").at_most(batch), side * side));
    let y = g.input("y", I32, (dim("B"),));
    let images = x.reshape(vec![x.shape().0[0].clone(), 1.into(), side.into(), side.into()]);
    let logits = Cnn::SMALL.build(&g, images);
    g.output("accuracy", logits.argmax(-1).equals(y).mean());
    Ok(g.finish(logits.cross_entropy(y))?)
}

/// FLOPs of one training step of that classifier on so many images: forward and both gradients, without the first
/// layer's input gradient.
pub fn cnn_training_flops(side: usize, images: usize) -> f64 {
    let Cnn { channels: [first, second], hidden, classes } = Cnn::SMALL;
    let (a, b) = ((side - 2).pow(2), (side - 4).pow(2));
    let conv1 = 2.0 * (images * a * first * 9) as f64;
    let conv2 = 2.0 * (images * b * second * first * 9) as f64;
    let fc = 2.0 * (images * hidden * (((side - 4) / 2).pow(2) * second + classes)) as f64;
    2.0 * conv1 + 3.0 * (conv2 + fc)
}
