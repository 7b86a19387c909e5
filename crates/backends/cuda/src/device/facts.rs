//! What there is to know of a device and its libraries, for people.

use super::{CudaDevice, driver, driver_version};
use crate::CudaError;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::{cublaslt, nvrtc};

/// A GiB.
const GIB: f64 = (1u64 << 30) as f64;

impl CudaDevice {
    /// Facts by name: capability, memory, driver, libraries, and which kernels it gets.
    pub fn facts(&self) -> Result<Vec<(&'static str, String)>, CudaError> {
        let number = |what| self.context.attribute(what).map_err(driver("asking for an attribute"));
        let (major, minor) =
            self.context.compute_capability().map_err(driver("asking for its capability"))?;
        let processors = number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let cache = number(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? >> 20;
        let shared = number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? >> 10;
        let (free, total) = self.memory()?;
        let [free, total] = [free, total].map(|bytes| bytes as f64 / GIB);
        let version = driver_version()?;
        let attention = match self.target().has_warpgroups() {
            true => "attention by this program's own kernels on products of a warpgroup (wgmma)",
            false => "attention taken apart: its own kernels need products of a warpgroup (wgmma), of sm_90a",
        };
        Ok(vec![
            ("processor", format!("capability {major}.{minor}, {processors} multiprocessors")),
            (
                "memory",
                format!("{free:.1} GiB free of {total:.1}; cache {cache} MiB, {shared} KiB for a block"),
            ),
            ("driver", format!("of CUDA {}.{}", version / 1000, version % 1000 / 10)),
            ("compiler", compiler()?),
            ("products", self.products()),
            ("kernels", attention.to_string()),
        ])
    }

    fn products(&self) -> String {
        if self.blas.is_none() {
            return "by this program's own kernels; with cuBLASLt large ones are faster".into();
        }
        // SAFETY: the library is open; the call has no other condition.
        let version = unsafe { cublaslt::sys::cublasLtGetVersion() };
        // From version 12 on it has two digits for each part.
        let (major, minor, patch) = (version / 10_000, version / 100 % 100, version % 100);
        format!("large ones by cuBLASLt {major}.{minor}.{patch}")
    }
}

fn compiler() -> Result<String, CudaError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both places are written.
    let asked = unsafe { nvrtc::sys::nvrtcVersion(&mut major, &mut minor) }.result();
    asked.map_err(|e| CudaError::Driver {
        call: "asking for the compiler's version",
        message: format!("{e:?}"),
    })?;
    Ok(format!("NVRTC {major}.{minor}"))
}
