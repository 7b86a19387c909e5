//! `barrier`: its operand, as a value of which the compiler does not know that it is the same.
//!
//! It costs nothing when the program runs. What is computed from the result is neither merged with nor scheduled like
//! what is computed from the operand: so a recomputation stays one, and happens where it stands in the graph.

use crate::attrs::AttrReader;
use crate::op::{OpRule, OpTable, Range, Sample, arity};
use crate::{DType, Dense, Mistake, Type};

/// The operand, behind a barrier. Any type; the result has it too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Barrier;

impl OpRule for Barrier {
    fn name(&self) -> &'static str {
        "barrier"
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        Ok(vec![x.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        Ok(vec![inputs[0].clone()])
    }
}

impl OpTable for Barrier {
    const NAMES: &'static [&'static str] = &["barrier"];
    fn parse(_: &str, _: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Barrier)
    }
    fn samples() -> Vec<Sample> {
        vec![
            Sample::reals(Barrier, &[&[2, 3]]),
            Sample::reals(Barrier, &[&[]]),
            Sample::reals(Barrier, &[&[0, 3]]),
            Sample::reals(Barrier, &[]).and(DType::I32, &[5], Range::Int(-9, 9)),
        ]
    }
}
