//! `bitcast`: the same bits under another dtype of the same size.

use crate::attrs::{Attr, AttrReader, Attrs};
use crate::op::{OpRule, OpTable, Range, Sample, arity};
use crate::{DType, Dense, Mistake, Type};

/// Reads every element's bits as another dtype: `f32`, `i32` and `u32` as each other, `f64` and `i64` too. Which NaN the
/// bits of a NaN are is not said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bitcast {
    /// The result's dtype.
    pub dtype: DType,
}

impl Bitcast {
    /// Whether elements of `from` have a meaning as this op's dtype.
    fn takes(self, from: DType) -> bool {
        from.size() == self.dtype.size() && from.size() >= 4
    }

    /// The real that an integer's bits are; the dtype is a float.
    pub fn real(self, bits: i64) -> f64 {
        if self.dtype == DType::F64 {
            f64::from_bits(bits as u64)
        } else {
            f32::from_bits(bits as u32) as f64
        }
    }

    /// The bits of a real of dtype `from`, before wrapping to this op's dtype.
    pub fn int(self, from: DType, x: f64) -> i64 {
        if from == DType::F64 { x.to_bits() as i64 } else { (x as f32).to_bits() as i64 }
    }
}

impl OpRule for Bitcast {
    fn name(&self) -> &'static str {
        "bitcast"
    }
    fn attrs(&self) -> Attrs {
        vec![("dtype", Attr::Word(self.dtype.name().into()))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        if !self.takes(x.dtype) {
            return Err(Mistake::new(
                format!("the bits of {} are no {}", x.dtype, self.dtype),
                "use dtypes of 32 bits, or of 64, on both sides; cast() converts numbers",
            ));
        }
        Ok(vec![Type::new(self.dtype, x.shape.clone())])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, to) = (inputs[0], self.dtype);
        Ok(vec![match (x.dtype.is_float(), to.is_float()) {
            (true, true) => x.clone(),
            (true, false) => x.reals_to_ints(to, |v| self.int(x.dtype, v)),
            (false, true) => {
                Dense::from_reals(to, &x.shape, x.ints().iter().map(|&v| self.real(v)).collect())
            }
            (false, false) => x.map_ints(to, |v| v),
        }])
    }
}

impl OpTable for Bitcast {
    const NAMES: &'static [&'static str] = &["bitcast"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Bitcast { dtype: attrs.dtype("dtype")? })
    }
    fn samples() -> Vec<Sample> {
        let reals = Range::Real(-2.0, 2.0);
        let to = |dtype, from, range| Sample::reals(Bitcast { dtype }, &[]).and(from, &[5], range);
        vec![
            to(DType::U32, DType::F32, reals),
            to(DType::I32, DType::F32, reals),
            to(DType::F32, DType::F32, reals),
            to(DType::I64, DType::F64, reals),
            to(DType::I32, DType::U32, Range::Int(0, 1 << 32)),
            // The bits of numbers from 1 to 2, and of numbers below 0.
            to(DType::F32, DType::U32, Range::Int(0x3f80_0000, 0x4000_0000)),
            to(DType::F32, DType::I32, Range::Int(-0x4080_0000, -0x4000_0000)),
            to(DType::F64, DType::I64, Range::Int(0x3ff << 52, 0x400 << 52)),
        ]
    }
}
