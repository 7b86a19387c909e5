//! `cast`: to another dtype. Floats round to nearest even, beyond the largest to infinity (NaN in `f8e4m3`, which has none); float to
//! integer truncates and saturates, NaN becomes 0; integers wrap; to `bool` is "not zero" (NaN is true).

use crate::attrs::{Attr, AttrReader, Attrs};
use crate::op::{OpRule, OpTable, Range, Sample, arity};
use crate::{DType, Dense, Mistake, Type};

/// Converts every element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cast {
    /// The result's dtype.
    pub dtype: DType,
}

impl OpRule for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }
    fn attrs(&self) -> Attrs {
        vec![("dtype", Attr::Word(self.dtype.name().into()))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        Ok(vec![Type::new(self.dtype, x.shape.clone())])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, to) = (inputs[0], self.dtype);
        Ok(vec![match (x.dtype.is_float(), to.is_float()) {
            (true, true) => Dense::from_reals(to, &x.shape, x.reals().to_vec()),
            (true, false) => x.reals_to_ints(to, |v| to.saturate(v)),
            (false, true) => Dense::from_reals(to, &x.shape, x.ints().iter().map(|&v| v as f64).collect()),
            (false, false) => x.map_ints(to, |v| v),
        }])
    }
}

impl OpTable for Cast {
    const NAMES: &'static [&'static str] = &["cast"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Cast { dtype: attrs.dtype("dtype")? })
    }
    fn samples() -> Vec<Sample> {
        let mut all: Vec<Sample> =
            DType::ALL.iter().map(|&dtype| Sample::reals(Cast { dtype }, &[&[2, 3]])).collect();
        for dtype in DType::ALL {
            all.push(Sample::reals(Cast { dtype }, &[]).and(DType::I32, &[4], Range::Int(-300, 300)));
        }
        for from in [DType::F8E4M3, DType::F8E5M2] {
            let wide = Range::Real(-500.0, 500.0);
            all.extend(
                [DType::F32, DType::BF16]
                    .map(|dtype| Sample::reals(Cast { dtype }, &[]).and(from, &[9], wide)),
            );
        }
        all
    }
}
