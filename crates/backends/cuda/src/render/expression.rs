//! Expressions and indices as text.

use super::domain::range;
use super::emit::Writer;
use super::{random, scalar};
use onestep_ir::DType;
use onestep_ir::ops::BinaryKind;
use onestep_passes::schedule::{Affine, Bound, Expr, ExprId};
use std::fmt::Write;

impl Writer<'_> {
    pub(super) fn expression(&self, i: usize) -> String {
        let e = &self.kernel.body[i];
        let dtype_of = |id: &ExprId| self.kernel.body[id.index()].dtype;
        let v = |id: &ExprId| format!("e{}", id.0);
        if let Expr::Load { access, .. } = &e.expr
            && !self.in_group
            && let Some(held) = self.held(access.buffer)
        {
            return held;
        }
        match &e.expr {
            Expr::Load { access, .. } if self.in_columns && self.of_columns(access) => {
                scalar::from_storage(e.dtype, &format!("c{i}.at[c]"))
            }
            Expr::Load { .. } if self.in_group && self.together[i] > 1 => {
                scalar::from_storage(e.dtype, &format!("l{i}.at[v]"))
            }
            Expr::Load { access, bounds, fill } => {
                let at = format!("{}[{}]", access.buffer, self.affine(&access.place));
                let value = scalar::from_storage(e.dtype, &at);
                let tests: Vec<String> = bounds.iter().flat_map(|b| self.tests(b)).collect();
                match tests.is_empty() {
                    true => value,
                    false => {
                        format!("{} ? {value} : {}", tests.join(" && "), scalar::literal(e.dtype, *fill))
                    }
                }
            }
            Expr::Literal(bits) => scalar::literal(e.dtype, *bits),
            Expr::Index(a) => scalar::cast(DType::I64, e.dtype, &format!("(long long)({})", self.affine(a))),
            Expr::Unary(kind, a) => scalar::unary(*kind, dtype_of(a), &v(a)),
            Expr::Binary(BinaryKind::Div, a, by)
                if self.division(i).is_some() && self.divisors[by.index()] =>
            {
                scalar::rounded(e.dtype, format!("divided({}, d{})", v(a), by.0))
            }
            Expr::Binary(kind, a, b) => scalar::binary(*kind, e.dtype, &v(a), &v(b)),
            Expr::Compare(kind, a, b) => scalar::compare(*kind, &v(a), &v(b)),
            Expr::Select(c, a, b) => format!("{} ? {} : {}", v(c), v(a), v(b)),
            Expr::Cast(a) => scalar::cast(dtype_of(a), e.dtype, &v(a)),
            Expr::Bitcast(a) => scalar::bitcast(dtype_of(a), e.dtype, &v(a)),
            Expr::RandomBits { .. } if self.is_word(i) => random::word(i),
            Expr::RandomBits { key: [k0, k1], counter, index, stream } => {
                format!("philox({}, {}, {}, {}, 0x{stream:016x}ull)", v(k0), v(k1), v(counter), v(index))
            }
            Expr::Reduce(..) => v(&ExprId(i as u32)),
        }
    }

    /// The tests of a bound that do not hold over the whole domain.
    pub(super) fn tests(&self, b: &Bound) -> Vec<String> {
        let (low, high) = range(self.kernel, &b.index);
        let index = self.affine(&b.index);
        let mut tests = vec![];
        if low < 0 {
            tests.push(format!("{index} >= 0"));
        }
        if high >= b.size as i128 {
            tests.push(format!("{index} < {}", b.size));
        }
        if b.step != 1 {
            tests.push(format!("({index}) % {} == 0", b.step));
        }
        tests
    }

    /// An index at the point, or at the group's first point.
    pub(super) fn affine(&self, a: &Affine) -> String {
        let mut text = String::new();
        for (axis, &c) in a.coefs.iter().enumerate().filter(|(_, c)| **c != 0) {
            let sign = match (text.is_empty(), c < 0) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) => " - ",
            };
            text += sign;
            match c.unsigned_abs() {
                1 => _ = write!(text, "i{axis}"),
                n => _ = write!(text, "{n} * i{axis}"),
            }
        }
        text += &self.beyond(a);
        text += &self.beside(a);
        match (text.is_empty(), a.offset) {
            (true, n) => format!("{n}"),
            (false, 0) => text,
            (false, n) if n < 0 => format!("{text} - {}", n.unsigned_abs()),
            (false, n) => format!("{text} + {n}"),
        }
    }
}
