//! `select`: one of two tensors, element by element.

use crate::attrs::AttrReader;
use crate::op::{OpRule, OpTable, Range, Sample, arity, same_dtype};
use crate::ops::binary::same_shape;
use crate::{DType, Dense, Mistake, Type};

/// `select(condition, a, b)`: `a` where the condition holds, else `b`. A NaN that is not selected leaves no trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Select;

impl OpRule for Select {
    fn name(&self) -> &'static str {
        "select"
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [c, a, b] = arity(operands)?;
        if c.dtype != DType::Bool {
            return Err(Mistake::new(
                format!("the condition is {c}"),
                "compare it first, so that it is bool",
            ));
        }
        same_dtype(&[a, b])?;
        same_shape(a, b)?;
        same_shape(c, a)?;
        Ok(vec![a.clone()])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (c, a, b) = (inputs[0].ints(), inputs[1], inputs[2]);
        let dtype = results[0].dtype;
        Ok(vec![if dtype.is_float() {
            let pick = |i: usize| if c[i] != 0 { a.reals()[i] } else { b.reals()[i] };
            Dense::from_reals(dtype, &a.shape, (0..c.len()).map(pick).collect())
        } else {
            let pick = |i: usize| if c[i] != 0 { a.ints()[i] } else { b.ints()[i] };
            Dense::from_ints(dtype, &a.shape, (0..c.len()).map(pick).collect())
        }])
    }
}

impl OpTable for Select {
    const NAMES: &'static [&'static str] = &["select"];
    fn parse(_: &str, _: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Select)
    }
    fn samples() -> Vec<Sample> {
        let real = Range::Real(-2.0, 2.0);
        let on = |dtype, r| {
            Sample::reals(Select, &[]).and(DType::Bool, &[6], Range::Int(0, 2)).and(dtype, &[6], r).and(
                dtype,
                &[6],
                r,
            )
        };
        vec![on(DType::F64, real), on(DType::I32, Range::Int(-5, 5))]
    }
}
