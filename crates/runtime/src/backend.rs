//! A schedule compiled by the backend of its device.

use crate::device::{Device, Kind};
use crate::driver::DeviceProgram;
use crate::memory::Memory;
use crate::{Error, explain};
use onestep_cpu::CpuProgram;
use onestep_cuda::code::Code;
use onestep_cuda::lower::lower_offline;
use onestep_passes::pipeline::Compiled;
use std::sync::Arc;

/// The compiled kernels.
pub(crate) enum Backend {
    Cpu(CpuProgram),
    /// On a device with memory of its own.
    Device(Arc<dyn DeviceProgram>),
    /// For such a device that is not there: it can be looked at, and not run.
    Offline(Code),
}

impl Backend {
    pub fn new(device: &Device, compiled: &Compiled, fused: bool) -> Result<Backend, Error> {
        let Compiled { schedule, plan, .. } = compiled;
        Ok(match &device.kind {
            Kind::Cpu(_) => {
                let named = |e| explain::kernel_error(e, device.target(), compiled, fused);
                Backend::Cpu(CpuProgram::new(schedule).map_err(named)?)
            }
            Kind::Own(driver) => Backend::Device(driver.compile(schedule, plan)?),
            Kind::Offline => Backend::Offline(lower_offline(schedule, plan)?),
        })
    }

    /// The memory that a program would take, without compiling it.
    pub fn memory_of(device: &Device, compiled: &Compiled) -> Result<Memory, Error> {
        let Compiled { schedule, plan, .. } = compiled;
        Ok(match &device.kind {
            Kind::Cpu(pool) => Memory::on_cpu(plan, CpuProgram::new(schedule)?.scratch_bytes(pool.threads())),
            Kind::Own(driver) => Memory::on_gpu(compiled, &driver.lower(schedule, plan)?),
            Kind::Offline => Memory::on_gpu(compiled, &lower_offline(schedule, plan)?),
        })
    }

    /// The memory that it takes.
    pub fn memory(&self, device: &Device, compiled: &Compiled) -> Memory {
        match (self, self.code()) {
            (_, Some(code)) => Memory::on_gpu(compiled, code),
            (Backend::Cpu(program), _) => {
                Memory::on_cpu(&compiled.plan, program.scratch_bytes(device.threads()))
            }
            _ => Memory::on_cpu(&compiled.plan, 0),
        }
    }

    /// The CPU's program, if it is one.
    pub fn cpu(&self) -> Option<&CpuProgram> {
        match self {
            Backend::Cpu(program) => Some(program),
            _ => None,
        }
    }

    /// Launches and texts, of a GPU.
    pub fn code(&self) -> Option<&Code> {
        match self {
            Backend::Cpu(_) => None,
            Backend::Device(program) => Some(program.code()),
            Backend::Offline(code) => Some(code),
        }
    }

    /// The kernels' names in order: op and sizes.
    pub fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Backend::Cpu(program) => Box::new(program.names()),
            Backend::Device(program) => Box::new(program.code().labels.iter().map(String::as_str)),
            Backend::Offline(code) => Box::new(code.labels.iter().map(String::as_str)),
        }
    }
}
