//! Support for tests that walk the op table: operand values drawn from a sample's ranges, and a graph of one op.
//!
//! The numbers come from the crate's own Philox stream, so that a failure repeats everywhere.

use crate::op::{Range, Sample};
use crate::{DType, Dense, Graph, GraphBuilder, GraphError, Op, Type, random};

/// A deterministic source of numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    key: [u32; 2],
    drawn: u64,
}

impl Rng {
    /// A source that always gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Rng {
        Rng { key: [seed as u32, (seed >> 32) as u32], drawn: 0 }
    }

    /// 32 random bits.
    pub fn bits(&mut self) -> u32 {
        self.drawn += 1;
        random::draw(self.key, 0, 0, self.drawn - 1)
    }

    /// A real in `[low, high)`.
    pub fn real(&mut self, low: f64, high: f64) -> f64 {
        let (a, b) = (self.bits(), self.bits());
        let unit = (random::unit(a) + b as f64 / 4_294_967_296.0 / 16_777_216.0).min(1.0 - f64::EPSILON);
        low + (high - low) * unit
    }

    /// An integer in `low..high` (`low` when the interval is empty).
    pub fn int(&mut self, low: i64, high: i64) -> i64 {
        let word = (self.bits() as u64) << 32 | self.bits() as u64;
        low.wrapping_add((word % high.wrapping_sub(low).max(1) as u64) as i64)
    }

    /// Values for a bound type, rounded or wrapped to its dtype.
    pub fn dense(&mut self, ty: &Type, range: Range) -> Dense {
        let n = ty.numel();
        let reals: Vec<f64> = match range {
            Range::Real(low, high) => (0..n).map(|_| self.real(low, high)).collect(),
            Range::Int(low, high) => {
                let ints = (0..n).map(|_| self.int(low, high)).collect();
                let mut out = Dense::from_ints(ty.dtype, &ty.sizes(), ints);
                out.settle();
                return out;
            }
            Range::Distinct => {
                // 0.1 and more apart, on both sides of 0 and never at it.
                let mut all: Vec<f64> = (0..n).map(|i| (i as f64 - (n / 2) as f64) * 0.15 + 0.07).collect();
                for i in (1..n).rev() {
                    all.swap(i, self.int(0, i as i64 + 1) as usize);
                }
                all
            }
        };
        let mut out = if ty.dtype.is_float() {
            Dense::from_reals(ty.dtype, &ty.sizes(), reals)
        } else {
            Dense::from_ints(ty.dtype, &ty.sizes(), reals.iter().map(|&x| ty.dtype.saturate(x)).collect())
        };
        out.settle();
        out
    }
}

/// Values for a sample's operands, drawn from its ranges.
pub fn operand_values(sample: &Sample, seed: u64) -> Vec<Dense> {
    let mut rng = Rng::new(seed);
    sample.operands.iter().map(|(ty, range)| rng.dense(ty, *range)).collect()
}

/// A graph whose inputs `x0`, `x1` … are the operands of one op and whose outputs `y0`, `y1` … are its results.
pub fn graph_of(op: &Op, operands: &[Type]) -> Result<Graph, GraphError> {
    graph_with(operands, |g, xs| g.emit(op.clone(), xs))
}

/// The same with the op's decomposition in its place; `None` for primitives.
pub fn decomposed(op: &Op, operands: &[Type]) -> Option<Result<Graph, GraphError>> {
    let mut found = true;
    let graph = graph_with(operands, |g, xs| {
        let results = op.rule().decompose(g, xs);
        found = results.is_some();
        results.unwrap_or_default()
    });
    found.then_some(graph)
}

fn graph_with(
    operands: &[Type],
    f: impl for<'g> FnOnce(&'g GraphBuilder, &[crate::Tensor<'g>]) -> Vec<crate::Tensor<'g>>,
) -> Result<Graph, GraphError> {
    let g = GraphBuilder::new("sample");
    let inputs = operands.iter().enumerate().map(|(i, ty)| g.input(&format!("x{i}"), ty.dtype, &ty.shape));
    let inputs: Vec<_> = inputs.collect();
    for (i, y) in f(&g, &inputs).into_iter().enumerate() {
        g.output(&format!("y{i}"), y);
    }
    g.build()
}

/// The largest difference between two tensors, relative to the larger of 1 and the magnitude; infinite when types
/// differ or only one side is NaN or infinite.
pub fn difference(a: &Dense, b: &Dense) -> f64 {
    if a.dtype != b.dtype || a.shape != b.shape {
        return f64::INFINITY;
    }
    let wide = |x: &Dense| -> Vec<f64> {
        if x.dtype.is_float() { x.reals().to_vec() } else { x.ints().iter().map(|&v| v as f64).collect() }
    };
    let one = |(x, y): (f64, f64)| match () {
        _ if x == y || x.is_nan() && y.is_nan() => 0.0,
        _ if !x.is_finite() || !y.is_finite() => f64::INFINITY,
        _ => (x - y).abs() / x.abs().max(y.abs()).max(1.0),
    };
    wide(a).into_iter().zip(wide(b)).map(one).fold(0.0, f64::max)
}

/// The spacing of a dtype's numbers near 1: how far two roundings may lie apart.
pub fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f32::EPSILON as f64,
        DType::F16 => 1.0 / 1024.0,
        DType::BF16 => 1.0 / 128.0,
        DType::F8E4M3 => 1.0 / 8.0,
        DType::F8E5M2 => 1.0 / 4.0,
        _ => 0.0,
    }
}
