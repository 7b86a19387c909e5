//! What CUDA takes, for the passes.

use crate::library;
use onestep_ir::{DType, Op, Type};
use onestep_passes::Target;
use onestep_passes::schedule::{LoopKernel, MatmulKernel};

/// The description of an NVIDIA GPU of the Hopper generation.
#[derive(Clone, Copy, Debug, Default)]
pub struct CudaTarget;

impl Target for CudaTarget {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn accepts(&self, op: &Op, operands: &[Type]) -> bool {
        let dtypes: Vec<DType> = operands.iter().map(|t| t.dtype).collect();
        matches!(op, Op::Scan(_))
            || library::accepts(op, &dtypes)
            || library::attention::accepts(op, operands)
    }

    fn takes_strided(&self, op: &Op, _: usize) -> bool {
        library::takes_strided(op)
    }

    /// Loop kernels hold 16-bit floats in `f32` and round each op.
    fn computes_in(&self, _: DType) -> bool {
        true
    }

    /// Beside other products an epilogue would be a launch of its own; as a loop kernel it may share one with others.
    fn takes_epilogue(&self, matmul: &MatmulKernel, epilogue: &LoopKernel) -> bool {
        library::simt::takes_epilogue(matmul, epilogue) || library::gemv::takes_epilogue(matmul, epilogue)
    }

    /// A processor makes some 15 operations in the time of a byte.
    fn recomputes(&self, operations: usize, functions: usize, _: usize, _: usize) -> bool {
        operations + 8 * functions <= 48
    }

    /// A part of the cache.
    fn spare_bytes(&self) -> usize {
        8 << 20
    }

    /// Addresses that a warp reads together begin at multiples of this.
    fn alignment(&self) -> usize {
        256
    }
}

impl CudaTarget {
    /// The description of a GPU of this architecture, such as `sm_90a`.
    pub fn of(architecture: &str) -> &'static dyn Target {
        if architecture == "sm_90a" { &CudaTarget } else { &OtherTarget }
    }
}

/// The description of any other one, of compute capability 8.0 at least: it lacks Hopper's products of a warpgroup, so attention is
/// taken apart there.
struct OtherTarget;

impl Target for OtherTarget {
    fn name(&self) -> &'static str {
        CudaTarget.name()
    }

    fn accepts(&self, op: &Op, operands: &[Type]) -> bool {
        CudaTarget.accepts(op, operands) && !matches!(op, Op::Attention(_) | Op::AttentionGrad(_))
    }

    fn takes_strided(&self, op: &Op, operand: usize) -> bool {
        CudaTarget.takes_strided(op, operand)
    }

    fn computes_in(&self, dtype: DType) -> bool {
        CudaTarget.computes_in(dtype)
    }

    fn takes_epilogue(&self, matmul: &MatmulKernel, epilogue: &LoopKernel) -> bool {
        CudaTarget.takes_epilogue(matmul, epilogue)
    }

    fn recomputes(&self, operations: usize, functions: usize, loaded: usize, own: usize) -> bool {
        CudaTarget.recomputes(operations, functions, loaded, own)
    }

    fn spare_bytes(&self) -> usize {
        CudaTarget.spare_bytes()
    }

    fn alignment(&self) -> usize {
        CudaTarget.alignment()
    }
}
