//! Normalisation: over rows, batches, groups, neighbours, and to length one.

use super::Entry;
use super::call::{Built, Call, KEYWORD, Trouble};
use super::helpers::{at_least, fixed, kept, like, norm, one, signed, sizes};
use onestep_ir::{DType, Tensor};

pub const TABLE: &[Entry] = &[
    ("nn.functional.layer_norm", |c| {
        let (x, n) = rows(c, c.x()?)?;
        let (weight, bias) = (flat(c, 2, "weight", 1.0, n)?, flat(c, 3, "bias", 0.0, n)?);
        one(x.layer_norm(weight, bias, c.number_or(4, "eps", 1e-5)?).reshape(c.x()?.shape()))
    }),
    ("native_layer_norm", |c| {
        let (x, n) = rows(c, c.x()?)?;
        let (weight, bias) = (flat(c, 2, "weight", 1.0, n)?, flat(c, 3, "bias", 0.0, n)?);
        let eps = c.number(4, "eps")?;
        let (mean, scale) = statistics(x, &[1], eps);
        let of = sizes(c.x()?);
        let normal = c.ints(1, "normalized_shape")?.len();
        let shape = fixed(&[&of[..of.len() - normal], &vec![1; normal][..]].concat());
        let y = x.layer_norm(weight, bias, eps).reshape(c.x()?.shape());
        Ok(vec![y, mean.reshape(shape.clone()), scale.reshape(shape)])
    }),
    ("nn.functional.rms_norm", |c| {
        let (x, n) = rows(c, c.x()?)?;
        let least = if x.dtype() == DType::F64 { f64::EPSILON } else { f32::EPSILON as f64 };
        let y = x.rms_norm(flat(c, 2, "weight", 1.0, n)?, c.number_or(3, "eps", least)?);
        one(y.reshape(c.x()?.shape()))
    }),
    ("nn.functional.group_norm", |c| {
        let (x, groups) = (c.x()?, c.int(1, "num_groups")? as usize);
        let (weight, bias) = (per_channel(c, 2, "weight", 1.0)?, per_channel(c, 3, "bias", 0.0)?);
        one(x.group_norm(groups, weight, bias, c.number_or(4, "eps", 1e-5)?))
    }),
    ("native_group_norm", |c| {
        let groups = c.int(6, "group")? as usize;
        group_norm(c, groups, c.maybe(1, "weight")?, c.maybe(2, "bias")?, c.number(7, "eps")?)
    }),
    ("nn.functional.instance_norm", |c| {
        let x = c.x()?;
        let eps = c.number_or(KEYWORD, "eps", 1e-5)?;
        let y = if c.flag(KEYWORD, "use_input_stats", true)? {
            let (mean, scale) = statistics(x, &(2..x.rank()).collect::<Vec<_>>(), eps);
            (x - mean) * scale
        } else {
            let (mean, var) = (c.tensor(1, "running_mean")?, c.tensor(2, "running_var")?);
            (x - channel(x, mean)) * (channel(x, var) + eps).rsqrt()
        };
        one(scaled(y, c.maybe(KEYWORD, "weight")?, c.maybe(KEYWORD, "bias")?))
    }),
    ("nn.functional.batch_norm", |c| {
        let (mean, var) = (c.maybe(1, "running_mean")?, c.maybe(2, "running_var")?);
        let (weight, bias) = (c.maybe(3, "weight")?, c.maybe(4, "bias")?);
        let eps = c.number_or(KEYWORD, "eps", 1e-5)?;
        batch_norm(c, [weight, bias, mean, var], c.flag(KEYWORD, "training", false)?, eps).map(|y| vec![y[0]])
    }),
    ("native_batch_norm _native_batch_norm_legit", |c| {
        let (weight, bias) = (c.maybe(1, "weight")?, c.maybe(2, "bias")?);
        let (mean, var) = (c.maybe(3, "running_mean")?, c.maybe(4, "running_var")?);
        batch_norm(c, [weight, bias, mean, var], c.flag(5, "training", false)?, c.number(7, "eps")?)
    }),
    ("_batch_norm_with_update", |c| {
        let (weight, bias) = (c.maybe(1, "weight")?, c.maybe(2, "bias")?);
        let (mean, var) = (c.maybe(3, "running_mean")?, c.maybe(4, "running_var")?);
        let mut found = batch_norm(c, [weight, bias, mean, var], true, c.number(6, "eps")?)?;
        // Memory that PyTorch reserves for its backward pass: none here.
        found.push(c.g.full(DType::U8, [0], 0.0));
        Ok(found)
    }),
    ("nn.functional.local_response_norm", |c| {
        let (size, alpha, beta) =
            (c.int(1, "size")?, c.number_or(2, "alpha", 1e-4)?, c.number_or(3, "beta", 0.75)?);
        one(c.x()?.local_response_norm(size as usize, alpha, beta, c.number_or(4, "k", 1.0)?))
    }),
    ("nn.functional.normalize", |c| {
        let x = c.x()?;
        let p = c.number_or(1, "p", 2.0)?;
        let axes = match x.rank() {
            0 => vec![],
            rank => vec![c.axis(rank, 2, "dim", 1)?],
        };
        let length = kept(norm(x, p, &axes), x, &axes, true);
        one(x / at_least(length, like(length, c.number_or(3, "eps", 1e-12)?)))
    }),
    ("nn.functional.cosine_similarity", |c| {
        let (a, b) = c.x()?.stretched(c.tensor(1, "x2")?);
        let axes = match a.rank() {
            0 => vec![],
            rank => vec![c.axis(rank, 2, "dim", 1)?],
        };
        let least = c.number_or(3, "eps", 1e-8)?;
        one(match axes[..] {
            [axis] => a.cosine_similarity(b, axis as isize, least),
            _ => a.expand(0).cosine_similarity(b.expand(0), 0, least),
        })
    }),
];

/// A tensor as rows of its normalised axes, and their size.
fn rows<'g>(c: &Call<'_, 'g>, x: Tensor<'g>) -> Result<(Tensor<'g>, usize), Trouble> {
    let of = sizes(x);
    let lead = of.len() - c.ints(1, "normalized_shape")?.len();
    let (m, n) = (of[..lead].iter().product(), of[lead..].iter().product());
    Ok((x.reshape([m, n]), n))
}

/// A weight of the normalised axes as one axis; a constant where none is given.
fn flat<'g>(c: &Call<'_, 'g>, at: usize, name: &str, default: f64, n: usize) -> Result<Tensor<'g>, Trouble> {
    Ok(match c.maybe(at, name)? {
        Some(t) => t.flatten(),
        None => c.g.full(c.x()?.dtype(), [n], default),
    })
}

/// A number for each channel, the second axis; a constant where none is given.
fn per_channel<'g>(c: &Call<'_, 'g>, at: usize, name: &str, default: f64) -> Result<Tensor<'g>, Trouble> {
    let x = c.x()?;
    Ok(c.maybe(at, name)?.unwrap_or_else(|| c.g.full(x.dtype(), [sizes(x)[1]], default)))
}

/// Mean and 1/√(variance + eps) over axes, which stay with size 1.
fn statistics<'g>(x: Tensor<'g>, axes: &[usize], eps: f64) -> (Tensor<'g>, Tensor<'g>) {
    let over = signed(axes);
    let mean = x.mean_keep(&over);
    (mean, ((x - mean).square().mean_keep(&over) + eps).rsqrt())
}

/// One number per channel, the second axis of `x`.
fn channel<'g>(x: Tensor<'g>, t: Tensor<'g>) -> Tensor<'g> {
    let of = sizes(x);
    let at = 1.min(of.len() - 1);
    t.reshape(fixed(&(0..of.len()).map(|a| if a == at { of[a] } else { 1 }).collect::<Vec<_>>()))
}

fn scaled<'g>(y: Tensor<'g>, weight: Option<Tensor<'g>>, bias: Option<Tensor<'g>>) -> Tensor<'g> {
    let y = weight.map_or(y, |w| y * channel(y, w));
    bias.map_or(y, |b| y + channel(y, b))
}

fn group_norm<'g>(
    c: &Call<'_, 'g>,
    groups: usize,
    weight: Option<Tensor<'g>>,
    bias: Option<Tensor<'g>>,
    eps: f64,
) -> Built<'g> {
    let x = c.x()?;
    let of = sizes(x);
    let rest: usize = of[1..].iter().product();
    let grouped = x.reshape([of[0], groups, rest / groups]);
    let (mean, scale) = statistics(grouped, &[2], eps);
    let y = ((grouped - mean) * scale).reshape(x.shape());
    let shape = fixed(&[of[0], groups]);
    Ok(vec![scaled(y, weight, bias), mean.reshape(shape.clone()), scale.reshape(shape)])
}

/// Batch normalisation, and the statistics that were taken (none outside training).
fn batch_norm<'g>(
    c: &Call<'_, 'g>,
    [weight, bias, mean, var]: [Option<Tensor<'g>>; 4],
    training: bool,
    eps: f64,
) -> Built<'g> {
    let x = c.x()?;
    if training {
        let axes: Vec<usize> = (0..x.rank()).filter(|&a| a != 1.min(x.rank() - 1)).collect();
        let (mean, scale) = statistics(x, &axes, eps);
        let y = scaled((x - mean) * scale, weight, bias);
        return Ok(vec![y, mean.flatten(), scale.flatten()]);
    }
    let (Some(mean), Some(var)) = (mean, var) else {
        return Err(Trouble::Malformed("batch_norm without statistics".into()));
    };
    let y = (x - channel(x, mean)) * (channel(x, var) + eps).rsqrt();
    let none = c.g.full(x.dtype(), [0], 0.0);
    Ok(vec![scaled(y, weight, bias), none, none])
}
