//! `reverse`: the elements of some axes from the last to the first.

use crate::attrs::{AttrReader, Attrs, ints};
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_axes};
use crate::shape::for_each_index;
use crate::{DType, Dense, Mistake, Type};

/// Element `i` of each named axis is the operand's element `size − 1 − i`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reverse {
    /// The axes, each once.
    pub axes: Vec<usize>,
}

impl OpRule for Reverse {
    fn name(&self) -> &'static str {
        "reverse"
    }
    fn attrs(&self) -> Attrs {
        vec![("axes", ints(&self.axes))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        check_axes(&self.axes, x)?;
        Ok(vec![x.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let shape = &inputs[0].shape;
        let mut from = vec![];
        for_each_index(shape, |index| {
            let at =
                |(a, (&i, &n)): (usize, (&usize, &usize))| if self.axes.contains(&a) { n - 1 - i } else { i };
            let at = index.iter().zip(shape).enumerate().map(at);
            from.push(at.zip(shape).fold(0, |place, (i, n)| place * n + i));
        });
        Ok(vec![inputs[0].pick(shape, &from)])
    }
}

impl OpTable for Reverse {
    const NAMES: &'static [&'static str] = &["reverse"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Reverse { axes: attrs.sizes("axes")? })
    }
    fn samples() -> Vec<Sample> {
        let reverse = |axes: &[usize]| Reverse { axes: axes.to_vec() };
        vec![
            Sample::reals(reverse(&[1]), &[&[2, 3, 2]]),
            Sample::reals(reverse(&[2, 0]), &[&[2, 3, 4]]),
            Sample::reals(reverse(&[]), &[&[2, 3]]),
            Sample::reals(reverse(&[0]), &[&[0, 3]]),
            Sample::reals(reverse(&[0]), &[]).and(DType::I32, &[5], Range::Int(-9, 9)),
        ]
    }
}
