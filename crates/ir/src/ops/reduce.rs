//! Reductions over axes: `sum`, `reduce_max`, `reduce_min`, `prod`. The reduced axes disappear.
//!
//! Over nothing: 0, the dtype's lowest, its highest, 1. Max and min propagate NaN. `bool` takes max (any) and min (all).

use crate::attrs::{AttrReader, Attrs, ints};
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_axes};
use crate::ops::BinaryKind;
use crate::shape::{for_each_index, row_major};
use crate::{DType, Dense, Mistake, Type};

/// Which reduction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ReduceKind {
    /// The sum.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The product.
    Prod,
}

impl ReduceKind {
    /// Every kind.
    pub const ALL: &'static [ReduceKind] =
        &[ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod];

    /// The mnemonic.
    pub fn name(self) -> &'static str {
        match self {
            ReduceKind::Sum => "sum",
            ReduceKind::Max => "reduce_max",
            ReduceKind::Min => "reduce_min",
            ReduceKind::Prod => "prod",
        }
    }

    /// What combines two partial results.
    pub fn combine(self) -> BinaryKind {
        match self {
            ReduceKind::Sum => BinaryKind::Add,
            ReduceKind::Max => BinaryKind::Max,
            ReduceKind::Min => BinaryKind::Min,
            ReduceKind::Prod => BinaryKind::Mul,
        }
    }

    /// The result over nothing.
    pub fn identity(self, dtype: DType) -> f64 {
        match self {
            ReduceKind::Sum => 0.0,
            ReduceKind::Prod => 1.0,
            ReduceKind::Max => dtype.lowest(),
            ReduceKind::Min => dtype.highest(),
        }
    }

    /// The same for integers, exactly.
    pub fn identity_int(self, dtype: DType) -> i64 {
        match (self, dtype) {
            (ReduceKind::Max, DType::I64) => i64::MIN,
            (ReduceKind::Min, DType::I64) => i64::MAX,
            _ => self.identity(dtype) as i64,
        }
    }
}

/// A reduction over axes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reduce {
    /// Which.
    pub kind: ReduceKind,
    /// The axes that disappear.
    pub axes: Vec<usize>,
}

impl OpRule for Reduce {
    fn name(&self) -> &'static str {
        self.kind.name()
    }
    fn attrs(&self) -> Attrs {
        vec![("axes", ints(&self.axes))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        check_axes(&self.axes, x)?;
        if x.dtype == DType::Bool && matches!(self.kind, ReduceKind::Sum | ReduceKind::Prod) {
            return Err(Mistake::new(
                "is not defined on bool",
                "cast to i32 to count, or use max (any) or min (all)",
            ));
        }
        Ok(vec![Type::new(x.dtype, x.shape.without(&self.axes))])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let x = inputs[0];
        let out_sizes = results[0].sizes();
        let out_strides = row_major(&out_sizes);
        let n: usize = out_sizes.iter().product();
        let kept: Vec<usize> = (0..x.shape.len()).filter(|a| !self.axes.contains(a)).collect();
        let combine = self.kind.combine();
        let mut at = 0;
        let mut places = vec![];
        for_each_index(&x.shape, |i| {
            places.push(kept.iter().zip(&out_strides).map(|(&a, s)| i[a] * s).sum::<usize>());
            at += 1;
        });
        Ok(vec![if x.dtype.is_float() {
            let mut out = vec![self.kind.identity(x.dtype); n];
            for (&p, &v) in places.iter().zip(x.reals()) {
                out[p] = combine.real(out[p], v);
            }
            Dense::from_reals(x.dtype, &out_sizes, out)
        } else {
            let mut out = vec![self.kind.identity_int(x.dtype); n];
            for (&p, &v) in places.iter().zip(x.ints()) {
                out[p] = combine.int(out[p], v);
            }
            Dense::from_ints(x.dtype, &out_sizes, out)
        }])
    }
}

impl OpTable for Reduce {
    const NAMES: &'static [&'static str] = &["sum", "reduce_max", "reduce_min", "prod"];
    fn parse(name: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        let kind = ReduceKind::ALL.iter().find(|k| k.name() == name);
        let kind = *kind.ok_or_else(|| Mistake::new("unknown reduction", "see the op table"))?;
        Ok(Reduce { kind, axes: attrs.sizes("axes")? })
    }
    fn samples() -> Vec<Sample> {
        let mut all = vec![];
        for &kind in ReduceKind::ALL {
            for axes in [vec![1], vec![0, 2], vec![], vec![0, 1, 2]] {
                let range = if kind == ReduceKind::Prod { Range::Real(0.5, 2.0) } else { Range::Distinct };
                all.push(Sample::within(Reduce { kind, axes }, &[&[2, 3, 2]], range));
            }
            all.push(Sample::reals(Reduce { kind, axes: vec![0] }, &[]).and(
                DType::I32,
                &[4, 2],
                Range::Int(-5, 5),
            ));
        }
        all.push(Sample::reals(Reduce { kind: ReduceKind::Sum, axes: vec![0] }, &[&[0, 2]]));
        all
    }
}
