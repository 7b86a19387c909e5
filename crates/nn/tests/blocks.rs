//! Blocks and the published models: parameters, what positions see, and what is said of impossible ones.

mod common;

use common::{call, first_state, mistakes, shapes};
use onestep_ir::{Array, DType, Graph, GraphBuilder, Role, Tensor};
use onestep_nn::{
    Activation, BatchNorm, Bert, Block, Llama, Mlp, Norm, NormOrder, ResNet, bottleneck_block, encoder_block,
    transformer_block,
};

/// The number of parameters, none of which is ever made.
fn parameters(graph: &Graph) -> usize {
    let own = graph.states.iter().filter(|s| s.role == Role::Parameter);
    own.map(|s| graph.ty(s.value).numel()).sum()
}

fn built(f: impl for<'g> Fn(&'g GraphBuilder) -> Tensor<'g>) -> Graph {
    let g = GraphBuilder::new("model");
    g.output("y", f(&g));
    g.build().unwrap()
}

/// The numbers are those of the published checkpoints.
#[test]
fn published_sizes() {
    let tokens = |g: &GraphBuilder| g.input("x", DType::I32, [1, 8]).value().unwrap();
    for (llama, count) in [
        (Llama::TINY_1_1B, 1_100_048_384),
        (Llama::LLAMA_2_7B, 6_738_415_616),
        (Llama::LLAMA_3_1_8B, 8_030_261_248),
        (Llama::LLAMA_3_2_1B, 1_235_814_400),
    ] {
        assert_eq!(parameters(&built(|g| llama.build(g, g.tensor(tokens(g))))), count, "{llama:?}");
    }
    for (bert, count) in [(Bert::BASE, 109_482_240), (Bert::LARGE, 335_141_888)] {
        let graph = built(|g| bert.pool(g, bert.encode(g, g.tensor(tokens(g)), None, None)));
        assert_eq!(parameters(&graph), count, "{bert:?}");
    }
    for (resnet, count) in [
        (ResNet::RESNET_18, 11_689_512),
        (ResNet::RESNET_34, 21_797_672),
        (ResNet::RESNET_50, 25_557_032),
        (ResNet::RESNET_101, 44_549_160),
    ] {
        let images = |g: &GraphBuilder| g.input("x", DType::F32, [2, 3, 224, 224]).value().unwrap();
        let graph = built(|g| resnet.build(g, g.tensor(images(g)), BatchNorm::default()));
        assert_eq!(parameters(&graph), count, "{resnet:?}");
        assert_eq!(graph.ty(graph.outputs[0].value).sizes(), [2, 1000]);
    }
}

#[test]
fn residual_networks_have_torchvisions_names() {
    let x = |g: &GraphBuilder| g.input("x", DType::F32, [1, 3, 64, 64]).value().unwrap();
    let of = |resnet: ResNet| shapes(&built(|g| resnet.build(g, g.tensor(x(g)), BatchNorm::EVAL)));
    let (basic, deep) = (of(ResNet::RESNET_18), of(ResNet::RESNET_50));
    for (shapes, path, shape) in [
        (&basic, "conv1.weight", &[64, 3, 7, 7][..]),
        (&basic, "bn1.running_var", &[64]),
        (&basic, "layer1.0.conv1.weight", &[64, 64, 3, 3]),
        (&basic, "layer2.0.downsample.0.weight", &[128, 64, 1, 1]),
        (&basic, "layer4.1.bn2.bias", &[512]),
        (&basic, "fc.weight", &[1000, 512]),
        (&deep, "layer1.0.downsample.0.weight", &[256, 64, 1, 1]),
        (&deep, "layer3.5.conv3.weight", &[1024, 256, 1, 1]),
        (&deep, "layer4.2.conv2.weight", &[512, 512, 3, 3]),
        (&deep, "fc.weight", &[1000, 2048]),
    ] {
        assert!(shapes.contains(&(path.to_string(), shape.to_vec())), "{path}");
    }
    assert!(!basic.iter().any(|(path, _)| path.starts_with("layer1.0.downsample")));
}

const SIZES: [usize; 3] = [2, 4, 6];

/// What a block makes of `[2, 4, 6]`, from first values; `edit` changes the input.
fn output(
    block: impl for<'g> Fn(&'g GraphBuilder, Tensor<'g>, Tensor<'g>) -> Tensor<'g>,
    edit: &dyn Fn(&mut [f64]),
) -> Vec<f64> {
    let g = GraphBuilder::new("block");
    let (x, lengths) = (g.input("x", DType::F32, SIZES), g.input("lengths", DType::I32, [2]));
    g.output("y", block(&g, x, lengths));
    let graph = g.build().unwrap();
    let mut values: Vec<f64> = (0..48).map(|i| ((i * 37 % 23) as f64 - 11.0) / 4.0).collect();
    edit(&mut values);
    let inputs = [Array::from_f64(DType::F32, &SIZES, &values).unwrap(), Array::new(&[2], &[4, 2]).unwrap()];
    call(&graph, &mut first_state(&graph, 3), &inputs)[0].to_f64()
}

#[test]
fn an_encoder_sees_all_of_its_sequence_and_no_padding() {
    fn encoder<'g>(g: &'g GraphBuilder, x: Tensor<'g>, lengths: Tensor<'g>) -> Tensor<'g> {
        encoder_block(g, "b", x, Some(lengths), Block::post_norm(6, 2))
    }
    fn decoder<'g>(g: &'g GraphBuilder, x: Tensor<'g>, _: Tensor<'g>) -> Tensor<'g> {
        transformer_block(g, "b", x, Block::post_norm(6, 2))
    }
    let plain = |_: &mut [f64]| {};
    // The last position of the first sequence, and the third of the second, which is padding.
    let last = |x: &mut [f64]| x[3 * 6] += 1.0;
    let padding = |x: &mut [f64]| x[6 * 6] += 1.0;
    let row = |y: &[f64], at: usize| y[at * 6..][..6].to_vec();
    let (y, changed, padded) = (output(encoder, &plain), output(encoder, &last), output(encoder, &padding));
    assert_ne!(row(&y, 0), row(&changed, 0), "the first position sees the last");
    assert_eq!(y[24..36], padded[24..36], "no position sees the padding");
    let (y, changed) = (output(decoder, &plain), output(decoder, &last));
    assert_eq!(row(&y, 0), row(&changed, 0), "a decoder does not look ahead");
}

#[test]
fn norms_stand_where_they_are_said_to() {
    let of = |order: NormOrder, norm: Norm| {
        let block = Block { order, norm, ..Block::new(6, 2) };
        let y = output(|g, x, _| transformer_block(g, "b", x, block), &|_| {});
        let moments = |row: &[f64]| {
            let mean = row.iter().sum::<f64>() / 6.0;
            (mean, row.iter().map(|x| x * x).sum::<f64>() / 6.0)
        };
        y.chunks(6).map(moments).collect::<Vec<_>>()
    };
    let is = |x: f64, want: f64| (x - want).abs() < 1e-4;
    // Behind a norm, rows have mean 0 and mean square 1; those of RMS norms only the latter.
    assert!(of(NormOrder::Post, Norm::Layer(1e-5)).iter().all(|&(m, s)| is(m, 0.0) && is(s, 1.0)));
    assert!(of(NormOrder::Post, Norm::Rms(1e-5)).iter().all(|&(m, s)| !is(m, 0.0) && is(s, 1.0)));
    assert!(of(NormOrder::Pre, Norm::Layer(1e-5)).iter().all(|&(_, s)| !is(s, 1.0)));
}

#[test]
fn a_gated_mlp_and_grouped_heads_have_their_parameters() {
    let block = Block { kv_heads: 1, hidden: 10, mlp: Mlp::Gated(Activation::Silu), ..Block::new(6, 3) };
    let graph = built(|g| transformer_block(g, "b", g.input("x", DType::F32, SIZES), block));
    let shapes = shapes(&graph);
    for (path, shape) in [
        ("b.attn.q.weight", [6, 6]),
        ("b.attn.k.weight", [2, 6]),
        ("b.attn.v.weight", [2, 6]),
        ("b.mlp.gate.weight", [10, 6]),
        ("b.mlp.up.weight", [10, 6]),
        ("b.mlp.down.weight", [6, 10]),
    ] {
        assert!(shapes.contains(&(path.into(), shape.to_vec())), "{path}: {shapes:?}");
    }
}

#[test]
fn impossible_ones_are_mistakes_at_the_callers_line() {
    let text = |build: &dyn for<'g> Fn(&'g GraphBuilder) -> Tensor<'g>| {
        let g = GraphBuilder::new("mistakes");
        g.output("y", build(&g));
        let text = mistakes(g.build());
        assert!(text.contains("tests/blocks.rs"), "{text}");
        text
    };
    let tiny = Llama { vocab: 7, width: 12, hidden: 8, layers: 1, heads: 3, kv_heads: 1, ..Llama::TINY_1_1B };
    let llama = |llama: Llama, shape: &'static [usize]| {
        text(&move |g| llama.build(g, g.input("x", DType::I32, shape)))
    };
    assert!(llama(Llama { kv_heads: 2, ..tiny }, &[1, 4]).contains("3 heads of queries do not share 2"));
    assert!(llama(Llama { kv_heads: 0, ..tiny }, &[1, 4]).contains("do not share 0"));
    assert!(
        llama(Llama { heads: 4, ..tiny }, &[1, 4]).contains("the 3 features of a head do not turn in pairs")
    );
    assert!(llama(Llama { context: 3, ..tiny }, &[1, 4]).contains("may have 4 positions"));
    assert!(llama(tiny, &[4]).contains("give them as [batch, time]"));
    assert!(text(&|g| tiny.decode(g, g.input("x", DType::I32, [1, 4]))).contains("give them as [time]"));
    let features = |g: &GraphBuilder| g.input("x", DType::F32, [2, 3, 768]).value().unwrap();
    assert!(
        text(&|g| Bert::BASE.masked_lm(g, g.tensor(features(g))))
            .contains("build the features with `encode`")
    );
    let x = |g: &GraphBuilder| g.input("x", DType::F32, [1, 4, 5, 5]).value().unwrap();
    let block = text(&|g| bottleneck_block(g, "b", g.tensor(x(g)), 6, 1, BatchNorm::EVAL));
    assert!(block.contains("6 outputs have no quarter"));
}
