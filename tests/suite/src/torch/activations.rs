//! Activations and softmax.

use super::Entry;
use super::call::{Built, Call, KEYWORD};
use super::helpers::{along, fixed, like, one, sizes, softplus};
use onestep_ir::Tensor;

pub const TABLE: &[Entry] = &[
    ("nn.functional.relu", |c| one(c.x()?.relu())),
    ("nn.functional.relu6", |c| one(clipped(c.x()?, 0.0, 6.0))),
    ("nn.functional.hardtanh", |c| {
        one(clipped(c.x()?, c.number_or(1, "min_val", -1.0)?, c.number_or(2, "max_val", 1.0)?))
    }),
    ("nn.functional.hardsigmoid", |c| one(clipped(c.x()? + 3.0, 0.0, 6.0) / 6.0)),
    ("nn.functional.hardswish", |c| one(c.x()? * clipped(c.x()? + 3.0, 0.0, 6.0) / 6.0)),
    ("nn.functional.leaky_relu", |c| {
        let x = c.x()?;
        one(x.greater(0.0).select(x, x * c.number_or(1, "negative_slope", 0.01)?))
    }),
    ("nn.functional.prelu", |c| {
        let (x, weight) = (c.x()?, c.tensor(1, "weight")?);
        // One weight per channel, the second axis.
        let channels = sizes(weight).iter().product::<usize>();
        let shape: Vec<usize> = (0..x.rank()).map(|a| if a == 1 { channels } else { 1 }).collect();
        let weight = if channels == 1 { weight.reshape(fixed(&[])) } else { weight.reshape(fixed(&shape)) };
        one(x.greater(0.0).select(x, x * weight))
    }),
    ("nn.functional.elu", |c| {
        let alpha = c.number_or(1, "alpha", 1.0)?;
        one(exponential(c.x()?, 1.0, alpha, 1.0))
    }),
    ("nn.functional.celu", |c| {
        let alpha = c.number_or(1, "alpha", 1.0)?;
        one(exponential(c.x()?, 1.0, alpha, 1.0 / alpha))
    }),
    ("nn.functional.selu", |c| {
        let scale = 1.050_700_987_355_480_5;
        one(exponential(c.x()?, scale, scale * 1.673_263_242_354_377_2, 1.0))
    }),
    ("nn.functional.gelu", |c| {
        one(if c.text(1, "approximate", "none")? == "tanh" { c.x()?.gelu_tanh() } else { c.x()?.gelu() })
    }),
    ("nn.functional.silu", |c| one(c.x()?.silu())),
    ("nn.functional.mish", |c| one(c.x()? * softplus(c.x()?).tanh())),
    ("nn.functional.softplus", |c| {
        let (x, beta) = (c.x()?, c.number_or(1, "beta", 1.0)?);
        let linear = (x * beta).greater(c.number_or(2, "threshold", 20.0)?);
        one(linear.select(x, softplus(x * beta) / beta))
    }),
    ("nn.functional.logsigmoid", |c| one(-softplus(-c.x()?))),
    ("nn.functional.softsign", |c| one(c.x()? / (c.x()?.abs() + 1.0))),
    ("nn.functional.tanhshrink", |c| one(c.x()? - c.x()?.tanh())),
    ("nn.functional.hardshrink", |c| {
        let (x, by) = (c.x()?, c.number_or(1, "lambd", 0.5)?);
        let inside = x.greater_equal(-by).and(x.less_equal(by));
        one(inside.select(like(x, 0.0), x))
    }),
    ("nn.functional.softshrink", |c| {
        let (x, by) = (c.x()?, c.number_or(1, "lambd", 0.5)?);
        one(x.greater(by).select(x - by, x.less(-by).select(x + by, x * 0.0)))
    }),
    ("nn.functional.threshold", |c| {
        let (x, value) = (c.x()?, c.number(2, "value")?);
        one(x.less_equal(c.number(1, "threshold")?).select(like(x, value), x))
    }),
    ("nn.functional.glu", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 1, "dim", -1)?);
        let halves = x.chunk(axis as isize, 2);
        one(halves[0] * halves[1].sigmoid())
    }),
    ("softmax torch.ops.aten._safe_softmax.default", |c| normalised(c, |x, a| x.softmax(a))),
    ("log_softmax", |c| normalised(c, |x, a| x.log_softmax(a))),
    ("nn.functional.softmin", |c| normalised(c, |x, a| (-x).softmax(a))),
    ("_softmax_backward_data", |c| {
        let (dy, y) = (c.x()?, c.tensor(1, "output")?);
        let axis = c.axis(y.rank(), 2, "dim", 0)?;
        one(y * (dy - (dy * y).sum_keep(&[axis as isize])))
    }),
    ("native_dropout_backward", |c| {
        let dy = c.x()?;
        one(dy * c.tensor(1, "mask")?.cast(dy.dtype()) * c.number(2, "scale")?)
    }),
];

/// x between two limits, and flat at both.
fn clipped(x: Tensor<'_>, low: f64, high: f64) -> Tensor<'_> {
    let limit = x.greater_equal(high).select(like(x, high), like(x, low));
    x.greater(low).and(x.less(high)).select(x, limit)
}

/// `scale`·x above 0 and `alpha`·(e^(`rate`·x) − 1) below, where the exponential never sees a positive number.
fn exponential(x: Tensor<'_>, scale: f64, alpha: f64, rate: f64) -> Tensor<'_> {
    let above = x.greater(0.0);
    let below = above.select(like(x, 0.0), x);
    above.select(x * scale, (below * rate).exp_m1() * alpha)
}

fn normalised<'g>(c: &Call<'_, 'g>, f: impl FnOnce(Tensor<'g>, isize) -> Tensor<'g>) -> Built<'g> {
    let x = c.x()?;
    let x = match c.dtype(KEYWORD, "dtype")? {
        Some(dtype) => x.cast(dtype),
        None => x,
    };
    one(along(x, c.axis(x.rank(), 1, "dim", -1)?, f))
}
