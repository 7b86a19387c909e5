//! Conversions between f32 and the floats of 16 and 8 bits, branch-free so that a loop of them vectorises.
//!
//! To the narrow type they round to nearest, ties to even, subnormals included. The crate `half` does the same with
//! branches and run-time dispatch for each element; the tests compare the two.

use onestep_ir::Fp8;

/// bfloat16 bits of an f32.
#[inline(always)]
pub fn bf16_from_f32(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    (if x.is_nan() { quiet } else { rounded }) as u16
}

/// The f32 that bfloat16 bits stand for.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// Half-precision bits of an f32.
#[inline(always)]
pub fn f16_from_f32(x: f32) -> u16 {
    const INFINITY: u32 = 255 << 23;
    const TOO_LARGE: u32 = (127 + 16) << 23;
    const SMALLEST_NORMAL: u32 = 113 << 23;
    // Added to a number below 2^-14, it leaves a half's subnormal mantissa, rounded, in the low bits.
    const MAGIC: u32 = ((127 - 15) + (23 - 10) + 1) << 23;

    let bits = x.to_bits();
    let size = bits & 0x7fff_ffff;
    let special = if size > INFINITY { 0x7e00 } else { 0x7c00 };
    let subnormal = (f32::from_bits(size) + f32::from_bits(MAGIC)).to_bits().wrapping_sub(MAGIC);
    let odd = (size >> 13) & 1;
    let normal = size.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + odd) >> 13;
    let finite = if size < SMALLEST_NORMAL { subnormal } else { normal };
    let magnitude = if size >= TOO_LARGE { special } else { finite };
    (magnitude | (bits >> 16 & 0x8000)) as u16
}

/// The f32 that half-precision bits stand for.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let magnitude = ((bits & 0x7fff) as u32) << 13;
    // 2^112 moves the exponent from the narrow bias to the wide one, subnormals included.
    let finite = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
    let special = magnitude | 0x7f80_0000;
    let size = if magnitude >= 31 << 23 { special } else { finite.to_bits() };
    f32::from_bits(size | ((bits & 0x8000) as u32) << 16)
}

/// Bits of an 8-bit float from an f32.
#[inline(always)]
pub fn fp8_from_f32(f: Fp8, x: f32) -> u8 {
    let cut = 23 - f.digits;
    let smallest_normal = ((128 - f.bias) as u32) << 23;
    // Added to a smaller number, it leaves the subnormal significand, rounded, in the low bits.
    let magic = (128 - f.bias + cut as i32) as u32 * (1 << 23);

    let bits = x.to_bits();
    let size = bits & 0x7fff_ffff;
    let subnormal = (f32::from_bits(size) + f32::from_bits(magic)).to_bits().wrapping_sub(magic);
    let odd = (size >> cut) & 1;
    let rebased = size.wrapping_sub(((127 - f.bias) as u32) << 23);
    let normal = rebased.wrapping_add((1 << (cut - 1)) - 1 + odd) >> cut;
    let finite = if size < smallest_normal { subnormal } else { normal };
    let bounded = if finite > f.largest as u32 { f.overflow as u32 } else { finite };
    // NaN has no sign, also that of an overflow.
    let signed = if bounded == Fp8::NAN as u32 { bounded } else { bounded | (bits >> 24 & 0x80) };
    (if x.is_nan() { Fp8::NAN as u32 } else { signed }) as u8
}

/// The f32 that the bits of an 8-bit float stand for.
#[inline(always)]
pub fn fp8_to_f32(f: Fp8, bits: u8) -> f32 {
    let size = (bits & 0x7f) as u32;
    let magnitude = size << (23 - f.digits);
    // A power of 2 moves the exponent from the narrow bias to the wide one, subnormals included.
    let finite = f32::from_bits(magnitude) * f32::from_bits(((254 - f.bias) as u32) << 23);
    let special = if size == f.overflow as u32 && f.overflow != Fp8::NAN { f32::INFINITY } else { f32::NAN };
    let value = if size > f.largest as u32 { special } else { finite };
    f32::from_bits(value.to_bits() | ((bits & 0x80) as u32) << 24)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn eight_bits_are_those_of_the_definition() {
        for f in [Fp8::E4M3, Fp8::E5M2] {
            for bits in 0..=u8::MAX {
                let (a, b) = (fp8_to_f32(f, bits) as f64, f.decode(bits));
                assert!(
                    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
                    "{f:?} {bits:#04x}: {a} {b}"
                );
            }
            let ties = (0..f.largest).flat_map(|b| {
                let middle = ((f.decode(b) + f.decode(b + 1)) / 2.0) as f32;
                [middle.next_down(), middle, middle.next_up()]
            });
            for x in ties.chain((0..=u32::MAX).step_by(4099).map(f32::from_bits)) {
                for x in [x, -x] {
                    assert_eq!(fp8_from_f32(f, x), f.encode(x as f64), "{f:?}: {x:e}");
                }
            }
        }
    }

    #[test]
    fn every_narrow_number_widens() {
        for bits in 0..=u16::MAX {
            let (a, b) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{bits:#06x}: {a} {b}");
            let (a, b) = (bf16_to_f32(bits), bf16::from_bits(bits).to_f32());
            assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{bits:#06x}: {a} {b}");
        }
    }

    #[test]
    fn narrowing_is_that_of_half() {
        // A step that is odd and not a power of two visits every exponent, ties and their neighbours among them.
        let ties = (0..=u16::MAX).flat_map(|b| {
            let x = f16_to_f32(b).to_bits();
            [x, x + 0xfff, x + 0x1000, x + 0x1001, x ^ 0x8000]
        });
        for bits in (0..=u32::MAX).step_by(4099).chain(ties) {
            let x = f32::from_bits(bits);
            let (a, b) = (f16::from_bits(f16_from_f32(x)), f16::from_f32(x));
            assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{x:e}: {a} {b}");
            let (a, b) = (bf16::from_bits(bf16_from_f32(x)), bf16::from_f32(x));
            assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{x:e}: {a} {b}");
        }
    }
}
