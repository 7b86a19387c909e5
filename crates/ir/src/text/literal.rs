//! Numbers and arrays, printed so that they read back to the same bits.

use crate::fp8::Fp8;
use crate::{Array, DType};

/// The most elements that a text lists one by one.
const LISTED: usize = 64;
/// The most elements that `splat` repeats, so that a short text stays a small graph. A constant that repeats one
/// number over a large shape has a scalar value and needs no array.
pub(super) const SPLAT: usize = 1024;

/// The NaN that is written `nan`.
fn quiet_nan(dtype: DType) -> u64 {
    match dtype {
        DType::F32 => 0x7fc0_0000,
        DType::F16 => 0x7e00,
        DType::BF16 => 0x7fc0,
        DType::F8E4M3 | DType::F8E5M2 => Fp8::NAN as u64,
        _ => 0x7ff8_0000_0000_0000,
    }
}

/// A real attribute.
pub(super) fn print_real(x: f64) -> String {
    float(DType::F64, x, x.is_nan(), x.to_bits())
}

fn float(dtype: DType, shown: impl std::fmt::Debug, nan: bool, bits: u64) -> String {
    match nan {
        false => format!("{shown:?}"),
        true if bits == quiet_nan(dtype) => "nan".into(),
        true => format!("nan({bits:#x})"),
    }
}

/// One element, from its little-endian bytes.
fn element(dtype: DType, bytes: &[u8]) -> String {
    let bits = bytes.iter().rev().fold(0u64, |bits, &b| bits << 8 | b as u64);
    match dtype {
        DType::F64 => print_real(f64::from_bits(bits)),
        DType::F32 => {
            let x = f32::from_bits(bits as u32);
            float(dtype, x, x.is_nan(), bits)
        }
        DType::F16 => {
            let x = half::f16::from_bits(bits as u16);
            float(dtype, x.to_f32(), x.is_nan(), bits)
        }
        DType::BF16 => {
            let x = half::bf16::from_bits(bits as u16);
            float(dtype, x.to_f32(), x.is_nan(), bits)
        }
        DType::F8E4M3 | DType::F8E5M2 => {
            let x = dtype.number(bytes).unwrap_or(f64::NAN);
            float(dtype, x, x.is_nan(), bits)
        }
        DType::I64 => (bits as i64).to_string(),
        DType::I32 => (bits as u32 as i32).to_string(),
        DType::I8 => (bits as u8 as i8).to_string(),
        DType::U32 | DType::U8 => bits.to_string(),
        DType::Bool => (bits != 0).to_string(),
    }
}

/// An array: `f32[2](0.5, -0.0)`, `f32[8](splat 0.5)` or `f32[100](0x0000803f…)`.
pub(super) fn print_array(a: &Array) -> String {
    let size = a.dtype().size();
    let elements = || a.bytes().chunks(size);
    let uniform = a.len() > 1 && elements().all(|e| e == &a.bytes()[..size]);
    let body = if uniform && a.len() <= SPLAT {
        format!("splat {}", element(a.dtype(), &a.bytes()[..size]))
    } else if a.len() <= LISTED {
        elements().map(|e| element(a.dtype(), e)).collect::<Vec<_>>().join(", ")
    } else {
        let mut hex = String::with_capacity(2 + 2 * a.bytes().len());
        hex.push_str("0x");
        for b in a.bytes() {
            hex.extend([b >> 4, b & 15].map(|d| char::from_digit(d as u32, 16).unwrap_or('0')));
        }
        hex
    };
    format!("{}{:?}({body})", a.dtype(), a.shape())
}

/// The bits of a word or number as an element of `dtype`, or what it should have been. `nan(…)` is the caller's.
pub(super) fn read_element(dtype: DType, word: &str) -> Result<u64, String> {
    let wrong = || format!("expected an element of {dtype}");
    match (dtype, word) {
        (DType::Bool, "true") => return Ok(1),
        (DType::Bool, "false") => return Ok(0),
        (DType::Bool, _) => return Err("expected true or false".into()),
        (_, "nan") if dtype.is_float() => return Ok(quiet_nan(dtype)),
        _ => {}
    }
    if !dtype.is_float() {
        let x: i64 = word.parse().map_err(|_| wrong())?;
        if dtype.wrap(x) != x {
            return Err(format!("{x} is out of range for {dtype}"));
        }
        return Ok(x as u64);
    }
    let x: f64 = word.parse().map_err(|_| wrong())?;
    let (bits, finite) = match dtype {
        // Read as `f32` at once, so that it is rounded once.
        DType::F32 => word.parse().map(|x: f32| (x.to_bits() as u64, x.is_finite())).map_err(|_| wrong())?,
        DType::F16 => (half::f16::from_f64(x).to_bits() as u64, half::f16::from_f64(x).is_finite()),
        DType::BF16 => (half::bf16::from_f64(x).to_bits() as u64, half::bf16::from_f64(x).is_finite()),
        _ => match Fp8::of(dtype) {
            Some(f) if x.is_infinite() && f.overflow == Fp8::NAN => {
                return Err(format!("{dtype} has no infinities"));
            }
            // Beyond the largest it would be another number.
            Some(f) => (f.encode(x) as u64, x.abs() <= f.decode(f.largest)),
            None => (x.to_bits(), x.is_finite()),
        },
    };
    if x.is_nan() || !finite && !matches!(word, "inf" | "-inf") {
        return Err(format!("the number is out of range for {dtype}; write inf, -inf, nan or nan(0x…)"));
    }
    Ok(bits)
}

/// The bits between the parentheses of `nan(0x…)`.
pub(super) fn read_nan_bits(dtype: DType, word: &str) -> Result<u64, String> {
    let digits = word.strip_prefix("0x").unwrap_or("");
    let bits = u64::from_str_radix(digits, 16)
        .map_err(|_| "expected a NaN's bits, such as 0x7fc01234".to_string())?;
    let (inf, width) = match dtype {
        DType::F32 => (0x7f80_0000u64, 32),
        DType::F16 => (0x7c00, 16),
        DType::BF16 => (0x7f80, 16),
        DType::F8E4M3 => (Fp8::E4M3.overflow as u64, 8),
        DType::F8E5M2 => (Fp8::E5M2.overflow as u64, 8),
        _ => (0x7ff0_0000_0000_0000, 64),
    };
    let magnitude = bits & (u64::MAX >> (65 - width));
    if magnitude > inf && (width == 64 || bits >> width == 0) {
        return Ok(bits);
    }
    Err(format!("{bits:#x} are not the bits of a NaN of {dtype}"))
}

/// The bytes of a hexadecimal string.
pub(super) fn read_hex(word: &str) -> Option<Vec<u8>> {
    let digits = word.strip_prefix("0x")?.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}
