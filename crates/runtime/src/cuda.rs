//! The driver of an NVIDIA GPU.

use crate::Error;
use crate::driver::{DeviceBound, DeviceMemory, DeviceProgram, Driver};
use onestep_cuda::code::Code;
use onestep_cuda::device::{CudaBound, CudaDevice, CudaProgram, Memory};
use onestep_passes::Target;
use onestep_passes::plan::Plan;
use onestep_passes::schedule::{BufferId, Schedule};
use std::fmt;
use std::sync::Arc;

/// The GPU.
pub(crate) struct Cuda(Arc<CudaDevice>);

impl Cuda {
    /// The first one.
    pub fn open() -> Result<Cuda, Error> {
        Ok(Cuda(CudaDevice::open(0)?))
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Driver for Cuda {
    fn target(&self) -> &'static dyn Target {
        self.0.target()
    }
    fn lower(&self, schedule: &Schedule, plan: &Plan) -> Result<Code, Error> {
        Ok(self.0.lower(schedule, plan)?)
    }
    fn compile(&self, schedule: &Schedule, plan: &Plan) -> Result<Arc<dyn DeviceProgram>, Error> {
        Ok(Arc::new(Compiled(Arc::new(CudaProgram::new(&self.0, schedule, plan)?))))
    }
    fn facts(&self) -> Result<Vec<(&'static str, String)>, Error> {
        Ok(self.0.facts()?)
    }
    fn free_bytes(&self) -> Result<usize, Error> {
        Ok(self.0.memory()?.0)
    }
    fn upload(&self, bytes: &[u8]) -> Result<Box<dyn DeviceMemory>, Error> {
        Ok(Box::new(Memory::of(&self.0, bytes)?))
    }
}

impl DeviceMemory for Memory {
    fn address(&self) -> u64 {
        self.pointer()
    }
    fn read(&self, into: &mut [u8]) -> Result<(), Error> {
        Ok(Memory::read(self, 0, into)?)
    }
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        Ok(Memory::write(self, 0, bytes)?)
    }
}

struct Compiled(Arc<CudaProgram>);

impl DeviceProgram for Compiled {
    fn code(&self) -> &Code {
        self.0.code()
    }
    unsafe fn bind(&self, states: &[u64]) -> Result<Box<dyn DeviceBound>, Error> {
        // SAFETY: the contract is the same.
        Ok(Box::new(unsafe { CudaBound::new(&self.0, states, true) }?))
    }
}

impl DeviceBound for CudaBound {
    fn input(&mut self, n: usize) -> Result<&mut [u8], Error> {
        Ok(CudaBound::input(self, n)?)
    }
    fn run(&mut self, times: Option<&mut [u64]>) -> Result<(), Error> {
        match times {
            None => CudaBound::run(self)?,
            Some(times) => self.run_timed(times)?,
        }
        Ok(())
    }
    fn read(&self, buffer: BufferId, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.read_into(buffer, into)?)
    }
    fn look(&mut self, wait: bool) -> Result<Option<i32>, Error> {
        Ok(CudaBound::look(self, wait)?)
    }
    fn bytes(&self) -> usize {
        CudaBound::bytes(self)
    }
}
