//! Activations and softmax.

use super::Entry;
use super::call::{Built, Call, KEYWORD};
use super::helpers::{along, fixed, like, one, sizes};
use onestep_ir::Tensor;

pub const TABLE: &[Entry] = &[
    ("nn.functional.relu", |c| one(c.x()?.relu())),
    ("nn.functional.relu6", |c| one(c.x()?.hard_tanh(0.0, 6.0))),
    ("nn.functional.hardtanh", |c| {
        one(c.x()?.hard_tanh(c.number_or(1, "min_val", -1.0)?, c.number_or(2, "max_val", 1.0)?))
    }),
    ("nn.functional.hardsigmoid", |c| one(c.x()?.hard_sigmoid())),
    ("nn.functional.hardswish", |c| one(c.x()?.hard_swish())),
    ("nn.functional.leaky_relu", |c| one(c.x()?.leaky_relu(c.number_or(1, "negative_slope", 0.01)?))),
    ("nn.functional.prelu", |c| {
        let (x, weight) = (c.x()?, c.tensor(1, "weight")?);
        // One weight per channel, the second axis.
        let channels = sizes(weight).iter().product::<usize>();
        let shape: Vec<usize> = (0..x.rank()).map(|a| if a == 1 { channels } else { 1 }).collect();
        let weight = if channels == 1 { weight.reshape(fixed(&[])) } else { weight.reshape(fixed(&shape)) };
        one(x.prelu(weight))
    }),
    ("nn.functional.elu", |c| one(c.x()?.elu(c.number_or(1, "alpha", 1.0)?))),
    ("nn.functional.celu", |c| one(c.x()?.celu(c.number_or(1, "alpha", 1.0)?))),
    ("nn.functional.selu", |c| one(c.x()?.selu())),
    ("nn.functional.gelu", |c| {
        one(if c.text(1, "approximate", "none")? == "tanh" { c.x()?.gelu_tanh() } else { c.x()?.gelu() })
    }),
    ("nn.functional.silu", |c| one(c.x()?.silu())),
    ("nn.functional.mish", |c| one(c.x()?.mish())),
    ("nn.functional.softplus", |c| {
        let (x, beta) = (c.x()?, c.number_or(1, "beta", 1.0)?);
        let linear = (x * beta).greater(c.number_or(2, "threshold", 20.0)?);
        one(linear.select(x, (x * beta).softplus() / beta))
    }),
    ("nn.functional.logsigmoid", |c| one(c.x()?.log_sigmoid())),
    ("nn.functional.softsign", |c| one(c.x()?.softsign())),
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
        one(x.glu(axis as isize))
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

fn normalised<'g>(c: &Call<'_, 'g>, f: impl FnOnce(Tensor<'g>, isize) -> Tensor<'g>) -> Built<'g> {
    let x = c.x()?;
    let x = match c.dtype(KEYWORD, "dtype")? {
        Some(dtype) => x.cast(dtype),
        None => x,
    };
    one(along(x, c.axis(x.rank(), 1, "dim", -1)?, f))
}
