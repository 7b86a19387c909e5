//! What a backend can take. Fusion and planning are written once and ask it.

use crate::schedule::{LoopKernel, MatmulKernel, Schedule};
use onestep_ir::{DType, Op, Type};

/// A backend's description, as the passes need it.
pub trait Target {
    /// Its name, such as `cpu`.
    fn name(&self) -> &'static str;

    /// Whether the backend has a library kernel for this op on these operands. A composite that is not accepted is
    /// decomposed; a primitive that is neither accepted nor expressible in a loop kernel is an error.
    fn accepts(&self, op: &Op, operands: &[Type]) -> bool;

    /// Whether operand `n` of an accepted op may be a strided view; otherwise it is made dense.
    fn takes_strided(&self, op: &Op, operand: usize) -> bool;

    /// Whether result `n` of an accepted op may be a strided view, those along the last axis side by side: its part of a
    /// concatenation. Otherwise it is dense.
    fn gives_strided(&self, _op: &Op, _result: usize) -> bool {
        false
    }

    /// Whether loop kernels compute in this dtype; otherwise values are cast to `f32`, computed and cast back.
    fn computes_in(&self, dtype: DType) -> bool;

    /// Whether the matmul takes this loop kernel as its epilogue.
    fn takes_epilogue(&self, matmul: &MatmulKernel, epilogue: &LoopKernel) -> bool;

    /// How many kernels, from this one on, the target runs as one launch: see [`Schedule::together`].
    fn together(&self, _schedule: &Schedule, _first: usize) -> usize {
        1
    }

    /// Whether a kernel had better compute a value again than load it: by so many simple operations and functions, such as
    /// `exp`, for each element, from `loaded` bytes in place of its `own`, which are at least as many.
    fn recomputes(&self, operations: usize, functions: usize, loaded: usize, own: usize) -> bool {
        operations <= 4 && functions == 0 && loaded < own
    }

    /// The largest body of a loop kernel, in expressions.
    fn max_body(&self) -> usize {
        160
    }

    /// The longest row that a loop kernel may go over more than once.
    fn max_row(&self) -> usize {
        16_384
    }

    /// Whether a kernel had better reduce rows that are longer than that in several stages, where there are so many of them,
    /// than leave each stage to a kernel of its own.
    fn stages_long_rows(&self, _rows: usize) -> bool {
        false
    }

    /// Alignment of buffers in the arena, in bytes.
    fn alignment(&self) -> usize {
        64
    }

    /// Buffers of at most so many bytes in all get storage of their own: a backend that runs kernels side by side then has
    /// no more order to keep than their values demand.
    fn spare_bytes(&self) -> usize {
        0
    }
}
