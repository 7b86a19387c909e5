//! The rows of an attention's scores: soft cap, masking, the softmax, and its gradient, in place and vectorised.
//!
//! A row's bits depend on the row alone: sums run in [`LANES`] lanes by position, and what a row may not see contributes
//! an exact 0. So neither the block of queries nor its neighbours show, nor how far the block reaches, which begins at a
//! multiple of the lanes.

use super::gemm::{Isa, Scalar};
use onestep_ir::ops::Band;
use std::ops::Range;

/// Partial sums of a row.
pub(super) const LANES: usize = 16;

/// A mask for a block of scores.
#[derive(Clone, Copy)]
pub(super) enum Mask<T> {
    /// Everything may be seen.
    None,
    /// Added to the scores.
    Add(*const T),
    /// 0 where nothing may be seen.
    Allow(*const u8),
}

/// A block of scores, `rows` × `columns`, each row `stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Block<T> {
    pub scores: *mut T,
    pub stride: usize,
    pub rows: usize,
    pub columns: usize,
    /// Multiplies the scores.
    pub scale: T,
    /// The bound that scaled scores approach.
    pub softcap: Option<T>,
    /// Which keys each query sees.
    pub band: Band,
    /// The number of the first row's query and of the first column's key.
    pub first: [usize; 2],
    pub mask: Mask<T>,
    /// Distance of the mask's rows and columns.
    pub mask_strides: (usize, usize),
}

impl<T: Scalar> Block<T> {
    /// Row `r` of a block of this form at `scores`, and which of its columns it sees.
    ///
    /// # Safety
    ///
    /// The block's storage exists and nothing else refers to it.
    #[inline(always)]
    unsafe fn row<'a>(&self, scores: *mut T, r: usize) -> (&'a mut [T], Range<usize>) {
        let [query, key] = self.first;
        let seen = self.band.keys(query + r);
        let column = |j: usize| j.saturating_sub(key).min(self.columns);
        // SAFETY: row `r` has `columns` elements, by the contract.
        let row = unsafe { std::slice::from_raw_parts_mut(scores.add(r * self.stride), self.columns) };
        (row, column(seen.start)..column(seen.end))
    }

    /// Masks what row `r` sees, `row` being that, from column `from` on; and scales it if there is a mask, unless it is
    /// capped, which scales it too.
    ///
    /// # Safety
    ///
    /// The mask has the block's rows and columns.
    #[inline(always)]
    unsafe fn mask(&self, r: usize, from: usize, row: &mut [T]) {
        let (rs, cs) = self.mask_strides;
        let place = r * rs + from * cs;
        let scale = if self.softcap.is_some() { T::ONE } else { self.scale };
        match self.mask {
            Mask::None => {}
            Mask::Add(mask) => {
                for (j, x) in row.iter_mut().enumerate() {
                    // SAFETY: element `(r, from + j)` of the mask exists.
                    *x = *x * scale + unsafe { *mask.add(place + j * cs) };
                }
            }
            Mask::Allow(mask) => {
                for (j, x) in row.iter_mut().enumerate() {
                    // SAFETY: element `(r, from + j)` of the mask exists.
                    let allowed = unsafe { *mask.add(place + j * cs) } != 0;
                    *x = if allowed { *x * scale } else { T::NEG_INFINITY };
                }
            }
        }
    }

    /// What a row's scores are still to be multiplied by, once it is capped and masked.
    #[inline(always)]
    fn rest_of_scale(&self) -> T {
        let scaled = self.softcap.is_some() || !matches!(self.mask, Mask::None);
        if scaled { T::ONE } else { self.scale }
    }
}

/// The seen part of a row, with as much of the rest as fills the first and the last block; there the first element is
/// repeated, which changes no maximum. So no row of a banded block has an odd end.
#[inline(always)]
fn pad<T: Scalar>(row: &mut [T], seen: Range<usize>) -> &mut [T] {
    if seen.is_empty() {
        return &mut row[..0];
    }
    let (start, end) = (seen.start / LANES * LANES, row.len().min(seen.end.next_multiple_of(LANES)));
    let first = row[seen.start];
    row[start..seen.start].fill(first);
    for x in &mut row[seen.end..end] {
        *x = first;
    }
    &mut row[start..end]
}

/// Makes what a row does not see 0.
#[inline(always)]
fn clear<T: Scalar>(row: &mut [T], seen: Range<usize>) {
    row[..seen.start].fill(T::ZERO);
    row[seen.end..].fill(T::ZERO);
}

/// Reduces in lanes by position, then by halves.
#[inline(always)]
fn reduce<T: Scalar>(row: &[T], start: T, join: impl Fn(T, T) -> T) -> T {
    let mut lanes = [start; LANES];
    let (blocks, rest) = row.as_chunks::<LANES>();
    for block in blocks {
        for i in 0..LANES {
            lanes[i] = join(lanes[i], block[i]);
        }
    }
    for (l, &x) in lanes.iter_mut().zip(rest) {
        *l = join(*l, x);
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] = join(lanes[i], lanes[i + width]);
        }
    }
    lanes[0]
}

/// Replaces each element by `f` of it. In blocks, the last one padded: a row's end is then no slower than its middle.
#[inline(always)]
fn map<T: Scalar>(row: &mut [T], f: impl Fn(T) -> T) {
    let (blocks, rest) = row.as_chunks_mut::<LANES>();
    for block in blocks {
        for i in 0..LANES {
            block[i] = f(block[i]);
        }
    }
    if !rest.is_empty() {
        let mut block = [T::ZERO; LANES];
        block[..rest.len()].copy_from_slice(rest);
        for i in 0..LANES {
            block[i] = f(block[i]);
        }
        rest.copy_from_slice(&block[..rest.len()]);
    }
}

/// Turns scores into `exp(score − shift)`; writes each row's `1 / sum` (0 for a row that sees nothing) and log-sum-exp.
#[inline(always)]
unsafe fn forward_body<T: Scalar>(block: Block<T>, inverse: &mut [T], lse: *mut T) {
    for r in 0..block.rows {
        // SAFETY: the caller's contract.
        let (row, seen) = unsafe { block.row(block.scores, r) };
        if let Some(cap) = block.softcap {
            let factor = block.scale / cap;
            map(&mut row[seen.clone()], |x| cap * T::tanh(x * factor));
        }
        // SAFETY: the caller's contract.
        unsafe { block.mask(r, seen.start, &mut row[seen.clone()]) };
        let part = pad(row, seen.clone());
        let scale = block.rest_of_scale();
        // The largest product is the product of the largest, or of the smallest: rounding keeps the order.
        let extreme = match scale < T::ZERO {
            true => reduce(part, T::ZERO - T::NEG_INFINITY, |a, b| if b < a { b } else { a }),
            false => reduce(part, T::NEG_INFINITY, |a, b| if b > a { b } else { a }),
        };
        let top = if part.is_empty() { T::NEG_INFINITY } else { extreme * scale };
        let shift = if top == T::NEG_INFINITY { T::ZERO } else { top };
        map(part, |x| T::exp(x * scale - shift));
        clear(row, seen);
        let sum = reduce(row, T::ZERO, |a, b| a + b);
        inverse[r] = if sum == T::ZERO { T::ZERO } else { T::ONE / sum };
        // SAFETY: there is a place for each row.
        unsafe { *lse.add(r) = shift + T::log(sum) };
    }
}

/// Where the gradient of the weights is taken to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    /// The products of queries and keys.
    Products,
    /// The masked scores, which is to the mask.
    Mask,
}

/// Turns scores into weights `exp(score − lse)`, and `grads`, the gradient of the weights, into `weight · (grad − delta)`,
/// that of the masked scores, and on through cap and scale.
#[inline(always)]
unsafe fn backward_body<T: Scalar>(block: Block<T>, grads: *mut T, lse: &[T], delta: &[T], to: To) {
    for r in 0..block.rows {
        // SAFETY: the caller's contract; `grads` is a block of the same form.
        let ((row, seen), (grad, _)) = unsafe { (block.row(block.scores, r), block.row(grads, r)) };
        if lse[r] == T::NEG_INFINITY {
            row.fill(T::ZERO);
            grad.fill(T::ZERO);
            continue;
        }
        let (lse, mut delta) = (lse[r], delta[r]);
        if let Some(cap) = block.softcap {
            let factor = block.scale / cap;
            map(&mut row[seen.clone()], |x| T::tanh(x * factor));
            for (x, g) in row[seen.clone()].iter_mut().zip(&mut grad[seen.clone()]) {
                let slope = if to == To::Products { T::ONE - *x * *x } else { T::ONE };
                *g = (*g - delta) * slope;
                *x = *x * cap;
            }
            delta = T::ZERO;
        }
        // SAFETY: the caller's contract.
        unsafe { block.mask(r, seen.start, &mut row[seen.clone()]) };
        let scale = block.rest_of_scale();
        map(pad(row, seen.clone()), |x| T::exp(x * scale - lse));
        clear(row, seen.clone());
        clear(grad, seen.clone());
        let factor = if to == To::Products { block.scale } else { T::ONE };
        for (&weight, g) in row[seen.clone()].iter().zip(&mut grad[seen]) {
            *g = weight * (*g - delta) * factor;
        }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! with_features {
    ($forward:ident, $backward:ident, $features:literal) => {
        #[target_feature(enable = $features)]
        unsafe fn $forward<T: Scalar>(block: Block<T>, inverse: &mut [T], lse: *mut T) {
            // SAFETY: the caller's contract.
            unsafe { forward_body(block, inverse, lse) }
        }
        #[target_feature(enable = $features)]
        unsafe fn $backward<T: Scalar>(block: Block<T>, grads: *mut T, lse: &[T], delta: &[T], to: To) {
            // SAFETY: the caller's contract.
            unsafe { backward_body(block, grads, lse, delta, to) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
with_features!(forward_avx2, backward_avx2, "avx2");
#[cfg(target_arch = "x86_64")]
with_features!(forward_avx512, backward_avx512, "avx512f,avx2");

/// The softmax of a block of scores, up to the factor that `inverse` holds for each row.
///
/// # Safety
///
/// The block and its mask exist at its sizes, and nothing else refers to the scores; `lse` is writable for its rows;
/// `isa` is available.
pub(super) unsafe fn forward<T: Scalar>(isa: Isa, block: Block<T>, inverse: &mut [T], lse: *mut T) {
    // SAFETY: the caller's contract; `isa` is available.
    unsafe {
        match isa {
            Isa::Portable => forward_body(block, inverse, lse),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => forward_avx2(block, inverse, lse),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => forward_avx512(block, inverse, lse),
        }
    }
}

/// The weights of a block of scores, and from their gradient that of what they are made of.
///
/// # Safety
///
/// As for [`forward`], and `grads` is a block of the same form.
pub(super) unsafe fn backward<T: Scalar>(
    isa: Isa,
    block: Block<T>,
    grads: *mut T,
    lse: &[T],
    delta: &[T],
    to: To,
) {
    // SAFETY: the caller's contract; `isa` is available.
    unsafe {
        match isa {
            Isa::Portable => backward_body(block, grads, lse, delta, to),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => backward_avx2(block, grads, lse, delta, to),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => backward_avx512(block, grads, lse, delta, to),
        }
    }
}
