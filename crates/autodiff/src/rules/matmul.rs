//! Gradients of `matmul`, for C = A·B: dA = dC·Bᵀ and dB = Aᵀ·dC. Transposes are flags of the products, so that no
//! operand is moved. Both are products in the operands' dtype, which is also theirs.
//!
//! Of 8-bit floats both are products of 8-bit floats, with dC in `f8e5m2` by a scale of its own: gradients need range more than
//! digits (Micikevicius and others, "FP8 formats for deep learning", 2022). The cotangents of the operands have dC's dtype.

use super::{At, Cotangents, Gradient, sizes, wide};
use onestep_ir::ops::Matmul;
use onestep_ir::{DType, Shape, Tensor};

impl Gradient for Matmul {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (a, b) = (at.operands[0], at.operands[1]);
        if a.dtype().is_fp8() {
            return Some(eight_bits(at, a, b));
        }
        let dc = at.dy().cast(a.dtype());
        let shared = a.rank() > 2 && b.rank() == 2;
        let da = at.want(0, || match (self.transpose_a, shared) {
            (false, _) => product(dc, b, false, !self.transpose_b),
            // a's cotangent is op(b)·dcᵀ.
            (true, false) => product(b, dc, self.transpose_b, true),
            // Only the right operand can be shared by the batch.
            (true, true) => product(dc, b, false, !self.transpose_b).transpose_last(),
        });
        let db = at.want(1, || match (shared, self.transpose_a) {
            (false, _) => right(self, a, dc, a.dtype()),
            // Rows of all batches are rows of one product.
            (true, false) => right(self, rows(a), rows(dc), a.dtype()),
            (true, true) => {
                let batch: Vec<isize> = (0..a.rank() as isize - 2).collect();
                right(self, a, dc, wide(a).dtype()).sum(&batch).cast(a.dtype())
            }
        });
        Some(vec![da, db])
    }
}

/// The cotangents for C = A·Bᵀ of 8-bit floats: dA = dC·B and dB = dCᵀ·A, each written with the summed axis last.
fn eight_bits<'g>(at: &At<'_, 'g>, a: Tensor<'g>, b: Tensor<'g>) -> Cotangents<'g> {
    let dtype = at.dy().dtype();
    let (dc, scale) = at.dy().quantize(DType::F8E5M2);
    let by_rows = |x: Tensor<'g>, y: Tensor<'g>| {
        at.g.emit1(Matmul { transpose_a: false, transpose_b: true, dtype }, &[x, y]) * scale.cast(dtype)
    };
    let shared = a.rank() > 2 && b.rank() == 2;
    let of_rows = |t: Tensor<'g>| if shared { rows(t) } else { t }.transpose_last();
    vec![at.want(0, || by_rows(dc, b.transpose_last())), at.want(1, || by_rows(of_rows(dc), of_rows(a)))]
}

/// b's cotangent: op(a)ᵀ·dc, or its transpose when b is transposed.
fn right<'g>(op: &Matmul, a: Tensor<'g>, dc: Tensor<'g>, dtype: DType) -> Tensor<'g> {
    if op.transpose_b {
        a.graph().emit1(Matmul { transpose_a: true, transpose_b: op.transpose_a, dtype }, &[dc, a])
    } else {
        a.graph().emit1(Matmul { transpose_a: !op.transpose_a, transpose_b: false, dtype }, &[a, dc])
    }
}

fn product<'g>(a: Tensor<'g>, b: Tensor<'g>, transpose_a: bool, transpose_b: bool) -> Tensor<'g> {
    a.graph().emit1(Matmul { transpose_a, transpose_b, dtype: a.dtype() }, &[a, b])
}

/// `[batch…, m, k]` as `[batch·m, k]`.
fn rows(t: Tensor<'_>) -> Tensor<'_> {
    let sizes = sizes(t);
    let (columns, rows) = sizes.split_last().map_or((1, &[][..]), |(c, r)| (*c, r));
    t.reshape(Shape::fixed(&[rows.iter().product(), columns]))
}
