//! Convolutions, transposed ones, and pooling.

use super::Entry;
use super::call::{Built, Call, KEYWORD, Trouble};
use super::helpers::{fixed, like, one, sizes};
use crate::samples::Value;
use onestep_ir::ops::Window;
use onestep_ir::{DType, Divisor, Tensor};

pub const TABLE: &[Entry] = &[
    ("nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d", |c| {
        let (x, w, bias) = (c.x()?, c.tensor(1, "weight")?, c.maybe(2, "bias")?);
        let kernel = sizes(w)[2..].to_vec();
        let axes = kernel.len();
        let dilation = each(c, KEYWORD, "dilation", axes, 1)?;
        let window = Window::plain(axes).strides(&each(c, KEYWORD, "stride", axes, 1)?).dilations(&dilation);
        let window = match c.get(KEYWORD, "padding") {
            Value::Text(word) if word == "same" => {
                let total: Vec<usize> = (0..axes).map(|a| dilation[a] * (kernel[a] - 1)).collect();
                let low: Vec<usize> = total.iter().map(|t| t / 2).collect();
                let high = total.iter().zip(&low).map(|(t, l)| t - l).collect();
                Window { low, high, ..window }
            }
            Value::Text(_) => window,
            _ => window.padding(&each(c, KEYWORD, "padding", axes, 0)?),
        };
        let groups = c.int_or(KEYWORD, "groups", 1)? as usize;
        one(batched(x, axes, |x| biased(x.conv(w, window, groups), bias)))
    }),
    ("nn.functional.conv_transpose1d nn.functional.conv_transpose2d nn.functional.conv_transpose3d", |c| {
        let (x, w, bias) = (c.x()?, c.tensor(1, "weight")?, c.maybe(2, "bias")?);
        let axes = w.rank() - 2;
        let window = Window::plain(axes)
            .strides(&each(c, KEYWORD, "stride", axes, 1)?)
            .padding(&each(c, KEYWORD, "padding", axes, 0)?)
            .dilations(&each(c, KEYWORD, "dilation", axes, 1)?);
        let more = each(c, KEYWORD, "output_padding", axes, 0)?;
        let groups = c.int_or(KEYWORD, "groups", 1)? as usize;
        one(batched(x, axes, |x| biased(x.conv_transpose(w, window, groups, &more), bias)))
    }),
    ("nn.functional.max_pool1d", |c| max_pool(c, 1)),
    ("nn.functional.max_pool2d", |c| max_pool(c, 2)),
    ("nn.functional.max_pool3d", |c| max_pool(c, 3)),
    ("max_pool2d_with_indices_backward", |c| {
        // The gradient of the sum of all maxima: ones where they stand.
        let (y, places) = max_pooled(c, 2)?;
        one(summed(like(y, 1.0), places, &sizes(c.x()?)[2..]))
    }),
    ("nn.functional.max_unpool1d nn.functional.max_unpool2d nn.functional.max_unpool3d", |c| {
        let (x, places) = (c.x()?, c.tensor(1, "indices")?);
        let out: Vec<usize> = c.ints(KEYWORD, "output_size")?[2..].iter().map(|&n| n as usize).collect();
        // Where windows overlap, elements that are equal have one place. Ours is their mean, with its gradient; PyTorch's is
        // one of them, with the gradient of their sum: the difference is brought on a grid, whose steps are flat.
        let (mean, sum) = (x.max_unpool(places, &out), summed(x, places, &out));
        let grid = 2f64.powi(40);
        one(sum - ((sum - mean) * grid).round() / grid)
    }),
    ("nn.functional.avg_pool1d", |c| avg_pool(c, 1)),
    ("nn.functional.avg_pool2d", |c| avg_pool(c, 2)),
    ("nn.functional.avg_pool3d", |c| avg_pool(c, 3)),
    ("nn.functional.adaptive_avg_pool1d", |c| one(c.x()?.adaptive_avg_pool(&adaptive(c, 1)?))),
    ("nn.functional.adaptive_avg_pool2d", |c| one(c.x()?.adaptive_avg_pool(&adaptive(c, 2)?))),
    ("nn.functional.adaptive_avg_pool3d", |c| one(c.x()?.adaptive_avg_pool(&adaptive(c, 3)?))),
    ("nn.functional.adaptive_max_pool1d", |c| adaptive_max(c, 1)),
    ("nn.functional.adaptive_max_pool2d", |c| adaptive_max(c, 2)),
    ("nn.functional.adaptive_max_pool3d", |c| adaptive_max(c, 3)),
];

/// One number for each axis: a list, or one for all.
fn each(c: &Call<'_, '_>, at: usize, name: &str, axes: usize, default: usize) -> Result<Vec<usize>, Trouble> {
    let given = c.maybe_ints(at, name)?.filter(|g| !g.is_empty()).unwrap_or_else(|| vec![default as isize]);
    Ok((0..axes).map(|a| given[a.min(given.len() - 1)] as usize).collect())
}

/// An example without a batch is a batch of one.
fn batched<'g>(x: Tensor<'g>, axes: usize, f: impl FnOnce(Tensor<'g>) -> Tensor<'g>) -> Tensor<'g> {
    if x.rank() == axes + 1 { f(x.expand(0)).squeeze(0) } else { f(x) }
}

fn biased<'g>(y: Tensor<'g>, bias: Option<Tensor<'g>>) -> Tensor<'g> {
    let Some(bias) = bias else { return y };
    let mut shape = vec![1; y.rank() - 1];
    shape[0] = sizes(bias)[0];
    y + bias.reshape(&shape[..])
}

/// The window of a pooling call: stride and padding follow the kernel.
fn window(c: &Call<'_, '_>, kernel: &[usize]) -> Result<Window, Trouble> {
    let axes = kernel.len();
    let stride = match c.maybe_ints(2, "stride")?.filter(|s| !s.is_empty()) {
        Some(_) => each(c, 2, "stride", axes, 1)?,
        None => kernel.to_vec(),
    };
    Ok(Window::plain(axes).strides(&stride).padding(&each(c, 3, "padding", axes, 0)?))
}

fn max_pool<'g>(c: &Call<'_, 'g>, axes: usize) -> Built<'g> {
    let (y, places) = max_pooled(c, axes)?;
    let both = c.flag(6, "return_indices", false)?;
    Ok(if both { vec![y, places.cast(DType::I64)] } else { vec![y] })
}

/// The maxima, and their places among the spatial elements.
fn max_pooled<'g>(c: &Call<'_, 'g>, axes: usize) -> Result<(Tensor<'g>, Tensor<'g>), Trouble> {
    let x = c.x()?;
    let kernel = each(c, 1, "kernel_size", axes, 1)?;
    let mut window = window(c, &kernel)?.dilations(&each(c, 4, "dilation", axes, 1)?);
    if c.flag(5, "ceil_mode", false)? {
        window = window.to_the_end(&sizes(x)[x.rank() - axes..], &kernel);
    }
    Ok(x.max_pool_with_indices(&kernel, window))
}

/// The sum of what has each place among the last axes of sizes `out`.
fn summed<'g>(values: Tensor<'g>, places: Tensor<'g>, out: &[usize]) -> Tensor<'g> {
    let of = sizes(values);
    let (lead, own) = of.split_at(of.len() - out.len());
    let flat = |n: &[usize]| fixed(&[lead, &[n.iter().product()]].concat());
    let none = values.graph().full(values.dtype(), flat(out), 0.0);
    let sum = none.scatter_add_along(-1, places.reshape(flat(own)), values.reshape(flat(own)));
    sum.reshape(fixed(&[lead, out].concat()))
}

fn avg_pool<'g>(c: &Call<'_, 'g>, axes: usize) -> Built<'g> {
    let kernel = each(c, 1, "kernel_size", axes, 1)?;
    let divisor = match (c.maybe_number(6, "divisor_override")?, c.flag(5, "count_include_pad", true)?) {
        (Some(by), _) => Divisor::Given(by),
        (None, true) => Divisor::WithPadding,
        (None, false) => Divisor::Elements,
    };
    one(c.x()?.avg_pool(&kernel, window(c, &kernel)?, divisor, c.flag(4, "ceil_mode", false)?))
}

/// The sizes asked for; `None` keeps an axis's size.
fn adaptive(c: &Call<'_, '_>, axes: usize) -> Result<Vec<usize>, Trouble> {
    let x = sizes(c.x()?);
    let own = &x[x.len() - axes..];
    match c.get(1, "output_size") {
        Value::List(items) => {
            let size = |(a, v): (usize, &Value)| match v {
                Value::Int(n) => Ok(*n as usize),
                Value::None => Ok(own[a]),
                _ => Err(Trouble::Malformed("output_size is no list of sizes".into())),
            };
            items.iter().enumerate().map(size).collect()
        }
        _ => each(c, 1, "output_size", axes, 1),
    }
}

fn adaptive_max<'g>(c: &Call<'_, 'g>, axes: usize) -> Built<'g> {
    let (y, places) = c.x()?.adaptive_max_pool(&adaptive(c, axes)?);
    Ok(if c.flag(2, "return_indices", false)? { vec![y, places.cast(DType::I64)] } else { vec![y] })
}
