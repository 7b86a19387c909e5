//! The iteration domain as the tape walks it: fewest axes, one group of them vectorised.
//!
//! Axes of size 1 disappear, and two neighbours of one kind (both parallel, both reduced) become one when every access
//! steps through them as through one; the order of points, and so of a row's terms, stays. Then one group of adjacent
//! axes, flattened, is what blocks are cut from:
//!
//! - **row mode**: all reduced axes. A block is a piece of one row.
//! - **column mode**: the innermost parallel axes, as few as fill a block. A block is a piece of many rows, and the
//!   reduced axes are looped over. A kernel without reduced axes is of this mode too, with one term.

use super::Mode;
use onestep_passes::schedule::{Affine, Expr, LoopKernel};
use std::ops::Range;

/// Most axes that are left after merging.
pub const MOST_AXES: usize = 12;

/// An index of each axis.
pub type Index = [usize; MOST_AXES];

/// A normalised domain.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Sizes of the merged axes.
    pub extents: Vec<usize>,
    /// How many are parallel.
    pub parallel: usize,
    /// For each merged axis, the kernel's axis whose coefficient it has.
    source: Vec<usize>,
    /// The vectorised axes.
    pub vector: Range<usize>,
    /// How blocks lie.
    pub mode: Mode,
}

/// An affine function over a [`Domain`], taken apart by how the tape walks it.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// The constant part.
    pub offset: i64,
    /// Coefficients of the other axes that have one.
    pub outer: Vec<(usize, i64)>,
    /// Coefficients of the vectorised axes.
    pub vector: Vec<i64>,
    /// The step from each element of the flattened vectorised axes to the next, when there is one such number.
    pub step: Option<i64>,
    /// The axes on which it depends, as bits.
    pub axes: u32,
}

impl Line {
    /// The value at the first element of the vectorised axes.
    #[inline]
    pub fn base(&self, index: &Index) -> i64 {
        let mut sum = self.offset;
        for &(axis, c) in &self.outer {
            sum += c * index[axis] as i64;
        }
        sum
    }

    /// The value at flat element `v` of the vectorised axes.
    pub fn at(&self, index: &Index, v: usize, domain: &Domain) -> i64 {
        let base = self.base(index);
        match self.step {
            Some(c) => base + c * v as i64,
            None => {
                let mut rest = v;
                let mut sum = base;
                for (&c, &n) in self.vector.iter().zip(domain.vector_extents()).rev() {
                    sum += c * (rest % n) as i64;
                    rest /= n;
                }
                sum
            }
        }
    }
}

impl Domain {
    /// The merged domain, before a mode is chosen.
    pub fn merged(kernel: &LoopKernel) -> Domain {
        let affines = affines(kernel);
        let mut domain =
            Domain { extents: vec![], parallel: 0, source: vec![], vector: 0..0, mode: Mode::Column };
        for axis in 0..kernel.extents.len() {
            let (n, is_parallel) = (kernel.extents[axis], axis < kernel.parallel);
            if n == 1 {
                continue;
            }
            let same_kind = is_parallel || domain.extents.len() > domain.parallel;
            let last = domain.source.last().copied().filter(|_| same_kind);
            match last {
                Some(before) if affines.iter().all(|a| a.coefs[before] == a.coefs[axis] * n as i64) => {
                    *domain.extents.last_mut().expect("there is a last axis") *= n;
                    *domain.source.last_mut().expect("there is a last axis") = axis;
                }
                _ => {
                    domain.extents.push(n);
                    domain.source.push(axis);
                    domain.parallel += is_parallel as usize;
                }
            }
        }
        domain
    }

    /// With the vectorised axes of a mode; in column mode, as few as have `block` points.
    pub fn with_mode(mut self, mode: Mode, block: usize) -> Domain {
        self.mode = mode;
        self.vector = match mode {
            Mode::Row => self.parallel..self.extents.len(),
            Mode::Column => {
                let (mut start, mut points) = (self.parallel, 1);
                while start > 0 && points < block {
                    start -= 1;
                    points *= self.extents[start];
                }
                start..self.parallel
            }
        };
        self
    }

    /// Sizes of the vectorised axes.
    pub fn vector_extents(&self) -> &[usize] {
        &self.extents[self.vector.clone()]
    }

    /// Points of the parallel axes.
    pub fn points(&self) -> usize {
        self.extents[..self.parallel].iter().product()
    }

    /// Points of the reduced axes.
    pub fn terms(&self) -> usize {
        self.extents[self.parallel..].iter().product()
    }

    /// The vectorised axes, as bits.
    pub fn vector_axes(&self) -> u32 {
        bits(self.vector.clone())
    }

    /// The reduced axes, as bits.
    pub fn reduced_axes(&self) -> u32 {
        bits(self.parallel..self.extents.len())
    }

    /// An affine function of the kernel over this domain.
    pub fn line(&self, affine: &Affine) -> Line {
        let coefs: Vec<i64> = self.source.iter().map(|&axis| affine.coefs[axis]).collect();
        let outer = (0..coefs.len())
            .filter(|axis| !self.vector.contains(axis) && coefs[*axis] != 0)
            .map(|axis| (axis, coefs[axis]))
            .collect();
        let vector = coefs[self.vector.clone()].to_vec();
        let extents = self.vector_extents();
        let last = vector.last().copied().unwrap_or(0);
        let mut expected = last;
        let mut even = true;
        for (&c, &n) in vector.iter().zip(extents).rev() {
            even &= c == expected;
            expected *= n as i64;
        }
        let axes =
            coefs.iter().enumerate().filter(|(_, c)| **c != 0).fold(0, |set, (axis, _)| set | 1 << axis);
        Line { offset: affine.offset, outer, vector, step: even.then_some(last), axes }
    }

    /// Sets the index of a run of axes from a flat place.
    pub fn unflatten(&self, index: &mut Index, axes: Range<usize>, mut flat: usize) {
        for axis in axes.rev() {
            index[axis] = flat % self.extents[axis];
            flat /= self.extents[axis];
        }
    }

    /// Moves the index of a run of axes on by one, back to the start after the end.
    #[inline]
    pub fn advance(&self, index: &mut Index, axes: Range<usize>) {
        for axis in axes.rev() {
            index[axis] += 1;
            if index[axis] < self.extents[axis] {
                return;
            }
            index[axis] = 0;
        }
    }
}

fn bits(axes: Range<usize>) -> u32 {
    axes.fold(0, |set, axis| set | 1 << axis)
}

/// Every affine function of a kernel.
fn affines(kernel: &LoopKernel) -> Vec<&Affine> {
    let mut all: Vec<&Affine> = kernel.stores.iter().map(|s| &s.access.place).collect();
    for e in &kernel.body {
        match &e.expr {
            Expr::Load { access, bounds, .. } => {
                all.push(&access.place);
                all.extend(bounds.iter().map(|b| &b.index));
            }
            Expr::Index(affine) => all.push(affine),
            _ => {}
        }
    }
    all
}
