//! Gradients of the elementwise functions of one operand. Where it can, a formula uses the result y rather than the
//! operand x, which then need not be kept.

use super::{At, Cotangents, Gradient, wide};
use onestep_ir::ops::{Unary, UnaryKind};
use std::f64::consts::FRAC_2_SQRT_PI;

impl Gradient for Unary {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (x, y, dy) = (|| wide(at.x()), || wide(at.y()), || wide(at.dy()));
        let dx = match self.kind {
            UnaryKind::Neg => -at.dy(),
            UnaryKind::Abs => at.dy() * at.x().sign(),
            UnaryKind::Exp => at.dy() * at.y(),
            UnaryKind::Expm1 => dy() * (y() + 1.0),
            UnaryKind::Log => at.dy() / at.x(),
            UnaryKind::Log1p => dy() / (x() + 1.0),
            // Infinite at 0, as the function's slope is.
            UnaryKind::Sqrt => dy() * 0.5 / y(),
            UnaryKind::Rsqrt => dy() * -0.5 * (y() * y() * y()),
            UnaryKind::Reciprocal => -(dy() * (y() * y())),
            UnaryKind::Sin => dy() * x().cos(),
            UnaryKind::Cos => -(dy() * x().sin()),
            UnaryKind::Tanh => dy() * (1.0 - y() * y()),
            UnaryKind::Erf => dy() * ((-(x() * x())).exp() * FRAC_2_SQRT_PI),
            UnaryKind::Sigmoid => dy() * (y() * (1.0 - y())),
            // 0 at 0; what is not a number passes.
            UnaryKind::Relu => at.y().less_equal(0.0).select(0.0, at.dy()),
            // Steps: flat wherever they have a slope.
            UnaryKind::Sign | UnaryKind::Floor | UnaryKind::Ceil | UnaryKind::Round | UnaryKind::Trunc => {
                return Some(vec![None]);
            }
            UnaryKind::IsFinite | UnaryKind::IsNan | UnaryKind::Not => return Some(vec![None]),
            UnaryKind::Tan => dy() * (y() * y() + 1.0),
            // (1 − x)(1 + x) rather than 1 − x², which loses digits near ±1.
            UnaryKind::Asin => dy() * ((1.0 - x()) * (x() + 1.0)).rsqrt(),
            UnaryKind::Acos => -(dy() * ((1.0 - x()) * (x() + 1.0)).rsqrt()),
            UnaryKind::Atan => dy() / (x() * x() + 1.0),
            UnaryKind::Sinh => dy() * x().cosh(),
            UnaryKind::Cosh => dy() * x().sinh(),
            UnaryKind::Asinh => dy() * (x() * x() + 1.0).rsqrt(),
            UnaryKind::Acosh => dy() * ((x() - 1.0) * (x() + 1.0)).rsqrt(),
            UnaryKind::Atanh => dy() / ((1.0 - x()) * (x() + 1.0)),
            UnaryKind::Erfc => -(dy() * ((-(x() * x())).exp() * FRAC_2_SQRT_PI)),
        };
        Some(vec![Some(dx.cast(at.x().dtype()))])
    }
}
