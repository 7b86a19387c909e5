//! A dense matrix product for one thread, over strided factors: what matmul and attention are made of.
//!
//! **The bits of an element depend on its row, its column and the depth alone**: the depth is cut into blocks of
//! [`DEPTH`], each block is one chain of fused multiply-adds in order, and the blocks' sums are added in order. Neither
//! strides, nor the position of a row among others, nor the instruction set take part: a folded transpose equals a
//! materialised one, and a row decoded alone equals the same row of a batch.
//!
//! Both factors are packed into scratch, panel by panel (see `pack`); the right one is read in place where its rows
//! are adjacent and there are few output rows to repay the copy, or where it is no wider than a panel. Nothing is
//! allocated.

mod pack;
mod simd;
mod tile;

pub use pack::Mat;
pub use simd::Scalar;
use simd::{Plain, Simd};
use std::any::TypeId;
use tile::Tile;

/// Depth of a block: a panel of the right factor (`DEPTH` × 32 floats) fits the first-level cache.
pub const DEPTH: usize = 256;

/// Most rows that are packed at a time.
pub const ROWS: usize = 128;

/// Widest panel of the right factor.
const WIDEST: usize = 32;

/// The instruction set that tiles use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isa {
    /// Whatever the crate was compiled for.
    Portable,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// Those that this processor has, the best one last.
    pub fn available() -> Vec<Isa> {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut all = vec![Isa::Portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            all.push(Isa::Avx2);
            if is_x86_feature_detected!("avx512f") {
                all.push(Isa::Avx512);
            }
        }
        all
    }

    /// The best that this processor has.
    pub fn detect() -> Isa {
        Isa::available().pop().unwrap_or(Isa::Portable)
    }
}

/// Elements of scratch that [`Gemm::run`] needs for up to `m` rows and a depth of `k`: packed rows of the left factor, and a
/// panel of the right one.
pub fn scratch_elements(m: usize, k: usize) -> usize {
    (panel_rows(m.min(ROWS)) + WIDEST) * k.min(DEPTH)
}

/// Room for the panels of `m` rows, whatever their height (8, 6 or 4).
fn panel_rows(m: usize) -> usize {
    m.next_multiple_of(8)
}

/// A product's sizes and how to compute it.
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    /// The instruction set, an available one.
    pub isa: Isa,
    /// Rows of the output.
    pub m: usize,
    /// Columns of the output.
    pub n: usize,
    /// The depth.
    pub k: usize,
    /// Whether the product is added to the output rather than replacing it.
    pub add: bool,
}

impl Gemm {
    /// `dst = a · b` (`dst += a · b` with `add`). `a` is `m` × `k`, `b` is `k` × `n`, `dst`'s rows are `dst_rs` apart.
    ///
    /// # Safety
    ///
    /// Both factors are readable at their sizes, and `dst` is writable at `m` × `n`; `dst` overlaps neither factor nor
    /// `scratch`, which has [`scratch_elements`] elements, aligned as the element is. `isa` is available.
    pub unsafe fn run<T: Scalar>(&self, a: Mat<T>, b: Mat<T>, dst: *mut T, dst_rs: usize, scratch: *mut T) {
        if self.k == 0 && !self.add {
            for i in 0..self.m {
                // SAFETY: row `i` of the output has `n` elements.
                unsafe { std::slice::from_raw_parts_mut(dst.add(i * dst_rs), self.n) }.fill(T::ZERO);
            }
        }
        // SAFETY: the caller's contract; `isa` is available.
        unsafe {
            match self.isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512(self, a, b, dst, dst_rs, scratch),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2(self, a, b, dst, dst_rs, scratch),
                Isa::Portable => blocks::<Plain<T>, 4, 2>(self, a, b, dst, dst_rs, scratch),
            }
        }
    }
}

/// Defines a function that runs a product with one instruction set.
#[cfg(target_arch = "x86_64")]
macro_rules! with_features {
    ($name:ident, $features:literal, $f32:ident, $f64:ident, $mr:literal, $nv:literal) => {
        #[target_feature(enable = $features)]
        unsafe fn $name<T: Scalar>(g: &Gemm, a: Mat<T>, b: Mat<T>, dst: *mut T, dst_rs: usize, s: *mut T) {
            // SAFETY: the caller's contract; the casts are between equal types.
            unsafe {
                if TypeId::of::<T>() == TypeId::of::<f32>() {
                    type V = std::arch::x86_64::$f32;
                    blocks::<V, $mr, $nv>(g, a.cast(), b.cast(), dst.cast(), dst_rs, s.cast());
                } else if TypeId::of::<T>() == TypeId::of::<f64>() {
                    type V = std::arch::x86_64::$f64;
                    blocks::<V, $mr, $nv>(g, a.cast(), b.cast(), dst.cast(), dst_rs, s.cast());
                } else {
                    blocks::<Plain<T>, 4, 2>(g, a, b, dst, dst_rs, s);
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
with_features!(avx2, "avx2,fma", __m256, __m256d, 6, 2);
#[cfg(target_arch = "x86_64")]
with_features!(avx512, "avx512f,avx2,fma", __m512, __m512d, 8, 2);

/// Cuts a product into blocks of rows and of the depth.
///
/// # Safety
///
/// As for [`Gemm::run`]; `V`'s instruction set is enabled here.
#[inline(always)]
unsafe fn blocks<V: Simd, const MR: usize, const NV: usize>(
    g: &Gemm,
    a: Mat<V::Scalar>,
    b: Mat<V::Scalar>,
    dst: *mut V::Scalar,
    dst_rs: usize,
    scratch: *mut V::Scalar,
) {
    for row in (0..g.m).step_by(ROWS) {
        let m = ROWS.min(g.m - row);
        for depth in (0..g.k).step_by(DEPTH) {
            let k = DEPTH.min(g.k - depth);
            let block = Gemm { m, k, add: g.add || depth > 0, ..*g };
            let (a, b) = (a.at(row, depth), b.at(depth, 0));
            // SAFETY: the block lies in the matrices, and `scratch` has room for its rows and a panel of its depth.
            unsafe { one_block::<V, MR, NV>(&block, a, b, dst.add(row * dst_rs), dst_rs, scratch) };
        }
    }
}

/// A block of rows and of the depth: packs the rows, then goes through the columns by panels.
///
/// # Safety
///
/// As for [`blocks`], with `m ≤ ROWS` and `k ≤ DEPTH`.
#[inline(always)]
unsafe fn one_block<V: Simd, const MR: usize, const NV: usize>(
    g: &Gemm,
    a: Mat<V::Scalar>,
    b: Mat<V::Scalar>,
    dst: *mut V::Scalar,
    dst_rs: usize,
    scratch: *mut V::Scalar,
) {
    let Gemm { m, n, k, add, .. } = *g;
    let (pa, pb) = (scratch, scratch.wrapping_add(panel_rows(m) * k));
    let in_place = a.cs == 1;
    if !in_place {
        for i in (0..m).step_by(MR) {
            let (rows, out) = (MR.min(m - i), pa.wrapping_add(i * k));
            // SAFETY: rows `i ..` exist; the panel, the `i / MR`-th, has room for `MR · k` elements in `scratch`.
            unsafe {
                match rows {
                    1 => pack::pack::<V, 1>(a.at(i, 0).t(), k, rows, out),
                    2 => pack::pack::<V, 2>(a.at(i, 0).t(), k, rows, out),
                    3 | 4 => pack::pack::<V, 4>(a.at(i, 0).t(), k, rows, out),
                    _ => pack::pack::<V, MR>(a.at(i, 0).t(), k, rows, out),
                }
            }
        }
    }
    let mut j = 0;
    while j < n {
        let left = n - j;
        let vectors = match left {
            // One row: as wide as the registers allow, for chains enough and long runs of memory.
            _ if m == 1 && b.cs == 1 && left >= 8 * V::LANES => 8,
            _ if left > V::LANES => NV,
            _ => 1,
        };
        let width = vectors * V::LANES;
        let cols = width.min(left);
        let part = b.at(0, j);
        let panel = if b.cs == 1 && cols == width && (m <= MR || b.rs <= WIDEST) {
            part
        } else {
            // SAFETY: columns `j .. j + cols` exist; `pb` has room for `WIDEST · k` elements.
            unsafe { pack::pack_columns::<V>(part, k, cols, width, pb) };
            Mat { ptr: pb.cast_const(), rs: width, cs: 1 }
        };
        for i in (0..m).step_by(MR) {
            let t = Tile {
                k,
                a: if in_place { a.at(i, 0).ptr } else { pa.wrapping_add(i * k).cast_const() },
                a_rs: a.rs,
                b: panel.ptr,
                b_rs: panel.rs,
                dst: dst.wrapping_add(i * dst_rs + j),
                dst_rs,
                rows: MR.min(m - i),
                cols,
                add,
            };
            // SAFETY: the right panel is as the tile reads it, the left one in place or packed for this number of
            // rows, and the tile lies in the output.
            unsafe {
                match in_place {
                    true => tile_of::<V, true, MR, NV>(t, vectors),
                    false => tile_of::<V, false, MR, NV>(t, vectors),
                }
            }
        }
        j += cols;
    }
}

/// Computes a tile with code for its number of rows and vectors.
///
/// # Safety
///
/// As for [`tile::run`].
#[inline(always)]
unsafe fn tile_of<V: Simd, const IN_PLACE: bool, const MR: usize, const NV: usize>(
    t: Tile<V::Scalar>,
    vectors: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match (t.rows, vectors) {
            (1, 8) => tile::run::<V, IN_PLACE, 1, 8>(t),
            (1, 1) => tile::run::<V, IN_PLACE, 1, 1>(t),
            (2, 1) => tile::run::<V, IN_PLACE, 2, 1>(t),
            (3 | 4, 1) => tile::run::<V, IN_PLACE, 4, 1>(t),
            (_, 1) => tile::run::<V, IN_PLACE, MR, 1>(t),
            (1, _) => tile::run::<V, IN_PLACE, 1, NV>(t),
            (2, _) => tile::run::<V, IN_PLACE, 2, NV>(t),
            (3 | 4, _) => tile::run::<V, IN_PLACE, 4, NV>(t),
            (_, _) => tile::run::<V, IN_PLACE, MR, NV>(t),
        }
    }
}
