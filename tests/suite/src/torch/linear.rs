//! Linear algebra: triangular factors, and what is solved by them.

use super::Entry;
use super::call::{Built, Call, KEYWORD, Trouble, wrapped};
use super::helpers::{fixed, one, sizes};
use onestep_ir::{DType, Tensor};

pub const TABLE: &[Entry] = &[
    ("linalg.cholesky", |c| one(factor(c)?)),
    ("linalg.cholesky_ex", |c| with_info(c, factor(c)?)),
    ("cholesky_solve", |c| {
        let (b, l) = (c.x()?, c.tensor(1, "input2")?);
        one(cholesky_solved(l, b, c.flag(2, "upper", false)?))
    }),
    ("cholesky_inverse", |c| {
        let l = c.x()?;
        let n = *sizes(l).last().unwrap_or(&0);
        let eye = c.g.eye(l.dtype(), n, n).broadcast(&l.shape());
        one(cholesky_solved(l, eye, c.flag(1, "upper", false)?))
    }),
    ("linalg.solve_triangular", |c| {
        let (a, b) = (c.x()?, c.tensor(1, "B")?);
        let (upper, unit) = (c.flag(KEYWORD, "upper", false)?, c.flag(KEYWORD, "unitriangular", false)?);
        one(match c.flag(KEYWORD, "left", true)? {
            true => a.solve_triangular(b, upper, unit),
            false => a.transpose_last().solve_triangular(b.transpose_last(), !upper, unit).transpose_last(),
        })
    }),
    ("triangular_solve", |c| {
        let (b, a) = (c.x()?, c.tensor(1, "A")?);
        let (upper, unit) = (c.flag(2, "upper", true)?, c.flag(4, "unitriangular", false)?);
        let x = match c.flag(3, "transpose", false)? {
            true => a.transpose_last().solve_triangular(b, !upper, unit),
            false => a.solve_triangular(b, upper, unit),
        };
        Ok(vec![x, a])
    }),
    ("linalg.solve", |c| one(c.x()?.solve(c.tensor(1, "B")?))),
    ("linalg.solve_ex", |c| with_info(c, c.x()?.solve(c.tensor(1, "B")?))),
    ("linalg.inv", |c| one(c.x()?.inverse())),
    ("linalg.inv_ex", |c| with_info(c, c.x()?.inverse())),
    ("linalg.det", |c| one(c.x()?.det())),
    ("linalg.slogdet", |c| {
        let (sign, log) = c.x()?.sign_log_det();
        Ok(vec![sign, log])
    }),
    ("logdet", |c| {
        let (sign, log) = c.x()?.sign_log_det();
        one(sign.less(0.0).select(f64::NAN, log))
    }),
    ("linalg.lu_factor", |c| lu(c, false)),
    ("linalg.lu_factor_ex", |c| lu(c, true)),
    ("lu", |c| lu(c, c.flag(2, "get_infos", false)?)),
    ("linalg.lu", |c| {
        let a = c.x()?;
        let lu = a.lu();
        unpacked(lu.packed, lu.order)
    }),
    ("lu_unpack", |c| {
        let packed = c.x()?;
        unpacked(packed, order(c.tensor(1, "LU_pivots")?, rows(packed)))
    }),
    ("linalg.lu_solve", |c| {
        let (packed, pivots, b) = (c.x()?, c.tensor(1, "pivots")?, c.tensor(2, "B")?);
        let adjoint = c.flag(KEYWORD, "adjoint", false)?;
        one(match c.flag(KEYWORD, "left", true)? {
            true => lu_solved(packed, pivots, b, adjoint),
            false => lu_solved(packed, pivots, b.transpose_last(), !adjoint).transpose_last(),
        })
    }),
    ("lu_solve", |c| one(lu_solved(c.tensor(1, "LU_data")?, c.tensor(2, "LU_pivots")?, c.x()?, false))),
    ("linalg.matrix_power", |c| {
        let (x, n) = (c.x()?, c.int(1, "n")?);
        if n == 0 {
            let eye = c.g.eye(x.dtype(), rows(x), rows(x));
            // Nothing depends on x, whose gradient is 0.
            return one(eye.broadcast(&x.shape()));
        }
        let base = if n < 0 { x.inverse() } else { x };
        one((1..n.unsigned_abs()).fold(base, |y, _| y.matmul(base)))
    }),
    ("linalg.tensorinv", |c| {
        let (x, of) = (c.x()?, sizes(c.x()?));
        let (a, b) = of.split_at(c.int_or(1, "ind", 2)? as usize);
        let n: usize = a.iter().product();
        one(x.reshape([n, n]).inverse().reshape(fixed(&[b, a].concat())))
    }),
    ("linalg.tensorsolve", |c| {
        let (mut a, b) = (c.x()?, c.tensor(1, "other")?);
        if let Some(dims) = c.maybe_ints(2, "dims")? {
            let last = dims.into_iter().map(|d| wrapped(d, a.rank())).collect::<Result<Vec<_>, _>>()?;
            let first = (0..a.rank()).filter(|d| !last.contains(d));
            a = a.transpose(&first.chain(last.iter().copied()).collect::<Vec<_>>());
        }
        let of = sizes(a)[b.rank()..].to_vec();
        let n: usize = of.iter().product();
        one(a.reshape([n, n]).solve(b.reshape([n])).reshape(fixed(&of)))
    }),
    ("linalg.householder_product", |c| {
        let (v, tau) = (c.x()?, c.tensor(1, "tau")?);
        let eye = c.g.eye(v.dtype(), rows(v), *sizes(v).last().unwrap_or(&0)).broadcast(&v.shape());
        one(reflected(v, tau, eye, false))
    }),
    ("ormqr", |c| {
        let (v, tau, other) = (c.x()?, c.tensor(1, "tau")?, c.tensor(2, "input3")?);
        let transpose = c.flag(4, "transpose", false)?;
        one(match c.flag(3, "left", true)? {
            true => reflected(v, tau, other, transpose),
            false => reflected(v, tau, other.transpose_last(), !transpose).transpose_last(),
        })
    }),
];

fn rows(x: Tensor<'_>) -> usize {
    let of = sizes(x);
    of[of.len() - 2]
}

fn factor<'g>(c: &Call<'_, 'g>) -> Result<Tensor<'g>, Trouble> {
    let l = c.x()?.cholesky();
    Ok(if c.flag(1, "upper", false)? { l.transpose_last() } else { l })
}

/// Zeros for the numbers that report a failure: the samples have none.
fn with_info<'g>(c: &Call<'_, 'g>, t: Tensor<'g>) -> Built<'g> {
    let of = sizes(c.x()?);
    Ok(vec![t, c.g.full(DType::I32, fixed(&of[..of.len() - 2]), 0.0)])
}

/// The X of L·Lᵀ·X = B, or of Uᵀ·U·X = B. PyTorch's gradient is that of the whole L, its other triangle too.
fn cholesky_solved<'g>(l: Tensor<'g>, b: Tensor<'g>, upper: bool) -> Tensor<'g> {
    let l = if upper { l.transpose_last() } else { l };
    l.matmul(l.transpose_last()).solve(b)
}

/// Packed factors and pivots, counted from 1.
fn lu<'g>(c: &Call<'_, 'g>, info: bool) -> Built<'g> {
    let lu = c.x()?.lu();
    let mut all = vec![lu.packed, lu.pivots + 1.0];
    if info {
        all.extend(with_info(c, lu.packed)?.pop());
    }
    Ok(all)
}

/// The order of `n` rows after the exchanges that pivots, counted from 1, stand for.
fn order(pivots: Tensor<'_>, n: usize) -> Tensor<'_> {
    let of = sizes(pivots);
    let (lead, steps) = of.split_at(of.len() - 1);
    let row = pivots.graph().iota(DType::I32, fixed(&[lead, &[n]].concat()), lead.len());
    (0..steps[0]).fold(row, |order, k| {
        let pivot = pivots.slice(-1, k, k + 1) - 1.0;
        let exchanged = row.equals(k as f64).select(pivot, row.equals(pivot).select(k as f64, row));
        order.gather_along(-1, exchanged)
    })
}

/// P, L and U with P·L·U = A.
fn unpacked<'g>(packed: Tensor<'g>, order: Tensor<'g>) -> Built<'g> {
    let of = sizes(packed);
    let (lead, m) = (of.len() - 2, of[of.len() - 1]);
    let (n, k) = (of[lead], of[lead].min(m));
    let square = |rows: usize, columns: usize| fixed(&[&of[..lead], &[rows, columns]].concat());
    // Column i of P has its 1 in the row that row i came from.
    let row = packed.graph().iota(DType::I32, square(n, n), lead);
    let p = row.equals(order.expand(lead)).cast(packed.dtype());
    let eye = packed.graph().eye(packed.dtype(), n, k);
    let l = packed.slice(-1, 0, k).tril(-1) + eye;
    Ok(vec![p, l, packed.slice(-2, 0, k).triu(0)])
}

fn lu_solved<'g>(packed: Tensor<'g>, pivots: Tensor<'g>, b: Tensor<'g>, adjoint: bool) -> Tensor<'g> {
    let n = rows(packed);
    let order = order(pivots, n);
    let lead = order.rank() - 1;
    let row = packed.graph().iota(DType::I32, fixed(&[&sizes(order)[..lead], &[n, n]].concat()), lead);
    // P·A = L·U: row i of P has its 1 at the row of A.
    let columns = packed.graph().iota(DType::I32, row.shape(), lead + 1);
    let p = columns.equals(order.expand(lead + 1)).cast(packed.dtype());
    if adjoint {
        let t = packed.transpose_last();
        let y = t.solve_triangular(t.solve_triangular(b, false, false), true, true);
        return p.transpose_last().matmul(y);
    }
    packed.solve_triangular(packed.solve_triangular(p.matmul(b), false, true), true, false)
}

/// Q·x (Qᵀ·x when `transpose`) for Q = H₁·H₂…, Hᵢ = 1 − τᵢ·vᵢ·vᵢᵀ, with vᵢ below the diagonal of column i and 1 on it.
fn reflected<'g>(v: Tensor<'g>, tau: Tensor<'g>, x: Tensor<'g>, transpose: bool) -> Tensor<'g> {
    let count = *sizes(tau).last().unwrap_or(&0);
    let row = v.graph().iota(
        DType::I32,
        v.slice(-1, 0, 1.min(*sizes(v).last().unwrap_or(&0))).shape(),
        v.rank() - 2,
    );
    let step = |x: Tensor<'g>, i: usize| {
        let below = row.greater(i as f64).select(v.slice(-1, i, i + 1), row.equals(i as f64).cast(v.dtype()));
        let scale = tau.slice(-1, i, i + 1).expand(tau.rank());
        x - below * below.transpose_last().matmul(x) * scale
    };
    if transpose { (0..count).fold(x, step) } else { (0..count).rev().fold(x, step) }
}
