//! Ops as a user would write them, for tests that walk the ops: one with everything, and one of several results that has no
//! decomposition.

use crate::op::{Range, Sample, arity, want_float};
use crate::ops::{Backward, CpuKernel, Custom, CustomOp};
use crate::{
    Array, Attr, AttrReader, Attrs, DType, Dense, Element, GraphBuilder, Mistake, Shape, Tensor, Type,
};

/// Samples of the ops below.
pub fn custom_samples() -> Vec<Sample> {
    let horner = |coefficients: &[f64]| Custom::new(Horner::new(coefficients));
    vec![
        Sample::reals(horner(&[1.0, -0.5, 0.25, 2.0]), &[&[2, 3]]),
        Sample::reals(horner(&[0.5, 3.0]), &[&[4]]),
        Sample::reals(horner(&[0.0, 1.0]), &[]).and(DType::BF16, &[5], Range::Real(-2.0, 2.0)),
        Sample::within(Custom::new(Peak), &[&[4, 3]], Range::Distinct),
        Sample::within(Custom::new(Peak), &[&[1, 5]], Range::Distinct),
    ]
}

/// `testing.horner`: a polynomial of each element, `c₀ + x (c₁ + x (c₂ + …))`.
#[derive(Clone, PartialEq, Debug)]
pub struct Horner {
    /// From the constant one up; at least one.
    pub coefficients: Vec<f64>,
}

impl Horner {
    /// The polynomial with these coefficients.
    pub fn new(coefficients: &[f64]) -> Horner {
        Horner { coefficients: coefficients.to_vec() }
    }

    fn derivative(&self) -> Horner {
        let terms = self.coefficients.iter().enumerate().skip(1);
        Horner { coefficients: terms.map(|(n, c)| n as f64 * c).collect() }
    }

    fn elementwise<T: Element + std::ops::Mul<Output = T> + std::ops::Add<Output = T>>(
        &self,
        n: usize,
        from: impl Fn(f64) -> T,
    ) -> CpuKernel {
        let coefficients: Vec<T> = self.coefficients.iter().map(|&c| from(c)).collect();
        let zero = from(0.0);
        CpuKernel::new::<(T,), (T,)>(n, move |part, (x,), (y,)| {
            for (y, &x) in y.iter_mut().zip(&x[part]) {
                *y = coefficients.iter().rev().fold(zero, |sum, &c| sum * x + c);
            }
        })
    }
}

impl CustomOp for Horner {
    fn name(&self) -> &'static str {
        "testing.horner"
    }
    fn attrs(&self) -> Attrs {
        let n = self.coefficients.len();
        let array = Array::new(&[n], &self.coefficients).unwrap_or_else(|_| Array::scalar(0f64));
        vec![("coefficients", Attr::Array(array))]
    }
    fn read(&self, attrs: &mut AttrReader) -> Result<Custom, Mistake> {
        Ok(Custom::new(Horner { coefficients: attrs.array("coefficients")?.to_f64() }))
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        want_float(x)?;
        if self.coefficients.is_empty() {
            return Err(Mistake::new("has no coefficient", "give at least one"));
        }
        Ok(vec![x.clone()])
    }
    fn reference(&self, operands: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        Ok(vec![operands[0].map_reals(|x| self.coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c))])
    }
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [operand] = operands.try_into().ok()?;
        let x = operand.cast(operand.dtype().accumulator());
        let (last, rest) = self.coefficients.split_last()?;
        let top = g.full(x.dtype(), x.shape(), *last);
        Some(vec![rest.iter().rev().fold(top, |sum, &c| sum * x + c).cast(operand.dtype())])
    }
    fn gradient<'g>(&self, at: &Backward<'_, 'g>) -> Option<Vec<Option<Tensor<'g>>>> {
        let derivative = self.derivative();
        if derivative.coefficients.is_empty() {
            return Some(vec![None]);
        }
        let slope = at.g.emit1(Custom::new(derivative), at.operands);
        Some(vec![Some(at.cotangent(0) * slope)])
    }
    fn cpu_kernel(&self, operands: &[Type]) -> Option<CpuKernel> {
        let n = operands[0].numel();
        match operands[0].dtype {
            DType::F32 => Some(self.elementwise(n, |c| c as f32)),
            DType::F64 => Some(self.elementwise(n, |c| c)),
            _ => None,
        }
    }
}

/// `testing.peak`: of each row of `[rows, columns]` the largest element and, as `i32`, its column. The first of equal ones.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Peak;

impl Peak {
    fn kernel<T: Element + PartialOrd>(rows: usize, columns: usize) -> CpuKernel {
        CpuKernel::new::<(T,), (T, i32)>(rows, move |part, (x,), (values, places)| {
            for ((row, value), place) in x.chunks_exact(columns).skip(part.start).zip(values).zip(places) {
                (*value, *place) = (row[0], 0);
                for (i, &x) in row.iter().enumerate() {
                    if x > *value {
                        (*value, *place) = (x, i as i32);
                    }
                }
            }
        })
    }
}

impl CustomOp for Peak {
    fn name(&self) -> &'static str {
        "testing.peak"
    }
    fn read(&self, _: &mut AttrReader) -> Result<Custom, Mistake> {
        Ok(Custom::new(Peak))
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        want_float(x)?;
        match &x.shape.0[..] {
            [rows, columns] if columns.size() != Some(0) => {
                let rows = Shape(vec![rows.clone()]);
                Ok(vec![Type::new(x.dtype, rows.clone()), Type::new(DType::I32, rows)])
            }
            _ => Err(Mistake::new(format!("takes rows that are not empty, got {x}"), "reshape to rank 2")),
        }
    }
    fn reference(&self, operands: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let columns = operands[0].shape[1];
        let rows = operands[0].reals().chunks_exact(columns);
        let first = |row: &[f64]| (0..columns).fold(0, |best, i| if row[i] > row[best] { i } else { best });
        let places: Vec<usize> = rows.clone().map(first).collect();
        let values = rows.zip(&places).map(|(row, &at)| row[at]).collect();
        let places = places.into_iter().map(|at| at as i64).collect();
        Ok(vec![
            Dense::from_reals(results[0].dtype, &results[0].sizes(), values),
            Dense::from_ints(DType::I32, &results[1].sizes(), places),
        ])
    }
    fn gradient<'g>(&self, at: &Backward<'_, 'g>) -> Option<Vec<Option<Tensor<'g>>>> {
        let x = at.operands[0];
        let here = at.g.iota(DType::I32, x.shape(), 1).equals(at.results[1].expand(1));
        let zeros = at.g.full(x.dtype(), x.shape(), 0.0);
        Some(vec![Some(here.select(at.cotangent(0).expand(1).broadcast(&x.shape()), zeros))])
    }
    fn cpu_kernel(&self, operands: &[Type]) -> Option<CpuKernel> {
        let [rows, columns] = operands[0].sizes().try_into().ok()?;
        match operands[0].dtype {
            DType::F32 => Some(Peak::kernel::<f32>(rows, columns)),
            DType::F64 => Some(Peak::kernel::<f64>(rows, columns)),
            _ => None,
        }
    }
}
