//! What the runtime asks of a device whose memory is its own. One for each backend of such a device; the rest of the runtime
//! knows these traits alone.

use crate::Error;
use onestep_cuda::code::Code;
use onestep_passes::Target;
use onestep_passes::plan::Plan;
use onestep_passes::schedule::{BufferId, Schedule};
use std::fmt::Debug;
use std::sync::Arc;

/// An open device.
pub(crate) trait Driver: Send + Sync + Debug {
    /// What it takes, for the passes.
    fn target(&self) -> &'static dyn Target;

    /// Launches and memory of a schedule, without compiling it.
    fn lower(&self, schedule: &Schedule, plan: &Plan) -> Result<Code, Error>;

    /// Compiles a schedule.
    fn compile(&self, schedule: &Schedule, plan: &Plan) -> Result<Arc<dyn DeviceProgram>, Error>;

    /// What there is to know of it, by name, for people.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    fn facts(&self) -> Result<Vec<(&'static str, String)>, Error> {
        Ok(vec![])
    }

    /// Bytes of its memory that are free.
    fn free_bytes(&self) -> Result<usize, Error>;

    /// Memory of the device that holds these bytes.
    fn upload(&self, bytes: &[u8]) -> Result<Box<dyn DeviceMemory>, Error>;
}

/// An allocation on a device.
pub(crate) trait DeviceMemory: Send + Debug {
    /// Its address there.
    fn address(&self) -> u64;

    /// Copies all of it to the host, after every run so far.
    fn read(&self, into: &mut [u8]) -> Result<(), Error>;

    /// Overwrites all of it, after every run so far.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error>;
}

/// A compiled schedule.
pub(crate) trait DeviceProgram: Send + Sync {
    /// Its launches, texts and memory.
    fn code(&self) -> &Code;

    /// Gives it memory. `states` are addresses of the state tensors in the schedule's order.
    ///
    /// # Safety
    ///
    /// Each address is of memory of this device of the state's size, that lives as long as what is made here and that nobody
    /// else accesses during a run.
    unsafe fn bind(&self, states: &[u64]) -> Result<Box<dyn DeviceBound>, Error>;
}

/// A program with its memory.
pub(crate) trait DeviceBound: Send {
    /// The bytes of an input, to be overwritten before a run. A run takes either all inputs anew, or those of the last one.
    fn input(&mut self, n: usize) -> Result<&mut [u8], Error>;

    /// Runs the program: returns when it is under way. With `times` it runs kernel by kernel, and adds the nanoseconds of each.
    fn run(&mut self, times: Option<&mut [u64]>) -> Result<(), Error>;

    /// Copies a buffer of the schedule to the host, after every run so far.
    fn read(&self, buffer: BufferId, into: &mut [u8]) -> Result<(), Error>;

    /// The number of a bad index ([`onestep_passes::indices`]) that a run has met since somebody looked last. Without `wait`, of
    /// the runs that are over.
    fn look(&mut self, wait: bool) -> Result<Option<i32>, Error>;

    /// Bytes that it holds on the device.
    fn bytes(&self) -> usize;
}
