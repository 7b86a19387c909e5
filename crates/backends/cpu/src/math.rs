//! Scalar mathematics for kernels: one definition of each function for this target.
//!
//! A kernel is a loop over a block, compiled once for any processor and once inside
//! `#[target_feature(enable = "avx2,fma")]`. Both copies must give the same bits. So every function in [`single`]
//! uses only operations that IEEE 754 rounds correctly (`+ - * /`, conversions, integer work on the bits), in a fixed
//! order, never `mul_add`, never the platform's libm; Rust does not contract `a * b + c` by itself. Branches are
//! written as selects between two computed values, so that LLVM vectorises the loop around an inlined call.
//!
//! [`double`] is pure Rust too (the crate `libm`), scalar, since no f64 kernel is on a hot path.
//!
//! [`Real`] names all of them for code that is generic over the two types. The payload and sign of a NaN are the one
//! thing left open: Rust does not fix them.

pub mod double;
pub mod single;

/// The floating-point types that kernels compute in, with the functions of this module.
///
/// The methods are associated functions (`T::exp(x)`), as the inherent methods of `f32` and `f64` of the same name
/// call the platform's libm and must not be picked by accident.
pub trait Real:
    Copy
    + PartialOrd
    + core::ops::Add<Output = Self>
    + core::ops::Sub<Output = Self>
    + core::ops::Mul<Output = Self>
    + core::ops::Div<Output = Self>
    + core::ops::Neg<Output = Self>
{
    /// `e^x`.
    fn exp(x: Self) -> Self;
    /// Natural logarithm.
    fn log(x: Self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(x: Self) -> Self;
    /// The error function.
    fn erf(x: Self) -> Self;
    /// `1 / (1 + e^-x)`.
    fn sigmoid(x: Self) -> Self;
    /// Sine, for every argument. In f32 loops, see [`single::sin_near`].
    fn sin(x: Self) -> Self;
    /// Cosine, for every argument. In f32 loops, see [`single::cos_near`].
    fn cos(x: Self) -> Self;
    /// `x` to the power `y`; does not vectorise.
    fn pow(x: Self, y: Self) -> Self;
    /// Square root, correctly rounded.
    fn sqrt(x: Self) -> Self;
    /// The greatest integer not above `x`.
    fn floor(x: Self) -> Self;
    /// The least integer not below `x`.
    fn ceil(x: Self) -> Self;
    /// The nearest integer, ties to even.
    fn round_even(x: Self) -> Self;
    /// `x` without its fraction.
    fn trunc(x: Self) -> Self;
    /// IEEE 754-2019 `maximum`: NaN if either is NaN, and `+0 > -0`.
    fn fmax_nan(a: Self, b: Self) -> Self;
    /// IEEE 754-2019 `minimum`: NaN if either is NaN, and `-0 < +0`.
    fn fmin_nan(a: Self, b: Self) -> Self;
}

macro_rules! real {
    ($type:ty, $module:ident) => {
        impl Real for $type {
            real!(@unary $module: exp log tanh erf sigmoid sin cos sqrt floor ceil round_even trunc);
            real!(@binary $module: pow fmax_nan fmin_nan);
        }
    };
    (@unary $module:ident: $($name:ident)*) => {
        $(#[inline(always)]
        fn $name(x: Self) -> Self {
            $module::$name(x)
        })*
    };
    (@binary $module:ident: $($name:ident)*) => {
        $(#[inline(always)]
        fn $name(a: Self, b: Self) -> Self {
            $module::$name(a, b)
        })*
    };
}

real!(f32, single);
real!(f64, double);

/// Rounding and comparison, whose one right answer std already computes without libm's help in accuracy.
macro_rules! exact_functions {
    ($type:ident) => {
        /// Square root, correctly rounded.
        #[inline(always)]
        pub fn sqrt(x: $type) -> $type {
            x.sqrt()
        }

        /// The greatest integer not above `x`.
        #[inline(always)]
        pub fn floor(x: $type) -> $type {
            x.floor()
        }

        /// The least integer not below `x`.
        #[inline(always)]
        pub fn ceil(x: $type) -> $type {
            x.ceil()
        }

        /// The nearest integer, ties to even.
        #[inline(always)]
        pub fn round_even(x: $type) -> $type {
            x.round_ties_even()
        }

        /// `x` without its fraction.
        #[inline(always)]
        pub fn trunc(x: $type) -> $type {
            x.trunc()
        }

        /// IEEE 754-2019 `maximum`: NaN if either is NaN, and `+0 > -0`; so it commutes and associates, and the
        /// order of a reduction cannot show.
        #[inline(always)]
        pub fn fmax_nan(a: $type, b: $type) -> $type {
            // Equal operands differ at most in the sign of a zero: `and` clears it unless both have it.
            let equal = $type::from_bits(a.to_bits() & b.to_bits());
            let larger = if (a > b) | a.is_nan() { a } else { b };
            if a == b { equal } else { larger }
        }

        /// IEEE 754-2019 `minimum`: NaN if either is NaN, and `-0 < +0`.
        #[inline(always)]
        pub fn fmin_nan(a: $type, b: $type) -> $type {
            let equal = $type::from_bits(a.to_bits() | b.to_bits());
            let smaller = if (a < b) | a.is_nan() { a } else { b };
            if a == b { equal } else { smaller }
        }
    };
}
pub(crate) use exact_functions;
