//! The rules of the vocabulary that the renderer relies on. A kernel that the passes built keeps them; one that does not is
//! refused by name instead of becoming wrong code.

use super::RenderError;
use onestep_ir::DType;
use onestep_ir::ops::{ReduceKind, UnaryKind};
use onestep_passes::schedule::{Affine, BufferId, Expr, ExprId, LoopKernel};

fn malformed(place: impl Into<String>, reason: impl Into<String>) -> RenderError {
    RenderError::Malformed { place: place.into(), reason: reason.into() }
}

/// Whether `name` can be a function of C that clashes with no local of the rendered text.
pub fn name(name: &str) -> Result<(), RenderError> {
    let word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if word && name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.len() > 3 {
        return Ok(());
    }
    Err(RenderError::Name { name: name.into() })
}

/// - the parallel axes are some of the axes, and every affine index has one coefficient for each axis;
/// - operands stand before their uses;
/// - a load and a store have the dtype of their buffer;
/// - each function gets and gives the dtypes that its op has.
pub fn kernel(k: &LoopKernel, dtype_of: &dyn Fn(BufferId) -> DType) -> Result<(), RenderError> {
    let rank = k.extents.len();
    if k.parallel > rank {
        return Err(malformed(
            "the domain",
            format!("has {rank} axes, of which {} are parallel", k.parallel),
        ));
    }
    let affine = |place: &str, a: &Affine| {
        if a.coefs.len() == rank {
            return Ok(());
        }
        Err(malformed(place, format!("has an index of {} axes in a domain of {rank}", a.coefs.len())))
    };
    let of_buffer = |place: &str, b: BufferId, dtype: DType| {
        if dtype_of(b) == dtype {
            return Ok(());
        }
        Err(malformed(place, format!("is {dtype}, but {b} is {}", dtype_of(b))))
    };
    for (i, e) in k.body.iter().enumerate() {
        let place = format!("e{i}");
        if let Some(o) = e.expr.operands().iter().find(|o| o.index() >= i) {
            return Err(malformed(place, format!("uses e{}, which does not stand before it", o.0)));
        }
        match &e.expr {
            Expr::Load { access, bounds, .. } => {
                of_buffer(&place, access.buffer, e.dtype)?;
                affine(&place, &access.place)?;
                for b in bounds {
                    affine(&place, &b.index)?;
                    if b.step < 1 {
                        return Err(malformed(place, format!("has a bound of step {}", b.step)));
                    }
                }
            }
            Expr::Index(a) => affine(&place, a)?,
            _ => {}
        }
        if !types_agree(k, e.dtype, &e.expr) {
            return Err(malformed(
                place,
                format!("gives {}, which its operands' dtypes do not allow", e.dtype),
            ));
        }
    }
    for (i, s) in k.stores.iter().enumerate() {
        let place = format!("store {i}");
        let value = k.body.get(s.value.index()).ok_or_else(|| malformed(&place, "stores no expression"))?;
        affine(&place, &s.access.place)?;
        of_buffer(&place, s.access.buffer, value.dtype)?;
    }
    Ok(())
}

fn types_agree(k: &LoopKernel, result: DType, e: &Expr) -> bool {
    let of = |id: &ExprId| k.body[id.index()].dtype;
    match e {
        Expr::Load { .. } | Expr::Literal(_) | Expr::Cast(_) => true,
        Expr::Bitcast(a) => of(a).size() == result.size() && result.size() >= 4,
        Expr::Index(_) => result != DType::Bool,
        Expr::Unary(UnaryKind::IsFinite | UnaryKind::IsNan, a) => of(a).is_float() && result == DType::Bool,
        Expr::Unary(UnaryKind::Not, a) => !of(a).is_float() && result == of(a),
        Expr::Unary(kind, a) => (of(a).is_float() || of(a).is_int() && kind.takes_ints()) && result == of(a),
        Expr::Binary(kind, a, b) => kind.takes(result) && of(a) == result && of(b) == result,
        Expr::Compare(_, a, b) => of(a) == of(b) && result == DType::Bool,
        Expr::Select(c, a, b) => of(c) == DType::Bool && of(a) == result && of(b) == result,
        Expr::Reduce(kind, a) => {
            of(a) == result && (result != DType::Bool || matches!(kind, ReduceKind::Max | ReduceKind::Min))
        }
        Expr::RandomBits { key: [k0, k1], counter, index, .. } => {
            [k0, k1, counter].iter().all(|w| of(w) == DType::U32)
                && of(index) == DType::I64
                && result == DType::U32
        }
    }
}
