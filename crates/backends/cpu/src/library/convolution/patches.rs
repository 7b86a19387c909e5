//! Patches: for each place of the output one column with what the kernel meets there, channel by channel, element by
//! element. A block of columns is copied out of the input, or added back into its gradient.
//!
//! Columns of one row of the output, met by one element of the kernel, are adjacent in the input when the stride is 1:
//! both directions work on such runs.

use super::super::gemm::Scalar;
use super::Geometry;
use std::ops::Range;

/// Adjacent columns of a block that one element of the kernel takes from one row of the input.
#[derive(Clone, Copy)]
struct Run {
    /// First column, within the block.
    column: usize,
    /// Columns that meet padding before and behind the others.
    before: usize,
    behind: usize,
    /// Columns that meet the input; 0 if all is padding.
    length: usize,
    /// Where the first of them is in a channel of the input.
    from: usize,
    /// The row of the first channel.
    row: usize,
}

/// Calls `f` with every run of a block of places.
#[inline(always)]
fn each_run(g: &Geometry, places: Range<usize>, mut f: impl FnMut(Run)) {
    let [_, oh, ow] = g.out;
    let mut p = places.start;
    while p < places.end {
        let (row, x) = (p / ow, p % ow);
        let (d, y) = (row / oh, row % oh);
        let count = (ow - x).min(places.end - p);
        let column = p - places.start;
        for kx in 0..g.kernel[2] {
            // Columns `x ..` of the output row read `x·stride + shift − low` of the input row.
            let (stride, shift, low) = (g.stride[2], kx * g.dilation[2], g.low[2]);
            let first = low.saturating_sub(shift).div_ceil(stride).clamp(x, x + count);
            let end = (g.input[2] + low).saturating_sub(shift).div_ceil(stride).clamp(first, x + count);
            for kd in 0..g.kernel[0] {
                for ky in 0..g.kernel[1] {
                    let at = |axis: usize, o: usize, k: usize| {
                        let place = o * g.stride[axis] + k * g.dilation[axis];
                        place.checked_sub(g.low[axis]).filter(|&i| i < g.input[axis])
                    };
                    let row = (kd * g.kernel[1] + ky) * g.kernel[2] + kx;
                    let run = match (at(0, d, kd), at(1, y, ky)) {
                        (Some(z), Some(y)) if end > first => Run {
                            column,
                            before: first - x,
                            behind: x + count - end,
                            length: end - first,
                            from: (z * g.input[1] + y) * g.input[2] + first * stride + shift - low,
                            row,
                        },
                        _ => Run { column, before: count, behind: 0, length: 0, from: 0, row },
                    };
                    f(run);
                }
            }
        }
        p += count;
    }
}

/// Copies, eight at a time: runs are too short for a call.
///
/// # Safety
///
/// Both are valid for `n` elements and do not overlap.
#[inline(always)]
unsafe fn copy<T: Copy>(from: *const T, to: *mut T, n: usize) {
    let mut i = 0;
    // SAFETY: elements below `n`, by the contract.
    unsafe {
        while i + 8 <= n {
            *to.add(i).cast::<[T; 8]>() = *from.add(i).cast::<[T; 8]>();
            i += 8;
        }
        while i < n {
            *to.add(i) = *from.add(i);
            i += 1;
        }
    }
}

/// Writes the patches of a block of places, for `channels` channels from `x` on: row `r`, column `c` at `to[r·row_stride + c]`.
///
/// # Safety
///
/// `x` is readable for the channels, `to` is writable at the patches' rows and the block's columns, and they do not
/// overlap.
#[inline(always)]
pub(super) unsafe fn gather<T: Scalar>(
    g: &Geometry,
    x: *const T,
    channels: usize,
    places: Range<usize>,
    to: *mut T,
    row_stride: usize,
) {
    let (pixels, taps, stride) = (g.pixels(), g.taps(), g.stride[2]);
    each_run(g, places, |run| {
        for c in 0..channels {
            // SAFETY: the run's columns of row `c · taps + run.row` lie in `to`; its elements of channel `c` lie in `x`, as
            // `each_run` clips them to the input's row.
            unsafe {
                let to = to.add((c * taps + run.row) * row_stride + run.column);
                for i in 0..run.before {
                    *to.add(i) = T::ZERO;
                }
                let from = x.add(c * pixels + run.from);
                let to = to.add(run.before);
                if stride == 1 {
                    copy(from, to, run.length);
                } else {
                    for i in 0..run.length {
                        *to.add(i) = *from.add(i * stride);
                    }
                }
                for i in run.length..run.length + run.behind {
                    *to.add(i) = T::ZERO;
                }
            }
        }
    });
}

/// Adds the patches of a block of places, laid out as [`gather`] writes them, to the `channels` channels from `x` on.
///
/// # Safety
///
/// As for [`gather`], with `x` writable and `from` readable.
#[inline(always)]
pub(super) unsafe fn scatter<T: Scalar>(
    g: &Geometry,
    x: *mut T,
    channels: usize,
    places: Range<usize>,
    from: *const T,
    row_stride: usize,
) {
    let (pixels, taps, stride) = (g.pixels(), g.taps(), g.stride[2]);
    each_run(g, places, |run| {
        if run.length == 0 {
            return;
        }
        for c in 0..channels {
            // SAFETY: as in `gather`, with the directions exchanged; nothing else refers to these elements.
            unsafe {
                let from = from.add((c * taps + run.row) * row_stride + run.column + run.before);
                let to = x.add(c * pixels + run.from);
                if stride == 1 {
                    let to = std::slice::from_raw_parts_mut(to, run.length);
                    let from = std::slice::from_raw_parts(from, run.length);
                    to.iter_mut().zip(from).for_each(|(x, &y)| *x = *x + y);
                } else {
                    for i in 0..run.length {
                        let to = to.add(i * stride);
                        *to = *to + *from.add(i);
                    }
                }
            }
        }
    });
}
