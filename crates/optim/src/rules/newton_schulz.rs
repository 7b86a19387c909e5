//! The nearest semi-orthogonal matrix, nearly: a Newton–Schulz iteration by a quintic polynomial.
//!
//! ```text
//! X ← G / max(‖G‖, ε), transposed if it is tall
//! A = X Xᵀ        X ← aX + (bA + cA²) X        five times
//! ```
//!
//! The coefficients are chosen for the steepest slope at 0, and leave singular values between about 0.7 and 1.2 (Jordan
//! et al., "Muon: An optimizer for hidden layers in neural networks", 2024).

use onestep_ir::ops::Matmul;
use onestep_ir::{DType, Tensor};

/// How the iteration is done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct NewtonSchulz {
    pub steps: usize,
    pub coefficients: (f64, f64, f64),
    /// The dtype of `X` and `A` between the products; `None` for that of the matrix.
    pub dtype: Option<DType>,
}

impl NewtonSchulz {
    /// The iteration's result for a matrix `g`, in its dtype. `eps` is the least norm.
    pub fn run<'g>(&self, g: Tensor<'g>, eps: Tensor<'g>) -> Tensor<'g> {
        let sizes = g.shape().sizes().unwrap_or_default();
        let tall = matches!(sizes[..], [n, m] if n > m);
        let dtype = self.dtype.unwrap_or(g.dtype());
        // Sums are taken in the matrix's own dtype and rounded once.
        let wide = |x: Tensor<'g>| x.cast(g.dtype());
        let product = |a: Tensor<'g>, b: Tensor<'g>, transpose_b| {
            let op = Matmul { transpose_a: false, transpose_b, dtype: g.dtype() };
            g.graph().emit1(op, &[a, b])
        };

        let x = g.cast(dtype);
        let norm = wide(x).square().sum_all().sqrt().cast(dtype);
        let x = (wide(x) / wide(norm.maximum(eps.cast(dtype)))).cast(dtype);
        let mut x = if tall { x.transpose_last() } else { x };
        let (a, b, c) = self.coefficients;
        for _ in 0..self.steps {
            let gram = product(x, x, true).cast(dtype);
            let inner = (wide(gram) * b + product(gram, gram, false) * c).cast(dtype);
            x = (wide(x) * a + product(inner, x, false)).cast(dtype);
        }
        wide(if tall { x.transpose_last() } else { x })
    }
}
