//! What the CPU backend cannot compile.

use onestep_ir::DType;

/// Why a kernel was refused. A schedule made for this backend's target meets none of these.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CpuError {
    /// A kernel of a schedule.
    #[error("kernel k{kernel}: {source}")]
    Kernel {
        /// Its place in the schedule.
        kernel: usize,
        /// What is wrong with it.
        source: Box<CpuError>,
    },
    /// An expression's operands do not fit it.
    #[error("expression e{expr} of a loop kernel is malformed: {why}")]
    Malformed {
        /// The expression's place in the body.
        expr: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// A load or store names a buffer of another dtype than its expression.
    #[error("a loop kernel accesses buffer b{buffer} of {found} as {expected}; insert a cast")]
    BufferDType {
        /// The buffer.
        buffer: u32,
        /// Its dtype.
        found: DType,
        /// The expression's.
        expected: DType,
    },
    /// A function that is not defined on the dtype.
    #[error("'{function}' is not defined on {dtype}; cast the operand first")]
    Undefined {
        /// The op's mnemonic.
        function: &'static str,
        /// The operand's dtype.
        dtype: DType,
    },
    /// More axes than the tape keeps indices for, after merging those that can be.
    #[error("a loop kernel has {rank} axes that cannot be merged; at most {most} are supported")]
    Rank {
        /// The kernel's.
        rank: usize,
        /// The most.
        most: usize,
    },
    /// An op without a kernel on this backend.
    #[error("the CPU has no kernel for '{op}' ({why}); the target's list says what it accepts")]
    NoKernel {
        /// The op's mnemonic.
        op: &'static str,
        /// Which part of it is missing.
        why: String,
    },
    /// The kernel that a user's op gives is not for the op's types.
    #[error("the kernel of '{op}' does not fit: {why}")]
    Custom {
        /// The op's mnemonic.
        op: &'static str,
        /// What does not fit.
        why: String,
    },
    /// An operand or result of a library kernel that does not fit it.
    #[error("{what} of a library kernel does not fit: {why}")]
    Operand {
        /// Which.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
}
