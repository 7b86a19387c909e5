//! The CUDA backend: whole programs on an NVIDIA GPU.
//!
//! [`lower`](lower::lower) turns a schedule and its plan into [`Code`](code::Code): the text of distinct kernels, and the launches
//! over addresses. That is pure, and needs no CUDA to build or to test: loop kernels come from [`render`], whole ops from
//! templates. The module `device` (feature `device`) compiles the text by NVRTC, captures all launches in one CUDA graph and
//! replays it: a run is one dispatch. Driver, NVRTC and cuBLASLt are found when the program runs.

mod areas;
pub mod branches;
pub mod code;
#[cfg(feature = "device")]
pub mod device;
pub mod error;
mod library;
pub mod lower;
pub mod render;
mod target;
mod within;

pub use areas::Areas;
pub use error::CudaError;
pub use target::CudaTarget;
