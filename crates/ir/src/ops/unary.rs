//! Elementwise ops of one operand.

use crate::attrs::AttrReader;
use crate::op::{OpRule, OpTable, Range, Sample, arity, want_float};
use crate::{DType, Dense, Mistake, Type};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal),+ $(,)?) => {
        /// Which function.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum UnaryKind { $($(#[$doc])* $kind),+ }

        impl UnaryKind {
            /// Every kind.
            pub const ALL: &'static [UnaryKind] = &[$(UnaryKind::$kind),+];
            /// The mnemonic.
            pub fn name(self) -> &'static str {
                match self { $(UnaryKind::$kind => $name),+ }
            }
        }
        const NAMES: &[&str] = &[$($name),+];
    };
}

kinds!(
    /// −x; wraps for integers.
    Neg "neg",
    /// |x|; wraps for integers.
    Abs "abs",
    /// −1, 0 or 1; sign(±0) = 0 and sign(NaN) = NaN.
    Sign "sign",
    /// eˣ.
    Exp "exp",
    /// eˣ − 1, accurate near 0.
    Expm1 "expm1",
    /// Natural logarithm.
    Log "log",
    /// ln(1 + x), accurate near 0.
    Log1p "log1p",
    /// Square root, correctly rounded.
    Sqrt "sqrt",
    /// 1/√x.
    Rsqrt "rsqrt",
    /// 1/x.
    Reciprocal "reciprocal",
    /// Sine.
    Sin "sin",
    /// Cosine.
    Cos "cos",
    /// Hyperbolic tangent.
    Tanh "tanh",
    /// Error function.
    Erf "erf",
    /// 1/(1+e⁻ˣ).
    Sigmoid "sigmoid",
    /// max(x, 0), NaN for NaN.
    Relu "relu",
    /// Largest integer not above x.
    Floor "floor",
    /// Smallest integer not below x.
    Ceil "ceil",
    /// Nearest integer, ties to even.
    Round "round",
    /// Integer part.
    Trunc "trunc",
    /// Whether x is neither infinite nor NaN (`bool` result).
    IsFinite "is_finite",
    /// Whether x is NaN (`bool` result).
    IsNan "is_nan",
    /// Logical negation of a `bool`; bitwise for integers.
    Not "not",
    /// Tangent.
    Tan "tan",
    /// Arc sine.
    Asin "asin",
    /// Arc cosine.
    Acos "acos",
    /// Arc tangent.
    Atan "atan",
    /// Hyperbolic sine.
    Sinh "sinh",
    /// Hyperbolic cosine.
    Cosh "cosh",
    /// Inverse hyperbolic sine.
    Asinh "asinh",
    /// Inverse hyperbolic cosine.
    Acosh "acosh",
    /// Inverse hyperbolic tangent.
    Atanh "atanh",
    /// 1 − erf(x), accurate where that is tiny.
    Erfc "erfc",
);

impl UnaryKind {
    /// The function on reals: the definition for float tensors.
    pub fn real(self, x: f64) -> f64 {
        match self {
            UnaryKind::Neg => -x,
            UnaryKind::Abs => x.abs(),
            UnaryKind::Sign if x == 0.0 || x.is_nan() => x,
            UnaryKind::Sign => x.signum(),
            UnaryKind::Exp => libm::exp(x),
            UnaryKind::Expm1 => libm::expm1(x),
            UnaryKind::Log => libm::log(x),
            UnaryKind::Log1p => libm::log1p(x),
            UnaryKind::Sqrt => x.sqrt(),
            UnaryKind::Rsqrt => 1.0 / x.sqrt(),
            UnaryKind::Reciprocal => 1.0 / x,
            UnaryKind::Sin => libm::sin(x),
            UnaryKind::Cos => libm::cos(x),
            UnaryKind::Tanh => libm::tanh(x),
            UnaryKind::Erf => libm::erf(x),
            UnaryKind::Sigmoid if x >= 0.0 => 1.0 / (1.0 + libm::exp(-x)),
            UnaryKind::Sigmoid => libm::exp(x) / (1.0 + libm::exp(x)),
            UnaryKind::Relu if x < 0.0 => 0.0,
            UnaryKind::Relu => x,
            UnaryKind::Floor => x.floor(),
            UnaryKind::Ceil => x.ceil(),
            UnaryKind::Round => x.round_ties_even(),
            UnaryKind::Trunc => x.trunc(),
            UnaryKind::IsFinite => x.is_finite() as u8 as f64,
            UnaryKind::IsNan => x.is_nan() as u8 as f64,
            UnaryKind::Not => (x == 0.0) as u8 as f64,
            UnaryKind::Tan => libm::tan(x),
            UnaryKind::Asin => libm::asin(x),
            UnaryKind::Acos => libm::acos(x),
            UnaryKind::Atan => libm::atan(x),
            UnaryKind::Sinh => libm::sinh(x),
            UnaryKind::Cosh => libm::cosh(x),
            UnaryKind::Asinh => libm::asinh(x),
            // The library's formula gives numbers to some arguments below −1.
            UnaryKind::Acosh if x < 1.0 => f64::NAN,
            UnaryKind::Acosh => libm::acosh(x),
            UnaryKind::Atanh => libm::atanh(x),
            UnaryKind::Erfc => libm::erfc(x),
        }
    }

    /// The function on integers, before wrapping to the dtype. Only for the kinds that [`Unary`] accepts on integers.
    pub fn int(self, x: i64) -> i64 {
        match self {
            UnaryKind::Neg => x.wrapping_neg(),
            UnaryKind::Abs => x.wrapping_abs(),
            UnaryKind::Sign => x.signum(),
            UnaryKind::Relu => x.max(0),
            UnaryKind::Not => !x,
            _ => x,
        }
    }

    /// Whether every target gives it the same bits: it has one right result, and none other is taken.
    pub fn is_exact(self) -> bool {
        use UnaryKind::*;
        matches!(
            self,
            Neg | Abs
                | Sign
                | Sqrt
                | Reciprocal
                | Relu
                | Floor
                | Ceil
                | Round
                | Trunc
                | IsFinite
                | IsNan
                | Not
        )
    }

    /// Whether computing it is worth more than a load: it has a polynomial or a call behind it.
    pub fn is_costly(self) -> bool {
        !self.is_exact() && self != UnaryKind::Rsqrt
    }

    /// Whether integers have it.
    pub fn takes_ints(self) -> bool {
        matches!(self, UnaryKind::Neg | UnaryKind::Abs | UnaryKind::Sign | UnaryKind::Relu | UnaryKind::Not)
    }
}

/// An elementwise function of one tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unary {
    /// Which.
    pub kind: UnaryKind,
}

impl From<UnaryKind> for crate::Op {
    fn from(kind: UnaryKind) -> crate::Op {
        Unary { kind }.into()
    }
}

impl OpRule for Unary {
    fn name(&self) -> &'static str {
        self.kind.name()
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        let dtype = match self.kind {
            UnaryKind::Not if x.dtype.is_float() => {
                return Err(Mistake::new(format!("takes bool or integers, got {x}"), "compare with 0 first"));
            }
            UnaryKind::Not => x.dtype,
            k if k.takes_ints() && x.dtype.is_int() => x.dtype,
            UnaryKind::IsFinite | UnaryKind::IsNan => {
                want_float(x)?;
                DType::Bool
            }
            _ => {
                want_float(x)?;
                x.dtype
            }
        };
        Ok(vec![Type::new(dtype, x.shape.clone())])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let x = inputs[0];
        let kind = self.kind;
        let out = match results[0].dtype {
            DType::Bool if kind == UnaryKind::Not => x.map_ints(DType::Bool, |v| (v == 0) as i64),
            DType::Bool => x.reals_to_ints(DType::Bool, |v| kind.real(v) as i64),
            d if d.is_float() => x.map_reals(|v| kind.real(v)),
            d => x.map_ints(d, |v| kind.int(v)),
        };
        Ok(vec![out])
    }
}

impl OpTable for Unary {
    const NAMES: &'static [&'static str] = NAMES;
    fn parse(name: &str, _: &mut AttrReader) -> Result<Self, Mistake> {
        let kind = UnaryKind::ALL.iter().find(|k| k.name() == name);
        kind.map(|&kind| Unary { kind }).ok_or_else(|| Mistake::new("unknown function", "see the op table"))
    }
    fn samples() -> Vec<Sample> {
        let mut all = vec![];
        for &kind in UnaryKind::ALL {
            let op = Unary { kind };
            let range = match kind {
                UnaryKind::Log | UnaryKind::Sqrt | UnaryKind::Rsqrt | UnaryKind::Reciprocal => {
                    Range::Real(0.3, 3.0)
                }
                UnaryKind::Log1p => Range::Real(-0.7, 2.0),
                UnaryKind::Tan => Range::Real(-1.2, 1.2),
                UnaryKind::Asin | UnaryKind::Acos | UnaryKind::Atanh => Range::Real(-0.8, 0.8),
                UnaryKind::Acosh => Range::Real(1.3, 3.0),
                // Away from the kink at 0 and the steps at the (half-)integers.
                UnaryKind::Abs | UnaryKind::Relu | UnaryKind::Sign => Range::Distinct,
                UnaryKind::Floor | UnaryKind::Ceil | UnaryKind::Round | UnaryKind::Trunc => {
                    Range::Real(1.1, 1.4)
                }
                _ => Range::Real(-2.0, 2.0),
            };
            if kind != UnaryKind::Not {
                all.push(Sample::within(op, &[&[2, 3]], range));
            }
            if kind.takes_ints() {
                all.push(Sample::reals(op, &[]).and(DType::I32, &[5], Range::Int(-9, 9)));
            }
            if kind == UnaryKind::Not {
                all.push(Sample::reals(op, &[]).and(DType::Bool, &[5], Range::Int(0, 2)));
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
        use UnaryKind::*;
        assert!(Relu.real(f64::NAN).is_nan());
        assert!(Sign.real(f64::NAN).is_nan());
        assert_eq!(Sign.real(-0.0), 0.0);
        assert_eq!(Round.real(2.5), 2.0);
        assert_eq!(Log1p.real(-1.0), f64::NEG_INFINITY);
        assert_eq!(Expm1.real(f64::NEG_INFINITY), -1.0);
        // Near 0 both keep every digit, where exp(x) - 1 and log(1 + x) would have lost them.
        assert_eq!(Log1p.real(1e-20), 1e-20);
        assert_eq!(Expm1.real(1e-20), 1e-20);
        assert_eq!(Sigmoid.real(-800.0), 0.0);
        assert_eq!(Sigmoid.real(800.0), 1.0);
        assert!(Acosh.real(-7e4).is_nan() && Acosh.real(0.5).is_nan());
    }
}
