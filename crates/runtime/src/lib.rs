//! Onestep's runtime: named [`State`] on a device, [`Program`]s whose dimensions may be variables, and their
//! [`Executable`]s, bound to a state once and run with one dispatch.

mod backend;
mod bound;
mod buffer;
#[cfg(feature = "cuda")]
mod cuda;
pub mod debug;
mod device;
mod driver;
mod error;
mod executable;
mod explain;
#[cfg(test)]
mod fake;
mod feeds;
mod memory;
mod mirror;
mod outputs;
mod program;
mod remote;
mod replay;
mod report;
mod state;
mod update;

pub use bound::{Bound, Traffic};
pub use device::Device;
pub use error::Error;
pub use executable::{Executable, Options};
pub use feeds::Feeds;
pub use memory::{Memory, Remedy};
pub use outputs::Outputs;
pub use program::{CompileEvent, FindRemedy, Program};
pub use replay::ValueDigest;
pub use report::{BufferReport, KernelReport, LaunchReport, Report};
pub use state::{Binding, State};
