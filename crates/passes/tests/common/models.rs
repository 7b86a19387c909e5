//! Training steps of the usual size and shape, built from the graph's own ops.

use onestep_ir::{AttentionOptions, DType, Graph, GraphBuilder, Init, Tensor};
use onestep_optim::{AdamW, Clip, Params, StepOptions, training_step};

fn step(forward: &Graph) -> Graph {
    let options = StepOptions { clip: Some(Clip::GlobalNorm(1.0)), ..StepOptions::default() };
    let rule = AdamW::new(3e-4).weight_decay(0.1);
    training_step(forward, "loss", Params::All, &rule, &options).unwrap().graph
}

fn linear<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, inputs: usize, outputs: usize) -> Tensor<'g> {
    let w = g.parameter(&format!("{name}.weight"), &[inputs, outputs], Init::Normal { mean: 0.0, std: 0.02 });
    let b = g.parameter(&format!("{name}.bias"), &[outputs], Init::ZEROS);
    x.matmul(w) + b
}

fn norm<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, dim: usize) -> Tensor<'g> {
    let w = g.parameter(&format!("{name}.weight"), &[dim], Init::ONES);
    let b = g.parameter(&format!("{name}.bias"), &[dim], Init::ZEROS);
    x.layer_norm(w, b, 1e-5)
}

/// A training step of a perceptron with two hidden layers.
pub fn mlp(batch: usize) -> Graph {
    let g = GraphBuilder::new("mlp");
    let (x, y) = (g.input("x", DType::F32, [batch, 784]), g.input("y", DType::I32, [batch]));
    let h = linear(&g, "fc1", x, 784, 256).relu();
    let h = linear(&g, "fc2", h, 256, 256).relu();
    let loss = linear(&g, "fc3", h, 256, 10).cross_entropy(y).mean_all();
    step(&g.finish(loss).unwrap())
}

/// A training step of a GPT with `layers` layers of width `dim`.
pub fn gpt(layers: usize, batch: usize, length: usize, dim: usize, heads: usize, vocabulary: usize) -> Graph {
    let g = GraphBuilder::new("gpt");
    let ids = g.input("ids", DType::I32, [batch, length]);
    let labels = g.input("labels", DType::I32, [batch, length]);
    let init = Init::Normal { mean: 0.0, std: 0.02 };
    let table = g.parameter("wte", &[vocabulary, dim], init);
    let places = g.parameter("wpe", &[length, dim], init);
    let mut x = table.gather(0, ids) + places;
    for layer in 0..layers {
        let path = format!("block.{layer}");
        let n = norm(&g, &format!("{path}.ln1"), x, dim);
        let qkv = linear(&g, &format!("{path}.attn.qkv"), n, dim, 3 * dim);
        let parts = qkv.chunk(2, 3);
        let [q, k, v] =
            [0, 1, 2].map(|i| parts[i].reshape([batch, length, heads, dim / heads]).transpose(&[0, 2, 1, 3]));
        let a = q.attention(k, v, None, AttentionOptions { causal: true, ..AttentionOptions::default() });
        let a = a.transpose(&[0, 2, 1, 3]).reshape([batch, length, dim]);
        x = x + linear(&g, &format!("{path}.attn.out"), a, dim, dim);
        let n = norm(&g, &format!("{path}.ln2"), x, dim);
        let h = linear(&g, &format!("{path}.mlp.up"), n, dim, 4 * dim).gelu_tanh();
        x = x + linear(&g, &format!("{path}.mlp.down"), h, 4 * dim, dim);
    }
    let x = norm(&g, "ln", x, dim);
    let loss = x.matmul_t(table, false, true).cross_entropy(labels).mean_all();
    step(&g.finish(loss).unwrap())
}
