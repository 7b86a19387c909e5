//! Onestep's runtime: named [`State`] on a device, [`Program`]s whose dimensions may be variables, and their
//! [`Executable`]s, bound to a state once and run with one dispatch.

mod backend;
mod bound;
mod buffer;
pub mod debug;
mod device;
mod error;
mod executable;
mod explain;
mod feeds;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(feature = "cuda")]
mod mirror;
mod outputs;
mod program;
mod replay;
mod report;
mod state;
mod update;

pub use bound::{Bound, Traffic};
pub use device::Device;
pub use error::Error;
pub use executable::{Executable, Options};
pub use feeds::Feeds;
pub use outputs::Outputs;
pub use program::{CompileEvent, Program};
pub use replay::ValueDigest;
pub use report::{BufferReport, KernelReport, Report};
pub use state::{Binding, State};
