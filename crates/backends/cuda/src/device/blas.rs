//! Matrix products by cuBLASLt: `f32` without TF32, and 16-bit floats with sums in `f32`.
//!
//! Its matrices are column-major, so what is asked for is the transposed product `outᵀ = rhsᵀ · lhsᵀ`. Sums over pieces of `k` go
//! through the workspace in a fixed order, never through atomics.

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
}

// SAFETY: the handle may be used from any thread, and its descriptors are not changed once they are made.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// All of a product but where it is.
type Shape = ([usize; 4], DType, DType, [usize; 3], [usize; 3], usize);

/// A product with its algorithm.
pub(super) struct Prepared {
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

// SAFETY: as for the handle.
unsafe impl Send for Prepared {}
// SAFETY: as for the handle.
unsafe impl Sync for Prepared {}

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
        _ => None,
    }
}

impl Blas {
    pub fn new() -> Result<Blas, CudaError> {
        Ok(Blas { handle: result::create_handle().map_err(failed)?, known: Mutex::default() })
    }

    /// The product with its algorithm, if the library has one for it.
    pub fn prepare(&self, p: &Product) -> Option<Arc<Prepared>> {
        let shape = (p.sizes, p.dtype, p.result, p.lhs.1, p.rhs.1, p.aligned);
        let mut known = self.known.lock().unwrap_or_else(|e| e.into_inner());
        known.entry(shape).or_insert_with(|| self.ask(p)).clone()
    }

    fn ask(&self, p: &Product) -> Option<Arc<Prepared>> {
        let (dtype, result_type) = (data_type(p.dtype)?, data_type(p.result)?);
        if p.result != p.dtype && p.result != DType::F32 {
            return None;
        }
        let [batch, rows, columns, depth] = p.sizes;
        let (right, right_transposed) = stored([depth, columns], [p.rhs.1[1], p.rhs.1[2]])?;
        let (left, left_transposed) = stored([rows, depth], [p.lhs.1[1], p.lhs.1[2]])?;
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let description = result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F).ok()?;
        // From here on dropping frees what was made.
        let mut prepared = Prepared {
            description,
            layouts: [std::ptr::null_mut(); 3],
            // SAFETY: an algorithm is plain numbers; it is replaced by the library's own below.
            algorithm: unsafe { std::mem::zeroed() },
        };
        for (attribute, transposed) in [
            (sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA, right_transposed),
            (sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB, left_transposed),
        ] {
            let operation: i32 = transposed as i32;
            // SAFETY: the description is alive and the value has the attribute's size.
            unsafe {
                result::set_matmul_desc_attribute(description, attribute, (&raw const operation).cast(), 4)
            }
            .ok()?;
        }
        let all = [
            (right, dtype, p.rhs.1[0]),
            (left, dtype, p.lhs.1[0]),
            ([columns, rows, columns], result_type, rows * columns),
        ];
        for (layout, ([r, c, leading], ty, distance)) in prepared.layouts.iter_mut().zip(all) {
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
        let preference = result::create_matmul_pref().ok()?;
        let chosen = self.choose(&prepared, preference, p.aligned);
        // SAFETY: created above and destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        prepared.algorithm = chosen?;
        Some(Arc::new(prepared))
    }

    fn choose(
        &self,
        p: &Prepared,
        preference: sys::cublasLtMatmulPreference_t,
        aligned: usize,
    ) -> Option<sys::cublasLtMatmulAlgo_t> {
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
        let [right, left, out] = p.layouts;
        // SAFETY: everything is alive.
        let found = unsafe {
            result::get_matmul_algo_heuristic(self.handle, p.description, right, left, out, out, preference)
        };
        Some(found.ok()?.algo)
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
        let [right, left, result_layout] = p.layouts;
        // SAFETY: the caller's contract; the scales are read before the call returns.
        unsafe {
            result::matmul(
                self.handle,
                p.description,
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

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: each was created once, or is null.
        unsafe {
            let _ = result::destroy_matmul_desc(self.description);
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
