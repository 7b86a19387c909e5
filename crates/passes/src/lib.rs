//! Onestep's passes: functions from graph to graph, and at the end from graph to schedule and plan.

pub mod cse;
pub mod decompose;
pub mod explain;
pub mod fold;
pub mod fuse;
pub mod group;
pub mod guard;
pub mod hoist;
pub mod indices;
pub mod legalize;
pub mod pipeline;
pub mod plan;
pub mod precision;
pub mod schedule;
pub mod simplify;
pub mod store;
pub mod user;

mod error;
mod target;

pub use error::CompileError;
pub use target::Target;
