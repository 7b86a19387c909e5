//! `matmul`: matrix products over leading batch dimensions.

use crate::attrs::{Attr, AttrReader, Attrs};
use crate::op::{OpRule, OpTable, Range, Sample, arity, same_dtype, want_float};
use crate::{DType, Dense, Mistake, Shape, Type};

/// `a · b` over the last two axes. `a` is `[batch…, m, k]` (`[batch…, k, m]` when `transpose_a`), `b` is
/// `[batch…, k, n]` or, shared by the whole batch, `[k, n]` (`n, k` when `transpose_b`). The result is
/// `[batch…, m, n]` of `dtype`; products are added in `f32` at least.
///
/// 8-bit floats are multiplied along their rows alone, as matrix units take them: `a` is `[batch…, m, k]` and `b`
/// `[n, k]` with `transpose_b`. The two formats may mix, and the result is `f32` or `bf16`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Matmul {
    /// `a`'s last two axes are `[k, m]`.
    pub transpose_a: bool,
    /// `b`'s last two axes are `[n, k]`.
    pub transpose_b: bool,
    /// The result's dtype.
    pub dtype: DType,
}

/// The sizes of a product: batch, m, n, k, and whether `b` is shared by the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatmulSizes {
    /// The product of the batch dimensions.
    pub batch: usize,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// The summed dimension.
    pub k: usize,
    /// Whether one `b` serves the whole batch.
    pub shared_b: bool,
}

impl Matmul {
    /// The sizes for bound operand types that [`OpRule::infer`] accepts.
    pub fn sizes(&self, a: &Type, b: &Type) -> MatmulSizes {
        let (sa, sb) = (a.sizes(), b.sizes());
        let r = sa.len();
        let (m, k) = if self.transpose_a { (sa[r - 1], sa[r - 2]) } else { (sa[r - 2], sa[r - 1]) };
        let n = if self.transpose_b { sb[sb.len() - 2] } else { sb[sb.len() - 1] };
        let batch = sa[..r - 2].iter().product();
        MatmulSizes { batch, m, n, k, shared_b: sb.len() == 2 && r > 2 }
    }
}

impl Matmul {
    /// What holds of a product of 8-bit floats.
    fn infer_eight_bits(&self) -> Result<(), Mistake> {
        if self.transpose_a || !self.transpose_b {
            let remedy = "transpose the operand before: a is [m, k], b is [n, k] with transpose_b";
            return Err(Mistake::new("takes 8-bit floats by rows along the summed axis", remedy));
        }
        if !matches!(self.dtype, DType::F32 | DType::BF16) {
            let what = format!("cannot give {} of 8-bit floats", self.dtype);
            return Err(Mistake::new(what, "use f32 or bf16 as the output dtype"));
        }
        Ok(())
    }
}

impl OpRule for Matmul {
    fn name(&self) -> &'static str {
        "matmul"
    }
    fn attrs(&self) -> Attrs {
        vec![
            ("transpose_a", Attr::Bool(self.transpose_a)),
            ("transpose_b", Attr::Bool(self.transpose_b)),
            ("dtype", Attr::Word(self.dtype.name().into())),
        ]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [a, b] = arity(operands)?;
        if a.dtype.is_fp8() && b.dtype.is_fp8() {
            self.infer_eight_bits()?;
        } else {
            same_dtype(&[a, b])?;
        }
        want_float(a)?;
        if !self.dtype.is_float() {
            return Err(Mistake::new(format!("cannot give {}", self.dtype), "use a float output dtype"));
        }
        let (ra, rb) = (a.shape.rank(), b.shape.rank());
        if ra < 2 || rb < 2 {
            return Err(Mistake::new("takes matrices", "reshape vectors to [1, k] or [k, 1]"));
        }
        let (da, db) = (&a.shape.0, &b.shape.0);
        let (m, ka) = if self.transpose_a { (&da[ra - 1], &da[ra - 2]) } else { (&da[ra - 2], &da[ra - 1]) };
        let (kb, n) = if self.transpose_b { (&db[rb - 1], &db[rb - 2]) } else { (&db[rb - 2], &db[rb - 1]) };
        if ka != kb {
            return Err(Mistake::new(
                format!("the inner sizes are {ka} and {kb}"),
                "they must be equal; transpose or reshape one operand",
            ));
        }
        if rb != 2 && da[..ra - 2] != db[..rb - 2] {
            return Err(Mistake::new(
                format!("the batch dimensions of {} and {} differ", a.shape, b.shape),
                "broadcast one of them, or give b as a plain matrix",
            ));
        }
        let mut dims = da[..ra - 2].to_vec();
        dims.extend([m.clone(), n.clone()]);
        Ok(vec![Type::new(self.dtype, Shape(dims))])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (a, b) = (inputs[0], inputs[1]);
        let s = self.sizes(&a.ty(), &b.ty());
        let (ra, rb) = (a.reals(), b.reals());
        let mut out = vec![0.0; s.batch * s.m * s.n];
        for batch in 0..s.batch {
            let pa = &ra[batch * s.m * s.k..][..s.m * s.k];
            let pb = &rb[if s.shared_b { 0 } else { batch * s.k * s.n }..][..s.k * s.n];
            for i in 0..s.m {
                let row = &mut out[(batch * s.m + i) * s.n..][..s.n];
                for k in 0..s.k {
                    let x = if self.transpose_a { pa[k * s.m + i] } else { pa[i * s.k + k] };
                    for (j, o) in row.iter_mut().enumerate() {
                        *o += x * if self.transpose_b { pb[j * s.k + k] } else { pb[k * s.n + j] };
                    }
                }
            }
        }
        Ok(vec![Dense::from_reals(self.dtype, &results[0].sizes(), out)])
    }
}

impl OpTable for Matmul {
    const NAMES: &'static [&'static str] = &["matmul"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Matmul {
            transpose_a: attrs.bool("transpose_a")?,
            transpose_b: attrs.bool("transpose_b")?,
            dtype: attrs.dtype("dtype")?,
        })
    }
    fn samples() -> Vec<Sample> {
        let mut all = vec![];
        for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let op = Matmul { transpose_a, transpose_b, dtype: DType::F64 };
            let a: &[usize] = if transpose_a { &[4, 3] } else { &[3, 4] };
            let b: &[usize] = if transpose_b { &[2, 4] } else { &[4, 2] };
            all.push(Sample::reals(op, &[a, b]));
            let (ba, bb) = ([&[2], a].concat(), [&[2], b].concat());
            all.push(Sample::reals(op, &[&ba, &bb]));
            all.push(Sample::reals(op, &[&ba, b]));
        }
        let op = Matmul { transpose_a: false, transpose_b: false, dtype: DType::F64 };
        all.push(Sample::reals(op, &[&[2, 0], &[0, 3]]));
        let half = Matmul { dtype: DType::F32, ..op };
        let r = Range::Real(-2.0, 2.0);
        all.push(Sample::reals(half, &[]).and(DType::BF16, &[2, 3], r).and(DType::BF16, &[3, 2], r));
        for (a, b, dtype) in
            [(DType::F8E4M3, DType::F8E4M3, DType::BF16), (DType::F8E5M2, DType::F8E4M3, DType::F32)]
        {
            let rows = Matmul { transpose_a: false, transpose_b: true, dtype };
            all.push(Sample::reals(rows, &[]).and(a, &[2, 3, 16], r).and(b, &[4, 16], r));
        }
        all
    }
}
