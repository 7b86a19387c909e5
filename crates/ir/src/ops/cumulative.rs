//! `cumsum`, `cumprod`, `cummax` and `cummin`: the reduction of each element with those before it along an axis.

use crate::attrs::{Attr, AttrReader, Attrs, int};
use crate::interp::Data;
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_axis};
use crate::ops::ReduceKind;
use crate::shape::around;
use crate::{DType, Dense, Mistake, Type};

/// Result `[…, i, …]` is the reduction of the operand's elements `[…, 0..=i, …]`, combined in that order: for each kind
/// of [`ReduceKind`], with its dtypes and its way with NaN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cumulative {
    /// Which reduction.
    pub kind: ReduceKind,
    /// The axis.
    pub axis: usize,
    /// Whether an element itself is left out: the first result is then the reduction of nothing.
    pub exclusive: bool,
    /// Whether to begin at the end of the axis.
    pub reverse: bool,
}

/// The mnemonics, in the order of [`ReduceKind::ALL`]'s names.
fn mnemonic(kind: ReduceKind) -> &'static str {
    match kind {
        ReduceKind::Sum => "cumsum",
        ReduceKind::Prod => "cumprod",
        ReduceKind::Max => "cummax",
        ReduceKind::Min => "cummin",
    }
}

impl Cumulative {
    /// The running combination of the `n` elements of each row.
    fn scan<T: Copy>(&self, x: &[T], shape: &[usize], identity: T, combine: impl Fn(T, T) -> T) -> Vec<T> {
        let (outer, n, inner) = around(shape, self.axis);
        let mut out = vec![identity; x.len()];
        for o in 0..outer {
            for i in 0..inner {
                let mut total = identity;
                for step in 0..n {
                    let a = if self.reverse { n - 1 - step } else { step };
                    let at = (o * n + a) * inner + i;
                    let next = combine(total, x[at]);
                    out[at] = if self.exclusive { total } else { next };
                    total = next;
                }
            }
        }
        out
    }
}

impl OpRule for Cumulative {
    fn name(&self) -> &'static str {
        mnemonic(self.kind)
    }
    fn attrs(&self) -> Attrs {
        vec![
            ("axis", int(self.axis)),
            ("exclusive", Attr::Bool(self.exclusive)),
            ("reverse", Attr::Bool(self.reverse)),
        ]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        check_axis(self.axis, x)?;
        if !self.kind.combine().takes(x.dtype) {
            return Err(Mistake::new(format!("is not defined on {}", x.dtype), "cast it to i32 first"));
        }
        Ok(vec![x.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, combine) = (inputs[0], self.kind.combine());
        let shape = &x.shape;
        Ok(vec![match &x.data {
            Data::Reals(v) => {
                let out = self.scan(v, shape, self.kind.identity(x.dtype), |a, b| combine.real(a, b));
                Dense::from_reals(x.dtype, shape, out)
            }
            Data::Ints(v) => {
                let identity = self.kind.identity_int(x.dtype);
                Dense::from_ints(x.dtype, shape, self.scan(v, shape, identity, |a, b| combine.int(a, b)))
            }
        }])
    }
}

impl OpTable for Cumulative {
    const NAMES: &'static [&'static str] = &["cumsum", "cumprod", "cummax", "cummin"];
    fn parse(name: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        let kind = ReduceKind::ALL.iter().find(|k| mnemonic(**k) == name);
        let kind = *kind.ok_or_else(|| Mistake::new("unknown scan", "see the op table"))?;
        Ok(Cumulative {
            kind,
            axis: attrs.size("axis")?,
            exclusive: attrs.bool("exclusive")?,
            reverse: attrs.bool("reverse")?,
        })
    }
    fn samples() -> Vec<Sample> {
        let mut all = vec![];
        for &kind in ReduceKind::ALL {
            let range = match kind {
                ReduceKind::Max | ReduceKind::Min => Range::Distinct,
                _ => Range::Real(-2.0, 2.0),
            };
            for (n, (exclusive, reverse)) in
                [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate()
            {
                let op = |axis| Cumulative { kind, axis, exclusive, reverse };
                all.push(Sample::within(
                    op(n % 3),
                    &[[&[4, 2, 2][..], &[2, 4, 3], &[2, 3, 5]][n % 3]],
                    range,
                ));
                all.push(Sample::reals(op(0), &[]).and(DType::I32, &[6], Range::Int(-3, 4)));
                all.push(Sample::reals(op(0), &[]).and(DType::I8, &[9], Range::Int(-9, 9)));
            }
            let op = Cumulative { kind, axis: 1, exclusive: false, reverse: false };
            all.push(Sample::within(op, &[&[2, 0]], range));
            all.push(Sample::reals(op, &[]).and(DType::BF16, &[2, 4], Range::Real(-2.0, 2.0)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(kind: ReduceKind, exclusive: bool, reverse: bool, v: &[f64]) -> Vec<f64> {
        let x = Dense::from_reals(DType::F64, &[v.len()], v.to_vec());
        let op = Cumulative { kind, axis: 0, exclusive, reverse };
        op.reference(&[&x], &[x.ty()]).unwrap()[0].reals().to_vec()
    }

    #[test]
    fn ends_and_directions() {
        let x = [1.0, 3.0, 2.0];
        assert_eq!(scanned(ReduceKind::Sum, false, false, &x), [1.0, 4.0, 6.0]);
        assert_eq!(scanned(ReduceKind::Sum, true, false, &x), [0.0, 1.0, 4.0]);
        assert_eq!(scanned(ReduceKind::Sum, false, true, &x), [6.0, 5.0, 2.0]);
        assert_eq!(scanned(ReduceKind::Prod, true, true, &x), [6.0, 2.0, 1.0]);
        assert_eq!(scanned(ReduceKind::Max, true, false, &x), [f64::NEG_INFINITY, 1.0, 3.0]);
        let out = scanned(ReduceKind::Min, false, false, &[2.0, f64::NAN, 1.0]);
        assert!(out[0] == 2.0 && out[1].is_nan() && out[2].is_nan());
    }
}
