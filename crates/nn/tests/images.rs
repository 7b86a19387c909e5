//! Layers of images by hand: values, parameters, running statistics, and what is said of operands that do not fit.

mod common;

use common::{assert_close, call, first_state, mistakes, shapes};
use onestep_ir::{Array, DType, Graph, GraphBuilder, Tensor, bind, dim};
use onestep_nn::{
    BatchNorm, Cnn, Conv2d, basic_block, batch_norm, conv2d, conv2d_with, group_norm, instance_norm,
};
use onestep_optim::{Params, Sgd, StepOptions, training_step};

/// A graph of one function of an `f32` input.
fn graph(shape: &[usize], f: impl for<'g> Fn(&'g GraphBuilder, Tensor<'g>) -> Tensor<'g>) -> Graph {
    let g = GraphBuilder::new("layer");
    let x = g.input("x", DType::F32, shape);
    g.output("y", f(&g, x));
    g.build().unwrap()
}

fn numbers(n: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 37 % 23) as f64 - 11.0) / 4.0).collect()
}

fn array(shape: &[usize]) -> Array {
    Array::from_f64(DType::F32, shape, &numbers(shape.iter().product())).unwrap()
}

#[test]
fn conv2d_has_pytorchs_parameters_and_spread() {
    let plain = graph(&[2, 4, 6, 5], |g, x| conv2d(g, "c", x, 8, 3));
    assert_eq!(shapes(&plain), [("c.weight".into(), vec![8, 4, 3, 3]), ("c.bias".into(), vec![8])]);
    assert_eq!(plain.ty(plain.outputs[0].value).sizes(), [2, 8, 4, 3]);
    // ±1/√(4·9).
    for values in first_state(&plain, 1).values() {
        let most = values.to_f64().iter().fold(0.0, |a: f64, x| a.max(x.abs()));
        assert!(most <= 1.0 / 6.0 && most > 0.8 / 6.0, "{most}");
    }
    let mut options = Conv2d::moving(2, 1).no_bias();
    options.window.groups = 2;
    let grouped = graph(&[2, 4, 6, 5], |g, x| conv2d_with(g, "c", x, 8, 3, options));
    assert_eq!(shapes(&grouped), [("c.weight".into(), vec![8, 2, 3, 3])]);
    assert_eq!(grouped.ty(grouped.outputs[0].value).sizes(), [2, 8, 3, 3]);
}

#[test]
fn conv2d_by_hand() {
    let layer = graph(&[1, 1, 2, 3], |g, x| conv2d(g, "c", x, 1, 2));
    let mut state = first_state(&layer, 0);
    *state.get_mut("c.weight").unwrap() = Array::new(&[1, 1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    *state.get_mut("c.bias").unwrap() = Array::new(&[1], &[0.5f32]).unwrap();
    let x = Array::new(&[1, 1, 2, 3], &[1.0f32, 0.0, -1.0, 2.0, 1.0, 0.0]).unwrap();
    assert_eq!(call(&layer, &mut state, &[x])[0].to_f64(), [1.0 + 6.0 + 4.0 + 0.5, -2.0 + 3.0 + 0.5]);
}

#[test]
fn batch_norm_trains_by_the_batch_and_evaluates_by_the_running_values() {
    let options = BatchNorm { eps: 1e-5, momentum: Some(0.25), training: true };
    let train = graph(&[3, 2, 2], |g, x| batch_norm(g, "bn", x, options));
    let mut state = first_state(&train, 0);
    let x = array(&[3, 2, 2]);
    let y = call(&train, &mut state, std::slice::from_ref(&x))[0].to_f64();
    let of = |channel: usize| -> Vec<f64> {
        let at = |i: &usize| i / 2 % 2 == channel;
        x.to_f64().iter().enumerate().filter(|(i, _)| at(i)).map(|(_, v)| *v).collect()
    };
    for channel in 0..2 {
        let values = of(channel);
        let mean = values.iter().sum::<f64>() / 6.0;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 6.0;
        let got: Vec<f64> = (0..12).filter(|i| i / 2 % 2 == channel).map(|i| y[i]).collect();
        let want: Vec<f64> = values.iter().map(|v| (v - mean) / (variance + 1e-5).sqrt()).collect();
        assert_close(&got, &want, 1e-5, "values");
        let running = |what: &str| state[format!("bn.{what}").as_str()].to_f64()[channel];
        assert_close(&[running("running_mean")], &[0.25 * mean], 1e-6, "values");
        assert_close(&[running("running_var")], &[0.75 + 0.25 * variance * 6.0 / 5.0], 1e-6, "values");
    }
    let eval = graph(&[3, 2, 2], |g, x| batch_norm(g, "bn", x, BatchNorm::EVAL));
    assert!(eval.updates.is_empty());
    let y = call(&eval, &mut state, std::slice::from_ref(&x))[0].to_f64();
    let (mean, var) = (state["bn.running_mean"].to_f64(), state["bn.running_var"].to_f64());
    let want: Vec<f64> = x
        .to_f64()
        .iter()
        .enumerate()
        .map(|(i, v)| {
            let c = i / 2 % 2;
            (v - mean[c]) / (var[c] + 1e-5).sqrt()
        })
        .collect();
    assert_close(&y, &want, 1e-5, "values");
}

#[test]
fn batch_norm_without_momentum_averages_all_batches() {
    let options = BatchNorm { momentum: None, ..BatchNorm::default() };
    let train = graph(&[3, 2], |g, x| batch_norm(g, "bn", x, options));
    let mut state = first_state(&train, 0);
    let batches: Vec<Vec<f64>> = (0..4).map(|b| numbers(6 * (b + 1))[6 * b..].to_vec()).collect();
    let (mut means, mut variances) = ([0.0; 2], [0.0; 2]);
    for batch in &batches {
        call(&train, &mut state, &[Array::from_f64(DType::F32, &[3, 2], batch).unwrap()]);
        for c in 0..2 {
            let values = [batch[c], batch[c + 2], batch[c + 4]];
            let mean = values.iter().sum::<f64>() / 3.0;
            means[c] += mean / 4.0;
            variances[c] += values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 2.0 / 4.0;
        }
    }
    assert_close(&state["bn.running_mean"].to_f64(), &means, 1e-5, "mean");
    assert_close(&state["bn.running_var"].to_f64(), &variances, 1e-4, "variance");
    assert_eq!(state["bn.num_batches_tracked"], Array::scalar(4i64));
}

#[test]
fn instance_norm_scales_each_channel_of_each_example() {
    let layer = graph(&[2, 3, 4], |g, x| instance_norm(g, "in", x, 1e-5));
    assert_eq!(shapes(&layer), [("in.weight".into(), vec![3]), ("in.bias".into(), vec![3])]);
    let y = call(&layer, &mut first_state(&layer, 0), &[array(&[2, 3, 4])])[0].to_f64();
    for (got, values) in y.chunks(4).zip(numbers(24).chunks(4)) {
        let mean = values.iter().sum::<f64>() / 4.0;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 4.0;
        let want: Vec<f64> = values.iter().map(|v| (v - mean) / (variance + 1e-5).sqrt()).collect();
        assert_close(got, &want, 1e-5, "values");
    }
}

/// The count of a variable batch is the number of its elements, so that a bound graph moves the running values alike.
#[test]
fn batch_norm_of_a_variable_batch() {
    let build = |variable: bool| {
        let g = GraphBuilder::new("layer");
        let x = match variable {
            true => g.input("x", DType::F32, (dim("B").at_most(9), 2)),
            false => g.input("x", DType::F32, [4, 2]),
        };
        g.output("y", batch_norm(&g, "bn", x, BatchNorm::default()));
        g.build().unwrap()
    };
    let variable = bind(&build(true), &[("B".into(), 4)].into_iter().collect()).unwrap();
    let fixed = build(false);
    let (mut a, mut b) = (first_state(&variable, 0), first_state(&fixed, 0));
    let x = array(&[4, 2]);
    let ya = call(&variable, &mut a, std::slice::from_ref(&x));
    let yb = call(&fixed, &mut b, std::slice::from_ref(&x));
    assert_close(&ya[0].to_f64(), &yb[0].to_f64(), 1e-6, "values");
    assert_close(&a["bn.running_var"].to_f64(), &b["bn.running_var"].to_f64(), 1e-6, "values");
}

#[test]
fn group_norm_by_hand() {
    let layer = graph(&[1, 4, 2], |g, x| group_norm(g, "gn", x, 2, 0.0));
    assert_eq!(shapes(&layer), [("gn.weight".into(), vec![4]), ("gn.bias".into(), vec![4])]);
    let x = Array::new(&[1, 4, 2], &[1.0f32, 1.0, 3.0, 3.0, 0.0, 10.0, 0.0, 10.0]).unwrap();
    let y = call(&layer, &mut first_state(&layer, 0), &[x])[0].to_f64();
    assert_close(&y, &[-1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0, 1.0], 1e-6, "values");
}

#[test]
fn the_small_cnn_has_the_documented_parameters() {
    let cnn = graph(&[64, 1, 28, 28], |g, x| Cnn::SMALL.build(g, x));
    let want: [(&str, &[usize]); 8] = [
        ("conv1.weight", &[32, 1, 3, 3]),
        ("conv1.bias", &[32]),
        ("conv2.weight", &[64, 32, 3, 3]),
        ("conv2.bias", &[64]),
        ("fc1.weight", &[128, 9216]),
        ("fc1.bias", &[128]),
        ("fc2.weight", &[10, 128]),
        ("fc2.bias", &[10]),
    ];
    assert_eq!(shapes(&cnn), want.map(|(name, shape)| (name.to_string(), shape.to_vec())));
    assert_eq!(cnn.ty(cnn.outputs[0].value).sizes(), [64, 10]);
}

#[test]
fn a_residual_block_is_named_as_in_torchvision_and_learns() {
    let g = GraphBuilder::new("block");
    let x = g.input("x", DType::F32, [2, 3, 6, 6]);
    let y = basic_block(&g, "a", x, 4, 2, BatchNorm::default());
    let y = basic_block(&g, "b", y, 4, 1, BatchNorm::default());
    assert_eq!(y.shape().sizes(), Some(vec![2, 4, 3, 3]));
    let graph = g.finish((y - 1.0).square().mean()).unwrap();
    let names: Vec<String> =
        graph.states.iter().map(|s| s.name.to_string()).filter(|n| n.starts_with("a.")).collect();
    let norm = |at: &str| ["weight", "bias", "running_mean", "running_var"].map(|p| format!("a.{at}.{p}"));
    let mut want = vec!["a.conv1.weight".to_string()];
    want.extend(norm("bn1"));
    want.push("a.conv2.weight".into());
    want.extend(norm("bn2"));
    want.push("a.downsample.0.weight".into());
    want.extend(norm("downsample.1"));
    assert_eq!(names, want);
    let step = training_step(&graph, "loss", Params::All, &Sgd::new(0.05), &StepOptions::default()).unwrap();
    let mut state = first_state(&step.graph, 3);
    let x = array(&[2, 3, 6, 6]);
    let mut loss = || call(&step.graph, &mut state, std::slice::from_ref(&x))[0].to_f64()[0];
    let first = loss();
    let last = (0..15).map(|_| loss()).last().unwrap();
    assert!(last < 0.7 * first, "{first} to {last}");
}

#[test]
fn what_does_not_fit_is_said() {
    let say = |shape: &[usize], f: &dyn for<'g> Fn(&'g GraphBuilder, Tensor<'g>) -> Tensor<'g>| {
        let g = GraphBuilder::new("layer");
        let x = g.input("x", DType::F32, shape);
        g.output("y", f(&g, x));
        mistakes(g.build())
    };
    for (text, wanted) in [
        (say(&[2, 3, 4], &|g, x| conv2d(g, "c", x, 2, 3)), "channels"),
        (say(&[2, 3, 2, 2], &|g, x| conv2d(g, "c", x, 2, 3)), "does not fit"),
        (say(&[2, 3, 4, 4], &|g, x| group_norm(g, "n", x, 2, 1e-5)), "do not divide"),
        (say(&[4], &|g, x| batch_norm(g, "n", x, BatchNorm::default())), "channels"),
        (say(&[2, 1, 5, 5], &|g, x| Cnn::SMALL.build(g, x)), "does not fit"),
    ] {
        assert!(text.contains(wanted), "{text}");
    }
}
