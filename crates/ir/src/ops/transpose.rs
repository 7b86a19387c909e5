//! `transpose`: a permutation of the axes.

use crate::attrs::{AttrReader, Attrs, ints};
use crate::op::{OpRule, OpTable, Sample, arity, check_axes};
use crate::shape::{for_each_index, row_major};
use crate::{Dense, Mistake, Shape, Type};

/// Axis `i` of the result is axis `perm[i]` of the operand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transpose {
    /// The permutation.
    pub perm: Vec<usize>,
}

impl Transpose {
    /// The permutation that undoes this one.
    pub fn inverse(&self) -> Vec<usize> {
        let mut inverse = vec![0; self.perm.len()];
        for (i, &p) in self.perm.iter().enumerate() {
            inverse[p] = i;
        }
        inverse
    }
}

impl OpRule for Transpose {
    fn name(&self) -> &'static str {
        "transpose"
    }
    fn attrs(&self) -> Attrs {
        vec![("perm", ints(&self.perm))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        check_axes(&self.perm, x)?;
        if self.perm.len() != x.shape.rank() {
            return Err(Mistake::new(
                format!("the permutation {:?} does not cover {}", self.perm, x.shape),
                "name every axis once",
            ));
        }
        Ok(vec![Type::new(x.dtype, Shape(self.perm.iter().map(|&p| x.shape.0[p].clone()).collect()))])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let strides = row_major(&inputs[0].shape);
        let mut from = vec![];
        for_each_index(&results[0].sizes(), |i| {
            from.push(self.perm.iter().zip(i).map(|(&p, &i)| strides[p] * i).sum());
        });
        Ok(vec![inputs[0].pick(&results[0].sizes(), &from)])
    }
}

impl OpTable for Transpose {
    const NAMES: &'static [&'static str] = &["transpose"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Transpose { perm: attrs.sizes("perm")? })
    }
    fn samples() -> Vec<Sample> {
        vec![
            Sample::reals(Transpose { perm: vec![1, 0] }, &[&[2, 3]]),
            Sample::reals(Transpose { perm: vec![2, 0, 1] }, &[&[2, 3, 4]]),
            Sample::reals(Transpose { perm: vec![] }, &[&[]]),
        ]
    }
}
