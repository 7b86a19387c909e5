//! Each layer by hand: values, parameters, dtypes, and what is said of operands that do not fit.

mod common;

use common::{assert_close, call, first_state, mistakes, shapes};
use onestep_ir::{Array, DType, Graph, GraphBuilder, Init, Tensor, dim};
use onestep_nn::{
    Activation, LinearOptions, WeightInit, attention, embedding, embedding_with, layer_norm, linear,
    linear_no_bias, linear_with, mlp, rms_norm,
};

/// A graph of one function of an input.
fn graph(
    dtype: DType,
    shape: &[usize],
    f: impl for<'g> Fn(&'g GraphBuilder, Tensor<'g>) -> Tensor<'g>,
) -> Graph {
    let g = GraphBuilder::new("layer");
    let x = g.input("x", dtype, shape);
    g.output("y", f(&g, x));
    g.build().unwrap()
}

/// The result of a call with some state replaced.
fn value(graph: &Graph, x: &[f64], state: &[(&str, &[f64])]) -> Vec<f64> {
    let array = |like: &Array, values| Array::from_f64(like.dtype(), like.shape(), values).unwrap();
    let mut all = first_state(graph, 0);
    for (path, values) in state {
        let replaced = all.get_mut(*path).unwrap();
        *replaced = array(replaced, values);
    }
    let ty = graph.ty(graph.inputs[0].value);
    let x = Array::from_f64(ty.dtype, &ty.sizes(), x).unwrap();
    call(graph, &mut all, &[x])[0].to_f64()
}

#[test]
fn linear_is_x_times_the_weights_rows_plus_bias() {
    let parameters: [(&str, &[f64]); 2] =
        [("fc.weight", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), ("fc.bias", &[10.0, 20.0])];
    for shape in [&[1, 3][..], &[3], &[1, 1, 3]] {
        let graph = graph(DType::F32, shape, |g, x| linear(g, "fc", x, 2));
        assert_eq!(shapes(&graph), [("fc.weight".into(), vec![2, 3]), ("fc.bias".into(), vec![2])]);
        assert_eq!(value(&graph, &[1.0, 0.0, -1.0], &parameters), [8.0, 18.0]);
        let result = graph.ty(graph.outputs[0].value).sizes();
        assert_eq!(result, [&shape[..shape.len() - 1], &[2]].concat());
    }
    let bare = graph(DType::F32, &[1, 3], |g, x| linear_no_bias(g, "fc", x, 2));
    assert_eq!(shapes(&bare).len(), 1);
    assert_eq!(value(&bare, &[1.0, 0.0, -1.0], &parameters[..1]), [-2.0, -2.0]);
}

#[test]
fn linear_starts_as_asked() {
    let spread = |graph: &Graph, path: &str| {
        let values = first_state(graph, 1)[path].to_f64();
        values.iter().fold(0.0, |a: f64, x| a.max(x.abs()))
    };
    let default = graph(DType::F32, &[1, 100], |g, x| linear(g, "fc", x, 400));
    assert!((0.099..=0.1).contains(&spread(&default, "fc.weight")));
    assert!((0.098..=0.1).contains(&spread(&default, "fc.bias")), "bounded by the inputs, not the outputs");
    let options = LinearOptions::zero_bias(WeightInit::Given(Init::ONES));
    let ones = graph(DType::F32, &[1, 3], |g, x| linear_with(g, "fc", x, 2, options));
    assert_eq!(value(&ones, &[1.0, 2.0, 3.0], &[]), [6.0, 6.0]);
}

#[test]
fn parameters_are_wide_enough_for_the_input() {
    for (dtype, want) in [
        (DType::BF16, DType::F32),
        (DType::F16, DType::F32),
        (DType::F32, DType::F32),
        (DType::F64, DType::F64),
    ] {
        let graph = graph(dtype, &[1, 2, 4], |g, x| {
            let x = linear(g, "fc", x, 4);
            let x = rms_norm(g, "rms", layer_norm(g, "norm", x, 1e-5), 1e-6);
            mlp(g, "mlp", attention(g, "attn", x, 2), &[4], Activation::Relu)
        });
        assert_eq!(graph.ty(graph.outputs[0].value).dtype, dtype);
        assert!(graph.states.iter().all(|s| graph.ty(s.value).dtype == want), "{dtype}");
        assert!(value(&graph, &[0.5; 8], &[]).iter().all(|y| y.is_finite()));
    }
}

#[test]
fn norms_by_hand() {
    let layer = graph(DType::F32, &[1, 4], |g, x| layer_norm(g, "n", x, 1e-5));
    assert_eq!(shapes(&layer), [("n.weight".into(), vec![4]), ("n.bias".into(), vec![4])]);
    let want = [-1.341_635, -0.447_212, 0.447_212, 1.341_635];
    assert_close(&value(&layer, &[40000.0, 40001.0, 40002.0, 40003.0], &[]), &want, 1e-6, "layer norm");
    let moved = value(&layer, &[0.0, 1.0, 2.0, 3.0], &[("n.weight", &[2.0; 4]), ("n.bias", &[1.0; 4])]);
    assert_close(&moved, &want.map(|y| 2.0 * y + 1.0), 1e-5, "scaled and moved");
    let rms = graph(DType::F32, &[1, 2], |g, x| rms_norm(g, "n", x, 1e-6));
    assert_eq!(shapes(&rms), [("n.weight".into(), vec![2])]);
    let scale = 1.0 / f64::sqrt(12.5);
    assert_close(&value(&rms, &[3.0, 4.0], &[]), &[3.0 * scale, 4.0 * scale], 1e-6, "RMS norm");
}

#[test]
fn embedding_picks_rows() {
    let graph = graph(DType::I32, &[2, 2], |g, ids| embedding(g, "tok", ids, 3, 2));
    assert_eq!(shapes(&graph), [("tok.weight".into(), vec![3, 2])]);
    assert_eq!(graph.ty(graph.outputs[0].value).sizes(), [2, 2, 2]);
    let table: &[f64] = &[0.0, 1.0, 10.0, 11.0, 20.0, 21.0];
    let rows = value(&graph, &[2.0, 0.0, 1.0, 2.0], &[("tok.weight", table)]);
    assert_eq!(rows, [20.0, 21.0, 0.0, 1.0, 10.0, 11.0, 20.0, 21.0]);
    let ones = self::graph(DType::U8, &[1], |g, ids| embedding_with(g, "tok", ids, 3, 2, Init::ONES));
    assert_eq!(value(&ones, &[1.0], &[]), [1.0, 1.0]);
    let mut state = first_state(&graph, 0);
    let bad =
        onestep_ir::interp::run_arrays(&graph, &[Array::new(&[2, 2], &[0, 1, 2, 3]).unwrap()], &mut state);
    assert!(bad.unwrap_err().to_string().contains("index 3"));
}

#[test]
fn activations_by_hand() {
    for (activation, want) in [
        (Activation::Relu, [0.0, 1.0]),
        (Activation::Gelu, [-0.158_655_25, 0.841_344_75]),
        (Activation::GeluTanh, [-0.158_808, 0.841_192]),
        (Activation::Silu, [-0.268_941_42, 0.731_058_58]),
        (Activation::Tanh, [-0.761_594_16, 0.761_594_16]),
        (Activation::Sigmoid, [0.268_941_42, 0.731_058_58]),
    ] {
        let graph = graph(DType::F32, &[2], |_, x| activation.apply(x));
        assert_close(&value(&graph, &[-1.0, 1.0], &[]), &want, 1e-6, &format!("{activation:?}"));
    }
}

#[test]
fn an_mlp_has_its_activation_between_the_layers_only() {
    let graph = graph(DType::F32, &[1, 1], |g, x| mlp(g, "m", x, &[1, 1], Activation::Relu));
    let parameters = |first: f64| {
        value(
            &graph,
            &[1.0],
            &[("m.0.weight", &[first]), ("m.0.bias", &[0.0]), ("m.1.weight", &[-1.0]), ("m.1.bias", &[0.0])],
        )
    };
    assert_eq!((parameters(2.0), parameters(-2.0)), (vec![-2.0], vec![0.0]));
    assert!(self::graph(DType::F32, &[3], |g, x| mlp(g, "m", x, &[], Activation::Relu)).states.is_empty());
}

/// With values that are the positions themselves and equal scores, each row is the mean of what it sees.
#[test]
fn attention_sees_the_past_in_every_layout() {
    // As many positions as heads: a layout that is guessed would be guessed wrong here.
    let graph = graph(DType::F32, &[1, 4, 4], |g, x| attention(g, "a", x, 4));
    let identity: Vec<f64> = (0..16).map(|i| f64::from(i % 5 == 0)).collect();
    let zeros: &[f64] = &[0.0; 16];
    let none: &[f64] = &[0.0; 4];
    let x: Vec<f64> = (0..16).map(|i| f64::from(i / 4) + 10.0 * f64::from(i % 4)).collect();
    let parameters: [(&str, &[f64]); 8] = [
        ("a.q.weight", zeros),
        ("a.k.weight", &identity),
        ("a.v.weight", &identity),
        ("a.proj.weight", &identity),
        ("a.q.bias", none),
        ("a.k.bias", none),
        ("a.v.bias", none),
        ("a.proj.bias", none),
    ];
    let want: Vec<f64> = (0..16).map(|i| f64::from(i / 4) / 2.0 + 10.0 * f64::from(i % 4)).collect();
    assert_close(&value(&graph, &x, &parameters), &want, 1e-5, "attention");
}

#[test]
fn operands_that_do_not_fit_are_mistakes_at_the_callers_line() {
    let text = |build: &dyn for<'g> Fn(&'g GraphBuilder) -> Tensor<'g>| {
        let g = GraphBuilder::new("mistakes");
        g.output("y", build(&g));
        let text = mistakes(g.build());
        assert!(text.contains("tests/layers.rs"), "{text}");
        text
    };
    assert!(text(&|g| linear(g, "fc", g.input("x", DType::I32, [2, 3]), 4)).contains("linear"));
    assert!(
        text(&|g| layer_norm(g, "n", g.input("x", DType::Bool, [2]), 1e-5))
            .contains("takes floats, got bool")
    );
    assert!(text(&|g| rms_norm(g, "n", g.input("x", DType::F32, ()), 1e-5)).contains("no number"));
    let open = [dim("B").at_most(2)];
    assert!(
        text(&|g| linear(g, "fc", g.input("x", DType::F32, open.clone()), 4)).contains("last axis of [B]")
    );
    assert!(text(&|g| embedding(g, "tok", g.input("x", DType::F32, [2]), 3, 4)).contains("integer indices"));
    let twice = text(&|g| linear(g, "fc", linear(g, "fc", g.input("x", DType::F32, [2, 3]), 3), 3));
    assert!(twice.contains("state 'fc.weight' exists already"), "{twice}");

    // One mistake is told once, however many layers follow.
    let g = GraphBuilder::new("one");
    let bad = linear(&g, "fc1", g.input("x", DType::I32, [2, 3]), 4);
    let after = layer_norm(&g, "norm", mlp(&g, "mlp", bad, &[4, 4], Activation::Gelu), 1e-5);
    g.output("y", rms_norm(&g, "rms", attention(&g, "attn", after, 2), 1e-5));
    assert_eq!(g.errors().len(), 1);
}
