//! Matrix products of a schedule: chunks of [`gemm`](super::gemm), each followed by the epilogue of its rows.
//!
//! A chunk is a block of rows of one matrix of the batch; without an epilogue also a block of columns. Rows of a chunk
//! share each packed panel of the right factor, so few rows mean much packing; hence columns are cut first.
//!
//! Where blocks of whole rows are too few to share (one row of a decoder, say), the epilogue follows as phases of its
//! own. Its bits are the same.

use super::gemm::{Gemm, Isa, Mat, Scalar, scratch_elements};
use crate::error::CpuError;
use crate::kernel::{Memory, Work, check_result, check_view};
use crate::tape::LoopTape;
use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, MatmulKernel, Schedule, View};
use std::marker::PhantomData;

/// Chunks that a large product is cut into, as long as they are of a comfortable size: more than a desktop's cores, so
/// that a thread that is late does not matter. Below that size cutting goes on up to the second number only.
const CHUNKS: usize = 16;
const FEW_CHUNKS: usize = 4;

/// Work worth a chunk of its own: some microseconds.
const CHUNK_FLOPS: usize = 400_000;

/// Rows and columns of the smallest comfortable chunk, and of the smallest one: with fewer rows, packing the right factor
/// costs too much beside the products; with fewer columns, packing the left one.
const COMFORTABLE: (usize, usize) = (64, 128);
const SMALLEST: (usize, usize) = (32, 64);

struct Matmul<T> {
    lhs: View,
    rhs: View,
    out: BufferId,
    sizes: [usize; 4],
    chunk: Chunking,
    isa: Isa,
    epilogue: Option<LoopTape>,
    /// Whether the epilogue is part of the product's chunks.
    fused: bool,
    element: PhantomData<T>,
}

/// How the output is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Chunking {
    rows: usize,
    columns: usize,
}

impl Chunking {
    /// By sizes alone.
    fn new([batch, m, n, k]: [usize; 4], whole_rows: bool) -> Chunking {
        let flops = 2usize.saturating_mul(batch).saturating_mul(m).saturating_mul(n).saturating_mul(k.max(1));
        let (mut rows, mut columns) = (m.clamp(1, 128), n.max(1));
        let count = |rows, columns| Chunking { rows, columns }.count([batch, m, n, k]);
        let halve = |x: usize, unit: usize| x.div_ceil(2).next_multiple_of(unit);
        for (chunks, (fewest_rows, fewest_columns)) in [(CHUNKS, COMFORTABLE), (FEW_CHUNKS, SMALLEST)] {
            let want = (flops / CHUNK_FLOPS).clamp(1, chunks);
            while !whole_rows && count(rows, columns) < want && columns > fewest_columns {
                columns = halve(columns, 32);
            }
            while count(rows, columns) < want && rows > fewest_rows {
                rows = halve(rows, 8);
            }
        }
        Chunking { rows, columns }
    }

    /// The number of chunks.
    fn count(self, [batch, m, n, _]: [usize; 4]) -> usize {
        batch * m.div_ceil(self.rows) * n.div_ceil(self.columns)
    }
}

/// Compiles a product.
pub(crate) fn compile(
    kernel: &MatmulKernel,
    schedule: &Schedule,
    isa: Isa,
) -> Result<Box<dyn Work>, CpuError> {
    let dtype = check_view(schedule, &kernel.lhs, "the left factor")?;
    let right = check_view(schedule, &kernel.rhs, "the right factor")?;
    let (l, r) = (&kernel.lhs, &kernel.rhs);
    let fits =
        l.shape.len() == 3 && r.shape.len() == 3 && l.shape[0] == r.shape[0] && l.shape[2] == r.shape[1];
    if !fits || right != dtype {
        let why = format!("{dtype}{:?} times {right}{:?}", l.shape, r.shape);
        return Err(CpuError::Operand { what: "a factor", why });
    }
    let (batch, m, n, _) = kernel.sizes();
    check_result(schedule, kernel.out, dtype, &[batch, m, n])?;
    match dtype {
        DType::F32 => Ok(Box::new(Matmul::<f32>::new(kernel, schedule, isa)?)),
        DType::F64 => Ok(Box::new(Matmul::<f64>::new(kernel, schedule, isa)?)),
        other => Err(CpuError::NoKernel { op: "matmul", why: format!("on {other}") }),
    }
}

impl<T: Scalar> Matmul<T> {
    fn new(kernel: &MatmulKernel, schedule: &Schedule, isa: Isa) -> Result<Self, CpuError> {
        let (batch, m, n, k) = kernel.sizes();
        let epilogue = match &kernel.epilogue {
            Some(e) => Some(epilogue(e, schedule, batch * m)?),
            None => None,
        };
        let sizes = [batch, m, n, k];
        let (apart, whole) = (Chunking::new(sizes, false), Chunking::new(sizes, true));
        let enough = whole.count(sizes) >= apart.count(sizes).min(FEW_CHUNKS);
        let fused = epilogue.as_ref().is_some_and(|e| enough && e.phases() == 1);
        Ok(Matmul {
            lhs: kernel.lhs.clone(),
            rhs: kernel.rhs.clone(),
            out: kernel.out,
            sizes,
            chunk: if fused { whole } else { apart },
            isa,
            epilogue,
            fused,
            element: PhantomData,
        })
    }

    /// The epilogue, if it has phases of its own.
    fn apart(&self) -> Option<&LoopTape> {
        self.epilogue.as_ref().filter(|_| !self.fused)
    }

    fn gemm_bytes(&self) -> usize {
        (scratch_elements(self.chunk.rows, self.sizes[3]) * size_of::<T>()).next_multiple_of(64)
    }
}

/// Compiles an epilogue, which works on ranges of the output's rows.
fn epilogue(
    kernel: &onestep_passes::schedule::LoopKernel,
    schedule: &Schedule,
    rows: usize,
) -> Result<LoopTape, CpuError> {
    let tape = LoopTape::new(kernel, &|b| schedule.buffer(b).dtype)?;
    if kernel.extents.first() != Some(&rows) {
        let why = format!("its domain {:?} does not begin with the product's {rows} rows", kernel.extents);
        return Err(CpuError::Operand { what: "the epilogue", why });
    }
    Ok(tape)
}

impl<T: Scalar> Work for Matmul<T> {
    fn label(&self) -> String {
        let [batch, m, n, k] = self.sizes;
        let batch = if batch == 1 { String::new() } else { format!("{batch}×") };
        let epilogue = if self.epilogue.is_some() { " + epilogue" } else { "" };
        format!("matmul {batch}{m}×{n}×{k}{epilogue}")
    }

    fn phases(&self) -> usize {
        1 + self.apart().map_or(0, LoopTape::phases)
    }

    fn chunks(&self, phase: usize) -> usize {
        match (phase, self.apart()) {
            (0, _) => self.chunk.count(self.sizes),
            (_, Some(tape)) => Work::chunks(tape, phase - 1),
            (_, None) => 0,
        }
    }

    fn scratch_bytes(&self) -> usize {
        self.gemm_bytes() + self.epilogue.as_ref().map_or(0, LoopTape::scratch_bytes)
    }

    fn shared_bytes(&self) -> usize {
        self.apart().map_or(0, LoopTape::shared_bytes)
    }

    unsafe fn run_chunk(&self, phase: usize, chunk: usize, memory: Memory<'_>) {
        if let (1.., Some(tape)) = (phase, self.apart()) {
            // SAFETY: the contract is the same; the tape's phases follow the product's.
            return unsafe { Work::run_chunk(tape, phase - 1, chunk, memory) };
        }
        let [_, m, n, k] = self.sizes;
        let (row_blocks, column_blocks) = (m.div_ceil(self.chunk.rows), n.div_ceil(self.chunk.columns));
        let (rest, column) = (chunk / column_blocks, chunk % column_blocks * self.chunk.columns);
        let (batch, row) = (rest / row_blocks, rest % row_blocks * self.chunk.rows);
        let rows = self.chunk.rows.min(m - row);
        let mat = |view: &View| Mat {
            ptr: memory.of::<T>(view).wrapping_add(batch * view.strides[0]).cast_const(),
            rs: view.strides[1],
            cs: view.strides[2],
        };
        let (a, b) = (mat(&self.lhs).at(row, 0), mat(&self.rhs).at(0, column));
        let first = batch * m + row;
        let dst = memory.at::<T>(self.out, first * n + column);
        let columns = self.chunk.columns.min(n - column);
        let gemm = Gemm { isa: self.isa, m: rows, n: columns, k, add: false };
        // SAFETY: the views lie in their buffers (checked when compiled), and the block in the views and in the
        // output, which is neither factor's buffer; the scratch is at least `gemm_bytes`.
        unsafe { gemm.run(a, b, dst, n, memory.scratch.cast()) };
        if let (true, Some(epilogue)) = (self.fused, &self.epilogue) {
            let scratch = memory.scratch.wrapping_add(self.gemm_bytes());
            // SAFETY: the contract of `run_chunk`; these rows of the output are complete, as the chunk has all columns.
            unsafe { epilogue.run_rows(first..first + rows, memory.buffers, scratch) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cut_columns_first_and_rows_when_an_epilogue_needs_whole_ones() {
        assert_eq!(Chunking::new([1, 1024, 512, 128], true), Chunking { rows: 64, columns: 512 });
        assert_eq!(Chunking::new([1, 1024, 512, 128], false), Chunking { rows: 128, columns: 256 });
        assert_eq!(Chunking::new([1, 1, 4096, 1024], false), Chunking { rows: 1, columns: 256 });
        assert_eq!(Chunking::new([1, 8, 8, 8], false), Chunking { rows: 8, columns: 8 });
        assert_eq!(Chunking::new([1, 0, 8, 8], false), Chunking { rows: 1, columns: 8 });
    }
}
