//! Conversions between f32 and the 16-bit floats, branch-free so that a loop of them vectorises.
//!
//! To the narrow type they round to nearest, ties to even, subnormals included. The crate `half` does the same with
//! branches and run-time dispatch for each element; the tests compare the two.

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

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

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
