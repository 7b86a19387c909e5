//! `iota`: 0, 1, 2 … along one axis.

use crate::attrs::{Attr, AttrReader, Attrs};
use crate::op::{OpRule, OpTable, Sample, arity, check_axis};
use crate::shape::for_each_index;
use crate::{DType, Dense, Dim, Mistake, Shape, Type};

/// Element `[i₀, i₁ …]` is `i_axis`, converted to the dtype.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Iota {
    /// Of the result.
    pub dtype: DType,
    /// Shape of the result.
    pub dims: Vec<Dim>,
    /// The axis that counts.
    pub axis: usize,
}

impl OpRule for Iota {
    fn name(&self) -> &'static str {
        "iota"
    }
    fn attrs(&self) -> Attrs {
        vec![
            ("dtype", Attr::Word(self.dtype.name().into())),
            ("dims", Attr::Dims(self.dims.clone())),
            ("axis", Attr::Int(self.axis as i64)),
        ]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        arity::<0>(operands)?;
        let ty = Type::new(self.dtype, Shape(self.dims.clone()));
        check_axis(self.axis, &ty)?;
        if self.dtype == DType::Bool {
            return Err(Mistake::new("cannot count in bool", "use an integer or float dtype"));
        }
        Ok(vec![ty])
    }
    fn reference(&self, _: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let mut out = vec![];
        for_each_index(&results[0].sizes(), |i| out.push(i[self.axis] as i64));
        Ok(vec![Dense::from_ints(self.dtype, &results[0].sizes(), out)])
    }
}

impl OpTable for Iota {
    const NAMES: &'static [&'static str] = &["iota"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Iota { dtype: attrs.dtype("dtype")?, dims: attrs.dims("dims")?, axis: attrs.size("axis")? })
    }
    fn samples() -> Vec<Sample> {
        let iota = |dtype, axis| Iota { dtype, dims: vec![Dim::fixed(2), Dim::fixed(3)], axis };
        vec![Sample::reals(iota(DType::I32, 1), &[]), Sample::reals(iota(DType::F64, 0), &[])]
    }
}
