//! `round_stochastic`: to `bf16`, up or down by chance, so that the mean is the number itself (Gupta and others, "Deep
//! learning with limited numerical precision", ICML 2015). What is added again and again to a number of few digits is
//! then not lost for being small. The random bits are an operand.

use crate::attrs::AttrReader;
use crate::op::{OpRule, OpTable, Range, Sample, arity, want_shape};
use crate::{DType, Dense, GraphBuilder, Mistake, Tensor, Type};

/// Operands `x` (`f32`) and `bits` (`u32`, `x`'s shape). The result is `bf16`: `x` where that can hold it, else one of its
/// two neighbours, the one farther from 0 with the probability of `x`'s place between them. Infinity is the neighbour of the
/// largest number.
///
/// The upper 16 bits of `bits` are added to those of `x`, of which the lower 16 are then cut off.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RoundStochastic;

/// The bits of an `f32` that a `bf16` has.
const KEPT: u32 = 0xffff_0000;

impl RoundStochastic {
    /// The rounding of one number.
    pub fn round(x: f32, bits: u32) -> f32 {
        if x.is_nan() { x } else { f32::from_bits(x.to_bits().wrapping_add(bits >> 16) & KEPT) }
    }
}

impl OpRule for RoundStochastic {
    fn name(&self) -> &'static str {
        "round_stochastic"
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x, bits] = arity(operands)?;
        if x.dtype != DType::F32 {
            return Err(Mistake::new(format!("rounds f32 to bf16, got {x}"), "cast it to f32 first"));
        }
        if bits.dtype != DType::U32 {
            return Err(Mistake::new(format!("the bits are {bits}"), "draw them with random_bits"));
        }
        want_shape("the second operand (bits)", bits, &x.shape)?;
        Ok(vec![Type::new(DType::BF16, x.shape.clone())])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, bits) = (inputs[0], inputs[1].ints());
        let one = |(&x, &bits): (&f64, &i64)| RoundStochastic::round(x as f32, bits as u32) as f64;
        Ok(vec![Dense::from_reals(DType::BF16, &x.shape, x.reals().iter().zip(bits).map(one).collect())])
    }
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [x, bits] = operands.try_into().ok()?;
        let sum = x.bitcast(DType::U32) + bits.shr(16.0);
        let kept = g.full(DType::U32, x.shape(), KEPT as f64);
        let rounded = sum.and(kept).bitcast(DType::F32);
        Some(vec![x.is_nan().select(x, rounded).cast(DType::BF16)])
    }
}

impl OpTable for RoundStochastic {
    const NAMES: &'static [&'static str] = &["round_stochastic"];
    fn parse(_: &str, _: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(RoundStochastic)
    }
    fn samples() -> Vec<Sample> {
        let of = |shape: &[usize], range| {
            let sample = Sample::reals(RoundStochastic, &[]).and(DType::F32, shape, range);
            sample.and(DType::U32, shape, Range::Int(0, 1 << 32))
        };
        vec![
            of(&[3, 5], Range::Real(-2.0, 2.0)),
            of(&[], Range::Real(1e-42, 2e-39)),
            of(&[0, 2], Range::Distinct),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over all 2¹⁶ ways that bits may fall, up is chosen as often as the place between the neighbours says, exactly.
    #[test]
    fn the_mean_is_the_number() {
        for x in [1.003f32, -0.3, 1e-3, 3.3e38, 1.1e-40, -7e-45] {
            let sum: f64 = (0..1u32 << 16).map(|r| RoundStochastic::round(x, r << 16) as f64).sum();
            assert_eq!(sum / 65536.0, x as f64, "{x}");
        }
    }

    #[test]
    fn what_bf16_holds_stays_and_so_does_what_is_no_number() {
        for high in 0..=u16::MAX {
            let x = f32::from_bits((high as u32) << 16);
            for bits in [0, 0x7fff_ffff, u32::MAX] {
                let y = RoundStochastic::round(x, bits);
                assert!(y.to_bits() == x.to_bits() || x.is_nan() && y.is_nan(), "{x} became {y}");
            }
        }
        // Its payload is in the lower half, and adding to it would carry into the sign.
        for nan in [0x7f80_0001, 0x7fff_ffff, 0xffff_ffff] {
            assert!(RoundStochastic::round(f32::from_bits(nan), u32::MAX).is_nan());
        }
        let largest = f32::from_bits(0x7f7f_0000);
        assert_eq!(RoundStochastic::round(f32::MAX, 0), largest);
        assert_eq!(RoundStochastic::round(f32::MAX, u32::MAX), f32::INFINITY);
    }
}
