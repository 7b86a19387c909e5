//! The launch of one kernel.

use super::driver;
use crate::CudaError;
use cudarc::driver::sys;
use std::ffi::c_void;

/// How a kernel is launched.
pub(super) struct Launch {
    pub function: sys::CUfunction,
    pub grid: u32,
    pub threads: u32,
    pub shared_bytes: u32,
    /// Whether it may be launched before the kernel in front of it on the stream has ended, for which it then waits itself:
    /// the text that every kernel begins with does.
    pub early: bool,
}

impl Launch {
    /// Starts the kernel on a stream.
    ///
    /// # Safety
    ///
    /// The arguments are what the function's parameters, all addresses, stand for, and nothing else uses that memory
    /// meanwhile.
    pub unsafe fn start(&self, stream: sys::CUstream, arguments: &mut [u64]) -> Result<(), CudaError> {
        let mut pointers: Vec<*mut c_void> = arguments.iter_mut().map(|v| (v as *mut u64).cast()).collect();
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: self.grid,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes,
            hStream: stream,
            attrs: &raw mut attribute,
            numAttrs: self.early as u32,
        };
        let extra = std::ptr::null_mut();
        // SAFETY: the caller's contract; what the configuration points to is read before the call returns.
        unsafe { sys::cuLaunchKernelEx(&config, self.function, pointers.as_mut_ptr(), extra) }
            .result()
            .map_err(driver("launching a kernel"))
    }
}
