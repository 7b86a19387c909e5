//! What CUDA takes, for the passes.

use crate::library;
use crate::render::split::MANY_ROWS;
use onestep_ir::{DType, Op, Type};
use onestep_passes::Target;
use onestep_passes::schedule::{LoopKernel, MatmulKernel, Schedule};

/// The description of an NVIDIA GPU, of compute capability 8.0 at least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CudaTarget {
    /// Whether it has the products of a warpgroup, of which the attention kernels and those of [`library::warpgroup`] are made; else
    /// attention is taken apart.
    pub(crate) warpgroups: bool,
}

impl CudaTarget {
    /// A GPU of the Hopper generation.
    pub const HOPPER: CudaTarget = CudaTarget { warpgroups: true };
    /// Any other one.
    pub const OTHER: CudaTarget = CudaTarget { warpgroups: false };

    /// Whether it has products of a warpgroup.
    pub fn has_warpgroups(&self) -> bool {
        self.warpgroups
    }

    /// The GPU of an architecture, such as `sm_90a`.
    pub fn of(architecture: &str) -> &'static CudaTarget {
        if architecture == "sm_90a" { &CudaTarget::HOPPER } else { &CudaTarget::OTHER }
    }
}

impl Target for CudaTarget {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn accepts(&self, op: &Op, operands: &[Type]) -> bool {
        let dtypes: Vec<DType> = operands.iter().map(|t| t.dtype).collect();
        if matches!(op, Op::Matmul(_)) && dtypes.iter().any(|d| d.is_fp8()) {
            return self.warpgroups && library::matmul::takes_eight_bits(op, operands);
        }
        matches!(op, Op::Scan(_))
            || library::accepts(op, &dtypes)
            || self.warpgroups && library::attention::accepts(op, operands)
    }

    fn takes_strided(&self, op: &Op, _: usize) -> bool {
        library::takes_strided(op)
    }

    fn gives_strided(&self, op: &Op, result: usize) -> bool {
        library::gives_strided(op, result)
    }

    /// Loop kernels hold 16-bit floats in `f32` and round each op. 8-bit ones are only cast and moved.
    fn computes_in(&self, _: DType) -> bool {
        true
    }

    /// Products of few rows, and the loop in front of them.
    fn together(&self, schedule: &Schedule, first: usize) -> usize {
        library::gemv::together(schedule, &schedule.kernels[first..]).map_or(1, |all| all.len())
    }

    fn takes_epilogue(&self, matmul: &MatmulKernel, epilogue: &LoopKernel) -> bool {
        library::simt::takes_epilogue(matmul, epilogue)
            || library::gemv::takes_epilogue(matmul, epilogue)
            || self.warpgroups && library::warpgroup::takes_epilogue(matmul, epilogue)
    }

    /// A processor makes some 15 operations in the time of a byte.
    fn recomputes(&self, operations: usize, functions: usize, _: usize, _: usize) -> bool {
        operations + 8 * functions <= 48
    }

    /// A part of the cache.
    fn spare_bytes(&self) -> usize {
        8 << 20
    }

    /// Where they need not be cut among blocks, the second stage finds them in the cache.
    fn stages_long_rows(&self, rows: usize) -> bool {
        rows >= MANY_ROWS
    }

    /// Addresses that a warp reads together begin at multiples of this.
    fn alignment(&self) -> usize {
        256
    }
}
