//! Onestep's runtime: named [`State`] on a device, [`Program`]s whose dimensions may be variables, and their
//! [`Executable`]s, bound to a state once and run with one dispatch.

mod buffer;
pub mod debug;
mod device;
mod error;
mod executable;
mod explain;
mod feeds;
mod outputs;
mod program;
mod report;
mod state;

pub use device::Device;
pub use error::Error;
pub use executable::{Bound, Executable, Options};
pub use feeds::Feeds;
pub use outputs::Outputs;
pub use program::{CompileEvent, Program};
pub use report::{BufferReport, KernelReport, Report};
pub use state::State;
