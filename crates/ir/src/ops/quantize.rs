//! `quantize`: a tensor in 8 bits with one scale, for products ("current scaling": the scale is that of this very tensor).
//!
//! The scale is the least power of two by which the largest element, divided, fits the format. So dividing and multiplying
//! by it is exact, and what is lost is the rounding to 8 bits alone. Zeros get the least normal number as their scale. A
//! tensor with NaN or an infinity gives a product that is NaN.

use crate::attrs::{Attr, AttrReader, Attrs};
use crate::fp8::Fp8;
use crate::op::{OpRule, OpTable, Range, Sample, arity, want_float};
use crate::{DType, Dense, GraphBuilder, Mistake, Shape, Tensor, Type};

/// Operand `x`, a float of 16 bits or more. Results: `q` of `dtype` and `x`'s shape, and `scale`, an `f32` number, with
/// `x ≈ q · scale`.
///
/// Its gradient is that of the division by a given scale ("straight through"): neither the rounding nor the dependence of
/// the scale on `x` has a part in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quantize {
    /// The 8-bit dtype.
    pub dtype: DType,
}

/// All bits of an `f32` below those of its exponent.
const SIGNIFICAND: u32 = 0x007f_ffff;
/// The exponent's bits.
const EXPONENT: u32 = 0x7f80_0000;

impl Quantize {
    /// The scale of a tensor whose largest absolute value, as an `f32`, is `largest`.
    fn scale(self, largest: f32) -> f32 {
        let ratio = largest / self.limit() as f32;
        // Not `max`, which would lose NaN.
        let ratio = if ratio < f32::MIN_POSITIVE { f32::MIN_POSITIVE } else { ratio };
        f32::from_bits(ratio.to_bits().wrapping_add(SIGNIFICAND) & EXPONENT)
    }

    /// The largest number of the format.
    fn limit(self) -> f64 {
        Fp8::of(self.dtype).map_or(1.0, |f| f.decode(f.largest))
    }
}

impl OpRule for Quantize {
    fn name(&self) -> &'static str {
        "quantize"
    }
    fn attrs(&self) -> Attrs {
        vec![("dtype", Attr::Word(self.dtype.name().into()))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        want_float(x)?;
        if x.dtype.is_fp8() {
            return Err(Mistake::new(format!("{x} is in 8 bits already"), "multiply it as it is"));
        }
        if !self.dtype.is_fp8() {
            return Err(Mistake::new(format!("cannot give {}", self.dtype), "use f8e4m3 or f8e5m2"));
        }
        Ok(vec![Type::new(self.dtype, x.shape.clone()), Type::new(DType::F32, Shape::fixed(&[]))])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let x = inputs[0];
        let largest = x.reals().iter().fold(0.0, |a, b| crate::ops::BinaryKind::Max.real(a, b.abs()));
        let scale = self.scale(largest as f32);
        let wide = x.dtype.accumulator();
        let inverse = wide.round(1.0 / scale as f64);
        let q = x.reals().iter().map(|v| wide.round(v * inverse)).collect();
        Ok(vec![
            Dense::from_reals(self.dtype, &x.shape, q),
            Dense::from_reals(DType::F32, &[], vec![scale as f64]),
        ])
    }
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [x] = operands.try_into().ok()?;
        let axes: Vec<isize> = (0..x.rank() as isize).collect();
        let largest = if axes.is_empty() { x.abs() } else { x.abs().max(&axes) };
        // Over nothing the largest is −∞.
        let ratio = (largest.cast(DType::F32) / self.limit()).maximum(f32::MIN_POSITIVE as f64);
        let number = |bits: u32| g.full(DType::U32, Shape::fixed(&[]), bits as f64);
        let scale =
            (ratio.bitcast(DType::U32) + number(SIGNIFICAND)).and(number(EXPONENT)).bitcast(DType::F32);
        let wide = x.cast(x.dtype().accumulator());
        let inverse = scale.reciprocal().cast(wide.dtype());
        Some(vec![(wide * inverse).cast(self.dtype), scale])
    }
}

impl OpTable for Quantize {
    const NAMES: &'static [&'static str] = &["quantize"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Quantize { dtype: attrs.dtype("dtype")? })
    }
    fn samples() -> Vec<Sample> {
        let (e4m3, e5m2) = (Quantize { dtype: DType::F8E4M3 }, Quantize { dtype: DType::F8E5M2 });
        let of = |op, dtype, shape: &[usize], range| Sample::reals(op, &[]).and(dtype, shape, range);
        vec![
            of(e4m3, DType::F32, &[4, 6], Range::Real(-2.0, 2.0)),
            of(e5m2, DType::BF16, &[3, 5], Range::Real(-1e-6, 1e-6)),
            of(e5m2, DType::F32, &[2, 3], Range::Real(-1e30, 1e30)),
            of(e4m3, DType::F32, &[3], Range::Real(0.0, 0.0)),
            of(e4m3, DType::F16, &[], Range::Real(1.0, 2.0)),
            of(e4m3, DType::F32, &[0, 2], Range::Distinct),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_the_least_power_of_two_that_fits() {
        for op in [Quantize { dtype: DType::F8E4M3 }, Quantize { dtype: DType::F8E5M2 }] {
            let limit = op.limit() as f32;
            for x in [1e-20, 0.3, 1.0, 447.9, 448.0, 448.1, 57344.0, 57345.0, 3e38] {
                let scale = op.scale(x);
                assert_eq!(scale.to_bits() & SIGNIFICAND, 0, "{x}");
                assert!(x / scale <= limit && x / (scale / 2.0) > limit, "{op:?}: {x} by {scale}");
            }
            assert_eq!(op.scale(0.0), f32::MIN_POSITIVE);
            assert_eq!((op.scale(f32::INFINITY), op.scale(f32::NAN)), (f32::INFINITY, 0.0));
        }
    }
}
