//! The loop that computes the rows of products, in their own launch: every block does all of it and keeps the rows in shared
//! memory; what else it stores counts from the first block alone, which also writes the rows to where they belong.

use super::super::Context;
use super::LOAD;
use crate::code::{Address, Product};
use crate::error::CudaError;
use crate::render::{ALIGNED, Buffers, rows_function, scalar, split::split};
use onestep_passes::schedule::{BufferId, LoopKernel, MatmulKernel, Schedule};
use std::fmt::Write;

/// The most points: some for each thread, while the first weights are on their way.
const MOST_POINTS: usize = 1 << 13;
/// The most bytes that it stores.
const MOST_BYTES: usize = 1 << 15;
/// The function's name.
const FUNCTION: &str = "before";

/// Whether the loop computes the rows of the product, all of them and dense, and is small.
pub(super) fn takes(schedule: &Schedule, k: &LoopKernel, m: &MatmulKernel) -> bool {
    let (_, rows, _, depth) = m.sizes();
    let whole = |b: BufferId| {
        let dense = m.lhs.offset == 0 && m.lhs.is_dense() && schedule.buffer(b).numel() == rows * depth;
        dense && k.writes().contains(&b)
    };
    let points = k.extents.iter().try_fold(1usize, |n, &e| n.checked_mul(e));
    let bytes: usize = k.writes().iter().map(|b| schedule.buffer(*b).bytes()).sum();
    whole(m.lhs.buffer)
        && points.is_some_and(|n| n <= MOST_POINTS)
        && bytes <= MOST_BYTES
        && split(k, schedule.buffers.len() as u32).is_none()
}

/// What the kernel's text has of it.
pub(super) struct Before {
    /// The loop as a function.
    pub functions: String,
    pub parameters: Vec<String>,
    pub arguments: Vec<Address>,
    /// The declaration of `x`, the rows.
    pub rows: String,
    /// Elements from one row to the next.
    pub stride: usize,
    /// What is done before `x` is read.
    pub call: String,
    pub shared_bytes: usize,
}

impl Before {
    /// The rows are in memory already.
    pub fn none(p: &Product, taken: usize) -> Before {
        Before {
            functions: String::new(),
            parameters: vec!["const element* x".into()],
            arguments: vec![p.lhs.0],
            rows: String::new(),
            stride: p.lhs.1[1],
            call: String::new(),
            shared_bytes: taken,
        }
    }

    /// The loop computes them. Behind it, so many bytes of shared memory are used again.
    pub fn new(
        k: &LoopKernel,
        p: &Product,
        context: &Context<'_>,
        taken: usize,
    ) -> Result<Before, CudaError> {
        let buffer = |b: BufferId| context.schedule.buffer(b);
        let home = |b: BufferId| context.homes[b.index()];
        let aligned = |b: BufferId| {
            let own = 1 << (home(b).offset | ALIGNED).trailing_zeros();
            if k.writes().contains(&b) { own.min(LOAD) } else { own }
        };
        let dtype = |b: BufferId| buffer(b).dtype;
        let (part, buffers) = rows_function(k, Buffers { dtype: &dtype, aligned: &aligned }, FUNCTION)?;
        let [_, rows, _, depth] = p.sizes;
        let start = taken.max((part.shared_bytes as usize).next_multiple_of(LOAD));
        let mut end = start + (rows * depth * p.dtype.size()).next_multiple_of(LOAD);
        let (mut parameters, mut arguments, mut passed) = (vec![], vec![], vec![]);
        let mut keep = String::new();
        for (n, &b) in buffers.iter().enumerate() {
            let ty = scalar::storage(dtype(b));
            parameters.push(format!("{ty}* p{n}"));
            arguments.push(home(b));
            passed.push(if home(b) == p.lhs.0 && k.writes().contains(&b) {
                let _ = writeln!(
                    keep,
                    "    if (blockIdx.x == 0)\n      for (int i = threadIdx.x; i < {}; i += THREADS) p{n}[i] = rows[i];",
                    rows * depth
                );
                "rows".to_string()
            } else if k.writes().contains(&b) {
                let place = end;
                end += buffer(b).bytes().next_multiple_of(LOAD);
                format!("blockIdx.x == 0 ? p{n} : ({ty}*)((char*)shared + {place})")
            } else {
                format!("p{n}")
            });
        }
        let call = format!("    {FUNCTION}(0, 1, {});\n    __syncthreads();\n{keep}", passed.join(", "));
        Ok(Before {
            functions: part.source,
            parameters,
            arguments,
            rows: format!(
                "  element* const rows = (element*)((char*)shared + {start});\n  const element* const x = rows;\n"
            ),
            stride: depth,
            call,
            shared_bytes: end,
        })
    }
}
