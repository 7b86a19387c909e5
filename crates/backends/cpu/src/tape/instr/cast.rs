//! Casts between any two dtypes, by the rules of the op `cast`, and bits read as another dtype.

use super::convert::{bf16_from_f32, bf16_to_f32, f16_from_f32, f16_to_f32, fp8_from_f32, fp8_to_f32};
use super::{Block, Isa, one};
use half::{bf16, f16};
use onestep_ir::{DType, Fp8};

/// The cast from one dtype to another.
pub fn cast(from: DType, to: DType, isa: Isa) -> Block {
    use DType::*;
    /// From a type with `as`; `|x|` as an f64 (exact, or rounded as the reference does) for the narrow floats.
    macro_rules! primitive {
        ($t:ty, $f32:expr, $f16:expr, $bf16:expr) => {
            match to {
                F64 => one!(isa, $t => f64, |x| x as f64),
                F32 => one!(isa, $t => f32, |x| $f32(x)),
                F16 => one!(isa, $t => u16, |x| $f16(x)),
                BF16 => one!(isa, $t => u16, |x| $bf16(x)),
                F8E4M3 => one!(isa, $t => u8, |x| Fp8::E4M3.encode(x as f64)),
                F8E5M2 => one!(isa, $t => u8, |x| Fp8::E5M2.encode(x as f64)),
                I64 => one!(isa, $t => i64, |x| x as i64),
                I32 => one!(isa, $t => i32, |x| x as i32),
                U32 => one!(isa, $t => u32, |x| x as u32),
                I8 => one!(isa, $t => i8, |x| x as i8),
                U8 => one!(isa, $t => u8, |x| x as u8),
                Bool => one!(isa, $t => u8, |x| (x != (0 as $t)) as u8),
            }
        };
    }
    macro_rules! integer {
        ($t:ty) => {
            primitive!(
                $t,
                // Through f64, as the reference: for i64 the two roundings can differ from one.
                (|x| x as f64 as f32),
                (|x| f16::from_f64(x as f64).to_bits()),
                (|x| bf16::from_f64(x as f64).to_bits())
            )
        };
    }
    /// From a float of 16 or 8 bits by way of f32, which holds it exactly.
    macro_rules! narrow {
        ($t:ty, $wide:expr) => {
            match to {
                F64 => one!(isa, $t => f64, |x| $wide(x) as f64),
                F32 => one!(isa, $t => f32, |x| $wide(x)),
                F16 => one!(isa, $t => u16, |x| f16_from_f32($wide(x))),
                BF16 => one!(isa, $t => u16, |x| bf16_from_f32($wide(x))),
                F8E4M3 => one!(isa, $t => u8, |x| fp8_from_f32(Fp8::E4M3, $wide(x))),
                F8E5M2 => one!(isa, $t => u8, |x| fp8_from_f32(Fp8::E5M2, $wide(x))),
                I64 => one!(isa, $t => i64, |x| $wide(x) as i64),
                I32 => one!(isa, $t => i32, |x| $wide(x) as i32),
                U32 => one!(isa, $t => u32, |x| $wide(x) as u32),
                I8 => one!(isa, $t => i8, |x| $wide(x) as i8),
                U8 => one!(isa, $t => u8, |x| $wide(x) as u8),
                Bool => one!(isa, $t => u8, |x| ($wide(x) != 0.0) as u8),
            }
        };
    }
    // Of all casts the one that is in a loop over much memory.
    match (from, to) {
        (F32, F8E4M3) => return one!(isa, f32 => u8, |x| fp8_from_f32(Fp8::E4M3, x)),
        (F32, F8E5M2) => return one!(isa, f32 => u8, |x| fp8_from_f32(Fp8::E5M2, x)),
        _ => {}
    }
    match from {
        F64 => primitive!(
            f64,
            (|x| x as f32),
            (|x| f16::from_f64(x).to_bits()),
            (|x| bf16::from_f64(x).to_bits())
        ),
        F32 => primitive!(f32, (|x| x), f16_from_f32, bf16_from_f32),
        F16 => narrow!(u16, f16_to_f32),
        BF16 => narrow!(u16, bf16_to_f32),
        F8E4M3 => narrow!(u8, (|x| fp8_to_f32(Fp8::E4M3, x))),
        F8E5M2 => narrow!(u8, (|x| fp8_to_f32(Fp8::E5M2, x))),
        I64 => integer!(i64),
        I32 => integer!(i32),
        U32 => integer!(u32),
        I8 => integer!(i8),
        U8 | Bool => integer!(u8),
    }
}

/// The same bits, whatever dtype of `size` bytes, 4 or 8, they are read as.
pub fn bitcast(size: usize, isa: Isa) -> Block {
    if size == 8 { one!(isa, u64 => u64, |x| x) } else { one!(isa, u32 => u32, |x| x) }
}
