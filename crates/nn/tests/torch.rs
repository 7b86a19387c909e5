//! Models against PyTorch: the same parameters and inputs give the same logits, loss and gradients. The recordings' formats
//! are described in `tests/data/make_torch_models.py` and `tests/data/make_torch_blocks.py`.

mod common;

use common::{assert_close, first_state};
use onestep_io::safetensors::{Tensors, from_bytes};
use onestep_ir::interp::{Mode, run};
use onestep_ir::{DType, Dense, Graph, GraphBuilder, Role, RotaryScaling};
use onestep_nn::{
    Activation, BatchNorm, Bert, Gpt, Llama, basic_block, bottleneck_block, linear, mlp_classifier,
};
use onestep_optim::{Params, with_backward};
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

const TINY: Gpt = Gpt { vocab: 11, width: 12, layers: 2, heads: 3, context: 8, ..Gpt::MINI };

const LLAMA: Llama = Llama {
    vocab: 11,
    width: 24,
    hidden: 20,
    layers: 2,
    heads: 6,
    kv_heads: 2,
    context: 64,
    rotary_base: 100.0,
    rotary_scaling: Some(RotaryScaling { factor: 4.0, low: 1.0, high: 4.0, context: 48 }),
    eps: 1e-5,
    tied: false,
};

const BERT: Bert = Bert { vocab: 13, width: 12, hidden: 20, layers: 2, heads: 3, context: 9, ..Bert::BASE };

/// The tensors of one model, without its name.
fn recorded(model: &str) -> Tensors {
    let file = if matches!(model, "gpt" | "mlp") { "torch-models" } else { "torch-blocks" };
    let path = format!("{}/../../tests/data/{file}.safetensors.zst", env!("CARGO_MANIFEST_DIR"));
    let mut packed = std::fs::File::open(path).unwrap();
    let mut bytes = vec![];
    ruzstd::decoding::StreamingDecoder::new(&mut packed).unwrap().read_to_end(&mut bytes).unwrap();
    let (tensors, _) = from_bytes(&bytes).unwrap();
    let own =
        |(name, array): (String, _)| Some((name.strip_prefix(model)?.strip_prefix('/')?.to_string(), array));
    tensors.into_iter().filter_map(own).collect()
}

fn gpt() -> Graph {
    let g = GraphBuilder::new("gpt");
    let (x, y) = (g.input("input", DType::I32, [2, 7]), g.input("target", DType::I32, [2, 7]));
    let logits = TINY.build(&g, x);
    g.output("logits", logits);
    g.finish(logits.cross_entropy(y)).unwrap()
}

fn mlp() -> Graph {
    let g = GraphBuilder::new("mlp");
    let (x, y) = (g.input("input", DType::F32, [4, 5]), g.input("target", DType::I32, [4]));
    let logits = mlp_classifier(&g, x, &[8, 6], 3, Activation::Relu);
    g.output("logits", logits);
    g.finish(logits.cross_entropy(y)).unwrap()
}

fn llama(tied: bool) -> Graph {
    let g = GraphBuilder::new("llama");
    let (x, y) = (g.input("input", DType::I32, [2, 10]), g.input("target", DType::I32, [2, 10]));
    let logits = Llama { tied, ..LLAMA }.build(&g, x);
    g.output("logits", logits);
    g.finish(logits.cross_entropy(y)).unwrap()
}

/// A masked language model with padding; the pooled features join the loss, so that their parameters have a gradient.
fn bert() -> Graph {
    let g = GraphBuilder::new("bert");
    let (x, y) = (g.input("input", DType::I32, [2, 7]), g.input("target", DType::I32, [2, 7]));
    let (types, lengths) = (g.input("types", DType::I32, [2, 7]), g.input("lengths", DType::I32, [2]));
    let features = BERT.encode(&g, x, Some(types), Some(lengths));
    let (pooled, logits) = (BERT.pool(&g, features), BERT.masked_lm(&g, features));
    g.output("logits", logits);
    g.output("pooled", pooled);
    g.finish(logits.cross_entropy(y) + pooled.square().mean()).unwrap()
}

/// A basic block and two of a bottleneck, one with steps.
fn resnet() -> Graph {
    let g = GraphBuilder::new("resnet");
    let (x, y) = (g.input("input", DType::F32, [3, 4, 6, 5]), g.input("target", DType::I32, [3]));
    let norm = BatchNorm::default();
    let x = basic_block(&g, "layer1.0", x, 8, 1, norm);
    let x = bottleneck_block(&g, "layer2.0", x, 16, 2, norm);
    let x = bottleneck_block(&g, "layer2.1", x, 16, 1, norm);
    let logits = linear(&g, "fc", x.mean_over(&[2, 3]), 3);
    g.output("logits", logits);
    g.finish(logits.cross_entropy(y)).unwrap()
}

/// The paths and shapes of a graph's parameters.
fn shapes(graph: &Graph) -> Vec<(String, Vec<usize>)> {
    let own = graph.states.iter().filter(|s| s.role == Role::Parameter);
    own.map(|s| (s.name.to_string(), graph.ty(s.value).sizes())).collect()
}

/// Loads the recorded parameters by their paths, runs forward and backward, and compares all results.
fn agrees(graph: &Graph, model: &str, mode: Mode, tolerance: f64) {
    let recorded = recorded(model);
    let paths = recorded.keys().filter_map(|name| name.strip_prefix("parameter/"));
    let mut own: Vec<_> = shapes(graph).into_iter().map(|(path, _)| path).collect();
    own.sort();
    assert_eq!(own, paths.collect::<Vec<_>>(), "{model}: a checkpoint would not load");

    let step = with_backward(graph, "loss", Params::All).unwrap().graph;
    let mut state: BTreeMap<Arc<str>, Dense> =
        first_state(&step, 0).iter().map(|(path, a)| (path.clone(), Dense::from_array(a))).collect();
    for (path, _) in shapes(graph) {
        let parameter = Dense::from_array(&recorded[&format!("parameter/{path}")]);
        assert_eq!(parameter.ty(), state[&*path].ty(), "{model}: {path}");
        state.insert(path.into(), parameter);
    }
    let inputs: Vec<Dense> = step
        .inputs
        .iter()
        .map(|port| match &recorded[&*port.name] {
            x if x.dtype().is_float() => Dense::from_reals(DType::F32, x.shape(), x.to_f64()),
            x => Dense::from_array(x),
        })
        .collect();
    let outcome = run(&step, &inputs, &state, mode).unwrap();
    for (port, got) in step.outputs.iter().zip(&outcome.outputs) {
        let want = &recorded[&*port.name];
        assert_eq!(got.shape, want.shape(), "{model}: {}", port.name);
        assert_close(got.reals(), &want.to_f64(), tolerance, &format!("{model}: {}", port.name));
    }
    for (path, shape) in shapes(graph) {
        let (got, want) = (&outcome.state[&*format!("grad/{path}")], &recorded[&format!("gradient/{path}")]);
        assert_eq!((&got.shape[..], &shape[..]), (want.shape(), want.shape()), "{model}: {path}");
        assert!(want.to_f64().iter().any(|x| *x != 0.0) || path.ends_with("k.bias"), "{path} tests nothing");
        assert_close(got.reals(), &want.to_f64(), tolerance, &format!("{model}: gradient of {path}"));
    }
}

#[test]
fn in_f64_they_agree_to_the_constants() {
    // The graph's constants, such as GELU's 1/√2, are f32 in this mode too, and off PyTorch's by up to 3e-8 of themselves.
    agrees(&gpt(), "gpt", Mode::AllF64, 1e-10);
    agrees(&mlp(), "mlp", Mode::AllF64, 1e-14);
    agrees(&llama(false), "llama", Mode::AllF64, 1e-10);
    agrees(&llama(true), "llama-tied", Mode::AllF64, 1e-10);
    agrees(&bert(), "bert", Mode::AllF64, 1e-7);
    agrees(&resnet(), "resnet", Mode::AllF64, 1e-10);
}

#[test]
fn in_f32_they_agree_to_its_precision() {
    agrees(&gpt(), "gpt", Mode::Declared, 2e-6);
    agrees(&mlp(), "mlp", Mode::Declared, 1e-6);
    agrees(&llama(false), "llama", Mode::Declared, 5e-6);
    agrees(&llama(true), "llama-tied", Mode::Declared, 5e-6);
    agrees(&bert(), "bert", Mode::Declared, 5e-6);
    agrees(&resnet(), "resnet", Mode::Declared, 5e-5);
}
