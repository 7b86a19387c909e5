//! The interpreter's tensors: every float as `f64`, every integer and truth value as `i64`.

use crate::{Array, ArrayError, DType, Shape, Type};

/// A tensor's elements.
#[derive(Clone, PartialEq, Debug)]
pub enum Data {
    /// Of a float dtype.
    Reals(Vec<f64>),
    /// Of an integer dtype or `bool`.
    Ints(Vec<i64>),
}

/// A dense, row-major tensor whose elements have not necessarily been rounded to `dtype`.
#[derive(Clone, PartialEq, Debug)]
pub struct Dense {
    /// The declared dtype.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: Data,
}

impl Dense {
    /// From reals. The dtype is a float.
    pub fn from_reals(dtype: DType, shape: &[usize], data: Vec<f64>) -> Dense {
        Dense { dtype, shape: shape.to_vec(), data: Data::Reals(data) }
    }

    /// From integers; converted when the dtype is a float.
    pub fn from_ints(dtype: DType, shape: &[usize], data: Vec<i64>) -> Dense {
        let data = if dtype.is_float() {
            Data::Reals(data.into_iter().map(|x| x as f64).collect())
        } else {
            Data::Ints(data)
        };
        Dense { dtype, shape: shape.to_vec(), data }
    }

    /// Every element the same number (truncated for integers).
    pub fn full(dtype: DType, shape: &[usize], value: f64) -> Dense {
        let n = shape.iter().product();
        if dtype.is_float() {
            Dense::from_reals(dtype, shape, vec![value; n])
        } else {
            Dense::from_ints(dtype, shape, vec![value as i64; n])
        }
    }

    /// From a host array.
    pub fn from_array(a: &Array) -> Dense {
        if a.dtype().is_float() {
            Dense::from_reals(a.dtype(), a.shape(), a.to_f64())
        } else {
            Dense::from_ints(a.dtype(), a.shape(), a.to_i64())
        }
    }

    /// As a host array, rounded or wrapped to the dtype.
    pub fn to_array(&self) -> Result<Array, ArrayError> {
        match &self.data {
            Data::Reals(v) => Array::from_f64(self.dtype, &self.shape, v),
            Data::Ints(v) => match self.dtype {
                DType::I64 => Array::new(&self.shape, v),
                d => {
                    Array::from_f64(d, &self.shape, &v.iter().map(|&x| d.wrap(x) as f64).collect::<Vec<_>>())
                }
            },
        }
    }

    /// Its type.
    pub fn ty(&self) -> Type {
        Type::new(self.dtype, Shape::fixed(&self.shape))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of a float tensor. The shape rules keep this from being called on another.
    pub fn reals(&self) -> &[f64] {
        match &self.data {
            Data::Reals(v) => v,
            Data::Ints(_) => unreachable!("the op's rule admits only floats here"),
        }
    }

    /// The elements of an integer or `bool` tensor. The shape rules keep this from being called on another.
    pub fn ints(&self) -> &[i64] {
        match &self.data {
            Data::Ints(v) => v,
            Data::Reals(_) => unreachable!("the op's rule admits only integers here"),
        }
    }

    /// A function of each real.
    pub fn map_reals(&self, f: impl Fn(f64) -> f64) -> Dense {
        Dense::from_reals(self.dtype, &self.shape, self.reals().iter().map(|&x| f(x)).collect())
    }

    /// A function of each integer.
    pub fn map_ints(&self, dtype: DType, f: impl Fn(i64) -> i64) -> Dense {
        Dense::from_ints(dtype, &self.shape, self.ints().iter().map(|&x| f(x)).collect())
    }

    /// A function from each real to an integer.
    pub fn reals_to_ints(&self, dtype: DType, f: impl Fn(f64) -> i64) -> Dense {
        Dense::from_ints(dtype, &self.shape, self.reals().iter().map(|&x| f(x)).collect())
    }

    /// A function of each pair of reals.
    pub fn zip_reals(&self, other: &Dense, f: impl Fn(f64, f64) -> f64) -> Dense {
        let pairs = self.reals().iter().zip(other.reals());
        Dense::from_reals(self.dtype, &self.shape, pairs.map(|(&a, &b)| f(a, b)).collect())
    }

    /// A function of each pair of integers.
    pub fn zip_ints(&self, other: &Dense, dtype: DType, f: impl Fn(i64, i64) -> i64) -> Dense {
        let pairs = self.ints().iter().zip(other.ints());
        Dense::from_ints(dtype, &self.shape, pairs.map(|(&a, &b)| f(a, b)).collect())
    }

    /// A new tensor whose element `i` is this one's element `from[i]`.
    pub fn pick(&self, shape: &[usize], from: &[usize]) -> Dense {
        let data = match &self.data {
            Data::Reals(v) => Data::Reals(from.iter().map(|&i| v[i]).collect()),
            Data::Ints(v) => Data::Ints(from.iter().map(|&i| v[i]).collect()),
        };
        Dense { dtype: self.dtype, shape: shape.to_vec(), data }
    }

    /// The first element, `n` times.
    pub fn repeat(&self, n: usize, shape: &[usize]) -> Dense {
        self.pick(shape, &vec![0; n])
    }

    /// Overwrites element `at[i]` with element `i` of `from`, in order.
    pub fn place(&mut self, at: &[usize], from: &Dense) {
        match (&mut self.data, &from.data) {
            (Data::Reals(to), Data::Reals(v)) => at.iter().zip(v).for_each(|(&i, &x)| to[i] = x),
            (Data::Ints(to), Data::Ints(v)) => at.iter().zip(v).for_each(|(&i, &x)| to[i] = x),
            _ => unreachable!("the op's rule admits only one dtype here"),
        }
    }

    /// Adds element `i` of `from` to element `at[i]`, in order.
    pub fn accumulate(&mut self, at: &[usize], from: &Dense) {
        match (&mut self.data, &from.data) {
            (Data::Reals(to), Data::Reals(v)) => at.iter().zip(v).for_each(|(&i, &x)| to[i] += x),
            (Data::Ints(to), Data::Ints(v)) => {
                at.iter().zip(v).for_each(|(&i, &x)| to[i] = to[i].wrapping_add(x))
            }
            _ => unreachable!("the op's rule admits only one dtype here"),
        }
    }

    /// Rounds or wraps every element to the dtype.
    pub fn settle(&mut self) {
        let dtype = self.dtype;
        match &mut self.data {
            Data::Reals(v) => v.iter_mut().for_each(|x| *x = dtype.round(*x)),
            Data::Ints(v) => v.iter_mut().for_each(|x| *x = dtype.wrap(*x)),
        }
    }
}
