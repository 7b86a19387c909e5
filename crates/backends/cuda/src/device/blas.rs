//! Matrix products by cuBLASLt: `f32`, in TF32 where that is allowed, and floats of 16 and 8 bits; all with sums in `f32`: of 8-bit
//! ones the library would keep fewer digits between steps if it were asked for "fast accumulation".
//!
//! Its matrices are column-major, so what is asked for is the transposed product `outᵀ = rhsᵀ · lhsᵀ`. Sums over pieces of `k` go
//! through the workspace in a fixed order, never through atomics. The algorithm is the recorded one (see `tune`), or else the
//! first that the library's heuristic names.

use super::table::Table;
use crate::CudaError;
use crate::areas::WORKSPACE;
use crate::code::Product;
use cudarc::cublaslt::{result, sys};
use onestep_ir::DType;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// The library, and the products that it has been asked for.
pub(super) struct Blas {
    handle: sys::cublasLtHandle_t,
    known: Mutex<HashMap<Shape, Option<Arc<Prepared>>>>,
    table: Mutex<Table>,
}

// SAFETY: the handle may be used from any thread, and its descriptors are not changed once they are made.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// All of a product but where it is.
pub(super) type Shape = ([usize; 4], [DType; 2], bool, DType, [usize; 3], [usize; 3], usize);

/// A product as the library describes it.
struct Description {
    operation: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
}

// SAFETY: as for the handle.
unsafe impl Send for Description {}
// SAFETY: as for the handle.
unsafe impl Sync for Description {}

/// A product with its algorithm.
pub(super) struct Prepared {
    description: Arc<Description>,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

fn failed(e: result::CublasError) -> CudaError {
    CudaError::Driver { call: "cuBLASLt", message: e.to_string() }
}

/// A row-major matrix as a transposed column-major one: rows, columns and leading dimension of what is stored, and whether that
/// has to be transposed.
fn stored([rows, columns]: [usize; 2], [down, right]: [usize; 2]) -> Option<([usize; 3], bool)> {
    let fits = |distance: usize, width: usize, count: usize| count == 1 || distance >= width;
    if (right == 1 || columns == 1) && fits(down, columns, rows) {
        return Some(([columns, rows, if rows == 1 { columns } else { down }], false));
    }
    if (down == 1 || rows == 1) && fits(right, rows, columns) {
        return Some(([rows, columns, if columns == 1 { rows } else { right }], true));
    }
    None
}

fn data_type(d: DType) -> Option<sys::cudaDataType> {
    match d {
        DType::F32 => Some(sys::cudaDataType_t::CUDA_R_32F),
        DType::F16 => Some(sys::cudaDataType_t::CUDA_R_16F),
        DType::BF16 => Some(sys::cudaDataType_t::CUDA_R_16BF),
        DType::F8E4M3 => Some(sys::cudaDataType_t::CUDA_R_8F_E4M3),
        DType::F8E5M2 => Some(sys::cudaDataType_t::CUDA_R_8F_E5M2),
        _ => None,
    }
}

/// A shape in the recorded table.
fn line((sizes, dtypes, tf32, result, lhs, rhs, aligned): Shape) -> String {
    let list = |numbers: &[usize], between: &str| {
        numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
    };
    let (sizes, lhs, rhs) = (list(&sizes, "x"), list(&lhs, ","), list(&rhs, ","));
    let factors = match dtypes {
        _ if tf32 => "tf32".into(),
        [left, right] if left == right => left.to_string(),
        [left, right] => format!("{left}*{right}"),
    };
    format!("{sizes} {factors} {result} strides {lhs} {rhs} aligned {aligned}")
}

impl Blas {
    /// Opens the library, with what is recorded for a device and its driver.
    pub fn new(device: &str, driver: i32) -> Result<Blas, CudaError> {
        let handle = result::create_handle().map_err(failed)?;
        // SAFETY: the library is there; the call has no other condition.
        let version = unsafe { sys::cublasLtGetVersion() };
        let table = Mutex::new(Table::open(device, driver, version));
        Ok(Blas { handle, known: Mutex::default(), table })
    }

    /// What an algorithm is chosen by.
    pub fn shape(p: &Product) -> Shape {
        (p.sizes, [p.dtype, p.right_dtype], p.tf32, p.result, p.lhs.1, p.rhs.1, p.aligned)
    }

    /// The product with its algorithm, if the library has one for it.
    pub fn prepare(&self, p: &Product) -> Option<Arc<Prepared>> {
        let shape = Blas::shape(p);
        let mut known = self.known.lock().unwrap_or_else(|e| e.into_inner());
        known.entry(shape).or_insert_with(|| self.choose(p)).clone()
    }

    fn choose(&self, p: &Product) -> Option<Arc<Prepared>> {
        let description = Arc::new(Description::new(p)?);
        let algorithm = match self.recorded(p).filter(|a| self.runs(&description, a)) {
            Some(algorithm) => algorithm,
            None => *self.ask(&description, p.aligned, 1)?.first()?,
        };
        Some(Arc::new(Prepared { description, algorithm }))
    }

    fn recorded(&self, p: &Product) -> Option<sys::cublasLtMatmulAlgo_t> {
        let data = self.table.lock().unwrap_or_else(|e| e.into_inner()).get(&line(Blas::shape(p)));
        data.map(|data| sys::cublasLtMatmulAlgo_t { data })
    }

    /// Whether an algorithm is recorded for a product.
    pub fn has_recorded(&self, p: &Product) -> bool {
        self.recorded(p).is_some()
    }

    /// The product with each of at most `count` algorithms, the library's own choice first.
    pub fn candidates(&self, p: &Product, count: usize) -> Vec<Arc<Prepared>> {
        let Some(description) = Description::new(p).map(Arc::new) else { return vec![] };
        let algorithms = self.ask(&description, p.aligned, count).unwrap_or_default();
        let prepared = |algorithm| Arc::new(Prepared { description: description.clone(), algorithm });
        algorithms.into_iter().map(prepared).collect()
    }

    /// Records algorithms, and takes them from now on.
    pub fn record(&self, choices: &[(Product, Arc<Prepared>)]) {
        let mut known = self.known.lock().unwrap_or_else(|e| e.into_inner());
        known.extend(choices.iter().map(|(p, chosen)| (Blas::shape(p), Some(chosen.clone()))));
        let lines = choices.iter().map(|(p, chosen)| (line(Blas::shape(p)), chosen.algorithm.data));
        self.table.lock().unwrap_or_else(|e| e.into_inner()).record(lines);
    }

    /// Whether the library takes an algorithm that was recorded for the product.
    fn runs(&self, d: &Description, algorithm: &sys::cublasLtMatmulAlgo_t) -> bool {
        let [right, left, out] = d.layouts;
        // SAFETY: a result is plain numbers.
        let mut result: sys::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        // SAFETY: everything is alive; the result is written.
        let checked = unsafe {
            sys::cublasLtMatmulAlgoCheck(
                self.handle,
                d.operation,
                right,
                left,
                out,
                out,
                algorithm,
                &mut result,
            )
        };
        checked.result().is_ok() && result.state.result().is_ok() && result.workspaceSize <= WORKSPACE
    }

    /// At most `count` algorithms, in the order of the library's heuristic.
    fn ask(&self, d: &Description, aligned: usize, count: usize) -> Option<Vec<sys::cublasLtMatmulAlgo_t>> {
        let preference = result::create_matmul_pref().ok()?;
        let found = self.found(d, preference, aligned, count);
        // SAFETY: created above and destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        found
    }

    fn found(
        &self,
        d: &Description,
        preference: sys::cublasLtMatmulPreference_t,
        aligned: usize,
        count: usize,
    ) -> Option<Vec<sys::cublasLtMatmulAlgo_t>> {
        use sys::cublasLtMatmulPreferenceAttributes_t as A;
        use sys::cublasLtReductionScheme_t as R;
        let workspace = WORKSPACE as u64;
        let aligned = aligned as u32;
        // Not in place: that would add the pieces in any order.
        let schemes = R::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32
            | R::CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE as u32;
        let set = |attribute, value: *const c_void, size| {
            // SAFETY: the preference is alive and the value has the attribute's size.
            unsafe { result::set_matmul_pref_attribute(preference, attribute, value, size) }.ok()
        };
        set(A::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const workspace).cast(), 8)?;
        set(A::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, (&raw const schemes).cast(), 4)?;
        for attribute in [
            A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            set(attribute, (&raw const aligned).cast(), 4)?;
        }
        let [right, left, out] = d.layouts;
        // SAFETY: results are plain numbers.
        let mut results: Vec<sys::cublasLtMatmulHeuristicResult_t> =
            vec![unsafe { std::mem::zeroed() }; count];
        let mut returned = 0;
        // SAFETY: everything is alive, and there is room for `count` results.
        let asked = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                d.operation,
                right,
                left,
                out,
                out,
                preference,
                i32::try_from(count).ok()?,
                results.as_mut_ptr(),
                &mut returned,
            )
        };
        asked.result().ok()?;
        results.truncate(usize::try_from(returned).ok()?);
        Some(results.into_iter().filter(|r| r.state.result().is_ok()).map(|r| r.algo).collect())
    }

    /// Starts a product on a stream.
    ///
    /// # Safety
    ///
    /// The addresses are of matrices as the product was prepared for, and `workspace` of [`WORKSPACE`] bytes that nothing else
    /// uses meanwhile.
    pub unsafe fn launch(
        &self,
        p: &Prepared,
        [lhs, rhs, out]: [u64; 3],
        workspace: u64,
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<(), CudaError> {
        let (one, zero) = (1.0f32, 0.0f32);
        let [right, left, result_layout] = p.description.layouts;
        // SAFETY: the caller's contract; the scales are read before the call returns.
        unsafe {
            result::matmul(
                self.handle,
                p.description.operation,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                rhs as *const c_void,
                right,
                lhs as *const c_void,
                left,
                out as *const c_void,
                result_layout,
                out as *mut c_void,
                result_layout,
                &p.algorithm,
                workspace as *mut c_void,
                WORKSPACE,
                stream.cast(),
            )
        }
        .map_err(failed)
    }
}

impl Description {
    fn new(p: &Product) -> Option<Description> {
        let [left_type, right_type] = [p.dtype, p.right_dtype].map(data_type);
        let (left_type, right_type, result_type) = (left_type?, right_type?, data_type(p.result)?);
        let eight_bits = p.dtype.is_fp8();
        if p.result != p.dtype && p.result != DType::F32 && !(eight_bits && p.result == DType::BF16) {
            return None;
        }
        let [batch, rows, columns, depth] = p.sizes;
        let (right, right_transposed) = stored([depth, columns], [p.rhs.1[1], p.rhs.1[2]])?;
        let (left, left_transposed) = stored([rows, depth], [p.lhs.1[1], p.lhs.1[2]])?;
        let compute = match p.tf32 {
            true => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            false => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let operation = result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F).ok()?;
        // From here on dropping frees what was made.
        let mut description = Description { operation, layouts: [std::ptr::null_mut(); 3] };
        for (attribute, transposed) in [
            (sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA, right_transposed),
            (sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB, left_transposed),
        ] {
            let transposed: i32 = transposed as i32;
            // SAFETY: the description is alive and the value has the attribute's size.
            unsafe {
                result::set_matmul_desc_attribute(operation, attribute, (&raw const transposed).cast(), 4)
            }
            .ok()?;
        }
        let all = [
            (right, right_type, p.rhs.1[0]),
            (left, left_type, p.lhs.1[0]),
            ([columns, rows, columns], result_type, rows * columns),
        ];
        for (layout, ([r, c, leading], ty, distance)) in description.layouts.iter_mut().zip(all) {
            *layout = result::create_matrix_layout(ty, r as u64, c as u64, leading as i64).ok()?;
            let (count, distance) = (i32::try_from(batch).ok()?, distance as i64);
            use sys::cublasLtMatrixLayoutAttribute_t as A;
            // SAFETY: the layout is alive and each value has its attribute's size.
            unsafe {
                let count = (&raw const count).cast();
                result::set_matrix_layout_attribute(*layout, A::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count, 4)
                    .ok()?;
                let distance = (&raw const distance).cast();
                let attribute = A::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
                result::set_matrix_layout_attribute(*layout, attribute, distance, 8).ok()?;
            }
        }
        Some(description)
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: each was created once, or is null.
        unsafe {
            let _ = result::destroy_matmul_desc(self.operation);
            for layout in self.layouts.into_iter().filter(|l| !l.is_null()) {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: created once, and nothing uses it any more.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::stored;

    #[test]
    fn row_major_matrices_as_column_major_ones() {
        assert_eq!(stored([3, 4], [4, 1]), Some(([4, 3, 4], false)));
        assert_eq!(stored([3, 4], [1, 3]), Some(([3, 4, 3], true)));
        assert_eq!(stored([3, 4], [7, 1]), Some(([4, 3, 7], false)));
        assert_eq!(stored([1, 4], [9, 1]), Some(([4, 1, 4], false)));
        // Broadcast rows, and strides of both axes.
        assert_eq!(stored([3, 4], [0, 1]), None);
        assert_eq!(stored([3, 4], [8, 2]), None);
    }
}
