//! A CUDA device: what is opened once, and shared by all programs.

mod blas;
mod bound;
mod compile;
mod facts;
mod feed;
mod launch;
mod memory;
mod program;
mod table;
mod tune;

pub use bound::CudaBound;
pub use memory::Memory;
pub use program::CudaProgram;
pub use tune::Tuned;

use crate::{CudaError, CudaTarget};
use blas::Blas;
use cudarc::driver::{CudaContext, CudaStream, sys};
use cudarc::{cublaslt, nvrtc};
use std::sync::Arc;

/// An open device: context, streams, and the libraries.
pub struct CudaDevice {
    context: Arc<CudaContext>,
    /// Where everything runs but the copies of inputs.
    stream: Arc<CudaStream>,
    copies: Arc<CudaStream>,
    blas: Option<Blas>,
    name: String,
    architecture: String,
    /// Whether a kernel may be launched before its predecessor has ended.
    early: bool,
}

impl std::fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.architecture)
    }
}

/// A library that the backend uses, and whether it was found.
#[derive(Clone, Debug)]
pub struct Library {
    /// Its file.
    pub file: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// Whether it can be loaded.
    pub found: bool,
}

const DRIVER: &str = "libcuda.so.1";
const NVRTC: &str = "libnvrtc.so";
const BLAS: &str = "libcublasLt.so";

/// The libraries and whether each was found. Opens no device.
pub fn libraries() -> [Library; 3] {
    // SAFETY: each only tries to open the library by its usual names.
    let (driver, compiler, blas) = unsafe {
        (sys::is_culib_present(), nvrtc::sys::is_culib_present(), cublaslt::sys::is_culib_present())
    };
    [
        Library { file: DRIVER, purpose: "the driver: needed", found: driver },
        Library { file: NVRTC, purpose: "compiles kernels: needed", found: compiler },
        Library {
            file: BLAS,
            purpose: "fast matrix products; without it the crate's own kernels",
            found: blas,
        },
    ]
}

/// The error of a call of the driver.
pub(crate) fn driver(call: &'static str) -> impl Fn(cudarc::driver::DriverError) -> CudaError {
    move |e| CudaError::Driver { call, message: e.to_string() }
}

fn driver_version() -> Result<i32, CudaError> {
    let mut version = 0;
    // SAFETY: the place is written.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(driver("asking for its version"))?;
    Ok(version)
}

impl CudaDevice {
    /// Opens device `ordinal`.
    pub fn open(ordinal: usize) -> Result<Arc<CudaDevice>, CudaError> {
        let [driver_library, compiler, blas] = libraries();
        if !driver_library.found {
            let remedy = "install NVIDIA's driver, or use the CPU";
            return Err(CudaError::Missing { library: DRIVER, remedy });
        }
        if !compiler.found {
            let remedy = "install the CUDA toolkit, or name its lib folder in LD_LIBRARY_PATH";
            return Err(CudaError::Missing { library: NVRTC, remedy });
        }
        let context = CudaContext::new(ordinal).map_err(driver("opening the device"))?;
        // SAFETY: all work of a device is on one stream, but for copies of inputs, which events of their own order.
        unsafe { context.disable_event_tracking() };
        let (major, minor) = context.compute_capability().map_err(driver("asking for its capability"))?;
        // From Hopper on, instructions of one architecture alone have a suffix.
        let suffix = if major >= 9 { "a" } else { "" };
        let stream = || context.new_stream().map_err(driver("creating a stream"));
        let (stream, copies) = (stream()?, stream()?);
        let name = context.name().map_err(driver("asking for its name"))?;
        let blas = if blas.found { Some(Blas::new(&name, driver_version()?)?) } else { None };
        if major < 8 {
            return Err(CudaError::Capability { name, capability: format!("{major}.{minor}") });
        }
        let architecture = format!("sm_{major}{minor}{suffix}");
        Ok(Arc::new(CudaDevice { context, stream, copies, blas, name, architecture, early: major >= 9 }))
    }

    /// Its name, as NVIDIA gives it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it takes, for the passes.
    pub fn target(&self) -> &'static CudaTarget {
        CudaTarget::of(&self.architecture)
    }

    /// Its architecture, such as `sm_90a`.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Bytes of its memory: free, and in all.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        self.context.mem_get_info().map_err(driver("asking for free memory"))
    }

    /// Waits until all work is done.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.stream.synchronize().map_err(driver("waiting for the device"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine without CUDA, what is missing is named, with what to do.
    #[test]
    fn what_is_missing_is_named() {
        let [driver_library, compiler, _] = libraries();
        match CudaDevice::open(0) {
            Ok(device) => assert!(device.architecture().starts_with("sm_")),
            Err(e) if !driver_library.found => {
                assert_eq!(
                    e.to_string(),
                    "libcuda.so.1 was not found; install NVIDIA's driver, or use the CPU"
                );
            }
            Err(e) if !compiler.found => assert!(e.to_string().contains("LD_LIBRARY_PATH"), "{e}"),
            Err(e) => assert!(matches!(e, CudaError::Driver { .. }), "{e}"),
        }
    }
}
