//! `silu`: `x · sigmoid(x)`, the sigmoid linear unit (also called swish).

use crate::attrs::AttrReader;
use crate::op::{OpRule, OpTable, Range, Sample, arity, want_float};
use crate::ops::UnaryKind;
use crate::{DType, Dense, GraphBuilder, Mistake, Tensor, Type};

/// `x / (1 + e⁻ˣ)` of each element of a float tensor; computed in `f32` at least.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Silu;

impl OpRule for Silu {
    fn name(&self) -> &'static str {
        "silu"
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        want_float(x)?;
        Ok(vec![x.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        Ok(vec![inputs[0].map_reals(|x| x * UnaryKind::Sigmoid.real(x))])
    }
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [operand] = operands.try_into().ok()?;
        let x = operand.cast(operand.dtype().accumulator());
        Some(vec![(x * x.sigmoid()).cast(operand.dtype())])
    }
}

impl OpTable for Silu {
    const NAMES: &'static [&'static str] = &["silu"];
    fn parse(_: &str, _: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Silu)
    }
    fn samples() -> Vec<Sample> {
        vec![
            Sample::reals(Silu, &[&[2, 3]]),
            Sample::reals(Silu, &[]).and(DType::F16, &[5], Range::Real(-2.0, 2.0)),
        ]
    }
}
