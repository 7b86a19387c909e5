//! Vectors of each instruction set, as far as a matrix product needs them.
//!
//! The methods compile to instructions only inside a function that enables the instruction set; `gemm` has one for
//! each, and everything below it is inlined there.

use crate::math::Real;

/// An element type of matrix products.
pub trait Scalar: Real + Send + Sync + 'static {
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Minus infinity.
    const NEG_INFINITY: Self;
    /// `self · b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
    /// The nearest number of this type.
    fn from_f64(x: f64) -> Self;
}

macro_rules! scalar {
    ($t:ident) => {
        impl Scalar for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const NEG_INFINITY: $t = $t::NEG_INFINITY;
            #[inline(always)]
            fn fma(self, b: $t, c: $t) -> $t {
                self.mul_add(b, c)
            }
            #[inline(always)]
            fn from_f64(x: f64) -> $t {
                x as $t
            }
        }
    };
}

scalar!(f32);
scalar!(f64);

/// A vector of [`Scalar`]s.
///
/// # Safety
///
/// `load` and `store` touch exactly `LANES` adjacent elements.
pub(super) unsafe trait Simd: Copy {
    /// The element.
    type Scalar: Scalar;
    /// Elements in a vector.
    const LANES: usize;
    /// The same number everywhere.
    ///
    /// # Safety
    ///
    /// The instruction set is available; so for every method.
    unsafe fn splat(x: Self::Scalar) -> Self;
    /// # Safety
    ///
    /// `p` is readable for `LANES` elements.
    unsafe fn load(p: *const Self::Scalar) -> Self;
    /// # Safety
    ///
    /// `p` is writable for `LANES` elements.
    unsafe fn store(self, p: *mut Self::Scalar);
    /// `self · b + c`, rounded once.
    ///
    /// # Safety
    ///
    /// As for `splat`.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// # Safety
    ///
    /// As for `splat`.
    unsafe fn add(self, b: Self) -> Self;
    /// Side of the squares that `transpose` takes.
    const SQUARE: usize = 4;
    /// Copies a square's transpose: `to[i][j] = from[j][i]`.
    ///
    /// # Safety
    ///
    /// `from` and `to` are readable and writable at `SQUARE` rows of `SQUARE` adjacent elements, `from_rs` and `to_rs`
    /// apart.
    #[inline(always)]
    unsafe fn transpose(from: *const Self::Scalar, from_rs: usize, to: *mut Self::Scalar, to_rs: usize) {
        // SAFETY: the caller's four rows have 4 elements each, here and below.
        let [a, b, c, d] =
            [0, 1, 2, 3].map(|i| unsafe { *from.add(i * from_rs).cast::<[Self::Scalar; 4]>() });
        for j in 0..4 {
            // SAFETY: as above.
            unsafe { *to.add(j * to_rs).cast::<[Self::Scalar; 4]>() = [a[j], b[j], c[j], d[j]] };
        }
    }
}

/// Eight elements without any particular instruction set.
#[derive(Clone, Copy)]
pub(super) struct Plain<T>([T; 8]);

// SAFETY: both move one array of 8 elements.
unsafe impl<T: Scalar> Simd for Plain<T> {
    type Scalar = T;
    const LANES: usize = 8;
    #[inline(always)]
    unsafe fn splat(x: T) -> Self {
        Plain([x; 8])
    }
    #[inline(always)]
    unsafe fn load(p: *const T) -> Self {
        // SAFETY: the caller's contract; an array is aligned as its element is.
        Plain(unsafe { *p.cast() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut T) {
        // SAFETY: the caller's contract.
        unsafe { *p.cast() = self.0 };
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i].fma(b.0[i], c.0[i])))
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i] + b.0[i]))
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    //! AVX2 and AVX-512.

    use super::Simd;
    use std::arch::x86_64::*;

    macro_rules! simd {
        ($v:ident, $t:ident, $lanes:literal, $splat:ident, $load:ident, $store:ident, $fma:ident, $add:ident $(, $transpose:item)?) => {
            // SAFETY: the unaligned moves of this vector touch its lanes.
            unsafe impl Simd for $v {
                type Scalar = $t;
                const LANES: usize = $lanes;
                #[inline(always)]
                unsafe fn splat(x: $t) -> Self {
                    // SAFETY: the instruction set is available, by the trait's contract.
                    unsafe { $splat(x) }
                }
                #[inline(always)]
                unsafe fn load(p: *const $t) -> Self {
                    // SAFETY: readable, and available, by the trait's contract.
                    unsafe { $load(p) }
                }
                #[inline(always)]
                unsafe fn store(self, p: *mut $t) {
                    // SAFETY: writable, and available, by the trait's contract.
                    unsafe { $store(p, self) }
                }
                #[inline(always)]
                unsafe fn fma(self, b: Self, c: Self) -> Self {
                    // SAFETY: the instruction set is available, by the trait's contract.
                    unsafe { $fma(self, b, c) }
                }
                #[inline(always)]
                unsafe fn add(self, b: Self) -> Self {
                    // SAFETY: the instruction set is available, by the trait's contract.
                    unsafe { $add(self, b) }
                }
                $(const SQUARE: usize = 8;
                #[inline(always)]
                $transpose)?
            }
        };
    }

    simd!(
        __m256,
        f32,
        8,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_fmadd_ps,
        _mm256_add_ps,
        unsafe fn transpose(from: *const f32, from_rs: usize, to: *mut f32, to_rs: usize) {
            // SAFETY: the caller's contract is the same.
            unsafe { transpose8(from, from_rs, to, to_rs) }
        }
    );
    simd!(__m256d, f64, 4, _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_fmadd_pd, _mm256_add_pd);
    simd!(
        __m512,
        f32,
        16,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_fmadd_ps,
        _mm512_add_ps,
        unsafe fn transpose(from: *const f32, from_rs: usize, to: *mut f32, to_rs: usize) {
            // SAFETY: the caller's contract is the same.
            unsafe { transpose8(from, from_rs, to, to_rs) }
        }
    );
    simd!(__m512d, f64, 8, _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_fmadd_pd, _mm512_add_pd);

    /// An 8 × 8 square: halves of rows side by side, then two rounds of shuffles within halves.
    ///
    /// # Safety
    ///
    /// As for [`Simd::transpose`]; AVX is available.
    #[inline(always)]
    unsafe fn transpose8(from: *const f32, from_rs: usize, to: *mut f32, to_rs: usize) {
        // SAFETY: rows `0..8` of both have 8 elements, by the contract.
        unsafe {
            let half = |row: usize, at: usize| _mm_loadu_ps(from.add(row * from_rs + at));
            let pair = |row: usize, at: usize| _mm256_set_m128(half(row + 4, at), half(row, at));
            for at in [0, 4] {
                let (r0, r1, r2, r3) = (pair(0, at), pair(1, at), pair(2, at), pair(3, at));
                let (a, b) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
                let (c, d) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
                let put = |row: usize, x: __m256| _mm256_storeu_ps(to.add((at + row) * to_rs), x);
                put(0, _mm256_shuffle_ps::<0x44>(a, c));
                put(1, _mm256_shuffle_ps::<0xee>(a, c));
                put(2, _mm256_shuffle_ps::<0x44>(b, d));
                put(3, _mm256_shuffle_ps::<0xee>(b, d));
            }
        }
    }
}
