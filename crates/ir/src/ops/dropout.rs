//! `dropout`: zeros a random part of the elements and scales the others so that the mean stays (Srivastava and others,
//! 2014). The random bits are an operand, so that the gradient uses the same ones.

use crate::attrs::{Attr, AttrReader, Attrs, Real};
use crate::op::{OpRule, OpTable, Range, Sample, arity, want_float, want_shape};
use crate::{DType, Dense, GraphBuilder, Mistake, Tensor, Type};

/// Operands `x` (floats) and `bits` (`u32`, `x`'s shape). The result is `x / (1 − p)` where `bits ≥ p · 2³²`, else 0:
/// `x` itself for `p = 0`, zeros for `p = 1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dropout {
    /// The probability, from 0 to 1, that an element becomes 0.
    pub p: Real,
}

impl Dropout {
    /// The least bits that keep an element; 2³² when none does.
    pub fn threshold(&self) -> u64 {
        (self.p.get() * 4_294_967_296.0).ceil() as u64
    }
}

impl OpRule for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }
    fn attrs(&self) -> Attrs {
        vec![("p", Attr::Real(self.p))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x, bits] = arity(operands)?;
        want_float(x)?;
        if !(0.0..=1.0).contains(&self.p.get()) {
            return Err(Mistake::new(
                format!("p = {:?} is no probability", self.p),
                "use a number from 0 to 1",
            ));
        }
        if bits.dtype != DType::U32 {
            return Err(Mistake::new(format!("the bits are {bits}"), "draw them with random_bits"));
        }
        want_shape("the second operand (bits)", bits, &x.shape)?;
        Ok(vec![x.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, bits) = (inputs[0], inputs[1].ints());
        let keep = x.dtype.accumulator().round(1.0 - self.p.get());
        let one = |(&v, &b): (&f64, &i64)| if b as u64 >= self.threshold() { v / keep } else { 0.0 };
        Ok(vec![Dense::from_reals(x.dtype, &x.shape, x.reals().iter().zip(bits).map(one).collect())])
    }
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [x, bits] = operands.try_into().ok()?;
        Some(vec![match u32::try_from(self.threshold()) {
            Ok(0) => x,
            Ok(least) => {
                let scaled = x.cast(x.dtype().accumulator()) / (1.0 - self.p.get());
                bits.greater_equal(least as f64).select(scaled, 0.0).cast(x.dtype())
            }
            Err(_) => g.full(x.dtype(), x.shape(), 0.0),
        }])
    }
}

impl OpTable for Dropout {
    const NAMES: &'static [&'static str] = &["dropout"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Dropout { p: attrs.real("p")? })
    }
    fn samples() -> Vec<Sample> {
        let word = Range::Int(0, 1 << 32);
        let mut all = vec![];
        for p in [0.0, 0.25, 0.5, 1.0] {
            let op = Dropout { p: Real::new(p) };
            all.push(Sample::reals(op, &[&[3, 5]]).and(DType::U32, &[3, 5], word));
        }
        let half =
            Sample::reals(Dropout { p: Real::new(0.1) }, &[]).and(DType::BF16, &[5], Range::Real(-2.0, 2.0));
        all.push(half.and(DType::U32, &[5], word));
        all
    }
}
