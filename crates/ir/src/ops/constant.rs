//! `constant`: a tensor known when the graph is built, kept as exact bits.

use crate::attrs::{Attr, AttrReader, Attrs};
use crate::op::{OpRule, OpTable, Sample, arity};
use crate::{Array, DType, Dense, Dim, Mistake, Shape, Type};

/// A constant: one element repeated over a shape, or every element given.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Constant {
    /// A scalar that is repeated, or an array of exactly the shape.
    pub value: Array,
    /// The shape.
    pub dims: Vec<Dim>,
}

impl Constant {
    /// A constant from all its elements.
    pub fn dense(value: Array) -> Constant {
        let dims = value.shape().iter().map(|&n| Dim::fixed(n)).collect();
        Constant { value, dims }
    }

    /// One number, rounded to `dtype`, repeated over `shape`.
    pub fn splat(dtype: DType, value: f64, shape: Shape) -> Constant {
        let value = Array::from_f64(dtype, &[], &[value]).expect("one element fills a scalar");
        Constant { value, dims: shape.0 }
    }

    /// The repeated number, if there is just one.
    pub fn as_splat(&self) -> Option<f64> {
        (self.value.len() == 1).then(|| self.value.to_f64()[0])
    }
}

impl OpRule for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }
    fn attrs(&self) -> Attrs {
        vec![("dims", Attr::Dims(self.dims.clone())), ("value", Attr::Array(self.value.clone()))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        arity::<0>(operands)?;
        let shape = Shape(self.dims.clone());
        let fits = self.value.shape().is_empty() || shape.sizes().as_deref() == Some(self.value.shape());
        if !fits {
            return Err(Mistake::new(
                format!("the value has shape {:?} but dims are {shape}", self.value.shape()),
                "give a scalar value, or one with the shape of dims",
            ));
        }
        Ok(vec![Type::new(self.value.dtype(), shape)])
    }
    fn reference(&self, _: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let sizes = results[0].sizes();
        let n = sizes.iter().product();
        let one = Dense::from_array(&self.value);
        Ok(vec![if self.value.shape().is_empty() { one.repeat(n, &sizes) } else { one }])
    }
}

impl OpTable for Constant {
    const NAMES: &'static [&'static str] = &["constant"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Constant { dims: attrs.dims("dims")?, value: attrs.array("value")? })
    }
    fn samples() -> Vec<Sample> {
        let nan = Array::new(&[2], &[f32::from_bits(0x7fc0_1234), -0.0]).expect("two elements");
        vec![
            Sample::reals(Constant::splat(DType::F64, 0.1, Shape::fixed(&[2, 3])), &[]),
            Sample::reals(Constant::dense(nan), &[]),
            Sample::reals(Constant::splat(DType::Bool, 1.0, Shape::scalar()), &[]),
            Sample::reals(Constant::splat(DType::I64, -7.0, Shape::fixed(&[0, 2])), &[]),
        ]
    }
}
