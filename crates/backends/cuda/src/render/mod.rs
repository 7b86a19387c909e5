//! A loop kernel as CUDA C.
//!
//! Every form is one scheme: a **group** of lanes takes a row at a time (see [`Form`]). What does not vary with
//! the reduced axes is computed by every lane of the group; each stage's reductions are one pass over the row, split among the
//! lanes; what is stored at every point is stored in a last pass. So all loads of a point stand before its stores, and a
//! result may take the place of an operand that is read at the same places. For the same reason no pointer is `restrict`.
//!
//! The tree of a reduction depends on the row's length alone: not on the form, nor on what is fused into the kernel.
//!
//! The text asks to be compiled with [`COMPILE_OPTIONS`].

mod abreast;
mod check;
mod domain;
mod emit;
mod epilogue;
mod expression;
mod group;
mod keep;
mod parts;
mod points;
pub(crate) mod prelude;
mod random;
mod reduce;
pub(crate) mod scalar;
pub(crate) mod split;

pub(crate) use epilogue::{Epilogue, group, loaded, point, rows, rows_function, rows_per_block};
pub use group::{BLOCK, Cut, Form};
pub(crate) use parts::{More, parts_with};
pub use parts::{Part, Parts, render_parts};

use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, LoopKernel};

/// What NVRTC is told: each operation rounds as written (no contraction, subnormal numbers kept, division and root correct).
pub const COMPILE_OPTIONS: &[&str] =
    &["--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

/// Bytes of which the address of an allocation is a multiple.
pub const ALIGNED: usize = 256;

/// The most reductions of one stage: 48 KiB of shared memory.
pub const MOST_REDUCTIONS: usize = 48 * 1024 / (group::BLOCK * 8);

/// A kernel's text and how to launch it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CudaKernel {
    /// CUDA C, without includes.
    pub source: String,
    /// The function's name in it.
    pub entry: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// Blocks that a processor is to hold at a time, which limits a thread's registers; 0 if that is left to the compiler.
    pub resident: usize,
    /// The buffers whose addresses are the function's parameters, in order.
    pub parameters: Vec<BufferId>,
    /// How the work is laid out.
    pub form: Form,
}

/// Why a kernel cannot be rendered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RenderError {
    /// The kernel breaks a rule of the vocabulary.
    #[error("malformed loop kernel: {place} {reason}")]
    Malformed {
        /// The expression or store.
        place: String,
        /// The rule.
        reason: String,
    },
    /// The domain or an index does not fit 64 bits.
    #[error("the loop kernel's {what} exceeds 62 bits")]
    TooLarge {
        /// Which quantity.
        what: &'static str,
    },
    /// The partial results of a stage do not fit the shared memory that every device has.
    #[error(
        "a stage of the loop kernel has {count} reductions, more than the {MOST_REDUCTIONS} that shared memory holds"
    )]
    TooManyReductions {
        /// Of that stage.
        count: usize,
    },
    /// The name is not an identifier of C.
    #[error("`{name}` is not an identifier of C")]
    Name {
        /// The name asked for.
        name: String,
    },
}

/// What the renderer is told of the buffers that a kernel names.
#[derive(Clone, Copy)]
pub struct Buffers<'a> {
    /// The dtype of each.
    pub dtype: &'a dyn Fn(BufferId) -> DType,
    /// Bytes, up to 256, of which its address is a multiple.
    pub aligned: &'a dyn Fn(BufferId) -> usize,
}

/// Renders `kernel` as the CUDA function `name`, over buffers at multiples of 256 bytes. `dtype_of` gives the dtype of each buffer
/// that the kernel names.
pub fn render(
    kernel: &LoopKernel,
    dtype_of: &dyn Fn(BufferId) -> DType,
    name: &str,
) -> Result<CudaKernel, RenderError> {
    let buffers = Buffers { dtype: dtype_of, aligned: &|_| ALIGNED };
    let mut rendered = function(&kernel.clone().into(), buffers, name, false)?;
    rendered.source = prelude::of(&rendered.source) + &rendered.source;
    Ok(rendered)
}

/// A kernel as a function, without those that it calls; with `shared`, one of the device that shares a launch, whose first two
/// parameters are the number of the block and of the blocks.
fn function(part: &Part, buffers: Buffers<'_>, name: &str, shared: bool) -> Result<CudaKernel, RenderError> {
    check::name(name)?;
    check::kernel(&part.kernel, buffers.dtype)?;
    let (kernel, form) = part.arranged(buffers);
    let wide = domain::needs_64_bits(&kernel)?;
    emit::emit(&kernel, (form, part.cut), wide, buffers, name, shared)
}
