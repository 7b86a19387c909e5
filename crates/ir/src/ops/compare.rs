//! Elementwise comparison: two operands of one type, a `bool` result. Every comparison with NaN is false but `ne`.

use crate::attrs::AttrReader;
use crate::op::{OpRule, OpTable, Range, Sample, arity, same_dtype};
use crate::ops::binary::same_shape;
use crate::{DType, Dense, Mistake, Type};

/// Which comparison.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum CompareKind {
    /// a = b
    Eq,
    /// a ≠ b
    Ne,
    /// a < b
    Lt,
    /// a ≤ b
    Le,
    /// a > b
    Gt,
    /// a ≥ b
    Ge,
}

impl CompareKind {
    /// Every kind.
    pub const ALL: &'static [CompareKind] = &[
        CompareKind::Eq,
        CompareKind::Ne,
        CompareKind::Lt,
        CompareKind::Le,
        CompareKind::Gt,
        CompareKind::Ge,
    ];

    /// The mnemonic.
    pub fn name(self) -> &'static str {
        match self {
            CompareKind::Eq => "eq",
            CompareKind::Ne => "ne",
            CompareKind::Lt => "lt",
            CompareKind::Le => "le",
            CompareKind::Gt => "gt",
            CompareKind::Ge => "ge",
        }
    }

    /// The comparison.
    pub fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            CompareKind::Eq => a == b,
            CompareKind::Ne => a != b,
            CompareKind::Lt => a < b,
            CompareKind::Le => a <= b,
            CompareKind::Gt => a > b,
            CompareKind::Ge => a >= b,
        }
    }
}

/// An elementwise comparison.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Compare {
    /// Which.
    pub kind: CompareKind,
}

impl From<CompareKind> for crate::Op {
    fn from(kind: CompareKind) -> crate::Op {
        Compare { kind }.into()
    }
}

impl OpRule for Compare {
    fn name(&self) -> &'static str {
        self.kind.name()
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [a, b] = arity(operands)?;
        same_dtype(&[a, b])?;
        same_shape(a, b)?;
        Ok(vec![Type::new(DType::Bool, a.shape.clone())])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (a, b, kind) = (inputs[0], inputs[1], self.kind);
        Ok(vec![if a.dtype.is_float() {
            let holds = a.reals().iter().zip(b.reals()).map(|(x, y)| kind.holds(*x, *y) as i64);
            Dense::from_ints(DType::Bool, &a.shape, holds.collect())
        } else {
            a.zip_ints(b, DType::Bool, |x, y| kind.holds(x, y) as i64)
        }])
    }
}

impl OpTable for Compare {
    const NAMES: &'static [&'static str] = &["eq", "ne", "lt", "le", "gt", "ge"];
    fn parse(name: &str, _: &mut AttrReader) -> Result<Self, Mistake> {
        let kind = CompareKind::ALL.iter().find(|k| k.name() == name);
        kind.map(|&kind| Compare { kind })
            .ok_or_else(|| Mistake::new("unknown comparison", "see the op table"))
    }
    fn samples() -> Vec<Sample> {
        let ints = |op| {
            Sample::reals(op, &[]).and(DType::I32, &[9], Range::Int(0, 3)).and(
                DType::I32,
                &[9],
                Range::Int(0, 3),
            )
        };
        CompareKind::ALL
            .iter()
            .flat_map(|&kind| {
                [Sample::within(Compare { kind }, &[&[4], &[4]], Range::Distinct), ints(Compare { kind })]
            })
            .collect()
    }
}
