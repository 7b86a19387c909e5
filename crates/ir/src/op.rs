//! What an op is. Each op is one file in `ops/`; the table at the end of `ops/mod.rs` lists them all.

use crate::{AttrReader, Attrs, Dense, GraphBuilder, Mistake, Op, Tensor, Type};

/// Evaluates one nested region of the op at hand: region index and its arguments in, its results out.
pub type RegionEval<'a> = dyn FnMut(usize, Vec<Dense>) -> Result<Vec<Dense>, Mistake> + 'a;

/// The types at a region's boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionType {
    /// Of its parameters.
    pub params: Vec<Type>,
    /// Of its results.
    pub results: Vec<Type>,
}

/// The result types of an op: by its own rule, and by what holds of all. Of 8-bit floats there are only products: they have too
/// few digits for anything else, and are cast, moved, chosen and kept.
pub fn infer(op: &Op, operands: &[Type], regions: &[RegionType]) -> Result<Vec<Type>, Mistake> {
    let moves = matches!(
        op,
        Op::Cast(_)
            | Op::Constant(_)
            | Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Broadcast(_)
            | Op::Slice(_)
            | Op::Concat(_)
            | Op::Gather(_)
            | Op::Select(_)
            | Op::Barrier(_)
            | Op::Call(_)
            | Op::Matmul(_)
            | Op::Quantize(_)
    );
    let results = op.rule().infer_regions(operands, regions)?;
    match operands.iter().chain(&results).find(|ty| ty.dtype.is_fp8()) {
        Some(ty) if !moves => {
            let what = format!("does not compute in {}", ty.dtype);
            Err(Mistake::new(
                what,
                "8-bit floats are multiplied as matrices, cast and moved: cast them to bf16 or f32 first",
            ))
        }
        _ => Ok(results),
    }
}

/// Everything that is true of an op on every device.
pub trait OpRule: std::fmt::Debug {
    /// The mnemonic of the text form.
    fn name(&self) -> &'static str;

    /// The constant attributes, as printed.
    fn attrs(&self) -> Attrs {
        vec![]
    }

    /// The shape and dtype rule: result types from operand types.
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake>;

    /// The same for an op with nested regions; ops without regions ignore them (the verifier refuses extra ones).
    fn infer_regions(&self, operands: &[Type], _regions: &[RegionType]) -> Result<Vec<Type>, Mistake> {
        self.infer(operands)
    }

    /// How many nested regions the op has.
    fn region_count(&self) -> usize {
        0
    }

    /// The definition of the op's value, computed in `f64` and `i64`. The interpreter rounds or wraps the results to
    /// their declared dtypes afterwards.
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake>;

    /// The reference of an op with regions.
    fn reference_regions(
        &self,
        inputs: &[&Dense],
        results: &[Type],
        _eval: &mut RegionEval<'_>,
    ) -> Result<Vec<Dense>, Mistake> {
        self.reference(inputs, results)
    }

    /// For composites: the same value by simpler ops. `None` for primitives.
    fn decompose<'g>(&self, _g: &'g GraphBuilder, _operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        None
    }
}

/// How the table constructs an op from text, and which samples its tests use.
pub trait OpTable: OpRule + Sized {
    /// Every mnemonic that this type answers to.
    const NAMES: &'static [&'static str];

    /// The op with this mnemonic and these attributes.
    fn parse(name: &str, attrs: &mut AttrReader) -> Result<Self, Mistake>;

    /// Samples for the op-table tests: at least one for each kind of behaviour, with small operands.
    fn samples() -> Vec<Sample>;
}

/// A case for the op-table tests.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The op.
    pub op: Op,
    /// Operands' types and the ranges from which tests draw their values.
    pub operands: Vec<(Type, Range)>,
}

/// From where a test draws an operand's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// Reals in an interval, away from the kinks that the op names in its samples.
    Real(f64, f64),
    /// Integers in a half-open interval (also for `bool`: 0..2).
    Int(i64, i64),
    /// Distinct reals, at least 0.1 apart, in a random order: for max, min and sorting.
    Distinct,
}

impl Sample {
    /// A sample whose operands are `f64` tensors with values in (−2, 2).
    pub fn reals(op: impl Into<Op>, shapes: &[&[usize]]) -> Sample {
        Sample::within(op, shapes, Range::Real(-2.0, 2.0))
    }

    /// A sample whose operands are `f64` tensors with values from `range`.
    pub fn within(op: impl Into<Op>, shapes: &[&[usize]], range: Range) -> Sample {
        let operands =
            shapes.iter().map(|s| (Type::new(crate::DType::F64, crate::Shape::fixed(s)), range)).collect();
        Sample { op: op.into(), operands }
    }

    /// Adds an operand.
    pub fn and(mut self, dtype: crate::DType, shape: &[usize], range: Range) -> Sample {
        self.operands.push((Type::new(dtype, crate::Shape::fixed(shape)), range));
        self
    }
}

/// Checks the number of operands.
pub fn arity<const N: usize>(operands: &[Type]) -> Result<&[Type; N], Mistake> {
    operands.try_into().map_err(|_| {
        Mistake::new(format!("takes {N} operand(s), got {}", operands.len()), "give it that many")
    })
}

/// Checks an axis against a rank.
pub fn check_axis(axis: usize, ty: &Type) -> Result<(), Mistake> {
    if axis < ty.shape.rank() {
        return Ok(());
    }
    Err(Mistake::new(
        format!("axis {axis} is out of range for {ty}"),
        format!("use an axis below {}", ty.shape.rank()),
    ))
}

/// Checks a list of axes: in range and without repetition.
pub fn check_axes(axes: &[usize], ty: &Type) -> Result<(), Mistake> {
    for (i, &a) in axes.iter().enumerate() {
        check_axis(a, ty)?;
        if axes[..i].contains(&a) {
            return Err(Mistake::new(format!("axis {a} is named twice"), "name each axis once"));
        }
    }
    Ok(())
}

/// The message for operands that should have one dtype.
pub fn same_dtype(types: &[&Type]) -> Result<(), Mistake> {
    if types.windows(2).all(|w| w[0].dtype == w[1].dtype) {
        return Ok(());
    }
    let names: Vec<_> = types.iter().map(|t| t.dtype.name()).collect();
    Err(Mistake::new(format!("operands have different dtypes ({})", names.join(", ")), "cast one of them"))
}

/// Refuses a non-float operand.
pub fn want_float(ty: &Type) -> Result<(), Mistake> {
    if ty.dtype.is_float() {
        return Ok(());
    }
    Err(Mistake::new(format!("takes a float tensor, got {ty}"), "cast it to f32 first"))
}

/// Refuses a non-integer operand.
pub fn want_int(ty: &Type) -> Result<(), Mistake> {
    if ty.dtype.is_int() {
        return Ok(());
    }
    Err(Mistake::new(format!("takes integer indices, got {ty}"), "cast it to i32 or i64"))
}

/// The size of an axis of which the op needs to know it.
pub fn fixed_size(axis: usize, ty: &Type) -> Result<usize, Mistake> {
    check_axis(axis, ty)?;
    ty.shape.0[axis].size().ok_or_else(|| {
        Mistake::new(
            format!("axis {axis} of {ty} has a variable size"),
            "it must be a number here; bind the variable first",
        )
    })
}

/// Refuses an index that is not one integer.
pub fn want_index(ty: &Type) -> Result<(), Mistake> {
    want_int(ty)?;
    if ty.shape.rank() == 0 {
        return Ok(());
    }
    Err(Mistake::new(format!("takes a scalar start, got {ty}"), "reshape it to rank 0"))
}

/// Refuses an operand whose shape is not what the others ask for.
pub fn want_shape(what: &str, ty: &Type, want: &crate::Shape) -> Result<(), Mistake> {
    if ty.shape == *want {
        return Ok(());
    }
    Err(Mistake::new(
        format!("{what} has shape {} instead of {want}", ty.shape),
        "reshape, slice or broadcast it",
    ))
}

/// An index checked against its bound: the mistake names the index, its place among the indices, and the bound.
pub fn check_index(index: i64, place: usize, bound: usize) -> Result<usize, Mistake> {
    usize::try_from(index).ok().filter(|&i| i < bound).ok_or_else(|| {
        Mistake::new(
            format!("index {index} (element {place} of the indices) is outside 0..{bound}"),
            "keep indices within the axis",
        )
    })
}
