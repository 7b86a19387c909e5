//! `sort`: each row as words of key and index, sorted as integers.
//!
//! A key has the order of the elements (NaN above all, −0 as 0, all bits flipped for a descending sort), and the index
//! behind it tells equal ones apart: so any sort of the words is a stable sort of the row. The words are the thread's
//! scratch.

use super::indexed::Slices;
use crate::kernel::{CHUNK_BYTES, Memory, Work};
use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, View};

/// The op on rows of any dtype.
pub(super) struct Sort {
    slices: Slices,
    dtype: DType,
    descending: bool,
    data: View,
    values: BufferId,
    indices: BufferId,
}

/// The key of an element's bits.
#[inline(always)]
fn key(dtype: DType, bits: u64) -> u64 {
    let width = 8 * dtype.size() as u32;
    let (mask, sign) = (u64::MAX >> (64 - width), 1 << (width - 1));
    let infinity = match dtype {
        DType::F64 => 0x7ff0_0000_0000_0000,
        DType::F32 => 0x7f80_0000,
        DType::F16 => 0x7c00,
        DType::BF16 => 0x7f80,
        DType::F8E4M3 => 0x7e,
        DType::F8E5M2 => 0x7c,
        DType::I64 | DType::I32 | DType::I8 => return bits ^ sign,
        DType::U32 | DType::U8 | DType::Bool => return bits,
    };
    let size = bits & !sign;
    if size > infinity {
        mask
    } else if size == 0 || bits & sign == 0 {
        size | sign
    } else {
        !bits & mask
    }
}

/// Element `at` as bits.
///
/// # Safety
///
/// It exists, and is aligned.
#[inline(always)]
unsafe fn read(size: usize, from: *const u8, at: usize) -> u64 {
    // SAFETY: the caller's contract.
    unsafe {
        match size {
            8 => *from.cast::<u64>().add(at),
            4 => u64::from(*from.cast::<u32>().add(at)),
            2 => u64::from(*from.cast::<u16>().add(at)),
            _ => u64::from(*from.add(at)),
        }
    }
}

/// Writes element `at`.
///
/// # Safety
///
/// It exists, and is aligned.
#[inline(always)]
unsafe fn write(size: usize, to: *mut u8, at: usize, bits: u64) {
    // SAFETY: the caller's contract.
    unsafe {
        match size {
            8 => *to.cast::<u64>().add(at) = bits,
            4 => *to.cast::<u32>().add(at) = bits as u32,
            2 => *to.cast::<u16>().add(at) = bits as u16,
            _ => *to.add(at) = bits as u8,
        }
    }
}

/// A key with an index behind it.
trait Word: Copy + Ord {
    fn new(key: u64, index: u32) -> Self;
    fn index(self) -> u32;
}

/// Of keys of 32 bits.
impl Word for u64 {
    fn new(key: u64, index: u32) -> u64 {
        key << 32 | u64::from(index)
    }
    fn index(self) -> u32 {
        self as u32
    }
}

/// Of keys of 64 bits.
impl Word for u128 {
    fn new(key: u64, index: u32) -> u128 {
        u128::from(key) << 32 | u128::from(index)
    }
    fn index(self) -> u32 {
        self as u32
    }
}

impl Sort {
    pub fn new(
        slices: Slices,
        dtype: DType,
        descending: bool,
        data: View,
        values: BufferId,
        indices: BufferId,
    ) -> Sort {
        Sort { slices, dtype, descending, data, values, indices }
    }

    /// Bytes of a word.
    fn word(&self) -> usize {
        if self.dtype.size() == 8 { size_of::<u128>() } else { size_of::<u64>() }
    }

    /// Rows of a chunk.
    fn group(&self) -> usize {
        (CHUNK_BYTES / (self.slices.axis * self.word()).max(1)).max(1)
    }

    /// Sorts the rows of a chunk.
    ///
    /// # Safety
    ///
    /// As for [`Work::run_chunk`].
    unsafe fn sort<W: Word>(&self, chunk: usize, memory: Memory<'_>) {
        let (Slices { outer, axis, inner, .. }, size) = (self.slices, self.dtype.size());
        let data = memory.at::<u8>(self.data.buffer, self.data.offset * size).cast_const();
        let (values, indices) = (memory.at::<u8>(self.values, 0), memory.at::<i32>(self.indices, 0));
        let flip = if self.descending { u64::MAX >> (64 - 8 * size) } else { 0 };
        let first = chunk * self.group();
        for row in first..(first + self.group()).min(outer * inner) {
            let place = |a: usize| (row / inner * axis + a) * inner + row % inner;
            // SAFETY: scratch has room for `axis` words at a multiple of 64; each is written before it is read; the row's
            // elements exist in the data and in both results.
            unsafe {
                let words = memory.scratch.cast::<W>();
                for a in 0..axis {
                    let bits = read(size, data, place(a));
                    words.add(a).write(W::new(key(self.dtype, bits) ^ flip, a as u32));
                }
                let words = std::slice::from_raw_parts_mut(words, axis);
                words.sort_unstable();
                for (to, word) in words.iter().enumerate() {
                    let a = word.index();
                    write(size, values, place(to), read(size, data, place(a as usize)));
                    *indices.add(place(to)) = a as i32;
                }
            }
        }
    }
}

impl Work for Sort {
    fn label(&self) -> String {
        let Slices { outer, axis, inner, .. } = self.slices;
        format!("sort {outer}×{axis}×{inner}")
    }
    fn chunks(&self, _phase: usize) -> usize {
        (self.slices.outer * self.slices.inner).div_ceil(self.group())
    }
    fn scratch_bytes(&self) -> usize {
        self.slices.axis * self.word()
    }
    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        // SAFETY: the contract is the same.
        unsafe {
            match self.word() {
                16 => self.sort::<u128>(chunk, memory),
                _ => self.sort::<u64>(chunk, memory),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_the_elements() {
        let reals = [f64::NEG_INFINITY, -1e9, -1.0, -1e-30, 0.0, 1e-30, 1.0, 1e9, f64::INFINITY, f64::NAN];
        let of = |x: f64| (key(DType::F64, x.to_bits()), key(DType::F32, u64::from((x as f32).to_bits())));
        for pair in reals.windows(2) {
            assert!(of(pair[0]).0 < of(pair[1]).0 && of(pair[0]).1 < of(pair[1]).1, "{pair:?}");
        }
        assert_eq!(of(-0.0), of(0.0));
        assert_eq!(of(-f64::NAN), of(f64::NAN));
        let halves: Vec<u64> = [0xfc00, 0xbc00, 0x8001, 0x0000, 0x0001, 0x3c00, 0x7c00, 0x7e00]
            .map(|bits| key(DType::F16, bits))
            .into();
        assert!(halves.is_sorted_by(|a, b| a < b), "{halves:x?}");
        assert!(key(DType::I32, u64::from(-1i32 as u32)) < key(DType::I32, 0));
        assert!(key(DType::I64, i64::MIN as u64) < key(DType::I64, 0));
    }
}
