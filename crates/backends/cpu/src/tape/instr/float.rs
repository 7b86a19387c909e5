//! Elementwise functions of f32 and f64, by the module [`math`](crate::math).

use super::{Block, Isa, Lane, instantiate, one, two};
use crate::math::{double, single};
use onestep_ir::ops::{BinaryKind, CompareKind, UnaryKind};

macro_rules! float {
    ($unary:ident, $binary:ident, $compare:ident, $t:ty, $m:ident, $sin:expr, $cos:expr, $rem:path) => {
        /// The instruction of a unary function.
        pub fn $unary(kind: UnaryKind, isa: Isa) -> Option<Block> {
            Some(match kind {
                UnaryKind::Neg => one!(isa, $t => $t, |x| -x),
                UnaryKind::Abs => one!(isa, $t => $t, |x| x.abs()),
                UnaryKind::Sign => one!(isa, $t => $t, |x| {
                    let sign = (1.0 as $t).copysign(x);
                    if (x == 0.0) | x.is_nan() { x } else { sign }
                }),
                UnaryKind::Exp => one!(isa, $t => $t, |x| $m::exp(x)),
                UnaryKind::Log => one!(isa, $t => $t, |x| $m::log(x)),
                UnaryKind::Expm1 => one!(isa, $t => $t, |x| $m::expm1(x)),
                UnaryKind::Log1p => one!(isa, $t => $t, |x| $m::log1p(x)),
                UnaryKind::Sqrt => one!(isa, $t => $t, |x| $m::sqrt(x)),
                UnaryKind::Rsqrt => one!(isa, $t => $t, |x| 1.0 / $m::sqrt(x)),
                UnaryKind::Reciprocal => one!(isa, $t => $t, |x| 1.0 / x),
                UnaryKind::Sin => $sin(isa),
                UnaryKind::Cos => $cos(isa),
                UnaryKind::Tanh => one!(isa, $t => $t, |x| $m::tanh(x)),
                UnaryKind::Erf => one!(isa, $t => $t, |x| $m::erf(x)),
                UnaryKind::Sigmoid => one!(isa, $t => $t, |x| $m::sigmoid(x)),
                UnaryKind::Relu => one!(isa, $t => $t, |x| if x < 0.0 { 0.0 } else { x }),
                UnaryKind::Floor => one!(isa, $t => $t, |x| $m::floor(x)),
                UnaryKind::Ceil => one!(isa, $t => $t, |x| $m::ceil(x)),
                UnaryKind::Round => one!(isa, $t => $t, |x| $m::round_even(x)),
                UnaryKind::Trunc => one!(isa, $t => $t, |x| $m::trunc(x)),
                UnaryKind::IsFinite => one!(isa, $t => u8, |x| x.is_finite() as u8),
                UnaryKind::IsNan => one!(isa, $t => u8, |x| x.is_nan() as u8),
                UnaryKind::Not => return None,
                UnaryKind::Tan => one!(isa, $t => $t, |x| $m::tan(x)),
                UnaryKind::Asin => one!(isa, $t => $t, |x| $m::asin(x)),
                UnaryKind::Acos => one!(isa, $t => $t, |x| $m::acos(x)),
                UnaryKind::Atan => one!(isa, $t => $t, |x| $m::atan(x)),
                UnaryKind::Sinh => one!(isa, $t => $t, |x| $m::sinh(x)),
                UnaryKind::Cosh => one!(isa, $t => $t, |x| $m::cosh(x)),
                UnaryKind::Asinh => one!(isa, $t => $t, |x| $m::asinh(x)),
                UnaryKind::Acosh => one!(isa, $t => $t, |x| $m::acosh(x)),
                UnaryKind::Atanh => one!(isa, $t => $t, |x| $m::atanh(x)),
                UnaryKind::Erfc => one!(isa, $t => $t, |x| $m::erfc(x)),
            })
        }

        /// The instruction of a binary function.
        pub fn $binary(kind: BinaryKind, scalar: [bool; 2], isa: Isa) -> Option<Block> {
            Some(match kind {
                BinaryKind::Add => two!(isa, scalar, $t => $t, |x, y| x + y),
                BinaryKind::Sub => two!(isa, scalar, $t => $t, |x, y| x - y),
                BinaryKind::Mul => two!(isa, scalar, $t => $t, |x, y| x * y),
                BinaryKind::Div => two!(isa, scalar, $t => $t, |x, y| x / y),
                BinaryKind::Max => two!(isa, scalar, $t => $t, |x, y| $m::fmax_nan(x, y)),
                BinaryKind::Min => two!(isa, scalar, $t => $t, |x, y| $m::fmin_nan(x, y)),
                BinaryKind::Pow => two!(isa, scalar, $t => $t, |x, y| $m::pow(x, y)),
                BinaryKind::Rem => two!(isa, scalar, $t => $t, |x, y| $rem(x, y)),
                BinaryKind::Atan2 => two!(isa, scalar, $t => $t, |x, y| $m::atan2(x, y)),
                BinaryKind::And | BinaryKind::Or | BinaryKind::Xor | BinaryKind::Shl | BinaryKind::Shr => {
                    return None;
                }
            })
        }

        /// The instruction of a comparison.
        pub fn $compare(kind: CompareKind, scalar: [bool; 2], isa: Isa) -> Block {
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

float!(
    unary_f32,
    binary_f32,
    compare_f32,
    f32,
    single,
    instantiate::<Trigonometric<false>>,
    instantiate::<Trigonometric<true>>,
    libm::fmodf
);
float!(
    unary_f64,
    binary_f64,
    compare_f64,
    f64,
    double,
    |isa| one!(isa, f64 => f64, |x| double::sin(x)),
    |isa| one!(isa, f64 => f64, |x| double::cos(x)),
    libm::fmod
);

/// Sine, or cosine: the form that vectorises, unless an argument of the block is out of its range.
struct Trigonometric<const COSINE: bool>;

impl<const COSINE: bool> Lane for Trigonometric<COSINE> {
    #[inline(always)]
    unsafe fn run(d: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: the caller gives `n` elements of each, disjoint.
        let (d, a) = unsafe {
            (
                std::slice::from_raw_parts_mut(d.cast::<f32>(), n),
                std::slice::from_raw_parts(a.cast::<f32>(), n),
            )
        };
        if single::beyond_trig_limit(a) {
            for i in 0..n {
                d[i] = if COSINE { single::cos(a[i]) } else { single::sin(a[i]) };
            }
        } else {
            for i in 0..n {
                d[i] = if COSINE { single::cos_near(a[i]) } else { single::sin_near(a[i]) };
            }
        }
    }
}
