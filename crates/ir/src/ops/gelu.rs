//! `gelu`: the Gaussian error linear unit (Hendrycks and Gimpel, 2016), exact or in its tanh form.

use crate::attrs::{Attr, AttrReader, Attrs};
use crate::op::{OpRule, OpTable, Range, Sample, arity, want_float};
use crate::{DType, Dense, GraphBuilder, Mistake, Tensor, Type};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// `x/2 · (1 + erf(x/√2))`, or `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))` when `tanh`, of each element of a float
/// tensor; computed in `f32` at least.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gelu {
    /// Whether to use the tanh form.
    pub tanh: bool,
}

impl Gelu {
    /// √(2/π), of the tanh form.
    pub const SQRT_2_OVER_PI: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
    /// The cubic coefficient of the tanh form.
    pub const CUBIC: f64 = 0.044715;
}

impl OpRule for Gelu {
    fn name(&self) -> &'static str {
        "gelu"
    }
    fn attrs(&self) -> Attrs {
        vec![("tanh", Attr::Bool(self.tanh))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        want_float(x)?;
        Ok(vec![x.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        Ok(vec![inputs[0].map_reals(|x| {
            let squashed = if self.tanh {
                libm::tanh(Gelu::SQRT_2_OVER_PI * (x + Gelu::CUBIC * x * x * x))
            } else {
                libm::erf(x * FRAC_1_SQRT_2)
            };
            0.5 * x * (1.0 + squashed)
        })])
    }
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [operand] = operands.try_into().ok()?;
        let x = operand.cast(operand.dtype().accumulator());
        let squashed = if self.tanh {
            ((x + x * Gelu::CUBIC * x * x) * Gelu::SQRT_2_OVER_PI).tanh()
        } else {
            (x * FRAC_1_SQRT_2).erf()
        };
        Some(vec![(x * 0.5 * (squashed + 1.0)).cast(operand.dtype())])
    }
}

impl OpTable for Gelu {
    const NAMES: &'static [&'static str] = &["gelu"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Gelu { tanh: attrs.bool("tanh")? })
    }
    fn samples() -> Vec<Sample> {
        let mut all = vec![];
        for tanh in [false, true] {
            all.push(Sample::reals(Gelu { tanh }, &[&[2, 3]]));
            all.push(Sample::reals(Gelu { tanh }, &[]).and(DType::BF16, &[5], Range::Real(-2.0, 2.0)));
        }
        all
    }
}
