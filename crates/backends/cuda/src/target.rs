//! What CUDA takes, for the passes.

use crate::library;
use onestep_ir::{DType, Op, Type};
use onestep_passes::Target;
use onestep_passes::schedule::{LoopKernel, MatmulKernel};

/// The description of an NVIDIA GPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct CudaTarget;

impl Target for CudaTarget {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn accepts(&self, op: &Op, operands: &[Type]) -> bool {
        let dtypes: Vec<DType> = operands.iter().map(|t| t.dtype).collect();
        matches!(op, Op::Scan(_)) || library::accepts(op, &dtypes)
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
        library::simt::takes_epilogue(matmul, epilogue)
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
