//! Dropout: counted masks that differ from step to step, and are the same in every run of one seed.

mod common;

use common::{State, call, first_state, mistakes, shapes};
use onestep_io::safetensors::{Metadata, load, save};
use onestep_ir::{Array, DType, Graph, GraphBuilder, Role, Tensor};
use onestep_nn::{
    Activation, Gpt, alpha_dropout, alpha_dropout_channels, dropout, dropout_channels, linear,
    stochastic_depth,
};
use onestep_optim::{AdamW, Params, StepOptions, training_step};

const N: usize = 100_000;

fn ones(n: usize) -> Array {
    Array::new(&[n], &vec![1f32; n]).unwrap()
}

/// Dropout of `n` elements.
fn single(n: usize, p: f64) -> Graph {
    let g = GraphBuilder::new("dropout");
    let x = g.input("x", DType::F32, [n]);
    g.output("y", dropout(&g, "drop", x, p));
    g.build().unwrap()
}

fn masks(graph: &Graph, seed: u64, steps: usize) -> Vec<Vec<f64>> {
    let n = graph.ty(graph.inputs[0].value).sizes()[0];
    let mut state = first_state(graph, seed);
    (0..steps).map(|_| call(graph, &mut state, &[ones(n)])[0].to_f64()).collect()
}

#[test]
fn masks_differ_between_steps_and_not_between_runs() {
    let graph = single(N, 0.5);
    let first = masks(&graph, 3, 3);
    assert_eq!(first, masks(&graph, 3, 3));
    assert_ne!(first, masks(&graph, 4, 3));
    for (i, mask) in first.iter().enumerate() {
        assert!(mask.iter().all(|y| [0.0, 2.0].contains(y)));
        let kept = mask.iter().filter(|y| **y != 0.0).count() as f64 / N as f64;
        assert!((kept - 0.5).abs() < 0.01, "kept {kept}");
        for other in &first[..i] {
            let same = mask.iter().zip(other).filter(|(a, b)| a == b).count() as f64 / N as f64;
            assert!((same - 0.5).abs() < 0.01, "the masks of two steps share {same}");
        }
    }
}

#[test]
fn it_declares_the_key_and_a_counter_of_its_own() {
    let graph = single(4, 0.5);
    assert_eq!(shapes(&graph), [("rng/key".into(), vec![2]), ("rng/counter".into(), vec![])]);
    assert!(graph.states.iter().all(|s| s.role == Role::Rng && graph.ty(s.value).dtype == DType::U32));
    let mut state = first_state(&graph, 7 + (9 << 32));
    assert_eq!(state["rng/key"].to_f64(), [7.0, 9.0]);
    state.insert("rng/counter".into(), Array::scalar(u32::MAX - 1));
    for after in [u32::MAX, 0, 1] {
        call(&graph, &mut state, &[ones(4)]);
        assert_eq!(state["rng/counter"], Array::scalar(after));
    }
}

#[test]
fn two_layers_have_two_masks_and_a_new_layer_changes_no_other() {
    let build = |names: &[&str]| {
        let g = GraphBuilder::new("two");
        let x = g.input("x", DType::F32, [N]);
        for name in names {
            g.output(name, dropout(&g, name, x, 0.5));
        }
        g.build().unwrap()
    };
    let run = |graph: &Graph| call(graph, &mut first_state(graph, 1), &[ones(N)]);
    let (one, two) = (run(&build(&["a"])), run(&build(&["b", "a"])));
    assert_eq!(one[0], two[1]);
    assert_ne!(two[0], two[1]);
    let text = {
        let g = GraphBuilder::new("same");
        let x = g.input("x", DType::F32, [4]);
        g.output("y", dropout(&g, "a", dropout(&g, "a", x, 0.5), 0.5));
        mistakes(g.build())
    };
    assert!(text.contains("drawn twice at path 'a'") && text.contains("tests/dropout.rs"), "{text}");
}

#[test]
fn a_scope_has_random_numbers_of_its_own() {
    let g = GraphBuilder::new("scopes");
    let x = g.input("x", DType::F32, [N]);
    for scope in ["a", "b"] {
        g.scope(scope, || g.output(scope, dropout(&g, "drop", dropout(&g, "first", x, 0.0), 0.5)));
    }
    let graph = g.build().unwrap();
    let paths: Vec<_> = shapes(&graph).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["a.rng/key", "a.rng/counter", "b.rng/key", "b.rng/counter"]);
    let masks = call(&graph, &mut first_state(&graph, 1), &[ones(N)]);
    assert_ne!(masks[0], masks[1]);
}

#[test]
fn probabilities_at_and_beyond_the_edges() {
    let none = single(3, 0.0);
    assert!(none.states.is_empty() && none.nodes.is_empty(), "nothing is drawn for p = 0");
    assert_eq!(masks(&single(3, 1.0), 0, 1), [[0.0; 3]]);
    for p in [-0.1, 1.1, f64::NAN] {
        let g = GraphBuilder::new("p");
        let x = g.input("x", DType::F32, [3]);
        g.output("y", dropout(&g, "drop", x, p));
        assert!(mistakes(g.build()).contains("is no probability"));
    }
}

#[test]
fn evaluation_has_the_same_parameters_and_no_random_numbers() {
    let gpt = Gpt { vocab: 5, width: 4, layers: 1, heads: 2, context: 3, dropout: 0.1, ..Gpt::MINI };
    let build = |gpt: Gpt| {
        let g = GraphBuilder::new("gpt");
        let tokens = g.input("x", DType::I32, [1, 3]);
        g.output("logits", gpt.build(&g, tokens));
        g.build().unwrap()
    };
    let (train, eval) = (build(gpt), build(gpt.eval()));
    let draws = |graph: &Graph| graph.nodes.iter().filter(|n| n.op.rule().name() == "random_bits").count();
    assert_eq!((draws(&train), draws(&eval)), (3, 0));
    let parameters: Vec<_> =
        shapes(&train).into_iter().filter(|(path, _)| !path.starts_with("rng/")).collect();
    assert_eq!(parameters, shapes(&eval));
}

type Layer = for<'g> fn(&'g GraphBuilder, &str, Tensor<'g>, f64) -> Tensor<'g>;

/// What a layer makes of normal numbers, `[500, 20, 10]`, and those numbers.
fn variant(layer: Layer, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let g = GraphBuilder::new("variant");
    let shape = [500, 20, 10];
    let x = g.input("x", DType::F32, shape);
    g.output("y", layer(&g, "drop", x, 0.3));
    let graph = g.build().unwrap();
    let init = onestep_ir::Init::Normal { mean: 0.0, std: 1.0 };
    let x = init.array(DType::F32, &shape, 5, "x").unwrap();
    let y = call(&graph, &mut first_state(&graph, seed), std::slice::from_ref(&x))[0].to_f64();
    (y, x.to_f64())
}

#[test]
fn what_falls_out_falls_out_as_a_whole() {
    for (layer, whole) in [(dropout_channels as Layer, 10), (stochastic_depth, 200)] {
        let (y, x) = variant(layer, 1);
        assert_eq!(y, variant(layer, 1).0);
        assert_ne!(y, variant(layer, 2).0);
        let mut lost = 0;
        for (y, x) in y.chunks(whole).zip(x.chunks(whole)) {
            let gone = y.iter().all(|y| *y == 0.0);
            lost += gone as usize;
            assert!(gone || y.iter().zip(x).all(|(y, x)| (y - x / 0.7).abs() <= 1e-6 * x.abs()));
        }
        let share = lost as f64 / (y.len() / whole) as f64;
        assert!((share - 0.3).abs() < 0.07, "{share} of the parts of {whole} are lost");
    }
}

#[test]
fn alpha_dropout_keeps_mean_and_variance() {
    for (layer, whole) in [(alpha_dropout as Layer, 1), (alpha_dropout_channels, 10)] {
        let (y, x) = variant(layer, 3);
        let n = y.len() as f64;
        let mean = y.iter().sum::<f64>() / n;
        let variance = y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "mean {mean}, variance {variance}");
        // PyTorch's numbers: a = ((1 − p)(1 + p·α′²))^−½ and b = −a·p·α′.
        let low = -1.7580993408473766f64;
        let a = (0.7 * (1.0 + 0.3 * low * low)).powf(-0.5);
        let b = -a * 0.3 * low;
        let mut lost = 0;
        for (y, x) in y.chunks(whole).zip(x.chunks(whole)) {
            let gone = y.iter().all(|y| (y - (a * low + b)).abs() < 1e-5);
            lost += gone as usize;
            assert!(gone || y.iter().zip(x).all(|(y, x)| (y - (a * x + b)).abs() < 1e-5));
        }
        let share = lost as f64 / (y.len() / whole) as f64;
        assert!((share - 0.3).abs() < 0.02, "{share} of the parts of {whole} are lost");
    }
}

#[test]
fn variants_need_the_axes_that_they_drop() {
    let g = GraphBuilder::new("axes");
    let x = g.input("x", DType::F32, [4]);
    g.output("y", dropout_channels(&g, "drop", x, 0.5));
    let text = mistakes(g.build());
    assert!(text.contains("give x of shape [batch, channels, ..]"), "{text}");
}

/// An MLP with dropout, trained by AdamW.
fn trained() -> Graph {
    let g = GraphBuilder::new("mlp");
    let (x, y) = (g.input("x", DType::F32, [4, 6]), g.input("y", DType::I32, [4]));
    let hidden = Activation::Gelu.apply(linear(&g, "fc1", x, 16));
    let logits = linear(&g, "fc2", dropout(&g, "drop", hidden, 0.5), 3);
    let forward = g.finish(logits.cross_entropy(y)).unwrap();
    training_step(&forward, "loss", Params::All, &AdamW::new(0.01), &StepOptions::default()).unwrap().graph
}

fn train(graph: &Graph, state: &mut State, steps: std::ops::Range<usize>) {
    for step in steps {
        let x: Vec<f64> = (0..24).map(|i| ((i * 7 + step * 5) % 11) as f64 / 11.0).collect();
        let x = Array::from_f64(DType::F32, &[4, 6], &x).unwrap();
        call(graph, state, &[x, Array::new(&[4], &[0, 1, 2, step as i32 % 3]).unwrap()]);
    }
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one_bit_for_bit() {
    let graph = trained();
    let mut straight = first_state(&graph, 11);
    train(&graph, &mut straight, 0..5);

    let mut state = first_state(&graph, 11);
    train(&graph, &mut state, 0..3);
    let path = std::env::temp_dir().join(format!("onestep-nn-resume-{}.safetensors", std::process::id()));
    save(&path, state.iter().map(|(path, array)| (&**path, array)), &Metadata::new()).unwrap();
    drop(state);
    let loaded = load(&path).unwrap().0;
    std::fs::remove_file(&path).unwrap();
    let mut state: State = loaded.into_iter().map(|(path, array)| (path.into(), array)).collect();
    train(&graph, &mut state, 3..5);
    assert_eq!(state, straight);
    assert_eq!(state["rng/counter"], Array::scalar(5u32));
}

#[test]
fn a_step_that_is_skipped_does_not_count() {
    let graph = trained();
    let mut state = first_state(&graph, 0);
    let bad = Array::from_f64(DType::F32, &[4, 6], &[f64::INFINITY; 24]).unwrap();
    call(&graph, &mut state, &[bad, Array::new(&[4], &[0i32; 4]).unwrap()]);
    assert_eq!(state["opt/skipped"].to_f64(), [1.0]);
    assert_eq!((state["rng/counter"].to_f64(), state["opt/step"].to_f64()), (vec![0.0], vec![0.0]));
}

/// Half of a half is left: the second time draws other numbers than the first.
#[test]
fn repeated_layers_draw_numbers_of_their_own() {
    let g = GraphBuilder::new("repeat");
    let x = g.input("x", DType::F32, [N]);
    g.output("y", g.repeat(2, x, |x, _| dropout(&g, "drop", x, 0.5)));
    let graph = g.build().unwrap();
    graph.verify().unwrap();
    let all = masks(&graph, 3, 2);
    assert_ne!(all[0], all[1]);
    for mask in all {
        assert!(mask.iter().all(|y| [0.0, 4.0].contains(y)));
        let kept = mask.iter().filter(|y| **y != 0.0).count() as f64 / N as f64;
        assert!((kept - 0.25).abs() < 0.01, "kept {kept}");
    }
}
