//! Reductions, and the order in which they add.
//!
//! **Contract.** The bits of a reduced row depend on the row's length and order alone: never on the mode in which the
//! tape runs, on layout, fusion, threads or instruction set.
//!
//! - The terms of a row, in row-major order of the reduced axes, are cut into segments of [`SEGMENT`].
//! - Term `i` of a segment is combined into lane `i mod` [`LANES`], in order; every lane starts as the identity.
//! - The lanes of a segment are combined by halves: `lane[k] ∘ lane[k + h]` for `h` = 8, 4, 2, 1.
//! - The first segment's value is the total, to which the others are combined in order. A row without terms is one
//!   empty segment: the identity.
//!
//! In row mode a block is a segment, whose lanes live in processor registers; column mode keeps each lane as a block of
//! rows. A lane that got no term may be left out: a lane is never `-0` under a sum, so the identity changes no bit.
//! f16 and bf16 are reduced in f32 and rounded once. `bool` takes any and all, which is what its wrapped sum and product
//! come to.

use super::instr::{Block, F2, Fold, Isa, Lane, instantiate};
use crate::math::{double, single};
use onestep_ir::DType;
use onestep_ir::ops::ReduceKind;
use std::marker::PhantomData;

/// Lanes of a segment.
pub const LANES: usize = 16;
/// Terms of a segment.
pub const SEGMENT: usize = 512;

/// The instructions of one reduction.
#[derive(Clone, Copy)]
pub struct Reducer {
    /// `d[0]` = the reduction of a whole segment, a block of terms.
    pub segment: Block,
    /// `d[i] ∘= a[i]`.
    pub fold: Block,
    /// `d[i] = identity`.
    pub clear: Block,
}

struct Segment<T, F>(PhantomData<(T, F)>);

impl<T: Copy + Default, F: F2<T, T> + Identity<T>> Lane for Segment<T, F> {
    #[inline(always)]
    unsafe fn run(d: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: the caller gives `n` terms.
        let a = unsafe { std::slice::from_raw_parts(a.cast::<T>(), n) };
        let mut lanes = [F::IDENTITY; LANES];
        let (whole, rest) = a.as_chunks::<LANES>();
        for x in whole {
            for k in 0..LANES {
                lanes[k] = F::f(lanes[k], x[k]);
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane = F::f(*lane, x);
        }
        let l: [T; 8] = std::array::from_fn(|k| F::f(lanes[k], lanes[k + 8]));
        let l: [T; 4] = std::array::from_fn(|k| F::f(l[k], l[k + 4]));
        let l: [T; 2] = std::array::from_fn(|k| F::f(l[k], l[k + 2]));
        // SAFETY: the caller gives a place for the result.
        unsafe { *d.cast::<T>() = F::f(l[0], l[1]) };
    }
}

/// A value that is known at compile time.
trait Identity<T> {
    const IDENTITY: T;
}

struct Clear<T, I>(PhantomData<(T, I)>);

impl<T: Copy, I: Identity<T>> Lane for Clear<T, I> {
    #[inline(always)]
    unsafe fn run(d: *mut u8, _: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: the caller gives `n` elements.
        unsafe { std::slice::from_raw_parts_mut(d.cast::<T>(), n) }.fill(I::IDENTITY);
    }
}

macro_rules! reducer {
    ($isa:expr, $t:ty, $identity:expr, |$x:ident, $y:ident| $body:expr) => {{
        struct Function;
        impl F2<$t, $t> for Function {
            #[inline(always)]
            fn f($x: $t, $y: $t) -> $t {
                $body
            }
        }
        impl Identity<$t> for Function {
            const IDENTITY: $t = $identity;
        }
        Reducer {
            segment: instantiate::<Segment<$t, Function>>($isa),
            fold: instantiate::<Fold<$t, Function>>($isa),
            clear: instantiate::<Clear<$t, Function>>($isa),
        }
    }};
}

/// The reduction of elements of `dtype`; `None` for the 16-bit floats.
pub fn reducer(kind: ReduceKind, dtype: DType, isa: Isa) -> Option<Reducer> {
    macro_rules! float {
        ($t:ident, $m:ident) => {
            match kind {
                ReduceKind::Sum => reducer!(isa, $t, 0.0, |x, y| x + y),
                ReduceKind::Prod => reducer!(isa, $t, 1.0, |x, y| x * y),
                ReduceKind::Max => reducer!(isa, $t, $t::NEG_INFINITY, |x, y| $m::fmax_nan(x, y)),
                ReduceKind::Min => reducer!(isa, $t, $t::INFINITY, |x, y| $m::fmin_nan(x, y)),
            }
        };
    }
    macro_rules! integer {
        ($t:ident, $least:expr, $most:expr) => {
            match kind {
                ReduceKind::Sum => reducer!(isa, $t, 0, |x, y| x.wrapping_add(y)),
                ReduceKind::Prod => reducer!(isa, $t, 1, |x, y| x.wrapping_mul(y)),
                ReduceKind::Max => reducer!(isa, $t, $least, |x, y| if x > y { x } else { y }),
                ReduceKind::Min => reducer!(isa, $t, $most, |x, y| if x < y { x } else { y }),
            }
        };
    }
    Some(match dtype {
        DType::F32 => float!(f32, single),
        DType::F64 => float!(f64, double),
        DType::I32 => integer!(i32, i32::MIN, i32::MAX),
        DType::I64 => integer!(i64, i64::MIN, i64::MAX),
        DType::U32 => integer!(u32, u32::MIN, u32::MAX),
        DType::I8 => integer!(i8, i8::MIN, i8::MAX),
        DType::U8 => integer!(u8, u8::MIN, u8::MAX),
        DType::Bool => match kind {
            ReduceKind::Sum | ReduceKind::Max => reducer!(isa, u8, 0, |x, y| x | y),
            ReduceKind::Prod | ReduceKind::Min => reducer!(isa, u8, 1, |x, y| x & y),
        },
        DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => return None,
    })
}
