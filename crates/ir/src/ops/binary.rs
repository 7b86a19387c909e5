//! Elementwise ops of two operands of one type.

use crate::attrs::AttrReader;
use crate::op::{OpRule, OpTable, Range, Sample, arity, same_dtype};
use crate::{DType, Dense, Mistake, Type};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal),+ $(,)?) => {
        /// Which function.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum BinaryKind { $($(#[$doc])* $kind),+ }

        impl BinaryKind {
            /// Every kind.
            pub const ALL: &'static [BinaryKind] = &[$(BinaryKind::$kind),+];
            /// The mnemonic.
            pub fn name(self) -> &'static str {
                match self { $(BinaryKind::$kind => $name),+ }
            }
        }
        const NAMES: &[&str] = &[$($name),+];
    };
}

kinds!(
    /// a + b.
    Add "add",
    /// a − b.
    Sub "sub",
    /// a · b.
    Mul "mul",
    /// a / b; integers truncate towards zero, and x / 0 is 0.
    Div "div",
    /// The larger; NaN if either is NaN.
    Max "max",
    /// The smaller; NaN if either is NaN.
    Min "min",
    /// aᵇ, floats only.
    Pow "pow",
    /// The remainder with the dividend's sign, as C's `fmod`; for integers x rem 0 is x.
    Rem "rem",
    /// Logical (bitwise for integers) and.
    And "and",
    /// Logical (bitwise for integers) or.
    Or "or",
    /// Logical (bitwise for integers) exclusive or.
    Xor "xor",
    /// The angle of the point (b, a), from −π to π, floats only.
    Atan2 "atan2",
    /// a · 2ᵇ, integers only; 0 when b is negative or not below the number of bits.
    Shl "shl",
    /// ⌊a / 2ᵇ⌋, integers only; the sign (−1 or 0) when b is negative or not below the number of bits.
    Shr "shr",
);

impl BinaryKind {
    /// The function on reals: the definition for float tensors.
    pub fn real(self, a: f64, b: f64) -> f64 {
        match self {
            BinaryKind::Add => a + b,
            BinaryKind::Sub => a - b,
            BinaryKind::Mul => a * b,
            BinaryKind::Div => a / b,
            BinaryKind::Max if a.is_nan() || b.is_nan() => f64::NAN,
            BinaryKind::Max => a.max(b),
            BinaryKind::Min if a.is_nan() || b.is_nan() => f64::NAN,
            BinaryKind::Min => a.min(b),
            BinaryKind::Pow => libm::pow(a, b),
            BinaryKind::Rem => libm::fmod(a, b),
            BinaryKind::Atan2 => libm::atan2(a, b),
            BinaryKind::And | BinaryKind::Or | BinaryKind::Xor | BinaryKind::Shl | BinaryKind::Shr => {
                f64::NAN
            }
        }
    }

    /// The function on integers, before wrapping to the dtype.
    pub fn int(self, a: i64, b: i64) -> i64 {
        match self {
            BinaryKind::Add => a.wrapping_add(b),
            BinaryKind::Sub => a.wrapping_sub(b),
            BinaryKind::Mul => a.wrapping_mul(b),
            BinaryKind::Div if b == 0 => 0,
            BinaryKind::Div => a.wrapping_div(b),
            BinaryKind::Max => a.max(b),
            BinaryKind::Min => a.min(b),
            BinaryKind::Rem if b == 0 => a,
            BinaryKind::Rem => a.wrapping_rem(b),
            BinaryKind::And => a & b,
            BinaryKind::Or => a | b,
            BinaryKind::Xor => a ^ b,
            // Of a narrower dtype, the bits shifted out are wrapped away, and the sign is in every bit above its own.
            BinaryKind::Shl => {
                if (0..64).contains(&b) {
                    a << b
                } else {
                    0
                }
            }
            BinaryKind::Shr => a >> if (0..64).contains(&b) { b } else { 63 },
            BinaryKind::Pow | BinaryKind::Atan2 => 0,
        }
    }

    /// Whether it takes operands of this dtype.
    pub fn takes(self, dtype: DType) -> bool {
        match self {
            BinaryKind::And | BinaryKind::Or | BinaryKind::Xor => !dtype.is_float(),
            BinaryKind::Pow | BinaryKind::Atan2 => dtype.is_float(),
            BinaryKind::Shl | BinaryKind::Shr => dtype.is_int(),
            BinaryKind::Max | BinaryKind::Min => true,
            _ => dtype != DType::Bool,
        }
    }

    /// Whether `f(a, b) = f(b, a)`, bit for bit.
    pub fn commutes(self) -> bool {
        use BinaryKind::*;
        matches!(self, Add | Mul | Max | Min | And | Or | Xor)
    }

    /// Whether every target gives it the same bits: it has one right result, and none other is taken.
    pub fn is_exact(self) -> bool {
        !matches!(self, BinaryKind::Pow | BinaryKind::Atan2)
    }
}

/// An elementwise function of two tensors of the same type. Builder methods broadcast their operands first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Binary {
    /// Which.
    pub kind: BinaryKind,
}

impl From<BinaryKind> for crate::Op {
    fn from(kind: BinaryKind) -> crate::Op {
        Binary { kind }.into()
    }
}

/// The rule that both operands have one shape.
pub(crate) fn same_shape(a: &Type, b: &Type) -> Result<(), Mistake> {
    if a.shape == b.shape {
        return Ok(());
    }
    Err(Mistake::new(
        format!("shapes {} and {} differ", a.shape, b.shape),
        "broadcast or reshape one of them (sizes match from the right, and 1 stretches)",
    ))
}

impl OpRule for Binary {
    fn name(&self) -> &'static str {
        self.kind.name()
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [a, b] = arity(operands)?;
        same_dtype(&[a, b])?;
        same_shape(a, b)?;
        if !self.kind.takes(a.dtype) {
            return Err(Mistake::new(format!("is not defined on {}", a.dtype), "cast the operands first"));
        }
        Ok(vec![a.clone()])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (a, b, kind) = (inputs[0], inputs[1], self.kind);
        Ok(vec![if results[0].dtype.is_float() {
            a.zip_reals(b, |x, y| kind.real(x, y))
        } else {
            a.zip_ints(b, results[0].dtype, |x, y| kind.int(x, y))
        }])
    }
}

impl OpTable for Binary {
    const NAMES: &'static [&'static str] = NAMES;
    fn parse(name: &str, _: &mut AttrReader) -> Result<Self, Mistake> {
        let kind = BinaryKind::ALL.iter().find(|k| k.name() == name);
        kind.map(|&kind| Binary { kind }).ok_or_else(|| Mistake::new("unknown function", "see the op table"))
    }
    fn samples() -> Vec<Sample> {
        let mut all = vec![];
        for &kind in BinaryKind::ALL {
            let op = Binary { kind };
            if kind.takes(DType::F64) {
                let (ra, rb) = match kind {
                    BinaryKind::Pow => (Range::Real(0.5, 2.0), Range::Real(-2.0, 2.0)),
                    BinaryKind::Div => (Range::Real(-2.0, 2.0), Range::Real(0.5, 2.0)),
                    // Quotients stay inside (1, 2): away from the jumps of the remainder.
                    BinaryKind::Rem => (Range::Real(2.2, 2.8), Range::Real(1.5, 2.0)),
                    BinaryKind::Max | BinaryKind::Min => (Range::Distinct, Range::Distinct),
                    // Never near the origin, nor the cut behind it.
                    BinaryKind::Atan2 => (Range::Real(-2.0, 2.0), Range::Real(0.5, 2.0)),
                    _ => (Range::Real(-2.0, 2.0), Range::Real(-2.0, 2.0)),
                };
                all.push(Sample::reals(op, &[]).and(DType::F64, &[2, 3], ra).and(DType::F64, &[2, 3], rb));
            }
            for dtype in [DType::I32, DType::I8, DType::U8, DType::Bool] {
                if kind.takes(dtype) {
                    let r = if dtype.lowest() < 0.0 { Range::Int(-9, 9) } else { Range::Int(0, 2) };
                    let r = if matches!(kind, BinaryKind::Shl | BinaryKind::Shr) {
                        Range::Int(-99 * (dtype.lowest() < 0.0) as i64, 99)
                    } else {
                        r
                    };
                    all.push(Sample::reals(op, &[]).and(dtype, &[5], r).and(dtype, &[5], r));
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges() {
        assert!(BinaryKind::Max.real(f64::NAN, 1.0).is_nan());
        assert!(BinaryKind::Min.real(1.0, f64::NAN).is_nan());
        assert_eq!(BinaryKind::Div.int(7, 0), 0);
        assert_eq!(BinaryKind::Rem.int(7, 0), 7);
        assert_eq!(BinaryKind::Rem.int(-7, 3), -1);
        assert_eq!(BinaryKind::Div.int(i64::MIN, -1), i64::MIN);
        let shifted = |kind: BinaryKind, dtype: DType, a, b| dtype.wrap(kind.int(a, b));
        assert_eq!(shifted(BinaryKind::Shl, DType::I32, 1, 31), i32::MIN as i64);
        assert_eq!(shifted(BinaryKind::Shl, DType::U8, 3, 7), 128);
        assert_eq!(shifted(BinaryKind::Shr, DType::I32, -5, 1), -3);
        for beyond in [8, 32, 64, 1 << 40, -1] {
            assert_eq!(shifted(BinaryKind::Shl, DType::U8, 255, beyond), 0);
            assert_eq!(shifted(BinaryKind::Shr, DType::U8, 255, beyond), 0);
            assert_eq!(shifted(BinaryKind::Shr, DType::I64, -1 << 7, beyond), -1);
        }
    }
}
