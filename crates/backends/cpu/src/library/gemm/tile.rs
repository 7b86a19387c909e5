//! The innermost loop of a matrix product: a small tile of the output in registers, over one block of the depth.
//!
//! Every element is one chain of fused multiply-adds in the order of the depth, so that its bits depend neither on the
//! instruction set nor on the tile's shape.

use super::simd::{Scalar, Simd};

/// What a tile reads and writes.
#[derive(Clone, Copy)]
pub(super) struct Tile<T> {
    /// Depth of the block.
    pub k: usize,
    /// The left factor: packed as `[k][MR]`, or in place with adjacent elements in each row.
    pub a: *const T,
    /// Distance of its rows, when in place.
    pub a_rs: usize,
    /// The right factor: `k` rows.
    pub b: *const T,
    /// Distance of its rows.
    pub b_rs: usize,
    /// The output.
    pub dst: *mut T,
    /// Distance of its rows.
    pub dst_rs: usize,
    /// Rows that exist.
    pub rows: usize,
    /// Columns that exist.
    pub cols: usize,
    /// Whether the block's sum is added to the output rather than replacing it.
    pub add: bool,
}

/// Widest tile in elements, for the detour of a partial one.
const WIDEST: usize = 128;

/// Computes a tile of `MR` rows and `NV` vectors; the left factor is packed or (`IN_PLACE`) not.
///
/// # Safety
///
/// `a` has `k · MR` elements (or `rows` rows of `k`, `a_rs` apart), `b` has `NV` vectors in each of its rows, `dst` is writable at `rows ≤ MR` × `cols ≤ NV`
/// vectors, and is not aliased; `V`'s instruction set is available.
#[inline(always)]
pub(super) unsafe fn run<V: Simd, const IN_PLACE: bool, const MR: usize, const NV: usize>(
    t: Tile<V::Scalar>,
) {
    // SAFETY: loads are within the `k` rows of both factors, stores within the part of the output that exists or in
    // `edge`, as the contract says.
    unsafe {
        let mut acc = [[V::splat(Scalar::ZERO); NV]; MR];
        let mut b = t.b;
        // Rows that do not exist repeat the last one that does: their sums are dropped.
        let rows: [*const V::Scalar; MR] = match IN_PLACE {
            true => std::array::from_fn(|i| t.a.wrapping_add(i.min(t.rows - 1) * t.a_rs)),
            false => [t.a; MR],
        };
        for p in 0..t.k {
            let mut rb = [V::splat(Scalar::ZERO); NV];
            for j in 0..NV {
                rb[j] = V::load(b.wrapping_add(j * V::LANES));
            }
            for i in 0..MR {
                let x = if IN_PLACE { rows[i].wrapping_add(p) } else { t.a.wrapping_add(p * MR + i) };
                let x = V::splat(*x);
                for j in 0..NV {
                    acc[i][j] = x.fma(rb[j], acc[i][j]);
                }
            }
            b = b.wrapping_add(t.b_rs);
        }
        if t.rows == MR && t.cols == NV * V::LANES {
            for i in 0..MR {
                for j in 0..NV {
                    let p = t.dst.add(i * t.dst_rs + j * V::LANES);
                    let sum = if t.add { V::load(p).add(acc[i][j]) } else { acc[i][j] };
                    sum.store(p);
                }
            }
            return;
        }
        // By way of memory, so that a sum's place never depends on a variable: then all of them stay in registers.
        let mut edge: [[V::Scalar; WIDEST]; MR] = [[Scalar::ZERO; WIDEST]; MR];
        for i in 0..MR {
            for j in 0..NV {
                acc[i][j].store(edge[i].as_mut_ptr().add(j * V::LANES));
            }
        }
        for (i, sums) in edge.iter().enumerate().take(t.rows) {
            for (j, &sum) in sums.iter().enumerate().take(t.cols) {
                let p = t.dst.add(i * t.dst_rs + j);
                *p = if t.add { *p + sum } else { sum };
            }
        }
    }
}
