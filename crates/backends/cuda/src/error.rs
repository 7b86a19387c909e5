//! What the CUDA backend cannot compile or run.

use crate::render::RenderError;

/// Why a program was refused, or what failed on the device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CudaError {
    /// A kernel of a schedule.
    #[error("kernel k{kernel}: {source}")]
    Kernel {
        /// Its place in the schedule.
        kernel: usize,
        /// What is wrong with it.
        source: Box<CudaError>,
    },
    /// A loop kernel that cannot be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// An op without a kernel on this backend.
    #[error("CUDA has no kernel for '{op}' ({why}); the target's list says what it accepts")]
    NoKernel {
        /// The op's mnemonic.
        op: &'static str,
        /// Which part of it is missing.
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
    /// A GPU that is too old for the kernels.
    #[error("{name} has compute capability {capability}, and kernels here need 8.0; use the CPU")]
    Capability {
        /// The device.
        name: String,
        /// What it has.
        capability: String,
    },
    /// A program that would be too many launches.
    #[error(
        "the program is more than {most} launches, as a scan is one for each iteration's kernels; run its iterations in several calls"
    )]
    TooManySteps {
        /// The most.
        most: usize,
    },
    /// A library that is needed and was not found.
    #[error("{library} was not found; {remedy}")]
    Missing {
        /// Its file.
        library: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The program does not fit the device's memory.
    #[error("the program needs {needed} bytes on the device, of which {free} are free; use a smaller batch")]
    Memory {
        /// Bytes that it allocates.
        needed: usize,
        /// Bytes that are free.
        free: usize,
    },
    /// A kernel that NVRTC refused: a mistake of this crate.
    #[error("NVRTC: {log}")]
    Compile {
        /// What it says.
        log: String,
    },
    /// A call of the driver or a library that failed.
    #[error("{call}: {message}")]
    Driver {
        /// What was asked for.
        call: &'static str,
        /// What it answered.
        message: String,
    },
}
