//! The instruction for a function on any dtype: floats by [`float`], integers and truth values here, selection by the
//! size of an element.

use super::{Arg, Block, Isa, Lane, float, instantiate, one, two};
use onestep_ir::DType;
use onestep_ir::ops::{BinaryKind, CompareKind, UnaryKind};
use std::marker::PhantomData;

macro_rules! integer {
    ($unary:ident, $binary:ident, $compare:ident, $t:ty, |$x:ident| $abs:expr, $sign:expr, $relu:expr) => {
        fn $unary(kind: UnaryKind, isa: Isa) -> Option<Block> {
            Some(match kind {
                UnaryKind::Neg => one!(isa, $t => $t, |x| x.wrapping_neg()),
                UnaryKind::Abs => one!(isa, $t => $t, |$x| $abs),
                UnaryKind::Sign => one!(isa, $t => $t, |$x| $sign),
                UnaryKind::Relu => one!(isa, $t => $t, |$x| $relu),
                UnaryKind::Not => one!(isa, $t => $t, |x| !x),
                _ => return None,
            })
        }

        fn $binary(kind: BinaryKind, scalar: [bool; 2], isa: Isa) -> Option<Block> {
            Some(match kind {
                BinaryKind::Add => two!(isa, scalar, $t => $t, |x, y| x.wrapping_add(y)),
                BinaryKind::Sub => two!(isa, scalar, $t => $t, |x, y| x.wrapping_sub(y)),
                BinaryKind::Mul => two!(isa, scalar, $t => $t, |x, y| x.wrapping_mul(y)),
                BinaryKind::Div => {
                    two!(isa, scalar, $t => $t, |x, y| if y == 0 { 0 } else { x.wrapping_div(y) })
                }
                BinaryKind::Rem => {
                    two!(isa, scalar, $t => $t, |x, y| if y == 0 { x } else { x.wrapping_rem(y) })
                }
                BinaryKind::Max => two!(isa, scalar, $t => $t, |x, y| if x > y { x } else { y }),
                BinaryKind::Min => two!(isa, scalar, $t => $t, |x, y| if x < y { x } else { y }),
                BinaryKind::And => two!(isa, scalar, $t => $t, |x, y| x & y),
                BinaryKind::Or => two!(isa, scalar, $t => $t, |x, y| x | y),
                BinaryKind::Xor => two!(isa, scalar, $t => $t, |x, y| x ^ y),
                // A count that is negative or too large becomes a large unsigned one.
                BinaryKind::Shl => two!(isa, scalar, $t => $t, |x, y| {
                    let shifted = x.wrapping_shl(y as u32);
                    if (y as u64) < <$t>::BITS as u64 { shifted } else { 0 }
                }),
                BinaryKind::Shr => two!(isa, scalar, $t => $t, |x, y| {
                    let (shifted, sign) = (x.wrapping_shr(y as u32), (x >> (<$t>::BITS - 1)) >> 1);
                    if (y as u64) < <$t>::BITS as u64 { shifted } else { sign }
                }),
                BinaryKind::Pow | BinaryKind::Atan2 => return None,
            })
        }

        fn $compare(kind: CompareKind, scalar: [bool; 2], isa: Isa) -> Block {
            match kind {
                CompareKind::Eq => two!(isa, scalar, $t => u8, |x, y| (x == y) as u8),
                CompareKind::Ne => two!(isa, scalar, $t => u8, |x, y| (x != y) as u8),
                CompareKind::Lt => two!(isa, scalar, $t => u8, |x, y| (x < y) as u8),
                CompareKind::Le => two!(isa, scalar, $t => u8, |x, y| (x <= y) as u8),
                CompareKind::Gt => two!(isa, scalar, $t => u8, |x, y| (x > y) as u8),
                CompareKind::Ge => two!(isa, scalar, $t => u8, |x, y| (x >= y) as u8),
            }
        }
    };
}

integer!(unary_i32, binary_i32, compare_i32, i32, |x| x.wrapping_abs(), x.signum(), x.max(0));
integer!(unary_i64, binary_i64, compare_i64, i64, |x| x.wrapping_abs(), x.signum(), x.max(0));
integer!(unary_u32, binary_u32, compare_u32, u32, |x| x, (x != 0) as u32, x);
integer!(unary_i8, binary_i8, compare_i8, i8, |x| x.wrapping_abs(), x.signum(), x.max(0));
integer!(unary_u8, binary_u8, compare_u8, u8, |x| x, (x != 0) as u8, x);

/// A unary function of elements of `dtype`.
pub fn unary(kind: UnaryKind, dtype: DType, isa: Isa) -> Option<Block> {
    match dtype {
        DType::F32 => float::unary_f32(kind, isa),
        DType::F64 => float::unary_f64(kind, isa),
        DType::I32 => unary_i32(kind, isa),
        DType::I64 => unary_i64(kind, isa),
        DType::U32 => unary_u32(kind, isa),
        DType::I8 => unary_i8(kind, isa),
        DType::U8 => unary_u8(kind, isa),
        DType::Bool if kind == UnaryKind::Not => Some(one!(isa, u8 => u8, |x| (x == 0) as u8)),
        _ => None,
    }
}

/// A binary function of elements of `dtype`.
pub fn binary(kind: BinaryKind, dtype: DType, scalar: [bool; 2], isa: Isa) -> Option<Block> {
    match dtype {
        DType::F32 => float::binary_f32(kind, scalar, isa),
        DType::F64 => float::binary_f64(kind, scalar, isa),
        DType::I32 => binary_i32(kind, scalar, isa),
        DType::I64 => binary_i64(kind, scalar, isa),
        DType::U32 => binary_u32(kind, scalar, isa),
        DType::I8 => binary_i8(kind, scalar, isa),
        DType::U8 => binary_u8(kind, scalar, isa),
        // Bytes 0 and 1: the functions that truth values have stay within them.
        DType::Bool if kind.takes(DType::Bool) => binary_u8(kind, scalar, isa),
        _ => None,
    }
}

/// A comparison of elements of `dtype`.
pub fn compare(kind: CompareKind, dtype: DType, scalar: [bool; 2], isa: Isa) -> Option<Block> {
    Some(match dtype {
        DType::F32 => float::compare_f32(kind, scalar, isa),
        DType::F64 => float::compare_f64(kind, scalar, isa),
        DType::I32 => compare_i32(kind, scalar, isa),
        DType::I64 => compare_i64(kind, scalar, isa),
        DType::U32 => compare_u32(kind, scalar, isa),
        DType::I8 => compare_i8(kind, scalar, isa),
        DType::U8 | DType::Bool => compare_u8(kind, scalar, isa),
        DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => return None,
    })
}

/// `d[i] = if a[i] { b[i] } else { c[i] }`, on bits.
struct Choose<T, const A: bool, const B: bool, const C: bool>(PhantomData<T>);

impl<T: Copy + Default, const A: bool, const B: bool, const C: bool> Lane for Choose<T, A, B, C> {
    #[inline(always)]
    unsafe fn run(d: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize) {
        // SAFETY: the caller gives `n` elements of the destination, disjoint from the operands.
        let d = unsafe { std::slice::from_raw_parts_mut(d.cast::<T>(), n) };
        // SAFETY: and `n` of each block, one of each scalar.
        let (a, b, c) = unsafe { (Arg::<u8, A>::new(a, n), Arg::<T, B>::new(b, n), Arg::<T, C>::new(c, n)) };
        for i in 0..n {
            let (yes, no) = (b.at(i), c.at(i));
            d[i] = if a.at(i) != 0 { yes } else { no };
        }
    }
}

/// The choice between elements of `size` bytes.
pub fn select(size: usize, scalar: [bool; 3], isa: Isa) -> Block {
    fn sized<T: Copy + Default>(scalar: [bool; 3], isa: Isa) -> Block {
        match scalar {
            [true, true, false] => instantiate::<Choose<T, true, true, false>>(isa),
            [true, false, true] => instantiate::<Choose<T, true, false, true>>(isa),
            [true, false, false] => instantiate::<Choose<T, true, false, false>>(isa),
            [false, true, true] => instantiate::<Choose<T, false, true, true>>(isa),
            [false, true, false] => instantiate::<Choose<T, false, true, false>>(isa),
            [false, false, true] => instantiate::<Choose<T, false, false, true>>(isa),
            _ => instantiate::<Choose<T, false, false, false>>(isa),
        }
    }
    match size {
        1 => sized::<u8>(scalar, isa),
        2 => sized::<u16>(scalar, isa),
        4 => sized::<u32>(scalar, isa),
        _ => sized::<u64>(scalar, isa),
    }
}
