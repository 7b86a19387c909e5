//! Packing: copies of the factors in the order in which a tile reads them. Where a factor is strided the wrong way, this
//! is where it is transposed.

use super::simd::{Scalar, Simd};

/// A strided matrix.
#[derive(Clone, Copy)]
pub struct Mat<T> {
    /// Element (0, 0).
    pub ptr: *const T,
    /// Distance of neighbours in a column.
    pub rs: usize,
    /// Distance of neighbours in a row.
    pub cs: usize,
}

impl<T> Mat<T> {
    /// The part that begins at a row and a column.
    #[inline(always)]
    pub fn at(self, row: usize, col: usize) -> Mat<T> {
        Mat { ptr: self.ptr.wrapping_add(row * self.rs + col * self.cs), ..self }
    }
    /// The same elements as another type.
    #[inline(always)]
    pub fn cast<U>(self) -> Mat<U> {
        Mat { ptr: self.ptr.cast(), rs: self.rs, cs: self.cs }
    }
    /// Its transpose.
    #[inline(always)]
    pub fn t(self) -> Mat<T> {
        Mat { ptr: self.ptr, rs: self.cs, cs: self.rs }
    }
}

/// Packs `width` columns of a `k`-row matrix as `[k][W]`, zeros where a column does not exist.
///
/// # Safety
///
/// The matrix is readable at `k` × `width`; `out` is writable for `k · W` elements and does not overlap it; `width ≤ W`.
#[inline(always)]
pub(super) unsafe fn pack<V: Simd, const W: usize>(
    m: Mat<V::Scalar>,
    k: usize,
    width: usize,
    out: *mut V::Scalar,
) {
    // SAFETY (all blocks below): places `(p, j)` of the matrix with `p < k`, `j < width`, and of `out` with `j < W`.
    if width == W && m.cs == 1 {
        for p in 0..k {
            // SAFETY: row `p` of both has `W` adjacent elements.
            unsafe {
                *out.add(p * W).cast::<[V::Scalar; W]>() = *m.ptr.add(p * m.rs).cast::<[V::Scalar; W]>()
            };
        }
        return;
    }
    if width == W && m.rs == 1 && W.is_multiple_of(V::SQUARE) {
        let whole = k / V::SQUARE * V::SQUARE;
        for j in (0..W).step_by(V::SQUARE) {
            for p in (0..whole).step_by(V::SQUARE) {
                // SAFETY: columns `j ..` have a square's elements from row `p` on, and so has `out`.
                unsafe { V::transpose(m.ptr.add(j * m.cs + p), m.cs, out.add(p * W + j), W) };
            }
        }
        for p in whole..k {
            for j in 0..W {
                // SAFETY: `(p, j)` exists in both.
                unsafe { *out.add(p * W + j) = *m.ptr.add(j * m.cs + p) };
            }
        }
        return;
    }
    for p in 0..k {
        for j in 0..width {
            // SAFETY: `(p, j)` exists in both.
            unsafe { *out.add(p * W + j) = *m.ptr.add(p * m.rs + j * m.cs) };
        }
        for j in width..W {
            // SAFETY: `(p, j)` exists in `out`.
            unsafe { *out.add(p * W + j) = Scalar::ZERO };
        }
    }
}

/// [`pack`] for the widths that panels of the right factor have.
///
/// # Safety
///
/// As for [`pack`] with `W = panel`.
#[inline(always)]
pub(super) unsafe fn pack_columns<V: Simd>(
    m: Mat<V::Scalar>,
    k: usize,
    width: usize,
    panel: usize,
    out: *mut V::Scalar,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match panel {
            4 => pack::<V, 4>(m, k, width, out),
            8 => pack::<V, 8>(m, k, width, out),
            16 => pack::<V, 16>(m, k, width, out),
            _ => pack::<V, 32>(m, k, width, out),
        }
    }
}
