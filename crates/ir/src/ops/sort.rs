//! `sort`: the elements of an axis in order, and where each stood. Stable: equal elements keep their order, whichever
//! the direction. NaN counts as larger than every number, and −0 as equal to 0, as in PyTorch.

use crate::attrs::{Attr, AttrReader, Attrs, int};
use crate::interp::Data;
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_axis};
use crate::shape::around;
use crate::{DType, Dense, Mistake, Type};
use std::cmp::Ordering;

/// Results: the sorted elements, in the operand's type, and their indices along the axis, as `i32`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sort {
    /// The axis.
    pub axis: usize,
    /// Whether the largest comes first.
    pub descending: bool,
}

/// The order of reals with NaN above all.
fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

impl OpRule for Sort {
    fn name(&self) -> &'static str {
        "sort"
    }
    fn attrs(&self) -> Attrs {
        vec![("axis", int(self.axis)), ("descending", Attr::Bool(self.descending))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        check_axis(self.axis, x)?;
        if x.shape.0[self.axis].size().is_some_and(|n| n > i32::MAX as usize) {
            return Err(Mistake::new(format!("axis {} of {x} is too long", self.axis), "indices are i32"));
        }
        Ok(vec![x.clone(), Type::new(DType::I32, x.shape.clone())])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let x = inputs[0];
        let (outer, n, inner) = around(&x.shape, self.axis);
        let compare = |a: usize, b: usize| match &x.data {
            Data::Reals(v) => order(v[a], v[b]),
            Data::Ints(v) => v[a].cmp(&v[b]),
        };
        let (mut from, mut indices) = (vec![0; x.len()], vec![0; x.len()]);
        for o in 0..outer {
            for i in 0..inner {
                let place = |a: usize| (o * n + a) * inner + i;
                let mut row: Vec<usize> = (0..n).collect();
                row.sort_by(|&a, &b| {
                    let order = compare(place(a), place(b));
                    if self.descending { order.reverse() } else { order }
                });
                for (to, a) in row.into_iter().enumerate() {
                    from[place(to)] = place(a);
                    indices[place(to)] = a as i64;
                }
            }
        }
        Ok(vec![x.pick(&x.shape, &from), Dense::from_ints(DType::I32, &x.shape, indices)])
    }
}

impl OpTable for Sort {
    const NAMES: &'static [&'static str] = &["sort"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Sort { axis: attrs.size("axis")?, descending: attrs.bool("descending")? })
    }
    fn samples() -> Vec<Sample> {
        let mut all = vec![];
        for descending in [false, true] {
            let sort = |axis| Sort { axis, descending };
            all.push(Sample::within(sort(1), &[&[2, 5, 2]], Range::Distinct));
            all.push(Sample::within(sort(1), &[&[3, 4]], Range::Distinct));
            all.push(Sample::within(sort(0), &[&[0, 2]], Range::Distinct));
            // Few values, so that ties occur.
            for dtype in [DType::I32, DType::I64, DType::I8, DType::U8, DType::U32, DType::BF16, DType::F16] {
                all.push(Sample::reals(sort(0), &[]).and(dtype, &[9, 2], Range::Int(0, 3)));
            }
            all.push(Sample::reals(sort(0), &[]).and(DType::I32, &[9], Range::Int(-5, 5)));
            all.push(Sample::reals(sort(0), &[]).and(DType::Bool, &[7], Range::Int(0, 2)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_with_nan_above_all() {
        let sorted = |descending, v: &[f64]| {
            let x = Dense::from_reals(DType::F64, &[v.len()], v.to_vec());
            let op = Sort { axis: 0, descending };
            op.reference(&[&x], &op.infer(&[x.ty()]).unwrap()).unwrap()[1].ints().to_vec()
        };
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        assert_eq!(sorted(false, &[1.0, nan, inf, nan, -0.0, 0.0, -inf]), [6, 4, 5, 0, 2, 1, 3]);
        assert_eq!(sorted(true, &[1.0, nan, inf, nan, -0.0, 0.0, -inf]), [1, 3, 2, 0, 4, 5, 6]);
    }
}
