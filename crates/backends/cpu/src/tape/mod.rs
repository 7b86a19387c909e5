//! Loop kernels as block tapes: each expression an instruction over a block of elements that stays in the first-level
//! cache, called through a pointer; so a fused body costs one pass over memory and some nanoseconds a block.
//!
//! ```text
//! LoopKernel ─domain─► fewest axes, row or column mode ─lower─► nodes ─compile, registers─► Program ─run─► memory
//! ```
//!
//! [`domain`] says how the domain is walked, [`reduce`] in which order reductions add, `compile` what is computed where
//! and what is kept between passes. The bits of a result depend on neither mode nor chunks nor instruction set.
//!
//! **In place.** A store's buffer may be the storage of a loaded buffer when both accesses have the same map and the
//! load's last use is in no later stage than the store: in each block the loads of a stage come before its stores,
//! chunks are disjoint, and row values are stored last.

mod compile;
pub mod domain;
mod instr;
mod lower;
pub mod reduce;
mod registers;
mod run;
mod step;
mod walk;

use crate::error::CpuError;
use domain::{Domain, MOST_AXES};
pub use instr::Isa;
use lower::NodeOp;
use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, Expr, LoopKernel};
use reduce::SEGMENT;
use run::{Part, Run};
use std::ops::Range;
use step::Program;

/// How blocks lie in the domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Along a row's terms.
    Row,
    /// Across rows.
    Column,
}

/// What is otherwise chosen by the kernel and the processor. But for `whole_rows`, for tests and measurements.
#[derive(Clone, Copy, Default, Debug)]
pub struct Options {
    /// The instructions.
    pub isa: Option<Isa>,
    /// The mode. Kernels without reduced axes have one mode only.
    pub mode: Option<Mode>,
    /// Elements of a block, in column mode.
    pub block: Option<usize>,
    /// Whether rows stay whole, so that there is one phase and [`LoopTape::run_rows`] can run any of them.
    pub whole_rows: bool,
}

/// A compiled loop kernel.
///
/// It runs in one or two phases of chunks; the chunks of a phase may run in any order, on any threads.
pub struct LoopTape {
    program: Program,
    domain: Domain,
    /// Points of the parallel axes in a row of [`LoopTape::run_rows`].
    unit: usize,
    /// Points of a chunk.
    grain: usize,
    split: Option<Split>,
    scratch: usize,
    shared: usize,
}

/// A reduction whose rows are split over chunks.
#[derive(Clone, Copy, Debug)]
struct Split {
    /// Segments of a chunk.
    segments: usize,
    /// Points of a chunk.
    points: usize,
}

/// Elements of a block of a kernel without reductions.
const BLOCK: usize = 512;
/// The same where operands come from memory: streams that take turns in short bursts keep it busier.
const SHORT_BLOCK: usize = 256;
/// Bytes above which operands are taken to come from memory.
const BEYOND_CACHE: usize = 2 << 20;
/// Elements of a block of column mode, most.
const COLUMN_BLOCK: usize = 128;
/// Elements that column mode keeps between passes, for each value.
const KEPT: usize = 64 << 10;
/// Bytes that a chunk moves, about.
const CHUNK_BYTES: usize = 48 << 10;
/// Chunks of a large kernel, and the most bytes that each then moves.
const MANY_CHUNKS: usize = 256;
const LARGE_CHUNK_BYTES: usize = 512 << 10;
/// Fewest chunks of a kernel large enough to be shared.
const FEW_CHUNKS: usize = 16;
/// Bytes above which a kernel of fewer chunks is split by segments.
const SPLIT_BYTES: usize = 256 << 10;

impl LoopTape {
    /// Compiles a kernel over buffers of the given dtypes.
    pub fn new(kernel: &LoopKernel, dtype_of: &dyn Fn(BufferId) -> DType) -> Result<LoopTape, CpuError> {
        LoopTape::with(kernel, dtype_of, Options::default())
    }

    /// The same, with some choices made.
    pub fn with(
        kernel: &LoopKernel,
        dtype_of: &dyn Fn(BufferId) -> DType,
        options: Options,
    ) -> Result<LoopTape, CpuError> {
        lower::check(kernel, dtype_of)?;
        let merged = Domain::merged(kernel);
        if merged.extents.len() > MOST_AXES {
            return Err(CpuError::Rank { rank: merged.extents.len(), most: MOST_AXES });
        }
        let mode = match options.mode {
            Some(mode) if merged.parallel < merged.extents.len() => mode,
            _ => choose_mode(kernel, &merged),
        };
        let wanted = options.block.unwrap_or_else(|| choose_block(kernel, &merged));
        let domain = merged.with_mode(mode, wanted);
        let group: usize = domain.vector_extents().iter().product();
        let block = match mode {
            // A block is a segment.
            Mode::Row => SEGMENT.min(group.next_multiple_of(16).max(16)),
            Mode::Column => wanted.min(group.next_multiple_of(16).max(16)),
        };

        let lowered = lower::lower(kernel, &domain);
        let targets: Vec<walk::Target> = kernel
            .stores
            .iter()
            .map(|s| walk::Target {
                buffer: s.access.buffer,
                place: domain.line(&s.access.place),
                size: dtype_of(s.access.buffer).size(),
            })
            .collect();

        // Bytes moved for each point of the parallel axes.
        let terms = domain.terms();
        let times = |axes: u32| if axes & domain.reduced_axes() != 0 { terms } else { 1 };
        let loads = lowered.nodes.iter().map(|n| match &n.op {
            NodeOp::Load(load) => load.size * times(n.axes),
            NodeOp::Unary(_) | NodeOp::Composed { .. } => 8 * times(n.axes),
            NodeOp::Random(_) => 32 * times(n.axes),
            _ => times(n.axes),
        });
        let stores = targets.iter().map(|t| t.size * times(t.place.axes));
        let bytes = loads.chain(stores).sum::<usize>().max(1);

        let isa = options.isa.unwrap_or_else(Isa::detect);
        let mut program = compile::compile(&lowered, targets, &domain, block, isa)?;
        let points = domain.points();
        let step = if mode == Mode::Column { block } else { 1 };
        let all_bytes = points.saturating_mul(bytes);
        let chunk_bytes = (all_bytes / MANY_CHUNKS).clamp(CHUNK_BYTES, LARGE_CHUNK_BYTES);
        let grain = (chunk_bytes / bytes).max(1).next_multiple_of(step);

        let single = program.terms.iter().skip(1).all(Vec::is_empty)
            && program.pass_accumulators.iter().skip(1).all(Range::is_empty)
            && !program.accumulators.is_empty();
        let segments = terms.div_ceil(SEGMENT);
        let few = points.div_ceil(grain) < FEW_CHUNKS && all_bytes > SPLIT_BYTES;
        let split = (single && few && segments > 1 && !options.whole_rows).then(|| {
            let points = step.min(points).max(1);
            let segment_bytes = (bytes / segments).max(1) * points;
            Split { segments: (CHUNK_BYTES / segment_bytes).clamp(1, segments), points }
        });
        let mut shared = 0;
        if split.is_some() {
            for a in &mut program.accumulators {
                a.partials = shared;
                shared += (segments * points * a.size).next_multiple_of(64);
            }
        }
        // Room to align both.
        let scratch = program.scratch + 64;
        let shared = if shared > 0 { shared + 64 } else { 0 };
        let no_reduced = kernel.parallel == kernel.extents.len();
        let unit = if no_reduced { kernel.extents.iter().skip(1).product() } else { 1 };
        Ok(LoopTape { program, domain, unit, grain, split, scratch, shared })
    }

    /// The mode in which it runs.
    pub fn mode(&self) -> Mode {
        self.domain.mode
    }

    /// 1, or 2 when a long reduction is split over chunks: partial results, then their combination.
    pub fn phases(&self) -> usize {
        1 + self.split.is_some() as usize
    }

    /// Number of chunks of a phase, fixed by the shapes alone.
    pub fn chunks(&self, phase: usize) -> usize {
        let points = self.domain.points();
        match (self.split, phase) {
            (Some(split), 0) => points.div_ceil(split.points) * self.pieces(split),
            (_, 0) | (Some(_), 1) => points.div_ceil(self.grain),
            _ => 0,
        }
    }

    /// Chunks that share a row.
    fn pieces(&self, split: Split) -> usize {
        self.segments().div_ceil(split.segments)
    }

    fn segments(&self) -> usize {
        self.domain.terms().div_ceil(SEGMENT)
    }

    /// Bytes of scratch that each thread provides.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    /// Bytes that the chunks of both phases share.
    pub fn shared_bytes(&self) -> usize {
        self.shared
    }

    /// Runs one chunk of a phase; of the second phase, after all of the first.
    ///
    /// # Safety
    ///
    /// `buffers` holds, by index, the storage of every buffer that the kernel names, aligned for its dtype and of the
    /// size that the kernel's accesses imply; a stored buffer is the storage of another only as the module's rule "in
    /// place" allows. `scratch` has [`LoopTape::scratch_bytes`], `shared` has [`LoopTape::shared_bytes`] and keeps its
    /// contents from phase to phase. Nobody else uses the scratch meanwhile, or accesses what this chunk writes.
    pub unsafe fn run_chunk(
        &self,
        phase: usize,
        chunk: usize,
        buffers: &[*mut u8],
        scratch: *mut u8,
        shared: *mut u8,
    ) {
        let total = self.domain.points();
        let (start, count, part) = match (self.split, phase) {
            (Some(split), 0) => {
                let (block, piece) = (chunk / self.pieces(split), chunk % self.pieces(split));
                let first = piece * split.segments;
                let segments = first..(first + split.segments).min(self.segments());
                (block * split.points, split.points, Part::Segments(segments))
            }
            (Some(_), _) => (chunk * self.grain, self.grain, Part::Rest),
            (None, _) => (chunk * self.grain, self.grain, Part::Whole),
        };
        let end = (start + count).min(total);
        // SAFETY: the caller's promise; both areas have the 64 bytes that aligning may take.
        unsafe {
            let mut run = Run::new(&self.program, &self.domain, buffers, align(scratch), align(shared));
            run.points(start.min(end)..end, part);
        }
    }

    /// Runs a range of rows; only for kernels of one phase (see [`Options::whole_rows`]). A row is a point of the parallel axes, or, for a kernel
    /// without reduced axes, an index of the leading axis.
    ///
    /// # Safety
    ///
    /// As [`LoopTape::run_chunk`].
    pub unsafe fn run_rows(&self, rows: Range<usize>, buffers: &[*mut u8], scratch: *mut u8) {
        debug_assert!(self.split.is_none(), "rows of a split reduction cannot run alone");
        // SAFETY: the caller's promise; scratch has the 64 bytes that aligning may take.
        unsafe {
            let shared = std::ptr::null_mut();
            let mut run = Run::new(&self.program, &self.domain, buffers, align(scratch), shared);
            run.points(rows.start * self.unit..rows.end * self.unit, Part::Whole);
        }
    }
}

/// The next multiple of 64.
fn align(p: *mut u8) -> *mut u8 {
    p.wrapping_add(p.addr().next_multiple_of(64) - p.addr())
}

/// Elements of a block in column mode.
fn choose_block(kernel: &LoopKernel, merged: &Domain) -> usize {
    let terms = merged.terms();
    if terms > 1 {
        // Lanes, and what is kept between passes, are blocks.
        let stages = kernel.stages().into_iter().max().unwrap_or(0);
        return if stages > 1 { (KEPT / terms).clamp(16, COLUMN_BLOCK) & !15 } else { COLUMN_BLOCK };
    }
    let sizes = kernel.body.iter().filter(|e| matches!(e.expr, Expr::Load { .. })).map(|e| e.dtype.size());
    let stored = kernel.stores.iter().map(|s| kernel.body[s.value.index()].dtype.size());
    let bytes = sizes.chain(stored).sum::<usize>();
    if merged.points().saturating_mul(bytes) > BEYOND_CACHE { SHORT_BLOCK } else { BLOCK }
}

/// The mode of a kernel: along rows, unless rows are short and many or memory runs across them.
fn choose_mode(kernel: &LoopKernel, merged: &Domain) -> Mode {
    let (points, terms) = (merged.points(), merged.terms());
    if terms == 1 || merged.parallel == merged.extents.len() {
        return Mode::Column;
    }
    if terms < 32 && points >= 64 {
        return Mode::Column;
    }
    let (row, column) = (merged.clone().with_mode(Mode::Row, 1), merged.clone().with_mode(Mode::Column, 16));
    let across: usize = column.vector_extents().iter().product();
    let (mut along_votes, mut across_votes) = (0, 0);
    for e in &kernel.body {
        if let Expr::Load { access, .. } = &e.expr {
            let (r, c) = (row.line(&access.place), column.line(&access.place));
            along_votes += (r.axes & row.reduced_axes() != 0 && r.step == Some(1)) as usize;
            across_votes += (c.axes & row.reduced_axes() != 0 && c.step == Some(1)) as usize;
        }
    }
    if across_votes > along_votes && across >= 16 { Mode::Column } else { Mode::Row }
}
