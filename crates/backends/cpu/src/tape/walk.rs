//! Loads, stores and indices whose elements are not simply adjacent.
//!
//! A block of the flattened vectorised axes is walked run by run: a run is a piece along the innermost axis, where
//! every affine function has one step. A bound holds on an interval of a run, so that padding costs two fills and a copy.

use super::domain::{Domain, Index, Line};
use super::instr::copy;
use onestep_passes::schedule::BufferId;

/// A condition under which an element exists.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    /// The tested index.
    pub index: Line,
    /// One more than the largest that exists.
    pub size: i64,
    /// Distance of those that exist.
    pub step: i64,
}

/// A load that the tape carries out.
#[derive(Clone, Debug)]
pub struct Load {
    /// From where.
    pub buffer: BufferId,
    /// The element.
    pub place: Line,
    /// Bytes of an element.
    pub size: usize,
    /// All hold, or the element is `fill`.
    pub bounds: Vec<Condition>,
    /// Bits.
    pub fill: u64,
}

/// A store that the tape carries out.
#[derive(Clone, Debug)]
pub struct Target {
    /// To where.
    pub buffer: BufferId,
    /// The element.
    pub place: Line,
    /// Bytes of an element.
    pub size: usize,
}

/// Calls `run(start, n, i)` for each run of elements `v..v + n` of the vectorised axes: the run begins `start` elements
/// into the block, has `n`, and its first element has index `i` on the vectorised axes.
fn runs(domain: &Domain, v: usize, n: usize, mut run: impl FnMut(usize, usize, &[usize])) {
    // A row of no terms still takes its (empty) steps; its extents may be 0.
    if n == 0 {
        return;
    }
    let extents = domain.vector_extents();
    let mut index = [0; super::domain::MOST_AXES];
    let rank = extents.len();
    let mut rest = v;
    for axis in (0..rank).rev() {
        index[axis] = rest % extents[axis];
        rest /= extents[axis];
    }
    let mut done = 0;
    while done < n {
        let length = match rank {
            0 => n - done,
            _ => (extents[rank - 1] - index[rank - 1]).min(n - done),
        };
        run(done, length, &index[..rank]);
        done += length;
        for axis in (0..rank).rev() {
            index[axis] = if axis == rank - 1 { index[axis] + length } else { index[axis] + 1 };
            if index[axis] < extents[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// A line's value at an index of the vectorised axes, given its base.
fn along(line: &Line, base: i64, index: &[usize]) -> i64 {
    line.vector.iter().zip(index).fold(base, |sum, (&c, &i)| sum + c * i as i64)
}

/// A line's step along a run.
fn run_step(line: &Line) -> i64 {
    line.vector.last().copied().unwrap_or(0)
}

impl Load {
    /// Loads elements `v..v + n` into a register.
    ///
    /// # Safety
    ///
    /// `from` is the buffer's storage, which holds every element that exists; `to` has room and overlaps none of them.
    pub unsafe fn gather(
        &self,
        domain: &Domain,
        index: &Index,
        v: usize,
        n: usize,
        from: *const u8,
        to: *mut u8,
    ) {
        let base = self.place.base(index);
        if self.bounds.is_empty()
            && let Some(c) = self.place.step
        {
            // SAFETY: the elements exist by the caller's promise.
            unsafe {
                let first = from.offset((base + c * v as i64) as isize * self.size as isize);
                return copy::gather(self.size, to, first, c, n);
            }
        }
        let c = run_step(&self.place);
        let fill = (&raw const self.fill).cast::<u8>();
        runs(domain, v, n, |start, length, i| {
            let place = along(&self.place, base, i);
            let (inside, sparse) = self.interval(index, i, length);
            // SAFETY: the run lies in the register; `interval` keeps the copies to elements that exist.
            unsafe {
                let to = to.add(start * self.size);
                let element = |k: usize| from.offset((place + c * k as i64) as isize * self.size as isize);
                copy::repeat(self.size, to, fill, inside.0);
                if sparse {
                    for k in inside.0..inside.1 {
                        let source = if self.exists(index, i, k) { element(k) } else { fill };
                        copy::gather(self.size, to.add(k * self.size), source, 1, 1);
                    }
                } else if inside.0 < inside.1 {
                    let length = inside.1 - inside.0;
                    copy::gather(self.size, to.add(inside.0 * self.size), element(inside.0), c, length);
                }
                copy::repeat(self.size, to.add(inside.1 * self.size), fill, length - inside.1);
            }
        });
    }

    /// The number of elements after which a block of the vectorised axes repeats: those of the innermost axes on which
    /// it lies dense, when it does not depend on the others of the group.
    pub fn period(&self, domain: &Domain) -> Option<usize> {
        if !self.bounds.is_empty()
            || self.place.step.is_some()
            || self.place.axes & domain.reduced_axes() != 0
        {
            return None;
        }
        let mut period = 1;
        let mut axes = self.place.vector.iter().zip(domain.vector_extents()).rev().peekable();
        while let Some((_, &n)) = axes.next_if(|&(&c, _)| c == period as i64) {
            period *= n;
        }
        axes.all(|(&c, _)| c == 0).then_some(period)
    }

    /// The part of a run in which every index lies in its range, and whether a step is left to test there.
    fn interval(&self, index: &Index, i: &[usize], length: usize) -> ((usize, usize), bool) {
        let (mut low, mut high, mut sparse) = (0, length as i64, false);
        for b in &self.bounds {
            let (first, c) = (along(&b.index, b.index.base(index), i), run_step(&b.index));
            sparse |= b.step != 1;
            // 0 <= first + c k < size
            match c {
                0 if first < 0 || first >= b.size => high = 0,
                0 => {}
                c if c > 0 => {
                    low = low.max((-first + c - 1).div_euclid(c));
                    high = high.min((b.size - first + c - 1).div_euclid(c));
                }
                c => {
                    low = low.max((first - b.size).div_euclid(-c) + 1);
                    high = high.min(first.div_euclid(-c) + 1);
                }
            }
        }
        let high = high.clamp(0, length as i64);
        let low = low.clamp(0, high);
        ((low as usize, high as usize), sparse)
    }

    /// Whether element `k` of a run exists.
    fn exists(&self, index: &Index, i: &[usize], k: usize) -> bool {
        self.bounds.iter().all(|b| {
            let x = along(&b.index, b.index.base(index), i) + run_step(&b.index) * k as i64;
            0 <= x && x < b.size && x % b.step == 0
        })
    }
}

impl Target {
    /// Stores elements `v..v + n` of a block.
    ///
    /// # Safety
    ///
    /// `to` is the buffer's storage, which holds every element; `from` has `n`, and may be the very elements written when
    /// they are adjacent.
    pub unsafe fn scatter(
        &self,
        domain: &Domain,
        index: &Index,
        v: usize,
        n: usize,
        to: *mut u8,
        from: *const u8,
    ) {
        let base = self.place.base(index);
        let place = |element: i64| element as isize * self.size as isize;
        if let Some(c) = self.place.step {
            // SAFETY: the elements exist by the caller's promise.
            unsafe {
                return copy::scatter(self.size, to.offset(place(base + c * v as i64)), c, from, n);
            }
        }
        let c = run_step(&self.place);
        runs(domain, v, n, |start, length, i| {
            // SAFETY: as above, for a part of them.
            unsafe {
                let to = to.offset(place(along(&self.place, base, i)));
                copy::scatter(self.size, to, c, from.add(start * self.size), length);
            }
        });
    }
}

/// Writes the values of an affine index for elements `v..v + n`.
///
/// # Safety
///
/// `to` has room for them.
pub unsafe fn indices(line: &Line, domain: &Domain, index: &Index, v: usize, n: usize, to: *mut i64) {
    // SAFETY: by the caller's promise.
    let to = unsafe { std::slice::from_raw_parts_mut(to, n) };
    let base = line.base(index);
    let mut fill = |start: usize, length: usize, first: i64, c: i64| {
        for (k, d) in to[start..start + length].iter_mut().enumerate() {
            *d = first + c * k as i64;
        }
    };
    match line.step {
        Some(c) => fill(0, n, base + c * v as i64, c),
        None => {
            runs(domain, v, n, |start, length, i| fill(start, length, along(line, base, i), run_step(line)))
        }
    }
}
