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

    /// A product's epilogue would be a launch of its own; as a loop kernel it may share one with others.
    fn takes_epilogue(&self, _: &MatmulKernel, _: &LoopKernel) -> bool {
        false
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

/// The description of a GPU without Hopper's products of a warpgroup: attention is taken apart there.
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

    fn alignment(&self) -> usize {
        CudaTarget.alignment()
    }
}
