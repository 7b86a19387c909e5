//! What can be loaded: a number of samples, each with the same fields, that are written into rows of a batch.

use crate::IoError;
use onestep_ir::{Array, ArrayError, DType, Element};
use std::ops::Range;

/// A part of every sample, such as its image or its label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its dtype.
    pub dtype: DType,
    /// Its shape in one sample; a batch has one more axis in front.
    pub shape: Vec<usize>,
}

impl Field {
    /// A field of this dtype and shape.
    pub fn new(dtype: DType, shape: &[usize]) -> Field {
        Field { dtype, shape: shape.to_vec() }
    }

    /// The shape of a batch of `rows`.
    pub(super) fn batch(&self, rows: usize) -> Vec<usize> {
        [&[rows], &self.shape[..]].concat()
    }
}

/// Samples by number. It is read from the loader's own thread.
pub trait Dataset: Send + Sync {
    /// How many samples there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The fields of every sample, in the order of a program's inputs.
    fn fields(&self) -> Vec<Field>;

    /// Writes sample `index`, below [`Dataset::len`], into a row of a batch. What is there before is some earlier sample.
    ///
    /// # Errors
    /// Whatever keeps the sample from being read; it ends the loader and reaches its caller.
    fn read(&self, index: usize, row: &mut Row<'_>) -> Result<(), IoError>;
}

/// A row of a batch: the place of one sample.
#[derive(Debug)]
pub struct Row<'a> {
    pub(super) arrays: &'a mut [Array],
    pub(super) row: usize,
}

impl Row<'_> {
    /// The elements of a field, to be written.
    ///
    /// # Errors
    /// [`IoError::NoField`]; [`IoError::Array`] when `T` is not the field's dtype.
    pub fn field<T: Element>(&mut self, field: usize) -> Result<&mut [T], IoError> {
        let (array, row) = self.place(field)?;
        let range = range_of(array, row);
        Ok(&mut array.as_mut_slice()?[range])
    }

    /// The bytes of a field, little-endian, to be written. A truth value other than 0 and 1 becomes 1.
    ///
    /// # Errors
    /// [`IoError::NoField`].
    pub fn bytes(&mut self, field: usize) -> Result<&mut [u8], IoError> {
        let (array, row) = self.place(field)?;
        let (range, size) = (range_of(array, row), array.dtype().size());
        Ok(&mut array.bytes_mut()[range.start * size..range.end * size])
    }

    fn place(&mut self, field: usize) -> Result<(&mut Array, usize), IoError> {
        let fields = self.arrays.len();
        let array = self.arrays.get_mut(field).ok_or(IoError::NoField { field, fields })?;
        Ok((array, self.row))
    }
}

/// The elements of a row.
fn range_of(array: &Array, row: usize) -> Range<usize> {
    let n: usize = array.shape()[1..].iter().product();
    row * n..(row + 1) * n
}

/// Arrays in memory: sample `i` is row `i` of each.
#[derive(Clone, Debug)]
pub struct Columns {
    arrays: Vec<Array>,
    len: usize,
}

impl Columns {
    /// The rows of these arrays.
    ///
    /// # Errors
    /// [`IoError::Columns`] if there is no array, one has no rows to speak of (rank 0), or they differ in their number.
    pub fn new(arrays: impl Into<Vec<Array>>) -> Result<Columns, IoError> {
        let arrays: Vec<Array> = arrays.into();
        let len = arrays.first().and_then(|a| a.shape().first().copied());
        match len {
            Some(len) if arrays.iter().all(|a| a.shape().first() == Some(&len)) => {
                Ok(Columns { arrays, len })
            }
            _ => Err(IoError::Columns { shapes: arrays.iter().map(|a| a.shape().to_vec()).collect() }),
        }
    }

    /// The arrays.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }
}

impl Dataset for Columns {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> Vec<Field> {
        self.arrays.iter().map(|a| Field::new(a.dtype(), &a.shape()[1..])).collect()
    }

    fn read(&self, index: usize, row: &mut Row<'_>) -> Result<(), IoError> {
        for (field, array) in self.arrays.iter().enumerate() {
            let (range, size) = (range_of(array, index), array.dtype().size());
            row.bytes(field)?.copy_from_slice(&array.bytes()[range.start * size..range.end * size]);
        }
        Ok(())
    }
}

/// Samples made by a closure.
pub struct FromFn<F> {
    len: usize,
    fields: Vec<Field>,
    read: F,
}

/// What a closure of [`from_fn`] may fail with.
pub type SampleError = Box<dyn std::error::Error + Send + Sync>;

/// `len` samples, each written by `read`, which gets the sample's number and its row. A panic of the closure ends the
/// loader with an error.
pub fn from_fn<F>(len: usize, fields: impl Into<Vec<Field>>, read: F) -> FromFn<F>
where
    F: Fn(usize, &mut Row<'_>) -> Result<(), SampleError> + Send + Sync,
{
    FromFn { len, fields: fields.into(), read }
}

impl<F> std::fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} samples of {:?}", self.len, self.fields)
    }
}

impl<F> Dataset for FromFn<F>
where
    F: Fn(usize, &mut Row<'_>) -> Result<(), SampleError> + Send + Sync,
{
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> Vec<Field> {
        self.fields.clone()
    }

    fn read(&self, index: usize, row: &mut Row<'_>) -> Result<(), IoError> {
        (self.read)(index, row).map_err(|source| IoError::Sample { index, source })
    }
}

/// Makes truth values of the bytes of `bool` arrays.
pub(super) fn normalise(arrays: &mut [Array]) {
    for array in arrays.iter_mut().filter(|a| a.dtype() == DType::Bool) {
        array.bytes_mut().iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
}

/// Arrays of zeros for a batch.
pub(super) fn zeros(fields: &[Field], rows: usize) -> Result<Vec<Array>, ArrayError> {
    fields.iter().map(|f| Array::zeros(f.dtype, &f.batch(rows))).collect()
}
