//! `broadcast`: repeats a tensor over new leading axes and over axes of size 1.

use crate::attrs::{Attr, AttrReader, Attrs};
use crate::op::{OpRule, OpTable, Sample, arity};
use crate::shape::{for_each_index, row_major};
use crate::{Dense, Dim, Mistake, Shape, Type};

/// Shapes are aligned at the right; each axis of the operand equals the result's or is 1.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Broadcast {
    /// The result's shape.
    pub dims: Vec<Dim>,
}

impl OpRule for Broadcast {
    fn name(&self) -> &'static str {
        "broadcast"
    }
    fn attrs(&self) -> Attrs {
        vec![("dims", Attr::Dims(self.dims.clone()))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        let shape = Shape(self.dims.clone());
        let fits = x.shape.rank() <= shape.rank()
            && x.shape.0.iter().rev().zip(shape.0.iter().rev()).all(|(from, to)| from == to || from.is_one());
        if !fits {
            return Err(Mistake::new(
                format!("{} does not stretch to {shape}", x.shape),
                "sizes match from the right, and only 1 stretches",
            ));
        }
        Ok(vec![Type::new(x.dtype, shape)])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, sizes) = (inputs[0], results[0].sizes());
        let lead = sizes.len() - x.shape.len();
        let strides = row_major(&x.shape);
        let mut from = vec![];
        for_each_index(&sizes, |i| {
            let place = |(a, s): (usize, &usize)| if x.shape[a] == 1 { 0 } else { i[lead + a] * s };
            from.push(strides.iter().enumerate().map(place).sum());
        });
        Ok(vec![x.pick(&sizes, &from)])
    }
}

impl OpTable for Broadcast {
    const NAMES: &'static [&'static str] = &["broadcast"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Broadcast { dims: attrs.dims("dims")? })
    }
    fn samples() -> Vec<Sample> {
        let to = |sizes: &[usize]| Broadcast { dims: Shape::fixed(sizes).0 };
        vec![
            Sample::reals(to(&[2, 3]), &[&[3]]),
            Sample::reals(to(&[4, 2, 3]), &[&[2, 1]]),
            Sample::reals(to(&[2]), &[&[]]),
            Sample::reals(to(&[0, 3]), &[&[1, 3]]),
        ]
    }
}
