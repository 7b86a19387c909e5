//! An op of the user's own. What is true of an op of the table is true of it: it has a shape rule, a reference, a place in
//! the text form, a gradient and a kernel; a graph holds it as [`Custom`].
//!
//! Whatever the user's code gives back is checked here, so that the rest of the compiler may rely on it: a reference or a
//! decomposition that gives other results than the shape rule says is a mistake that names the op.

use super::CpuKernel;
use crate::attrs::{AttrReader, Attrs};
use crate::op::OpRule;
use crate::text::is_op_name;
use crate::{Data, Dense, GraphBuilder, Mistake, Op, Tensor, Type};
use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// An op of the user's own. `onestep`'s example `own_op` is one from start to end.
///
/// Two ops of one Rust type with equal names and attributes are one op: the compiler computes them once, and keeps what
/// [`CustomOp::read`] makes of the attributes in place of the op itself. So whatever the results depend on must be among the
/// attributes, and all of the methods must be pure.
pub trait CustomOp: Any + fmt::Debug + Send + Sync {
    /// The mnemonic of the text form: a word of letters, digits, `_` and `.` that no op of the table has. A dot in it, as in
    /// `acme.horner`, keeps it apart from the table's future ops.
    fn name(&self) -> &'static str;

    /// The constant attributes, as printed. Sizes that may be dimension variables stand in an [`crate::Attr::Dims`].
    fn attrs(&self) -> Attrs {
        vec![]
    }

    /// The op of this type with these attributes: the inverse of [`CustomOp::attrs`]. `self` is any op of the type.
    fn read(&self, attrs: &mut AttrReader) -> Result<Custom, Mistake>;

    /// The shape and dtype rule: result types, at least one, from operand types. It is asked with whatever operands a graph
    /// has, and with dimension variables before they are bound; what does not fit is a mistake.
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake>;

    /// The definition of the op's value, computed in `f64` and `i64`: a tensor for each of the result types. They are rounded
    /// or wrapped to their dtypes afterwards.
    fn reference(&self, operands: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake>;

    /// The same value by other ops, if it can be had so: what backends without a kernel run, and what stands in where there
    /// is no gradient, forward derivative or mapped form.
    fn decompose<'g>(&self, _g: &'g GraphBuilder, _operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        None
    }

    /// The cotangents of the operands from those of the results, as a graph: one for each operand, of its type, `None` where
    /// it is an exact zero or not wanted. Without a gradient that of the decomposition is taken; without either, the op has
    /// none, and a loss that needs it is an error.
    fn gradient<'g>(&self, _at: &Backward<'_, 'g>) -> Option<Vec<Option<Tensor<'g>>>> {
        None
    }

    /// The kernel for operands of these types, which have no dimension variables. Without one the decomposition runs.
    fn cpu_kernel(&self, _operands: &[Type]) -> Option<CpuKernel> {
        None
    }
}

/// What a gradient sees: one node of the graph.
#[derive(Clone, Copy, Debug)]
pub struct Backward<'a, 'g> {
    /// Where the backward graph is built.
    pub g: &'g GraphBuilder,
    /// The node's operands.
    pub operands: &'a [Tensor<'g>],
    /// The node's results.
    pub results: &'a [Tensor<'g>],
    /// The results' cotangents; at least one is there, the others are zero.
    pub cotangents: &'a [Option<Tensor<'g>>],
    /// Which operands' cotangents are wanted.
    pub wanted: &'a [bool],
}

impl<'g> Backward<'_, 'g> {
    /// The cotangent of result `i`: zeros where nothing depends on it.
    ///
    /// # Panics
    ///
    /// If the op has no result `i`.
    #[track_caller]
    pub fn cotangent(&self, i: usize) -> Tensor<'g> {
        let y = self.results[i];
        self.cotangents[i].unwrap_or_else(|| self.g.full(y.dtype(), y.shape(), 0.0))
    }
}

/// An op of the user's own, as a graph holds it: `g.emit1(Custom::new(op), &[x])`.
#[derive(Clone)]
pub struct Custom(Arc<dyn CustomOp>);

impl Custom {
    /// The op as a graph holds it.
    pub fn new(op: impl CustomOp) -> Custom {
        Custom(Arc::new(op))
    }

    /// The op itself.
    pub fn op(&self) -> &dyn CustomOp {
        &*self.0
    }

    /// The kernel for operands of these types, which have no dimension variables; `None` where the op gives none.
    pub fn cpu_kernel(&self, operands: &[Type]) -> Option<CpuKernel> {
        self.infer(operands).ok()?;
        self.0.cpu_kernel(operands)
    }

    /// The cotangents that the op's gradient gives; `None` where the op has none. The mistake says how they do not fit: as
    /// many as operands, each of its operand's type and of this graph.
    pub fn gradient<'g>(&self, at: &Backward<'_, 'g>) -> Option<Result<Vec<Option<Tensor<'g>>>, Mistake>> {
        let given = self.0.gradient(at)?;
        let help = "give one cotangent for each operand, of the operand's type, or None for a zero";
        if given.len() != at.operands.len() {
            let what =
                format!("its gradient gives {} cotangents of {} operands", given.len(), at.operands.len());
            return Some(Err(Mistake::new(what, help)));
        }
        for (i, (c, x)) in given.iter().zip(at.operands).enumerate() {
            let Some(c) = c else { continue };
            if !std::ptr::eq(c.graph(), at.g) {
                let what = format!("its gradient's cotangent of operand {i} is of another graph");
                return Some(Err(Mistake::new(what, "build it with the builder that the gradient is given")));
            }
            // A poisoned one has its mistake on record.
            if let (Some(c), Some(x)) = (c.ty(), x.ty())
                && c != x
            {
                let what = format!("its gradient gives {c} as the cotangent of operand {i}, which is {x}");
                return Some(Err(Mistake::new(what, help)));
            }
        }
        Some(Ok(given))
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Custom) -> bool {
        let (a, b): (&dyn Any, &dyn Any) = (&*self.0, &*other.0);
        a.type_id() == b.type_id() && self.name() == other.name() && self.attrs() == other.attrs()
    }
}
impl Eq for Custom {}
impl Hash for Custom {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.name().hash(h);
        self.attrs().hash(h);
    }
}

fn list(types: &[Type]) -> String {
    types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ")
}

/// Refuses a mnemonic that the text form could not read back.
pub(crate) fn check_name(name: &str) -> Result<(), Mistake> {
    if !is_op_name(name) {
        let what = format!("'{name}' cannot be an op's name");
        return Err(Mistake::new(what, "use a word of letters, digits, '_' and '.', and no keyword"));
    }
    if Op::names().contains(&name) {
        let what = format!("there is an op '{name}' in the table");
        return Err(Mistake::new(what, "give yours another name, such as one with a dot in it"));
    }
    Ok(())
}

impl OpRule for Custom {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn attrs(&self) -> Attrs {
        self.0.attrs()
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        check_name(self.name())?;
        let results = self.0.infer(operands)?;
        if results.is_empty() {
            return Err(Mistake::new("its shape rule gives no result", "give at least one type"));
        }
        Ok(results)
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let given = self.0.reference(inputs, results)?;
        let fits = |(d, ty): (&Dense, &Type)| {
            let count = match &d.data {
                Data::Reals(v) => Some(v.len()).filter(|_| ty.dtype.is_float()),
                Data::Ints(v) => Some(v.len()).filter(|_| !ty.dtype.is_float()),
            };
            d.dtype == ty.dtype && ty.shape.sizes().as_ref() == Some(&d.shape) && count == Some(d.len())
        };
        if given.len() == results.len() && given.iter().zip(results).all(fits) {
            return Ok(given);
        }
        let describe = |d: &Dense| match &d.data {
            Data::Reals(v) => format!("{}{:?} of {} reals", d.dtype, d.shape, v.len()),
            Data::Ints(v) => format!("{}{:?} of {} integers", d.dtype, d.shape, v.len()),
        };
        let given = given.iter().map(describe).collect::<Vec<_>>().join(", ");
        let what = format!("its reference gives ({given}) in place of ({})", list(results));
        Err(Mistake::new(
            what,
            "give a tensor of each result's type, reals for floats and integers otherwise",
        ))
    }
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let given = self.0.decompose(g, operands)?;
        let types: Vec<Type> = operands.iter().map(|t| t.ty()).collect::<Option<_>>()?;
        let want = self.infer(&types).ok()?;
        let poisoned = given.iter().any(|t| t.value().is_none()) && !g.errors().is_empty();
        let got: Vec<Type> = given.iter().filter_map(|t| t.ty()).collect();
        if given.iter().all(|t| std::ptr::eq(t.graph(), g)) && (got == want || poisoned) {
            return Some(given);
        }
        let what = format!("its decomposition gives ({}) in place of ({})", list(&got), list(&want));
        let help = "give tensors of the builder that it is given, with the types that the shape rule says";
        Some(vec![g.mistake(self.name(), operands, Mistake::new(what, help)); want.len()])
    }
}
