//! Multilayer perceptrons.

use crate::layers::features;
use crate::{Activation, linear};
use onestep_ir::{Dim, GraphBuilder, Shape, Tensor};

/// Linear layers of the given sizes, with `activation` between them but not behind the last.
///
/// `x` is `[.., inputs]` of any float dtype, and the result `[.., last size]` of that dtype. Parameters: those of a
/// [`linear`] at `<name>.0`, `<name>.1` and so on. Without sizes, `x` itself.
#[track_caller]
pub fn mlp<'g>(
    g: &'g GraphBuilder,
    name: &str,
    x: Tensor<'g>,
    sizes: &[usize],
    activation: Activation,
) -> Tensor<'g> {
    let mut y = x;
    for (i, &size) in sizes.iter().enumerate() {
        if i > 0 {
            y = activation.apply(y);
        }
        y = linear(g, &format!("{name}.{i}"), y, size);
    }
    y
}

/// A classifier: each example flattened, hidden layers of the given sizes with `activation` behind each, and logits.
///
/// `x` is `[batch, ..]` of any float dtype, and the result `[batch, classes]`, ready for `cross_entropy`. Parameters: those
/// of a [`linear`] at `fc1`, `fc2` and so on. One hidden layer of 256 with ReLU is the usual first network for digits.
#[track_caller]
pub fn mlp_classifier<'g>(
    g: &'g GraphBuilder,
    x: Tensor<'g>,
    hidden: &[usize],
    classes: usize,
    activation: Activation,
) -> Tensor<'g> {
    let mut y = rows(x);
    for (i, &size) in hidden.iter().enumerate() {
        y = activation.apply(linear(g, &format!("fc{}", i + 1), y, size));
    }
    linear(g, &format!("fc{}", hidden.len() + 1), y, classes)
}

/// Each example, an element of the first axis, as one row.
#[track_caller]
fn rows(x: Tensor<'_>) -> Tensor<'_> {
    if x.rank() < 2 && x.value().is_some() {
        let what = format!("{} has no axis of examples before their features", x.shape());
        return x.mistake("mlp_classifier", what, "give x of shape [batch, ..]");
    }
    if features(x, "mlp_classifier").is_none() {
        return x.poison();
    }
    let dims = x.shape().0;
    match dims[1..].iter().try_fold(Dim::fixed(1), |n, d| n.times(d)) {
        Some(n) => x.reshape(Shape(vec![dims[0].clone(), n])),
        None => x.mistake("mlp_classifier", "the number of features overflows", "use smaller examples"),
    }
}
