//! The models' parameters, what training does to their loss, and what is said of impossible ones.

mod common;

use common::{assert_close, call, first_state, mistakes, shapes};
use onestep_ir::{Array, DType, Graph, GraphBuilder, Tensor, bind, dim};
use onestep_nn::{Activation, Block, Gpt, GptInit, attention, mlp, mlp_classifier, transformer_block};
use onestep_optim::{AdamW, Params, StepOptions, training_step};

const TINY: Gpt = Gpt { vocab: 7, width: 8, layers: 2, heads: 2, context: 6, ..Gpt::MINI };

/// The graph of one model over the tokens `[batch, time]`.
fn gpt(gpt: Gpt, batch: usize, time: usize) -> Graph {
    let g = GraphBuilder::new("gpt");
    let tokens = g.input("x", DType::I32, [batch, time]);
    g.output("logits", gpt.build(&g, tokens));
    g.build().unwrap()
}

#[test]
fn the_small_gpt_has_the_documented_parameters() {
    let graph = gpt(Gpt::MINI, 8, 128);
    let mut want =
        vec![("tok.weight".to_string(), vec![256, 128]), ("pos.weight".to_string(), vec![128, 128])];
    let mut pair = |path: &str, weight: &[usize]| {
        want.push((format!("{path}.weight"), weight.to_vec()));
        want.push((format!("{path}.bias"), vec![weight[0]]));
    };
    for i in 0..4 {
        pair(&format!("block.{i}.norm1"), &[128]);
        for name in ["q", "k", "v", "proj"] {
            pair(&format!("block.{i}.attn.{name}"), &[128, 128]);
        }
        pair(&format!("block.{i}.norm2"), &[128]);
        pair(&format!("block.{i}.mlp.up"), &[512, 128]);
        pair(&format!("block.{i}.mlp.down"), &[128, 512]);
    }
    pair("norm", &[128]);
    pair("head", &[256, 128]);
    assert_eq!(shapes(&graph), want);
    let count: usize = want.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    assert_eq!(count, 875_520);
    assert_eq!(graph.ty(graph.outputs[0].value).sizes(), [8, 128, 256]);
    assert!(graph.nodes.iter().all(|n| n.op.rule().name() != "transpose"), "the layout spares transposes");
}

#[test]
fn gpt2s_initialisation_is_narrow_and_narrower_at_the_end_of_branches() {
    let state = first_state(&gpt(Gpt { init: GptInit::Gpt2, ..Gpt::MINI }, 1, 128), 0);
    let deviation = |path: &str| {
        let values = state[path].to_f64();
        (values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64).sqrt()
    };
    for (path, want) in [
        ("tok.weight", 0.02),
        ("pos.weight", 0.02),
        ("block.3.attn.q.weight", 0.02),
        ("block.0.mlp.up.weight", 0.02),
        ("block.0.attn.proj.weight", 0.02 / f64::sqrt(8.0)),
        ("block.3.mlp.down.weight", 0.02 / f64::sqrt(8.0)),
        ("head.weight", 0.02),
        ("head.bias", 0.0),
        ("block.2.attn.q.bias", 0.0),
        ("norm.weight", 1.0),
    ] {
        assert!((deviation(path) - want).abs() <= 0.03 * want, "{path}: {}", deviation(path));
    }
}

/// Trains on one batch and gives the losses.
fn losses(forward: &Graph, inputs: &[Array], lr: f64, steps: usize) -> Vec<f64> {
    let rule = AdamW::new(lr);
    let step = training_step(forward, "loss", Params::All, &rule, &StepOptions::default()).unwrap().graph;
    let mut state = first_state(&step, 2);
    (0..steps).map(|_| call(&step, &mut state, inputs)[0].to_f64()[0]).collect()
}

#[test]
fn training_lowers_the_loss() {
    for (init, p) in [(GptInit::Torch, 0.0), (GptInit::Gpt2, 0.0), (GptInit::Torch, 0.1)] {
        let g = GraphBuilder::new("gpt");
        let (x, y) = (g.input("x", DType::I32, [2, 6]), g.input("y", DType::I32, [2, 6]));
        let logits = Gpt { init, dropout: p, ..TINY }.build(&g, x);
        let forward = g.finish(logits.cross_entropy(y)).unwrap();
        let tokens = Array::new(&[2, 6], &[0, 1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1]).unwrap();
        let next = Array::new(&[2, 6], &[1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1, 0]).unwrap();
        let losses = losses(&forward, &[tokens, next], 0.01, 25);
        assert!((1.5..3.5).contains(&losses[0]), "{init:?}, dropout {p}: begins at {}", losses[0]);
        assert!(losses[24] < 0.5 * losses[0], "{init:?}, dropout {p}: {losses:?}");
    }
    let g = GraphBuilder::new("mlp");
    let (x, y) = (g.input("x", DType::F32, [4, 2, 3]), g.input("y", DType::I32, [4]));
    let logits = mlp_classifier(&g, x, &[16], 4, Activation::Silu);
    let forward = g.finish(logits.cross_entropy(y)).unwrap();
    let x: Vec<f32> = (0..24).map(|i| (i * i % 7) as f32 / 7.0).collect();
    let inputs = [Array::new(&[4, 2, 3], &x).unwrap(), Array::new(&[4], &[0, 1, 2, 3]).unwrap()];
    let losses = losses(&forward, &inputs, 0.02, 40);
    assert!(losses[39] < 0.5 * losses[0], "{losses:?}");
}

#[test]
fn a_training_step_is_sound_and_comes_back_from_its_text() {
    let g = GraphBuilder::new("gpt");
    let (x, y) = (g.input("x", DType::I32, [2, 6]), g.input("y", DType::I32, [2, 6]));
    let logits = Gpt { dropout: 0.1, ..TINY }.build(&g, x);
    let forward = g.finish(logits.cross_entropy(y)).unwrap();
    let rule = AdamW::new(0.01);
    let step = training_step(&forward, "loss", Params::All, &rule, &StepOptions::default()).unwrap().graph;
    for graph in [forward, step] {
        graph.verify().unwrap();
        let text = graph.to_string();
        let read = Graph::parse(&text).unwrap();
        assert_eq!(read.to_string(), text);
    }
}

/// A token changes no logit before it, and a shorter sequence has those of a longer one's beginning.
#[test]
fn the_past_does_not_see_the_future() {
    let logits = |time: usize, tokens: &[i32]| {
        let graph = gpt(TINY, 1, time);
        let mut state = first_state(&graph, 5);
        call(&graph, &mut state, &[Array::new(&[1, time], tokens).unwrap()])[0].to_f64()
    };
    let whole = logits(6, &[1, 2, 3, 4, 5, 6]);
    let changed = logits(6, &[1, 2, 3, 4, 0, 6]);
    assert_eq!(whole[..4 * 7], changed[..4 * 7]);
    assert_ne!(whole[4 * 7..5 * 7], changed[4 * 7..5 * 7]);
    assert_eq!(logits(4, &[1, 2, 3, 4]), whole[..4 * 7]);
}

#[test]
fn batch_and_time_may_be_variables() {
    let g = GraphBuilder::new("gpt");
    let tokens = g.input("x", DType::I32, [dim("B").at_most(9), dim("T").at_most(6)]);
    g.output("logits", TINY.build(&g, tokens));
    let open = g.build().unwrap();
    let bound = bind(&open, &[("B".into(), 1), ("T".into(), 4)].into_iter().collect()).unwrap();
    let fixed = gpt(TINY, 1, 4);
    assert_eq!(shapes(&bound), shapes(&fixed));
    let tokens = [Array::new(&[1, 4], &[6, 0, 3, 3]).unwrap()];
    let run = |graph: &Graph| call(graph, &mut first_state(graph, 1), &tokens)[0].to_f64();
    assert_close(&run(&bound), &run(&fixed), 1e-6, "logits");
}

#[test]
fn names_follow_the_scope() {
    let g = GraphBuilder::new("scope");
    let x = g.input("x", DType::F32, [2, 3, 4]);
    g.scope("encoder", || {
        g.output("a", transformer_block(&g, "block.0", x, Block { hidden: 5, ..Block::new(4, 2) }));
        g.output("b", mlp(&g, "mlp", x, &[6, 2], Activation::Tanh));
    });
    let graph = g.build().unwrap();
    let shapes = shapes(&graph);
    assert!(shapes.iter().all(|(path, _)| path.starts_with("encoder.")));
    assert!(shapes.contains(&("encoder.block.0.mlp.down.weight".into(), vec![4, 5])));
    assert!(shapes.contains(&("encoder.mlp.1.weight".into(), vec![2, 6])));
    assert_eq!(graph.ty(graph.output("b").unwrap().value).sizes(), [2, 3, 2]);
}

#[test]
fn impossible_models_are_mistakes_at_the_callers_line() {
    let text = |build: &dyn for<'g> Fn(&'g GraphBuilder) -> Tensor<'g>| {
        let g = GraphBuilder::new("mistakes");
        g.output("y", build(&g));
        let text = mistakes(g.build());
        assert!(text.contains("tests/models.rs"), "{text}");
        text
    };
    let tokens = |g: &GraphBuilder, time| g.input("x", DType::I32, [2, time]).value();
    for (model, says) in [
        (Gpt { heads: 3, ..TINY }, "width of 8 does not divide into 3 heads"),
        (Gpt { heads: 0, ..TINY }, "does not divide into 0 heads"),
        (Gpt { width: usize::MAX, ..TINY }, "more elements than memory can address"),
        (Gpt { dropout: 2.0, ..TINY }, "is no probability"),
        (Gpt { context: 5, ..TINY }, "sequences may have 6 positions, and the model has 5"),
    ] {
        let got = text(&|g| model.build(g, g.tensor(tokens(g, 6).unwrap())));
        assert!(got.contains(says), "{got}");
    }
    assert!(text(&|g| TINY.build(g, g.input("x", DType::I32, [6]))).contains("give them as [batch, time]"));
    assert!(text(&|g| TINY.build(g, g.input("x", DType::F32, [1, 6]))).contains("integer"));
    let long = [dim("B").at_most(2), dim("T").at_most(7)];
    assert!(
        text(&|g| TINY.build(g, g.input("x", DType::I32, long.clone()))).contains("may have 7 positions")
    );
    assert!(
        text(&|g| attention(g, "a", g.input("x", DType::F32, [2, 4]), 2)).contains("[batch, time, width]")
    );
    let classifier = |dtype, shape: &'static [usize]| {
        text(&|g| mlp_classifier(g, g.input("x", dtype, shape), &[4], 2, Activation::Relu))
    };
    assert!(classifier(DType::F32, &[4]).contains("give x of shape [batch, ..]"));
    assert!(classifier(DType::U8, &[4, 4]).contains("cast them to f32"));
}
