//! A schedule compiled by the backend of its device.

use crate::device::{Device, Kind};
use crate::{Error, explain};
use onestep_cpu::CpuProgram;
#[cfg(feature = "cuda")]
use onestep_cuda::device::CudaProgram;
use onestep_passes::pipeline::Compiled;
#[cfg(feature = "cuda")]
use std::sync::Arc;

/// The compiled kernels.
pub(crate) enum Backend {
    Cpu(CpuProgram),
    #[cfg(feature = "cuda")]
    Cuda(Arc<CudaProgram>),
}

impl Backend {
    pub fn new(device: &Device, compiled: &Compiled, fused: bool) -> Result<Backend, Error> {
        match &device.kind {
            Kind::Cpu(_) => {
                let program = CpuProgram::new(&compiled.schedule);
                let named = |e| explain::kernel_error(e, device.target(), compiled, fused);
                Ok(Backend::Cpu(program.map_err(named)?))
            }
            #[cfg(feature = "cuda")]
            Kind::Cuda(cuda) => {
                Ok(Backend::Cuda(Arc::new(CudaProgram::new(cuda, &compiled.schedule, &compiled.plan)?)))
            }
        }
    }

    /// The CPU's program, if it is one.
    pub fn cpu(&self) -> Option<&CpuProgram> {
        match self {
            Backend::Cpu(program) => Some(program),
            #[cfg(feature = "cuda")]
            Backend::Cuda(_) => None,
        }
    }

    /// The kernels' names in order: op and sizes.
    pub fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Backend::Cpu(program) => Box::new(program.names()),
            #[cfg(feature = "cuda")]
            Backend::Cuda(program) => Box::new(program.names()),
        }
    }
}
