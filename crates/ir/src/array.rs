//! Host tensors: what a caller feeds, reads, saves and writes into a graph as a constant.

use crate::fp8::Fp8;
use crate::{ArrayError, DType};
use std::fmt;
use std::sync::Arc;

/// A Rust type that is the storage of a dtype.
pub trait Element: bytemuck::NoUninit + bytemuck::AnyBitPattern + Copy + Send + Sync + 'static {
    /// The dtype that this type stores.
    const DTYPE: DType;
}
macro_rules! elements {
    ($($t:ty => $d:ident),+) => {$(impl Element for $t { const DTYPE: DType = DType::$d; })+};
}
elements!(f64 => F64, f32 => F32, half::f16 => F16, half::bf16 => BF16, i64 => I64, i32 => I32, u32 => U32, i8 => I8, u8 => U8);

/// A dense, row-major tensor in host memory. Cloning shares the storage.
#[derive(Clone)]
pub struct Array {
    dtype: DType,
    shape: Vec<usize>,
    /// 8-byte words, so that every element type is aligned.
    words: Arc<Vec<u64>>,
}

pub(crate) fn count(dtype: DType, shape: &[usize]) -> Result<usize, ArrayError> {
    shape
        .iter()
        .try_fold(1usize, |a, &b| a.checked_mul(b))
        .filter(|n| n.checked_mul(dtype.size()).is_some_and(|b| b <= isize::MAX as usize))
        .ok_or_else(|| ArrayError::TooLarge { shape: shape.to_vec() })
}

/// Writes real numbers as elements of a dtype: floats are rounded, integers truncated and saturated.
fn write(dtype: DType, data: &[f64], bytes: &mut [u8]) {
    fn each<T: Element + bytemuck::Pod>(data: &[f64], bytes: &mut [u8], of: impl Fn(f64) -> T) {
        let elements = bytemuck::cast_slice_mut::<u8, T>(bytes);
        elements.iter_mut().zip(data).for_each(|(to, &x)| *to = of(x));
    }
    match dtype {
        DType::F64 => each(data, bytes, |x| x),
        DType::F32 => each(data, bytes, |x| x as f32),
        DType::F16 => each(data, bytes, crate::dtype::to_f16),
        DType::BF16 => each(data, bytes, crate::dtype::to_bf16),
        DType::F8E4M3 => each(data, bytes, |x| Fp8::E4M3.encode(x)),
        DType::F8E5M2 => each(data, bytes, |x| Fp8::E5M2.encode(x)),
        DType::I64 => each(data, bytes, |x| x as i64),
        DType::I32 => each(data, bytes, |x| x as i32),
        DType::U32 => each(data, bytes, |x| x as u32),
        DType::I8 => each(data, bytes, |x| x as i8),
        DType::U8 => each(data, bytes, |x| x as u8),
        DType::Bool => each(data, bytes, |x| (x != 0.0) as u8),
    }
}

/// Room for `n` elements of a tensor of `shape`, or the error that the system does not have it.
pub(crate) fn reserve<T>(list: &mut Vec<T>, n: usize, shape: &[usize]) -> Result<(), ArrayError> {
    list.try_reserve_exact(n).map_err(|_| ArrayError::TooLarge { shape: shape.to_vec() })
}

impl Array {
    /// An array of `shape` from its elements in row-major order.
    pub fn new<T: Element>(shape: &[usize], data: &[T]) -> Result<Array, ArrayError> {
        let want = count(T::DTYPE, shape)?;
        if data.len() != want {
            return Err(ArrayError::Length { shape: shape.to_vec(), want, got: data.len() });
        }
        Array::from_bytes(T::DTYPE, shape, bytemuck::cast_slice(data))
    }

    /// A rank-0 array.
    pub fn scalar<T: Element>(value: T) -> Array {
        Array::new(&[], &[value]).expect("one element fills a scalar")
    }

    /// An array of truth values.
    pub fn bools(shape: &[usize], data: &[bool]) -> Result<Array, ArrayError> {
        let want = count(DType::Bool, shape)?;
        if data.len() != want {
            return Err(ArrayError::Length { shape: shape.to_vec(), want, got: data.len() });
        }
        let bytes: Vec<u8> = data.iter().map(|&b| b as u8).collect();
        Array::from_bytes(DType::Bool, shape, &bytes)
    }

    /// An array from the little-endian bytes of its elements. A `bool` byte other than 0 becomes 1.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Array, ArrayError> {
        let n = count(dtype, shape)?;
        if bytes.len() != n * dtype.size() {
            return Err(ArrayError::Length {
                shape: shape.to_vec(),
                want: n * dtype.size(),
                got: bytes.len(),
            });
        }
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        if dtype == DType::Bool {
            for b in &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()] {
                *b = (*b != 0) as u8;
            }
        }
        Ok(Array { dtype, shape: shape.to_vec(), words: Arc::new(words) })
    }

    /// An array of zeros.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Array, ArrayError> {
        let n = (count(dtype, shape)? * dtype.size()).div_ceil(8);
        let mut words = Vec::new();
        reserve(&mut words, n, shape)?;
        words.resize(n, 0u64);
        Ok(Array { dtype, shape: shape.to_vec(), words: Arc::new(words) })
    }

    /// An array of `dtype` from real numbers: floats are rounded, integers truncated and saturated.
    pub fn from_f64(dtype: DType, shape: &[usize], data: &[f64]) -> Result<Array, ArrayError> {
        let want = count(dtype, shape)?;
        if data.len() != want {
            return Err(ArrayError::Length { shape: shape.to_vec(), want, got: data.len() });
        }
        let mut all = Array::zeros(dtype, shape)?;
        all.for_each_piece(want, &|_, bytes| write(dtype, data, bytes));
        Ok(all)
    }

    /// An array of `dtype` whose element `i` is `value(i)`, converted as [`Array::from_f64`] does: on several threads, where there
    /// are many elements, and no more than a piece of them is ever held as `f64`.
    pub(crate) fn drawn(
        dtype: DType,
        shape: &[usize],
        value: &(impl Fn(usize) -> f64 + Sync),
    ) -> Result<Array, ArrayError> {
        const PIECE: usize = 1 << 10;
        let mut all = Array::zeros(dtype, shape)?;
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let each = all.len().div_ceil(threads).max(1 << 16).next_multiple_of(PIECE);
        all.for_each_piece(each, &|start, bytes| {
            let mut values = [0.0; PIECE];
            for (n, piece) in bytes.chunks_mut(PIECE * dtype.size()).enumerate() {
                let (first, count) = (start + n * PIECE, piece.len() / dtype.size());
                values[..count].iter_mut().enumerate().for_each(|(i, x)| *x = value(first + i));
                write(dtype, &values[..count], piece);
            }
        });
        Ok(all)
    }

    /// Hands out the bytes of `each` elements at a time, with the number of the first, to a thread each.
    fn for_each_piece(&mut self, each: usize, fill: &(dyn Fn(usize, &mut [u8]) + Sync)) {
        let (size, bytes) = (self.dtype.size(), self.len() * self.dtype.size());
        let Some(words) = Arc::get_mut(&mut self.words) else { return };
        let bytes = &mut bytemuck::cast_slice_mut::<u64, u8>(words)[..bytes];
        let mut pieces: Vec<_> = bytes.chunks_mut((each * size).max(1)).enumerate().collect();
        let own = pieces.pop();
        std::thread::scope(|scope| {
            for (n, piece) in pieces {
                scope.spawn(move || fill(n * each, piece));
            }
            own.into_iter().for_each(|(n, piece)| fill(n * each, piece));
        });
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements' bytes, little-endian, row-major.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice::<u64, u8>(&self.words)[..self.len() * self.dtype.size()]
    }

    /// The elements as `T`; an error when the dtype is another.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], ArrayError> {
        if T::DTYPE != self.dtype {
            return Err(ArrayError::DType { want: T::DTYPE, got: self.dtype });
        }
        Ok(bytemuck::cast_slice(self.bytes()))
    }

    /// The elements as `T`, to be changed: in place if no clone shares the storage, else in a copy of this array's own. An
    /// error when the dtype is another.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], ArrayError> {
        if T::DTYPE != self.dtype {
            return Err(ArrayError::DType { want: T::DTYPE, got: self.dtype });
        }
        Ok(bytemuck::cast_slice_mut(self.bytes_mut()))
    }

    /// The elements' bytes, to be changed, as [`Array::as_mut_slice`] does. Those of a `bool` are 0 or 1.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.len() * self.dtype.size();
        let words: &mut Vec<u64> = Arc::make_mut(&mut self.words);
        &mut bytemuck::cast_slice_mut::<u64, u8>(words)[..bytes]
    }

    /// The elements converted to `f64` (exact but for large `i64`).
    pub fn to_f64(&self) -> Vec<f64> {
        let b = self.bytes();
        match self.dtype {
            DType::F64 => bytemuck::cast_slice::<u8, f64>(b).to_vec(),
            DType::F32 => bytemuck::cast_slice::<u8, f32>(b).iter().map(|&x| x as f64).collect(),
            DType::F16 => bytemuck::cast_slice::<u8, half::f16>(b).iter().map(|x| x.to_f64()).collect(),
            DType::BF16 => bytemuck::cast_slice::<u8, half::bf16>(b).iter().map(|x| x.to_f64()).collect(),
            DType::F8E4M3 => b.iter().map(|&x| Fp8::E4M3.decode(x)).collect(),
            DType::F8E5M2 => b.iter().map(|&x| Fp8::E5M2.decode(x)).collect(),
            _ => self.to_i64().into_iter().map(|x| x as f64).collect(),
        }
    }

    /// The elements converted to `i64`: floats truncated and saturated.
    pub fn to_i64(&self) -> Vec<i64> {
        let b = self.bytes();
        match self.dtype {
            DType::I64 => bytemuck::cast_slice::<u8, i64>(b).to_vec(),
            DType::I32 => bytemuck::cast_slice::<u8, i32>(b).iter().map(|&x| x as i64).collect(),
            DType::U32 => bytemuck::cast_slice::<u8, u32>(b).iter().map(|&x| x as i64).collect(),
            DType::I8 => b.iter().map(|&x| x as i8 as i64).collect(),
            DType::U8 | DType::Bool => b.iter().map(|&x| x as i64).collect(),
            _ => self.to_f64().into_iter().map(|x| x as i64).collect(),
        }
    }

    /// The same elements under another shape.
    pub fn reshape(&self, shape: &[usize]) -> Result<Array, ArrayError> {
        let want = count(self.dtype, shape)?;
        if want != self.len() {
            return Err(ArrayError::Length { shape: shape.to_vec(), want, got: self.len() });
        }
        Ok(Array { dtype: self.dtype, shape: shape.to_vec(), words: self.words.clone() })
    }
}

impl PartialEq for Array {
    /// Same dtype, shape and bits (so NaN equals the same NaN, and −0 differs from 0).
    fn eq(&self, other: &Array) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && self.bytes() == other.bytes()
    }
}
impl Eq for Array {}
impl std::hash::Hash for Array {
    fn hash<H: std::hash::Hasher>(&self, h: &mut H) {
        self.dtype.hash(h);
        self.shape.hash(h);
        self.bytes().hash(h);
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head: Vec<f64> = self.to_f64().into_iter().take(8).collect();
        let more = if self.len() > 8 { ", …" } else { "" };
        write!(f, "{}{:?} {:?}{}", self.dtype, self.shape, head, more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_dtypes_are_checked() {
        assert!(Array::new(&[2, 2], &[1f32; 3]).is_err());
        assert!(Array::new(&[usize::MAX, 2], &[1f32; 3]).is_err());
        let a = Array::new(&[3], &[1f32, 2.0, 3.0]).unwrap();
        assert_eq!(a.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0]);
        assert!(a.as_slice::<i32>().is_err());
        assert_eq!(a.reshape(&[3, 1]).unwrap().shape(), [3, 1]);
        assert!(a.reshape(&[2]).is_err());
        assert_eq!(Array::from_bytes(DType::Bool, &[2], &[7, 0]).unwrap().bytes(), [1, 0]);
    }

    #[test]
    fn conversions() {
        for d in DType::ALL {
            let a = Array::from_f64(d, &[2], &[0.0, 1.0]).unwrap();
            assert_eq!(a.to_f64(), [0.0, 1.0], "{d}");
            assert_eq!(a.to_i64(), [0, 1], "{d}");
        }
        let nan = Array::scalar(f32::NAN);
        assert_eq!(nan, nan.clone());
        assert_ne!(Array::scalar(0f32), Array::scalar(-0f32));
    }
}
