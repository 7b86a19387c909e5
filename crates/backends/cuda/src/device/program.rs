//! A schedule compiled for a device: machine code for every distinct kernel, and an algorithm for every product.

use super::blas::{Blas, Prepared};
use super::{CudaDevice, compile, driver};
use crate::CudaError;
use crate::code::{Code, Step};
use crate::lower::lower;
use cudarc::driver::{result, sys};
use onestep_passes::plan::Plan;
use onestep_passes::schedule::Schedule;
use std::ffi::CString;
use std::sync::Arc;

/// Dynamic shared memory that a kernel gets without asking.
const SHARED_LIMIT: u32 = 48 * 1024;

/// The variable of the environment that, when it is `1`, has the products of every program measured before it is compiled.
const TUNE: &str = "ONESTEP_TUNE";

/// A compiled schedule. [`CudaBound`](super::CudaBound) gives it memory.
pub struct CudaProgram {
    pub(super) device: Arc<CudaDevice>,
    pub(super) schedule: Schedule,
    pub(super) code: Code,
    modules: Vec<sys::CUmodule>,
    pub(super) functions: Vec<sys::CUfunction>,
    /// By step, for those that are products.
    pub(super) products: Vec<Option<Arc<Prepared>>>,
}

// SAFETY: modules and functions are handles of a context, which may be used from any thread that is bound to it.
unsafe impl Send for CudaProgram {}
// SAFETY: as above.
unsafe impl Sync for CudaProgram {}

impl CudaDevice {
    /// Lowers a schedule for this device, and compiles nothing.
    pub fn lower(&self, schedule: &Schedule, plan: &Plan) -> Result<Code, CudaError> {
        self.lower_with(self.blas.as_ref(), schedule, plan)
    }

    fn lower_with(&self, blas: Option<&Blas>, schedule: &Schedule, plan: &Plan) -> Result<Code, CudaError> {
        self.context.bind_to_thread().map_err(driver("binding the context"))?;
        lower(schedule, plan, self.target(), &|p| blas.is_some_and(|b| b.prepare(p).is_some()))
    }
}

impl CudaProgram {
    /// Compiles every kernel of a schedule.
    pub fn new(device: &Arc<CudaDevice>, schedule: &Schedule, plan: &Plan) -> Result<CudaProgram, CudaError> {
        CudaProgram::with(device, schedule, plan, true)
    }

    /// The same, with every product by this crate's own kernel unless `vendor`.
    pub fn with(
        device: &Arc<CudaDevice>,
        schedule: &Schedule,
        plan: &Plan,
        vendor: bool,
    ) -> Result<CudaProgram, CudaError> {
        let blas = device.blas.as_ref().filter(|_| vendor);
        let code = device.lower_with(blas, schedule, plan)?;
        if std::env::var_os(TUNE).is_some_and(|v| v == "1") {
            device.tune(code.products().filter(|p| blas.is_some_and(|b| !b.has_recorded(p))))?;
        }
        let products = code.steps.iter().map(|(_, s)| match s {
            Step::Product(p) => blas.and_then(|b| b.prepare(p)),
            _ => None,
        });
        let products = products.collect();
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let texts = code.texts(threads);
        let objects = compile::compile(&texts, &device.architecture)?;
        let mut program = CudaProgram {
            device: device.clone(),
            schedule: schedule.clone(),
            code,
            modules: vec![],
            functions: vec![],
            products,
        };
        for object in &objects {
            // SAFETY: the bytes are an object that NVRTC made for this device.
            let module = unsafe { result::module::load_data(object.as_ptr().cast()) };
            program.modules.push(module.map_err(driver("loading compiled kernels"))?);
        }
        let modules = texts.iter().zip(&program.modules).flat_map(|((held, _), m)| vec![*m; *held]);
        for (kernel, module) in program.code.kernels.iter().zip(modules) {
            let refused = |message: String| CudaError::Driver { call: "finding a kernel", message };
            let name = CString::new(kernel.name.as_str()).map_err(|e| refused(e.to_string()))?;
            // SAFETY: the module is loaded.
            let function = unsafe { result::module::get_function(module, name) };
            let function = function.map_err(|e| refused(format!("{}: {e}", kernel.name)))?;
            if kernel.shared_bytes > SHARED_LIMIT {
                let attribute =
                    sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                let bytes = kernel.shared_bytes as i32;
                // SAFETY: the function is of a loaded module.
                unsafe { result::function::set_function_attribute(function, attribute, bytes) }
                    .map_err(driver("asking for shared memory"))?;
            }
            program.functions.push(function);
        }
        Ok(program)
    }

    /// The device.
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.device
    }

    /// The launches and texts.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// The kernels' names in order, for reports: op and sizes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.code.labels.iter().map(String::as_str)
    }
}

impl Drop for CudaProgram {
    fn drop(&mut self) {
        let bound = self.device.context.bind_to_thread();
        self.device.context.record_err(bound);
        for module in self.modules.drain(..) {
            // SAFETY: loaded once; whoever runs its functions keeps the program.
            self.device.context.record_err(unsafe { result::module::unload(module) });
        }
    }
}
