//! Products of vectors, matrices and batches of them.

use super::Entry;
use super::call::{Built, Call, Trouble, wrapped};
use super::helpers::{fixed, like, one, sizes};
use crate::samples::Value;
use onestep_ir::{DType, Tensor};

pub const TABLE: &[Entry] = &[
    ("matmul mm bmm mv dot vdot", |c| one(product(c.x()?, c.tensor(1, "other")?))),
    ("__rmatmul__", |c| one(product(c.tensor(1, "other")?, c.x()?))),
    ("inner", |c| {
        let (a, b) = (c.x()?, c.tensor(1, "other")?);
        one(if a.rank() == 0 || b.rank() == 0 { a * b } else { product(a, turned(b)) })
    }),
    ("outer", |c| one(c.x()?.expand(1) * c.tensor(1, "vec2")?)),
    ("addr", |c| plus(c, c.tensor(1, "vec1")?.expand(1) * c.tensor(2, "vec2")?)),
    ("addmm addmv baddbmm", |c| plus(c, product(c.tensor(1, "mat1")?, c.tensor(2, "mat2")?))),
    ("addbmm", |c| plus(c, c.tensor(1, "batch1")?.matmul(c.tensor(2, "batch2")?).sum(&[0]))),
    ("nn.functional.linear", |c| {
        let y = product(c.x()?, turned(c.tensor(1, "weight")?));
        one(match c.maybe(2, "bias")? {
            Some(bias) => y + bias,
            None => y,
        })
    }),
    ("nn.functional.bilinear", |c| {
        let (a, b, w) = (c.x()?, c.tensor(1, "input2")?, c.tensor(2, "weight")?);
        // a[…, 1, i] · w[o, i, j] = [o, …, j], then times b[…, j].
        let (sa, sw) = (sizes(a), sizes(w));
        let rows: usize = sa[..sa.len() - 1].iter().product();
        let flat = a.reshape([rows, sw[1]]);
        let left = product(flat, w).transpose(&[1, 0, 2]);
        let y = (left * b.reshape([rows, 1, sw[2]])).sum(&[2]);
        let y = y.reshape(fixed(&[&sa[..sa.len() - 1], &[sw[0]]].concat()));
        one(match c.maybe(3, "bias")? {
            Some(bias) => y + bias,
            None => y,
        })
    }),
    ("linalg.multi_dot", |c| {
        let parts = c.all()?;
        one(parts[1..].iter().fold(parts[0], |a, &b| product(a, b)))
    }),
    ("linalg.vander", |c| {
        let x = c.x()?;
        let x = if x.rank() == 0 { x.reshape([1]) } else { x };
        let columns = c.int_or(1, "N", *sizes(x).last().unwrap_or(&1) as isize)?;
        let mut powers = vec![like(x, 1.0)];
        (1..columns).for_each(|_| powers.push(powers[powers.len() - 1] * x));
        one(c.g.stack(&powers, x.rank() as isize))
    }),
    ("cross", |c| {
        let (a, b) = c.x()?.stretched(c.tensor(1, "other")?);
        let first = sizes(a).iter().position(|&n| n == 3).unwrap_or(0);
        one(cross(a, b, c.axis(a.rank(), 2, "dim", first as isize)?))
    }),
    ("linalg.cross", |c| {
        let (a, b) = c.x()?.stretched(c.tensor(1, "other")?);
        one(cross(a, b, c.axis(a.rank(), 2, "dim", -1)?))
    }),
    ("einsum", |c| {
        let equation = c.text(1, "equation", "")?;
        if equation.contains('.') {
            return Err(Trouble::Refused("einsum with axes that have no letter"));
        }
        one(c.g.einsum(equation, &c.list(0, "operands")?))
    }),
    ("tensordot", |c| {
        let (a, b) = (c.x()?, c.tensor(1, "other")?);
        let (ra, rb) = (a.rank(), b.rank());
        let both = match c.get(2, "dims") {
            Value::List(pair) => {
                let ints = |v: &Value, rank| match v {
                    Value::List(items) => items
                        .iter()
                        .map(|i| if let Value::Int(i) = i { wrapped(*i as isize, rank) } else { Ok(0) })
                        .collect::<Result<Vec<_>, _>>(),
                    _ => Err(Trouble::Malformed("tensordot takes two lists".into())),
                };
                (ints(&pair[0], ra)?, ints(&pair[1], rb)?)
            }
            _ => {
                let n = c.int_or(2, "dims", 2)? as usize;
                ((ra - n..ra).collect(), (0..n).collect())
            }
        };
        let name = |i: usize| char::from(b'a' + i as u8);
        let la: String = (0..ra).map(name).collect();
        let matched = |j: usize| both.1.iter().position(|&k| k == j);
        let lb: String = (0..rb).map(|j| matched(j).map_or(name(ra + j), |at| name(both.0[at]))).collect();
        let free = |l: &str, used: &[usize]| -> String {
            l.chars().enumerate().filter(|(i, _)| !used.contains(i)).map(|(_, c)| c).collect()
        };
        let to = free(&la, &both.0) + &free(&lb, &both.1);
        one(c.g.einsum(&format!("{la},{lb}->{to}"), &[a, b]))
    }),
    ("cov", |c| {
        one(covariance(
            c,
            c.number_or(1, "correction", 1.0)?,
            c.maybe(2, "fweights")?,
            c.maybe(3, "aweights")?,
        )?)
    }),
    ("corrcoef", |c| {
        let cov = covariance(c, 1.0, None, None)?;
        if cov.rank() == 0 {
            return one(cov * cov.reciprocal());
        }
        let n = sizes(cov)[0];
        let eye = c.g.iota(DType::I32, [n, n], 0).equals(c.g.iota(DType::I32, [n, n], 1));
        let deviation = eye.select(cov, like(cov, 0.0)).sum(&[1]).sqrt();
        let y = cov / deviation.expand(1) / deviation;
        one(super::helpers::clamped(y, -1.0, 1.0))
    }),
];

/// A matrix's axes swapped; a vector as it is.
fn turned(t: Tensor<'_>) -> Tensor<'_> {
    if t.rank() < 2 { t } else { t.transpose_last() }
}

/// `torch.matmul`: a vector on the left is a row, one on the right a column, and its axis goes again.
fn product<'g>(a: Tensor<'g>, b: Tensor<'g>) -> Tensor<'g> {
    let left = if a.rank() == 1 { a.expand(0) } else { a };
    let right = if b.rank() == 1 { b.expand(1) } else { b };
    let mut y = left.matmul(right);
    if a.rank() == 1 {
        y = y.squeeze(-2);
    }
    if b.rank() == 1 { y.squeeze(-1) } else { y }
}

/// beta · input + alpha · y; nothing of the input where beta is 0.
fn plus<'g>(c: &Call<'_, 'g>, y: Tensor<'g>) -> Built<'g> {
    let y = y * c.number_or(3, "alpha", 1.0)?;
    let beta = c.number_or(4, "beta", 1.0)?;
    one(if beta == 0.0 { y } else { c.x()? * beta + y })
}

fn cross<'g>(a: Tensor<'g>, b: Tensor<'g>, axis: usize) -> Tensor<'g> {
    let axis = axis as isize;
    let part = |i: usize| {
        let (j, k) = ((i + 1) % 3, (i + 2) % 3);
        a.at(axis, j) * b.at(axis, k) - a.at(axis, k) * b.at(axis, j)
    };
    a.graph().stack(&[part(0), part(1), part(2)], axis)
}

fn covariance<'g>(
    c: &Call<'_, 'g>,
    correction: f64,
    fweights: Option<Tensor<'g>>,
    aweights: Option<Tensor<'g>>,
) -> Result<Tensor<'g>, Trouble> {
    let x = c.x()?;
    let single = x.rank() < 2 || sizes(x)[0] == 1;
    let n = *sizes(x).last().unwrap_or(&1);
    let x = if x.rank() < 2 { x.reshape([1, n]) } else { x };
    // Weights keep their own dtype until they meet the data, as in PyTorch.
    let weight = match (fweights, aweights) {
        (Some(f), Some(a)) => f.cast(a.dtype()) * a,
        (Some(w), None) | (None, Some(w)) => w,
        (None, None) => c.g.full(x.dtype(), [n], 1.0),
    };
    let total = weight.sum_all();
    let factor = match aweights {
        Some(a) if correction != 0.0 => total - (weight * a).sum_all() * correction / total,
        _ => total - correction,
    };
    let (weight, total, factor) = (weight.cast(x.dtype()), total.cast(x.dtype()), factor.cast(x.dtype()));
    let centred = x - ((x * weight).sum(&[1]) / total).expand(1);
    let factor = super::helpers::at_least(factor, like(factor, 0.0));
    let y = (centred * weight).matmul_t(centred, false, true) / factor;
    Ok(if single { y.reshape(fixed(&[])) } else { y })
}
