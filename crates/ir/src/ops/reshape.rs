//! `reshape`: the same elements in row-major order under another shape.

use crate::attrs::{Attr, AttrReader, Attrs};
use crate::op::{OpRule, OpTable, Sample, arity};
use crate::{Dense, Dim, Mistake, Shape, Type};

/// Changes the shape, not the elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reshape {
    /// The new shape.
    pub dims: Vec<Dim>,
}

impl OpRule for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }
    fn attrs(&self) -> Attrs {
        vec![("dims", Attr::Dims(self.dims.clone()))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        let shape = Shape(self.dims.clone());
        if shape.count().is_none() || x.shape.count() != shape.count() {
            return Err(Mistake::new(
                format!("{} has another number of elements than {shape}", x.shape),
                "the product of the sizes must stay the same",
            ));
        }
        Ok(vec![Type::new(x.dtype, shape)])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        Ok(vec![Dense { shape: results[0].sizes(), ..inputs[0].clone() }])
    }
}

impl OpTable for Reshape {
    const NAMES: &'static [&'static str] = &["reshape"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Reshape { dims: attrs.dims("dims")? })
    }
    fn samples() -> Vec<Sample> {
        let to = |sizes: &[usize]| Reshape { dims: Shape::fixed(sizes).0 };
        vec![
            Sample::reals(to(&[3, 4]), &[&[2, 6]]),
            Sample::reals(to(&[]), &[&[1, 1]]),
            Sample::reals(to(&[0, 5]), &[&[3, 0]]),
        ]
    }
}
