//! What the CPU takes, for the passes.

use crate::library::{self, Layout};
use onestep_ir::{DType, Op, Type};
use onestep_passes::Target;
use onestep_passes::schedule::{LoopKernel, MatmulKernel};

/// The CPU's description.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTarget;

impl CpuTarget {
    fn layouts(op: &Op, dtypes: &[DType]) -> Option<Vec<Layout>> {
        library::accepts(op, dtypes)
    }
}

impl Target for CpuTarget {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn accepts(&self, op: &Op, operands: &[Type]) -> bool {
        let dtypes: Vec<DType> = operands.iter().map(|t| t.dtype).collect();
        match op {
            Op::Scan(_) => true,
            Op::Custom(op) => op.cpu_kernel(operands).is_some(),
            op => Self::layouts(op, &dtypes).is_some(),
        }
    }

    fn takes_strided(&self, op: &Op, _: usize) -> bool {
        matches!(op, Op::Matmul(_) | Op::Attention(_) | Op::AttentionGrad(_))
    }

    fn gives_strided(&self, op: &Op, result: usize) -> bool {
        library::gives_strided(op, result)
    }

    fn computes_in(&self, dtype: DType) -> bool {
        !matches!(dtype, DType::F16 | DType::BF16) && !dtype.is_fp8()
    }

    fn takes_epilogue(&self, _: &MatmulKernel, _: &LoopKernel) -> bool {
        true
    }
}
