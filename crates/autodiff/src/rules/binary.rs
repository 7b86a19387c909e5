//! Gradients of the elementwise functions of two operands.

use super::{At, Cotangents, Gradient, wide};
use onestep_ir::Tensor;
use onestep_ir::ops::{Binary, BinaryKind};

impl Gradient for Binary {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (a, b, y, dy) = (at.operands[0], at.operands[1], at.y(), at.dy());
        let da = || match self.kind {
            BinaryKind::Mul => dy * b,
            BinaryKind::Div => dy / b,
            BinaryKind::Max => share(dy, a, b, a.less(b)),
            BinaryKind::Min => share(dy, a, b, a.greater(b)),
            BinaryKind::Pow => pow_base(wide(dy), wide(a), wide(b)),
            BinaryKind::Atan2 => turn(wide(dy), wide(a), wide(b), wide(b)),
            // a + b, a − b, a − trunc(a/b)·b
            _ => dy,
        };
        let db = || match self.kind {
            BinaryKind::Sub => -dy,
            BinaryKind::Mul => dy * a,
            BinaryKind::Div => -(wide(dy) * wide(y) / wide(b)),
            BinaryKind::Max => share(dy, a, b, b.less(a)),
            BinaryKind::Min => share(dy, a, b, b.greater(a)),
            BinaryKind::Pow => pow_exponent(wide(dy), wide(a), wide(b), wide(y)),
            BinaryKind::Atan2 => -turn(wide(dy), wide(a), wide(b), wide(a)),
            // −trunc(a/b), from the exact multiple of b that was taken off.
            BinaryKind::Rem => -(wide(dy) * ((wide(a) - wide(y)) / wide(b)).round()),
            _ => dy,
        };
        let dtype = y.dtype();
        Some(vec![at.want(0, || da().cast(dtype)), at.want(1, || db().cast(dtype))])
    }
}

/// For max and min: everything to the operand that was taken, half to each of two equal ones.
fn share<'g>(dy: Tensor<'g>, a: Tensor<'g>, b: Tensor<'g>, lost: Tensor<'g>) -> Tensor<'g> {
    lost.select(0.0, a.equals(b).select(dy * 0.5, dy))
}

/// d/da aᵇ = b·aᵇ⁻¹, and 0 at b = 0. The exponent is replaced there, so that no derivative of this meets 0⁻¹.
fn pow_base<'g>(dy: Tensor<'g>, a: Tensor<'g>, b: Tensor<'g>) -> Tensor<'g> {
    let flat = b.equals(0.0);
    let e = flat.select(1.0, b);
    flat.select(0.0, dy * (e * a.pow(e - 1.0)))
}

/// d/db aᵇ = aᵇ·ln a, and 0 at a = 0, b ≥ 0. The base is replaced there, so that no derivative of this meets ln 0.
fn pow_exponent<'g>(dy: Tensor<'g>, a: Tensor<'g>, b: Tensor<'g>, y: Tensor<'g>) -> Tensor<'g> {
    let flat = a.equals(0.0).and(b.greater_equal(0.0));
    flat.select(0.0, dy * (y * flat.select(1.0, a).log()))
}

/// dy·side/(a² + b²), and 0 at the origin, which has no angle.
fn turn<'g>(dy: Tensor<'g>, a: Tensor<'g>, b: Tensor<'g>, side: Tensor<'g>) -> Tensor<'g> {
    let square = a * a + b * b;
    let origin = square.equals(0.0);
    origin.select(0.0, dy * (side / origin.select(1.0, square)))
}
