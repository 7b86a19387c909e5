//! Element types, and the rounding that each one means.
//!
//! The interpreter computes in `f64` (floats) or `i64` (integers) and rounds every result to the op's
//! declared dtype with [`DType::round`] or [`DType::wrap`]; these two functions are the definition.

use crate::fp8::Fp8;
use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DType {
    /// IEEE 754 double precision.
    F64,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision: storage and casts.
    F16,
    /// bfloat16: storage and casts.
    BF16,
    /// 8-bit float of at most 448, without infinities (E4M3FN): storage, casts and products.
    F8E4M3,
    /// 8-bit float of at most 57344 (E5M2): storage, casts and products.
    F8E5M2,
    /// 64-bit signed integer, wrapping.
    I64,
    /// 32-bit signed integer, wrapping.
    I32,
    /// 32-bit unsigned integer, wrapping.
    U32,
    /// 8-bit signed integer, wrapping.
    I8,
    /// 8-bit unsigned integer, wrapping.
    U8,
    /// Truth value, stored as one byte 0 or 1.
    Bool,
}

impl DType {
    /// Every dtype, in the order of the enum.
    pub const ALL: [DType; 12] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::I64,
        DType::I32,
        DType::U32,
        DType::I8,
        DType::U8,
        DType::Bool,
    ];

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::F8E4M3 | DType::F8E5M2 | DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// The name used in the text form and in messages.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }

    /// The dtype with this name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16) || self.is_fp8()
    }

    /// Whether this is an 8-bit float, which only casts, products and copies take.
    pub fn is_fp8(self) -> bool {
        matches!(self, DType::F8E4M3 | DType::F8E5M2)
    }

    /// Whether this is an integer type (`bool` is not).
    pub fn is_int(self) -> bool {
        matches!(self, DType::I64 | DType::I32 | DType::U32 | DType::I8 | DType::U8)
    }

    /// The dtype in which reductions, softmax and norms of this float type are computed: `f32` at least.
    pub fn accumulator(self) -> DType {
        if self == DType::F64 { DType::F64 } else { DType::F32 }
    }

    /// Rounds a real number to this float type, to nearest, ties to even. Identity for non-floats.
    pub fn round(self, x: f64) -> f64 {
        match self {
            DType::F32 => x as f32 as f64,
            DType::F16 => to_f16(x).to_f64(),
            DType::BF16 => to_bf16(x).to_f64(),
            _ => Fp8::of(self).map_or(x, |f| f.decode(f.encode(x))),
        }
    }

    /// The number that the little-endian bytes of one element are (exact but for large `i64`); `None` where they are
    /// of another length. Nothing is allocated.
    pub fn number(self, bytes: &[u8]) -> Option<f64> {
        Some(match self {
            DType::F64 => f64::from_le_bytes(bytes.try_into().ok()?),
            DType::F32 => f32::from_le_bytes(bytes.try_into().ok()?) as f64,
            DType::F16 => half::f16::from_le_bytes(bytes.try_into().ok()?).to_f64(),
            DType::BF16 => half::bf16::from_le_bytes(bytes.try_into().ok()?).to_f64(),
            DType::F8E4M3 => Fp8::E4M3.decode(u8::from_le_bytes(bytes.try_into().ok()?)),
            DType::F8E5M2 => Fp8::E5M2.decode(u8::from_le_bytes(bytes.try_into().ok()?)),
            DType::I64 => i64::from_le_bytes(bytes.try_into().ok()?) as f64,
            DType::I32 => i32::from_le_bytes(bytes.try_into().ok()?) as f64,
            DType::U32 => u32::from_le_bytes(bytes.try_into().ok()?) as f64,
            DType::I8 => i8::from_le_bytes(bytes.try_into().ok()?) as f64,
            DType::U8 | DType::Bool => u8::from_le_bytes(bytes.try_into().ok()?) as f64,
        })
    }

    /// Wraps an integer into this type's range (two's complement); `bool` becomes 0 or 1.
    pub fn wrap(self, x: i64) -> i64 {
        match self {
            DType::I32 => x as i32 as i64,
            DType::U32 => x as u32 as i64,
            DType::I8 => x as i8 as i64,
            DType::U8 => x as u8 as i64,
            DType::Bool => (x != 0) as i64,
            _ => x,
        }
    }

    /// Converts a float to this integer type: truncated towards zero and saturating, NaN becomes 0.
    pub fn saturate(self, x: f64) -> i64 {
        match self {
            DType::I64 => x as i64,
            DType::I32 => x as i32 as i64,
            DType::U32 => x as u32 as i64,
            DType::I8 => x as i8 as i64,
            DType::U8 => x as u8 as i64,
            DType::Bool => (x != 0.0) as i64,
            _ => x as i64,
        }
    }

    /// The smallest value: what a `max` over nothing gives (−inf for floats).
    pub fn lowest(self) -> f64 {
        match self {
            DType::I64 => i64::MIN as f64,
            DType::I32 => i32::MIN as f64,
            DType::I8 => i8::MIN as f64,
            DType::U32 | DType::U8 | DType::Bool => 0.0,
            _ => f64::NEG_INFINITY,
        }
    }

    /// The largest value: what a `min` over nothing gives (+inf for floats).
    pub fn highest(self) -> f64 {
        match self {
            DType::I64 => i64::MAX as f64,
            DType::I32 => i32::MAX as f64,
            DType::U32 => u32::MAX as f64,
            DType::I8 => i8::MAX as f64,
            DType::U8 => u8::MAX as f64,
            DType::Bool => 1.0,
            _ => f64::INFINITY,
        }
    }
}

/// Nearest half-precision number, ties to even.
pub(crate) fn to_f16(x: f64) -> half::f16 {
    half::f16::from_f32(to_odd(x))
}

/// Nearest bfloat16, ties to even.
pub(crate) fn to_bf16(x: f64) -> half::bf16 {
    half::bf16::from_f32(to_odd(x))
}

/// An `f32` that rounds to any narrower format as `x` itself does: truncated, with the last bit set when anything was cut
/// ("round to odd"; Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    if near as f64 == x || x.is_nan() {
        return near;
    }
    let bits = near.to_bits();
    let cut = if (near as f64).abs() > x.abs() { bits - 1 } else { bits };
    f32::from_bits(cut | 1)
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_arrays_are() {
        for d in DType::ALL {
            let a = crate::Array::from_f64(d, &[], &[1.0]).unwrap();
            assert_eq!(d.number(a.bytes()), Some(1.0), "{d}");
            assert_eq!(d.number(&[0; 3]), None, "{d}");
        }
        assert_eq!(DType::I32.number(&(-7i32).to_le_bytes()), Some(-7.0));
        assert_eq!(DType::BF16.number(&[0x80, 0xbf]), Some(-1.0));
    }

    #[test]
    fn names_round_trip() {
        for d in DType::ALL {
            assert_eq!(DType::from_name(d.name()), Some(d));
        }
        assert_eq!(DType::from_name("float"), None);
    }

    #[test]
    fn rounding_and_wrapping() {
        assert_eq!(DType::F32.round(0.1), 0.1f32 as f64);
        assert_eq!(DType::BF16.round(1.0 + 1.0 / 512.0), 1.0);
        assert_eq!(DType::F16.round(65520.0), f64::INFINITY);
        // Just above a tie: a second rounding would fall to the even side.
        assert_eq!(DType::BF16.round(1.0 + 2f64.powi(-8) + 2f64.powi(-40)), 1.0 + 2f64.powi(-7));
        assert_eq!(DType::F16.round(-1.0 - 2f64.powi(-11) - 2f64.powi(-40)), -1.0 - 2f64.powi(-10));
        assert_eq!(DType::BF16.round(1e300), f64::INFINITY);
        assert!(DType::BF16.round(f64::NAN).is_nan());
        assert_eq!(DType::U8.wrap(-1), 255);
        assert_eq!(DType::I8.wrap(128), -128);
        assert_eq!(DType::I8.saturate(-1e9), -128);
        assert_eq!(DType::I32.wrap(1 << 31), i32::MIN as i64);
        assert_eq!(DType::I32.saturate(f64::NAN), 0);
        assert_eq!(DType::U8.saturate(1e9), 255);
    }
}
