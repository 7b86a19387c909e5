//! Linear algebra of small matrices, the last two axes: factors by elimination, one step for each column, and what follows
//! from them. The steps are ordinary ops, so that gradients are those of the steps; a graph grows with the size of the
//! matrix, which is a number. Computed in `f32` at least.

use super::{Tensor, common_shape};
use crate::{DType, Dim, Shape};

/// What [`Tensor::lu`] gives: P·A = L·U of each `[n, m]`.
#[derive(Clone, Copy, Debug)]
pub struct Lu<'g> {
    /// U on and above the main diagonal, L below, without its ones.
    pub packed: Tensor<'g>,
    /// For each step k, the row from k on that was exchanged with row k: `i32`, `[.., min(n, m)]`.
    pub pivots: Tensor<'g>,
    /// For each row of P·A, the row of A: `i32`, `[.., n]`.
    pub order: Tensor<'g>,
}

impl<'g> Lu<'g> {
    /// The rows of `b`, `[.., n, r]`, in the order of P·b.
    #[track_caller]
    pub fn permute(self, b: Tensor<'g>) -> Tensor<'g> {
        b.rows_at(self.order)
    }
}

impl<'g> Tensor<'g> {
    /// The factors of the last two axes with partial pivoting: the largest magnitude of each column leads it.
    #[track_caller]
    pub fn lu(self) -> Lu<'g> {
        let poison = Lu { packed: self.poison(), pivots: self.poison(), order: self.poison() };
        let Some((lead, n, m)) = self.matrices("lu") else { return poison };
        let g = self.g;
        let with = |sizes: &[usize]| lead.followed_by(sizes);
        let rows = g.iota(DType::I32, with(&[n, 1]), lead.rank());
        let columns = g.iota(DType::I32, with(&[1, m]), lead.rank() + 1);
        let row = g.iota(DType::I32, with(&[n]), lead.rank());
        let (mut a, mut order, mut pivots) = (self.wide(), row, vec![]);
        for k in 0..n.min(m) {
            let at = k as f64;
            // What is above is out of the race.
            let size = rows.less(at).select(-1.0, a.slice(-1, k, k + 1).abs());
            let pivot = size.squeeze(-1).argmax(-1).expand(lead.rank());
            let exchanged = row.equals(at).select(pivot, row.equals(pivot).select(at, row));
            (a, order) = (a.rows_at(exchanged), order.gather_along(-1, exchanged));
            pivots.push(pivot);
            let leading = a.slice(-2, k, k + 1);
            let below = rows.greater(at);
            // A column of zeros is eliminated already.
            let leader = leading.slice(-1, k, k + 1);
            let leader = leader.equals(0.0).select(1.0, leader);
            let factor = below.select(a.slice(-1, k, k + 1), 0.0) / leader;
            let rest = a - factor * columns.greater(at).select(leading, 0.0);
            a = below.and_stretched(columns.equals(at)).select(factor, rest);
        }
        let pivots =
            if pivots.is_empty() { g.full(DType::I32, with(&[0]), 0.0) } else { g.concat(&pivots, -1) };
        Lu { packed: a.cast(self.dtype()), pivots, order }
    }

    /// The X of A·X = `b`, `[.., n, r]`, for this triangular A, of which the other triangle is not read, nor the diagonal of
    /// ones when `unit`. Leading axes are broadcast.
    #[track_caller]
    pub fn solve_triangular(self, b: Tensor<'g>, upper: bool, unit: bool) -> Tensor<'g> {
        let op = "solve_triangular";
        let (Some((lead, n, _)), Some((of, rows, r))) = (self.square_matrices(op), b.matrices(op)) else {
            return self.poison();
        };
        let common = common_shape(&lead, &of).filter(|_| rows == n && self.dtype() == b.dtype());
        let Some(common) = common else {
            let what = format!("{} does not solve {}", self.shape(), b.shape());
            return self.mistake(
                op,
                what,
                "give as many rows, of the same dtype, and leading axes that stretch",
            );
        };
        let a = self.wide().broadcast(&common.followed_by(&[n, n]));
        let b = b.wide().broadcast(&common.followed_by(&[n, r]));
        let mut known: Option<Tensor<'g>> = None;
        for i in 0..n {
            let k = if upper { n - 1 - i } else { i };
            let mut x = b.slice(-2, k, k + 1);
            let row = a.slice(-2, k, k + 1);
            if let Some(known) = known {
                let coefficients = if upper { row.slice(-1, k + 1, n) } else { row.slice(-1, 0, k) };
                x = x - coefficients.matmul(known);
            }
            if !unit {
                x = x / row.slice(-1, k, k + 1);
            }
            known = Some(match known {
                None => x,
                Some(known) if upper => self.g.concat(&[x, known], -2),
                Some(known) => self.g.concat(&[known, x], -2),
            });
        }
        known.unwrap_or(b).cast(self.dtype())
    }

    /// The X of A·X = `b` for this square A; `b` is `[.., n, r]`, or vectors: `[n]`, or `[.., n]` with A's leading axes. Of a
    /// singular A, elements are infinite or NaN.
    #[track_caller]
    pub fn solve(self, b: Tensor<'g>) -> Tensor<'g> {
        let rows_of_a = self.shape().without(&[self.rank().saturating_sub(1)]);
        if b.value.is_some() && self.rank() > 1 && (b.rank() == 1 || b.shape() == rows_of_a) {
            return self.solve(b.expand(b.rank())).squeeze(-1);
        }
        let op = "solve";
        let (Some((lead, n, _)), Some((of, rows, r))) = (self.square_matrices(op), b.matrices(op)) else {
            return self.poison();
        };
        let Some(common) = common_shape(&lead, &of).filter(|_| rows == n) else {
            let what = format!("{} does not solve {}", self.shape(), b.shape());
            return self.mistake(op, what, "give as many rows, and leading axes that stretch");
        };
        let lu = self.broadcast(&common.followed_by(&[n, n])).lu();
        let b = lu.permute(b.broadcast(&common.followed_by(&[n, r])));
        lu.packed.solve_triangular(lu.packed.solve_triangular(b, false, true), true, false)
    }

    /// The inverse of each square matrix: see [`Tensor::solve`].
    #[track_caller]
    pub fn inverse(self) -> Tensor<'g> {
        let Some((lead, n, _)) = self.square_matrices("inverse") else { return self.poison() };
        self.solve(self.g.eye(self.dtype(), n, n).broadcast(&lead.followed_by(&[n, n])))
    }

    /// The determinant of each square matrix.
    #[track_caller]
    pub fn det(self) -> Tensor<'g> {
        let Some((diagonal, parity)) = self.eliminated("det") else { return self.poison() };
        (diagonal.prod(&[-1]) * parity).cast(self.dtype())
    }

    /// The sign of each determinant, and the logarithm of its magnitude.
    #[track_caller]
    pub fn sign_log_det(self) -> (Tensor<'g>, Tensor<'g>) {
        let Some((diagonal, parity)) = self.eliminated("sign_log_det") else {
            return (self.poison(), self.poison());
        };
        let sign = diagonal.sign().prod(&[-1]) * parity;
        (sign.cast(self.dtype()), diagonal.abs().log().sum(&[-1]).cast(self.dtype()))
    }

    /// U's diagonal, and 1 or −1 by the number of exchanges.
    #[track_caller]
    fn eliminated(self, op: &str) -> Option<(Tensor<'g>, Tensor<'g>)> {
        let (lead, n, _) = self.square_matrices(op)?;
        let lu = self.wide().lu();
        let place = self.g.iota(DType::I32, lead.followed_by(&[n]), lead.rank());
        let exchanges = lu.pivots.not_equal(place).cast(DType::I32).sum(&[-1]);
        let odd = exchanges.remainder(2.0).cast(lu.packed.dtype());
        Some((lu.packed.diagonal(0), odd * -2.0 + 1.0))
    }

    /// The lower triangular L with L·Lᵀ = A for each symmetric positive definite A; NaN where it is not positive. The gradient
    /// is symmetric.
    #[track_caller]
    pub fn cholesky(self) -> Tensor<'g> {
        let Some((lead, n, _)) = self.square_matrices("cholesky") else { return self.poison() };
        let x = self.wide();
        let mut rest = (x + x.transpose_last()) * 0.5;
        let rows = self.g.iota(DType::I32, lead.followed_by(&[n, 1]), lead.rank());
        let mut columns = vec![];
        for k in 0..n {
            let column = rest.slice(-1, k, k + 1);
            let column = rows.less(k as f64).select(0.0, column / column.slice(-2, k, k + 1).sqrt());
            rest = rest - column * column.transpose_last();
            columns.push(column);
        }
        if columns.is_empty() { self } else { self.g.concat(&columns, -1).cast(self.dtype()) }
    }

    /// The rows `[.., n, m]` that an index `[.., n]` names.
    #[track_caller]
    fn rows_at(self, index: Tensor<'g>) -> Tensor<'g> {
        if index.value.is_none() {
            return index;
        }
        self.gather_along(-2, index.expand(index.rank()).broadcast(&self.shape()))
    }

    /// Truth of both, stretched over each other.
    #[track_caller]
    fn and_stretched(self, other: Tensor<'g>) -> Tensor<'g> {
        let (a, b) = self.stretched(other);
        a.and(b)
    }

    /// The leading axes, rows and columns; `None` and a mistake on record where there are no matrices of floats.
    #[track_caller]
    fn matrices(self, op: &str) -> Option<(Shape, usize, usize)> {
        let ty = self.ty()?;
        let sizes = match &ty.shape.0[..] {
            [lead @ .., n, m] if ty.dtype.is_float() => n.size().zip(m.size()).map(|s| (lead, s)),
            _ => None,
        };
        let Some((lead, (n, m))) = sizes else {
            self.mistake(
                op,
                format!("{ty} is no matrix"),
                "give floats with two last axes whose sizes are numbers",
            );
            return None;
        };
        Some((Shape(lead.to_vec()), n, m))
    }

    /// The same of square matrices.
    #[track_caller]
    fn square_matrices(self, op: &str) -> Option<(Shape, usize, usize)> {
        let (lead, n, m) = self.matrices(op)?;
        if n != m {
            self.mistake(op, format!("{} is not square", self.shape()), "give as many rows as columns");
            return None;
        }
        Some((lead, n, m))
    }
}

impl Shape {
    /// These axes and fixed ones behind them.
    fn followed_by(&self, sizes: &[usize]) -> Shape {
        Shape(self.0.iter().cloned().chain(sizes.iter().copied().map(Dim::fixed)).collect())
    }
}
