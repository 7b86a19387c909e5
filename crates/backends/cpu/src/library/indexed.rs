//! What the indexed kernels share: the shape of slices along an axis, and the reading of indices.

use onestep_ir::DType;

/// A tensor as `outer` × `axis` × `inner`, of which `count` places of the axis are named by indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slices {
    /// Product of the sizes before the axis.
    pub outer: usize,
    /// The axis's size.
    pub axis: usize,
    /// Product of the sizes behind the axis.
    pub inner: usize,
    /// Number of indices for each outer place.
    pub count: usize,
}

impl Slices {
    /// Of a shape that has this axis.
    pub fn new(shape: &[usize], axis: usize, count: usize) -> Slices {
        let (outer, axis, inner) = onestep_ir::shape::around(shape, axis);
        Slices { outer, axis, inner, count }
    }
    /// The number of selected elements.
    pub fn selected(&self) -> usize {
        self.outer * self.count * self.inner
    }
}

/// Index `at` of a dense tensor of an integer dtype, if it lies below `bound`.
///
/// # Safety
///
/// `indices` holds more than `at` elements of `dtype`.
#[inline(always)]
pub(super) unsafe fn index(dtype: DType, indices: *const u8, at: usize, bound: usize) -> Option<usize> {
    // SAFETY: element `at` exists, by the contract; buffers are aligned for their dtype.
    let value = unsafe {
        match dtype {
            DType::I64 => *indices.cast::<i64>().add(at),
            DType::U32 => i64::from(*indices.cast::<u32>().add(at)),
            DType::I8 => i64::from(*indices.cast::<i8>().add(at)),
            DType::U8 => i64::from(*indices.add(at)),
            _ => i64::from(*indices.cast::<i32>().add(at)),
        }
    };
    usize::try_from(value).ok().filter(|&i| i < bound)
}

/// The bits that stand for "no such element": NaN, or 0 for integers and `bool`.
pub(super) fn absent(dtype: DType) -> u64 {
    match dtype {
        DType::F64 => f64::NAN.to_bits(),
        DType::F32 => u64::from(f32::NAN.to_bits()),
        DType::F16 => 0x7e00,
        DType::BF16 => 0x7fc0,
        DType::F8E4M3 | DType::F8E5M2 => 0x7f,
        _ => 0,
    }
}

/// Fills elements with bits of the dtype's size.
///
/// # Safety
///
/// `to` is writable for `count` elements of `size` bytes and aligned for them.
pub(super) unsafe fn fill(to: *mut u8, size: usize, count: usize, bits: u64) {
    // SAFETY: the caller's contract.
    unsafe {
        match size {
            8 => std::slice::from_raw_parts_mut(to.cast::<u64>(), count).fill(bits),
            4 => std::slice::from_raw_parts_mut(to.cast::<u32>(), count).fill(bits as u32),
            2 => std::slice::from_raw_parts_mut(to.cast::<u16>(), count).fill(bits as u16),
            _ => std::slice::from_raw_parts_mut(to, count).fill(bits as u8),
        }
    }
}
