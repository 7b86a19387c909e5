//! What a tape consists of: steps over values, in sections, and where values live.
//!
//! A value is a pointer in the run's table: to a literal, to a scalar slot or a register in scratch, or to memory (a
//! buffer, or the area of kept values) that a step points it at for each block. So an instruction never asks which.

use super::domain::{Index, Line};
use super::instr::Block;
use super::instr::random::Random;
use super::reduce::Reducer;
use super::walk::{Load, Target};
use onestep_passes::schedule::BufferId;

/// A value, by its place in the pointer table.
pub type Value = u32;

/// One step.
#[derive(Clone, Debug)]
pub enum Step {
    /// Points a value at the load's elements in its buffer.
    Point { value: Value, place: Place, load: u32 },
    /// Fills an area with a load that repeats along the vectorised axes, and so a block from any place in the period.
    Pattern { load: u32, area: usize, period: usize, length: usize },
    /// Points a value into a pattern.
    Recur { value: Value, area: usize, period: usize, size: usize },
    /// Copies the load's elements into a value.
    Gather { value: Value, load: u32, scalar: bool },
    /// The values of an affine index, as i64.
    Index { value: Value, line: u32, scalar: bool },
    /// Points a value at its place among those kept for later passes; `area` is an offset in scratch.
    Keep { value: Value, area: usize, size: usize },
    /// A copy of a block, or of a scalar into each element of one.
    Copy { value: Value, from: Value, size: usize, repeat: bool, scalar: bool },
    /// An instruction.
    Apply { f: Block, value: Value, args: [Value; 3], scalar: bool },
    /// An instruction whose result goes straight to a buffer, or by way of the spare register (an offset in scratch)
    /// where an operand is that very memory.
    ApplyOut { f: Block, value: Value, args: [Value; 3], place: Place, size: usize, spare: usize },
    /// Random bits of scalar key words and step.
    Random {
        f: Random,
        value: Value,
        key: [Value; 2],
        counter: Value,
        index: Value,
        stream: u64,
        scalar: bool,
    },
    /// Random bits of key words and steps that vary: all operands are blocks.
    RandomEach { f: Random, value: Value, key: [Value; 2], counter: Value, index: Value, stream: u64 },
    /// Adds a block, or a term of many rows, to an accumulator.
    Reduce { accumulator: u32, value: Value },
    /// Writes a value to a buffer.
    Store { value: Value, target: u32, scalar: bool },
}

impl Step {
    /// The values that it reads.
    pub fn uses(&self) -> Vec<Value> {
        match self {
            Step::Point { .. } | Step::Pattern { .. } | Step::Recur { .. } => vec![],
            Step::Gather { .. } | Step::Index { .. } | Step::Keep { .. } => vec![],
            Step::Copy { from, .. } => vec![*from],
            Step::Apply { args, .. } | Step::ApplyOut { args, .. } => args.to_vec(),
            Step::Random { key, counter, index, .. } | Step::RandomEach { key, counter, index, .. } => {
                vec![key[0], key[1], *counter, *index]
            }
            Step::Reduce { value, .. } | Step::Store { value, .. } => vec![*value],
        }
    }

    /// The value that it computes into storage of the value's own.
    pub fn defines(&self) -> Option<Value> {
        match self {
            Step::Gather { value, .. }
            | Step::Index { value, .. }
            | Step::Copy { value, .. }
            | Step::Apply { value, .. }
            | Step::ApplyOut { value, .. }
            | Step::Random { value, .. }
            | Step::RandomEach { value, .. } => Some(*value),
            _ => None,
        }
    }
}

/// Where a block begins in a buffer, in bytes: a line whose elements are adjacent, or one and the same.
#[derive(Clone, Debug)]
pub struct Place {
    pub buffer: u32,
    pub offset: isize,
    /// Bytes from each element of the vectorised axes to the next.
    pub step: isize,
    /// Coefficients of the other axes, in bytes.
    pub outer: Box<[(u32, isize)]>,
}

impl Place {
    /// Of a line with a step.
    pub fn new(buffer: BufferId, line: &Line, size: usize) -> Place {
        let bytes = |elements: i64| elements as isize * size as isize;
        Place {
            buffer: buffer.0,
            offset: bytes(line.offset),
            step: bytes(line.step.unwrap_or(0)),
            outer: line.outer.iter().map(|&(axis, c)| (axis as u32, bytes(c))).collect(),
        }
    }

    /// The offset of element `v` of the vectorised axes.
    #[inline(always)]
    pub fn at(&self, index: &Index, v: usize) -> isize {
        let mut sum = self.offset + self.step * v as isize;
        for &(axis, c) in &*self.outer {
            sum += c * index[axis as usize] as isize;
        }
        sum
    }
}

/// A reduction in progress.
#[derive(Clone)]
pub struct Accumulator {
    /// Its instructions.
    pub reducer: Reducer,
    /// Bytes of an element.
    pub size: usize,
    /// Where the lanes lie in scratch: elements in row mode, blocks in column mode.
    pub lanes: usize,
    /// Where the total lies in scratch: an element or a block.
    pub total: usize,
    /// Where its partial results lie in the shared memory of a split reduction.
    pub partials: usize,
    /// In column mode, whether all rows of a block have the same value.
    pub scalar: bool,
}

/// A pass of column mode that reduces a load as it is, over one axis.
pub struct Sum {
    pub accumulator: u32,
    pub place: Place,
    /// The reduced axis.
    pub axis: usize,
    /// Bytes from term to term.
    pub stride: isize,
}

/// A compiled body.
#[derive(Default)]
pub struct Program {
    /// Once for each chunk.
    pub chunk: Vec<Step>,
    /// Once for each point of the axes outside the vectorised ones (column mode).
    pub outer: Vec<Step>,
    /// By stage: once for each row, or block of rows, when the reductions of the stage are known.
    pub rows: Vec<Vec<Step>>,
    /// By pass: for each block of a row, or each term of a block of rows.
    pub terms: Vec<Vec<Step>>,
    /// By pass, whether it is a plain sum (or maximum …) over a load.
    pub sums: Vec<Option<Sum>>,
    /// The accumulators of each pass: a range of `accumulators`.
    pub pass_accumulators: Vec<std::ops::Range<usize>>,
    /// Stores of row values, at the end of each row or block of rows.
    pub last: Vec<Step>,
    /// All accumulators.
    pub accumulators: Vec<Accumulator>,
    /// All loads.
    pub loads: Vec<Load>,
    /// All store targets.
    pub targets: Vec<Target>,
    /// All index lines.
    pub lines: Vec<Line>,
    /// Bits of literals.
    pub literals: Vec<u64>,
    /// Values at fixed offsets in scratch.
    pub fixed: Vec<(Value, usize)>,
    /// Values that are literals.
    pub constant: Vec<(Value, usize)>,
    /// Elements of a block.
    pub block: usize,
    /// Where the pointer table lies in scratch.
    pub table: usize,
    /// Bytes of scratch, the table included.
    pub scratch: usize,
}
