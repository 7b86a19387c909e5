//! `argmax` and `argmin`: where the largest or smallest element of an axis stands.
//!
//! The first of equal elements wins, and the first NaN wins over every number.

use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_axis};
use crate::shape::around;
use crate::{DType, Data, Dense, Mistake, Type};

/// Which element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ArgKind {
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl ArgKind {
    /// Every kind.
    pub const ALL: &'static [ArgKind] = &[ArgKind::Max, ArgKind::Min];

    /// The mnemonic.
    pub fn name(self) -> &'static str {
        match self {
            ArgKind::Max => "argmax",
            ArgKind::Min => "argmin",
        }
    }

    /// Whether real `x` takes the place of `best`, which stands before it.
    pub fn beats(self, x: f64, best: f64) -> bool {
        !best.is_nan() && (x.is_nan() || self.beats_int(x, best))
    }

    fn beats_int<T: PartialOrd>(self, x: T, best: T) -> bool {
        match self {
            ArgKind::Max => x > best,
            ArgKind::Min => x < best,
        }
    }
}

/// The index along `axis`, which disappears, as `i32`. The axis has at least one element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ArgReduce {
    /// Which.
    pub kind: ArgKind,
    /// The axis that disappears.
    pub axis: usize,
}

impl ArgReduce {
    fn nothing(&self) -> Mistake {
        Mistake::new(
            format!("axis {} has no element to point at", self.axis),
            "use an axis that is not empty",
        )
    }
}

impl OpRule for ArgReduce {
    fn name(&self) -> &'static str {
        self.kind.name()
    }
    fn attrs(&self) -> Attrs {
        vec![("axis", int(self.axis))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        check_axis(self.axis, x)?;
        match x.shape.0[self.axis].size() {
            Some(0) => return Err(self.nothing()),
            Some(n) if i32::try_from(n).is_err() => {
                return Err(Mistake::new(format!("{n} positions do not fit i32"), "split the axis"));
            }
            _ => {}
        }
        Ok(vec![Type::new(DType::I32, x.shape.without(&[self.axis]))])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let x = inputs[0];
        let (outer, n, inner) = around(&x.shape, self.axis);
        if n == 0 {
            return Err(self.nothing());
        }
        let mut out = vec![];
        for o in 0..outer {
            for i in 0..inner {
                let place = |a: usize| (o * n + a) * inner + i;
                let mut best = 0;
                for a in 1..n {
                    let wins = match &x.data {
                        Data::Reals(v) => self.kind.beats(v[place(a)], v[place(best)]),
                        Data::Ints(v) => self.kind.beats_int(v[place(a)], v[place(best)]),
                    };
                    if wins {
                        best = a;
                    }
                }
                out.push(best as i64);
            }
        }
        Ok(vec![Dense::from_ints(DType::I32, &results[0].sizes(), out)])
    }
}

impl OpTable for ArgReduce {
    const NAMES: &'static [&'static str] = &["argmax", "argmin"];
    fn parse(name: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        let kind = ArgKind::ALL.iter().find(|k| k.name() == name);
        let kind = *kind.ok_or_else(|| Mistake::new("unknown reduction", "see the op table"))?;
        Ok(ArgReduce { kind, axis: attrs.size("axis")? })
    }
    fn samples() -> Vec<Sample> {
        let mut all = vec![];
        for &kind in ArgKind::ALL {
            for axis in 0..3 {
                all.push(Sample::within(ArgReduce { kind, axis }, &[&[2, 3, 2]], Range::Distinct));
            }
            // Few values, so that ties occur.
            let op = ArgReduce { kind, axis: 1 };
            all.push(Sample::reals(op, &[]).and(DType::I32, &[4, 5], Range::Int(0, 3)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_of_equals_and_first_nan() {
        let arg = |kind, v: &[f64]| {
            let x = Dense::from_reals(DType::F64, &[v.len()], v.to_vec());
            let op = ArgReduce { kind, axis: 0 };
            op.reference(&[&x], &op.infer(&[x.ty()]).unwrap()).unwrap()[0].ints()[0]
        };
        assert_eq!(arg(ArgKind::Max, &[1.0, 3.0, 3.0]), 1);
        assert_eq!(arg(ArgKind::Min, &[2.0, 1.0, 1.0]), 1);
        assert_eq!(arg(ArgKind::Max, &[1.0, f64::NAN, f64::INFINITY, f64::NAN]), 1);
        assert_eq!(arg(ArgKind::Min, &[1.0, 0.0, f64::NAN]), 2);
        assert_eq!(arg(ArgKind::Min, &[f64::NAN, 0.0]), 0);
    }
}
