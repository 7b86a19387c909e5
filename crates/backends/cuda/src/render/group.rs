//! Which threads take a row, and in which tree they reduce it.
//!
//! The points of a row are taken in groups of `width` neighbours, so that a thread reads several with one instruction, and the
//! groups are dealt out among `lanes` lanes: lane `t` takes the groups `g ≡ t`, point by point in order. Then the partial
//! results are combined: those of lanes equal modulo 32 in order, and the 32 that remain by halves (offset 16, 8, 4, 2, 1).
//! This [`Tree`] follows from the row's length alone and every form keeps to it, so the bits of a reduction do not tell which
//! form computed it.

use super::{Buffers, abreast};
use crate::code::PROCESSORS;
use onestep_passes::schedule::{Access, Expr, LoopKernel, TypedExpr};

/// Threads of a block.
pub const BLOCK: usize = 256;
/// Threads of a warp.
pub const WARP: usize = 32;
/// Points of a row, without reductions, that is worth a block.
const LONG_ROW: usize = 8192;
/// Bytes of a group of neighbouring points in its widest operand, at most, where no reduction says what a group is.
const GROUP_BYTES: usize = 16;
/// The most blocks of a launch; more rows are taken in a stride.
const MOST_BLOCKS: usize = PROCESSORS * 32;
/// Blocks that keep the device busy.
pub const MANY_BLOCKS: usize = PROCESSORS * 2;
/// The fewest neighbouring rows that a block takes in [`Form::Columns`]: of f32, a sector of the cache (32 bytes).
const FEWEST_COLUMNS: usize = 8;

/// How the work of a kernel is laid out over threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A thread takes a row: the shortest rows, and a group of points of kernels without reduced axes.
    Thread,
    /// A thread takes so many neighbouring columns: lanes of long ones.
    Abreast(usize),
    /// A warp takes a row along which memory is contiguous.
    Warp,
    /// A block takes such a row, or a long one of a kernel without reduced axes.
    Block,
    /// A block takes `columns` rows that are neighbours in memory, `256 / columns` threads each: reductions of columns.
    Columns {
        /// Partial results of a row.
        lanes: usize,
        /// Rows of a block: 8, 32 (a warp reads together) or 256 (a thread takes a row), by how many there are.
        columns: usize,
    },
}

/// How rows are cut into pieces that different groups of threads take. The first axis of the domain counts the pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Not at all; there is no such axis.
    Whole,
    /// A piece is so many neighbouring points of the row, which may end before the last piece does. It has a tree of its own.
    Ranges(usize),
    /// A piece is a lane of the row's tree, and a thread takes it.
    Lanes,
}

impl Cut {
    /// Points of a piece of a row of `n`, from the first to the last.
    pub fn span(self, n: usize) -> usize {
        match self {
            Cut::Ranges(length) => length,
            Cut::Whole | Cut::Lanes => n,
        }
    }
}

/// How a row is reduced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    /// Partial results of a row.
    pub lanes: usize,
    /// Neighbouring points that a lane takes at a time; a divisor of the row's length.
    pub width: usize,
}

impl Tree {
    /// Of a row of `n` points.
    pub fn of(n: usize) -> Tree {
        let lanes = match n {
            0..=8 => 1,
            9..=1024 => WARP,
            _ => BLOCK,
        };
        let most = if lanes == 1 { 8 } else { 4 };
        let fits = |w: &usize| *w <= most && n.is_multiple_of(*w) && w * lanes <= n;
        Tree { lanes, width: [8, 4, 2].into_iter().find(fits).unwrap_or(1) }
    }
}

impl Form {
    /// Rows that a block takes at a time.
    pub fn rows_per_block(self) -> usize {
        match self {
            Form::Thread | Form::Abreast(_) => BLOCK,
            Form::Warp => BLOCK / WARP,
            Form::Block => 1,
            Form::Columns { columns, .. } => columns,
        }
    }

    /// The columns that a thread takes abreast.
    pub fn abreast(self) -> Option<usize> {
        if let Form::Abreast(columns) = self { Some(columns) } else { None }
    }

    /// Threads that take a row.
    pub fn threads_per_row(self) -> usize {
        BLOCK / self.rows_per_block()
    }

    /// Neighbouring points of a row of `n` that a thread takes at a time.
    pub fn width(self, n: usize) -> usize {
        match self {
            Form::Columns { .. } => 1,
            _ => Tree::of(n).width,
        }
    }

    /// Whether the threads of a row meet in shared memory.
    pub fn shares(self) -> bool {
        match self {
            Form::Thread | Form::Abreast(_) | Form::Warp => false,
            Form::Block | Form::Columns { .. } => self.threads_per_row() > 1,
        }
    }

    /// Blocks of the launch.
    pub fn grid(self, rows: usize) -> usize {
        rows.div_ceil(self.rows_per_block()).clamp(1, MOST_BLOCKS)
    }
}

/// Chooses the form. Without reduced axes, a group of neighbouring points becomes a row.
pub fn arrange(mut k: LoopKernel, cut: Cut, buffers: Buffers<'_>) -> (LoopKernel, Form) {
    let reduces = k.body.iter().any(|e| matches!(e.expr, Expr::Reduce(..)));
    if k.extents.len() == k.parallel && !reduces {
        if has_long_rows(&k) {
            k.parallel -= 1;
            return (k, Form::Block);
        }
        return (in_groups(k, buffers), Form::Thread);
    }
    if cut == Cut::Lanes {
        return match abreast::columns(&k, buffers) {
            1 => (k, Form::Thread),
            w => (abreast::arranged(k, w), Form::Abreast(w)),
        };
    }
    arrange_rows(k, cut)
}

/// Chooses the form of a kernel with reduced axes. For columns, the parallel axis along which memory is contiguous becomes the
/// last.
pub fn arrange_rows(mut k: LoopKernel, cut: Cut) -> (LoopKernel, Form) {
    let lanes = Tree::of(cut.span(k.row_len())).lanes;
    if lanes == 1 {
        return (k, Form::Thread);
    }
    // How many elements are loaded, by those loads that vary along a row and step by one element along this axis: what a row's
    // points or a column's share weighs nothing beside what each has of its own.
    let contiguous = |axis: usize| {
        let varying = k.body.iter().zip(k.varies()).filter(|(_, v)| *v);
        let loaded = varying.filter_map(|(e, _)| match &e.expr {
            Expr::Load { access, .. } if access.place.coefs[axis].abs() == 1 => {
                let touched = access.place.coefs.iter().zip(&k.extents).filter(|(c, _)| **c != 0);
                Some(touched.fold(1usize, |n, (_, &extent)| n.saturating_mul(extent)))
            }
            _ => None,
        });
        loaded.fold(0usize, usize::saturating_add)
    };
    let along = contiguous(k.extents.len() - 1);
    let wide = |&a: &usize| k.extents[a] >= FEWEST_COLUMNS;
    let across = (0..k.parallel).filter(wide).max_by_key(|&a| (contiguous(a), a));
    match across {
        Some(axis) if contiguous(axis) > along => {
            let last = k.parallel - 1;
            k.extents[axis..=last].rotate_left(1);
            k.for_each_affine(|a| a.coefs[axis..=last].rotate_left(1));
            let columns = columns(k.rows(), lanes);
            (k, Form::Columns { lanes, columns })
        }
        _ if lanes == WARP => (k, Form::Warp),
        _ => (k, Form::Block),
    }
}

/// Neighbouring rows of a block, of `rows` in all: many, so that memory is read in long stretches, while there are blocks enough.
fn columns(rows: usize, lanes: usize) -> usize {
    let enough = |columns: &usize| rows >= columns * MANY_BLOCKS;
    // A thread that takes a row has all its partial results in registers.
    let widest = if lanes == WARP { BLOCK } else { WARP };
    [widest, WARP].into_iter().find(enough).unwrap_or(FEWEST_COLUMNS)
}

/// Whether the last axis is long and its points share something that is loaded: a block that takes them as a row loads and
/// computes that once.
fn has_long_rows(k: &LoopKernel) -> bool {
    let Some((&n, outer)) = k.extents.split_last() else { return false };
    let shared = |e: &TypedExpr| match &e.expr {
        Expr::Load { access, .. } => access.place.coefs.last() == Some(&0),
        _ => false,
    };
    n >= LONG_ROW && !outer.is_empty() && k.body.iter().any(shared)
}

/// How many neighbouring points along the last axis are 16 bytes of the widest operand that is not read again and again.
pub fn neighbours(k: &LoopKernel, buffers: Buffers<'_>) -> usize {
    let loads = k.body.iter().filter_map(|e| match &e.expr {
        Expr::Load { access, .. } => Some(access),
        _ => None,
    });
    let streams = |a: &&Access| match a.place.coefs.split_last() {
        Some((&step, outer)) => step == 1 && (outer.is_empty() || outer.iter().any(|&c| c != 0)),
        None => false,
    };
    let all = loads.chain(k.stores.iter().map(|s| &s.access)).filter(streams);
    let widest = all.map(|a| (buffers.dtype)(a.buffer).size()).max();
    let (Some(widest), Some(&extent)) = (widest, k.extents.last()) else { return 1 };
    let fits = |w: &usize| w * widest <= GROUP_BYTES && extent.is_multiple_of(*w) && extent > 0;
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// Cuts the last axis in groups of [`neighbours`].
fn in_groups(k: LoopKernel, buffers: Buffers<'_>) -> LoopKernel {
    match neighbours(&k, buffers) {
        1 => k,
        width => cut_last(k, width),
    }
}

/// Cuts the last axis in groups of `width` points, by which it divides.
pub fn cut_last(mut k: LoopKernel, width: usize) -> LoopKernel {
    let Some(last) = k.extents.len().checked_sub(1) else { return k };
    k.extents[last] /= width;
    k.extents.push(width);
    k.for_each_affine(|a| {
        let step = a.coefs[last];
        a.coefs[last] = step.saturating_mul(width as i64);
        a.coefs.push(step);
    });
    k
}
