//! Compiling, launching and timing a kernel through the driver.

use super::Error;
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, LaunchConfig, PushKernelArg, sys,
};
use cudarc::nvrtc::{self, CompileOptions, Ptx};
use onestep_cuda::render::{COMPILE_OPTIONS, CudaKernel};
use onestep_ir::Array;
use std::sync::Arc;

/// Launches of a timing.
const LAUNCHES: usize = 20;

/// Compiles for an architecture: `compute_90` to PTX, `sm_90` through the assembler too.
pub fn compile(kernel: &CudaKernel, architecture: &str) -> Result<Ptx, Error> {
    let mut options: Vec<String> = COMPILE_OPTIONS.iter().map(|o| o.to_string()).collect();
    options.push(format!("--gpu-architecture={architecture}"));
    let options = CompileOptions { options, ..Default::default() };
    nvrtc::compile_ptx_with_opts(&kernel.source, options).map_err(|e| {
        let log = match &e {
            nvrtc::CompileError::CompileError { log, .. } => log.to_string_lossy().into_owned(),
            other => format!("{other:?}"),
        };
        format!("{}: NVRTC: {log}\n{}", kernel.entry, kernel.source).into()
    })
}

/// Whether NVRTC can be loaded.
pub fn has_nvrtc() -> bool {
    // SAFETY: only tries to open the library by its usual names.
    unsafe { nvrtc::sys::is_culib_present() }
}

/// The first device.
pub struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    /// Its name.
    pub name: String,
    /// As NVRTC names it: `compute_90`.
    pub architecture: String,
}

impl Device {
    pub fn open() -> Result<Device, Error> {
        // SAFETY: only tries to open the library by its usual names.
        if !unsafe { sys::is_culib_present() } {
            return Err("no CUDA driver was found (libcuda)".into());
        }
        let context = CudaContext::new(0).map_err(|e| format!("no CUDA device can be opened: {e}"))?;
        // SAFETY: every buffer is used on one stream alone, so no event need order its uses.
        unsafe { context.disable_event_tracking() };
        let (major, minor) = context.compute_capability()?;
        let stream = context.new_stream()?;
        Ok(Device { name: context.name()?, architecture: format!("compute_{major}{minor}"), context, stream })
    }

    /// Loads a kernel and puts its buffers on the device.
    pub fn load(&self, kernel: &CudaKernel, ptx: Ptx, contents: &[Array]) -> Result<Loaded, Error> {
        let module = self.context.load_module(ptx)?;
        let function = module.load_function(&kernel.entry)?;
        let buffers = contents
            .iter()
            .map(|a| {
                // An allocation has at least a byte.
                let bytes = if a.is_empty() { &[0][..] } else { a.bytes() };
                self.stream.clone_htod(bytes)
            })
            .collect::<Result<_, _>>()?;
        Ok(Loaded { stream: self.stream.clone(), _module: module, function, kernel: kernel.clone(), buffers })
    }
}

/// A kernel with its buffers on the device.
pub struct Loaded {
    stream: Arc<CudaStream>,
    _module: Arc<CudaModule>,
    function: CudaFunction,
    kernel: CudaKernel,
    buffers: Vec<CudaSlice<u8>>,
}

impl Loaded {
    /// Puts `contents` into the buffers again.
    pub fn reset(&mut self, contents: &[Array]) -> Result<(), Error> {
        for (buffer, a) in self.buffers.iter_mut().zip(contents) {
            self.stream.memcpy_htod(a.bytes(), buffer)?;
        }
        Ok(())
    }

    pub fn launch(&self) -> Result<(), Error> {
        let k = &self.kernel;
        let [gx, gy, gz] = k.grid;
        let [bx, by, bz] = k.block;
        let config = LaunchConfig {
            grid_dim: (gx, gy, gz),
            block_dim: (bx, by, bz),
            shared_mem_bytes: k.shared_bytes,
        };
        let mut arguments = self.stream.launch_builder(&self.function);
        for b in &k.parameters {
            arguments.arg(&self.buffers[b.index()]);
        }
        // SAFETY: the arguments are the buffers that the rendered function names, in its order, each of the length that the
        // kernel's accesses stay within (the reference has run the same accesses with bounds checked).
        unsafe { arguments.launch(config) }?;
        Ok(())
    }

    /// The buffers' contents, of the dtypes and lengths of `like`.
    pub fn read(&self, like: &[Array]) -> Result<Vec<Array>, Error> {
        let one = |(buffer, a): (&CudaSlice<u8>, &Array)| -> Result<Array, Error> {
            let bytes = self.stream.clone_dtoh(buffer)?;
            Ok(Array::from_bytes(a.dtype(), a.shape(), &bytes[..a.bytes().len()])?)
        };
        let all = self.buffers.iter().zip(like).map(one).collect();
        self.stream.synchronize()?;
        all
    }

    /// Microseconds of a launch, the mean of several in a row.
    pub fn time(&self) -> Result<f64, Error> {
        self.launch()?;
        let start = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
        for _ in 0..LAUNCHES {
            self.launch()?;
        }
        let end = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
        Ok(start.elapsed_ms(&end)? as f64 * 1e3 / LAUNCHES as f64)
    }
}
