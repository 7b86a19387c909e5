//! The launch of one kernel.

use super::driver;
use crate::CudaError;
use crate::code::{PANEL, TensorMap};
use cudarc::driver::sys;
use onestep_ir::DType;
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
    /// Starts the kernel on a stream. The maps stand for the first arguments.
    ///
    /// # Safety
    ///
    /// The arguments are what the function's parameters, maps and then addresses, stand for, and nothing else uses that memory
    /// meanwhile.
    pub unsafe fn start(
        &self,
        stream: sys::CUstream,
        maps: &mut [sys::CUtensorMap],
        arguments: &mut [u64],
    ) -> Result<(), CudaError> {
        let addresses = arguments[maps.len()..].iter_mut().map(|v| (v as *mut u64).cast());
        let maps = maps.iter_mut().map(|m| (m as *mut sys::CUtensorMap).cast());
        let mut pointers: Vec<*mut c_void> = maps.chain(addresses).collect();
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

/// What the copy engine is told of a matrix at an address.
pub(super) fn tensor_map(map: &TensorMap, address: u64) -> Result<sys::CUtensorMap, CudaError> {
    let dtype = match map.dtype {
        DType::F16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        _ => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    };
    let sizes = map.sizes.map(|n| n as u64);
    let pitch = (map.pitch * map.dtype.size()) as u64;
    let panel = [PANEL as u32; 2];
    let mut made = sys::CUtensorMap { opaque: [0; 16] };
    // SAFETY: each pointer is to as many numbers as the driver reads for two axes; the address is only written down.
    unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut made,
            dtype,
            2,
            address as *mut c_void,
            sizes.as_ptr(),
            &raw const pitch,
            panel.as_ptr(),
            [1, 1].as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    }
    .result()
    .map_err(driver("describing a matrix"))?;
    Ok(made)
}
