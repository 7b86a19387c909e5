//! `pad`: extends one axis with a constant, before, behind and between its elements.

use crate::attrs::{Attr, AttrReader, Attrs, Real, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, fixed_size};
use crate::shape::around;
use crate::{DType, Dense, Dim, Mistake, Type};

/// `low` constants, then the elements with `interior` constants between neighbours, then `high` constants, along one
/// axis whose size is a number. The constant is converted to the operand's dtype (integers truncate and saturate).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pad {
    /// The axis.
    pub axis: usize,
    /// Constants before the first element.
    pub low: usize,
    /// Constants behind the last element.
    pub high: usize,
    /// Constants between neighbours.
    pub interior: usize,
    /// The constant.
    pub value: Real,
}

impl OpRule for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }
    fn attrs(&self) -> Attrs {
        vec![
            ("axis", int(self.axis)),
            ("low", int(self.low)),
            ("high", int(self.high)),
            ("interior", int(self.interior)),
            ("value", Attr::Real(self.value)),
        ]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        let n = fixed_size(self.axis, x)?;
        let size = self
            .interior
            .checked_mul(n.saturating_sub(1))
            .and_then(|gaps| n.checked_add(gaps)?.checked_add(self.low)?.checked_add(self.high));
        let size = size.ok_or_else(|| Mistake::new("the padded size overflows", "pad by less"))?;
        let mut out = x.clone();
        out.shape.0[self.axis] = Dim::fixed(size);
        Ok(vec![out])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, sizes) = (inputs[0], results[0].sizes());
        let (outer, n, inner) = around(&x.shape, self.axis);
        let padded = sizes[self.axis];
        let mut at = vec![];
        for o in 0..outer {
            for a in 0..n {
                let place = o * padded + self.low + a * (self.interior + 1);
                at.extend((0..inner).map(|i| place * inner + i));
            }
        }
        let value = self.value.get();
        let value = if x.dtype.is_float() { x.dtype.round(value) } else { x.dtype.saturate(value) as f64 };
        let mut out = Dense::full(x.dtype, &sizes, value);
        out.place(&at, x);
        Ok(vec![out])
    }
}

impl OpTable for Pad {
    const NAMES: &'static [&'static str] = &["pad"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Pad {
            axis: attrs.size("axis")?,
            low: attrs.size("low")?,
            high: attrs.size("high")?,
            interior: attrs.size("interior")?,
            value: attrs.real("value")?,
        })
    }
    fn samples() -> Vec<Sample> {
        let pad = |axis, low, high, interior| Pad { axis, low, high, interior, value: Real::new(0.5) };
        vec![
            Sample::reals(pad(1, 2, 1, 0), &[&[2, 3, 2]]),
            Sample::reals(pad(0, 0, 2, 2), &[&[3, 2]]),
            Sample::reals(pad(0, 1, 1, 3), &[&[0, 2]]),
            Sample::reals(Pad { value: Real::new(-7.0), ..pad(0, 1, 0, 1) }, &[]).and(
                DType::I32,
                &[4],
                Range::Int(-9, 9),
            ),
        ]
    }
}
