//! `max_pool`: the largest element of each window, and where it stands.
//!
//! The first of equal elements wins, and the first NaN wins over every number. Padding never wins.

use super::window::{Window, spatial_sizes};
use crate::attrs::{AttrReader, Attrs, ints};
use crate::op::{OpRule, OpTable, Range, Sample, arity, want_float};
use crate::ops::ArgKind;
use crate::shape::for_each_index;
use crate::{Array, DType, Dense, Dim, GraphBuilder, Mistake, Shape, Tensor, Type};

/// Two results of shape `[.., places…]` for an operand `[.., spatial…]`: the largest element of each window, and its place
/// among the operand's spatial elements in row-major order, as `i32`. Every window meets one element at least.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MaxPool {
    /// Sizes of the window, one for each of the last axes.
    pub kernel: Vec<usize>,
    /// How the window moves.
    pub window: Window,
}

/// The shape of what a pooling op gives: the leading axes, then the places of the window.
pub(super) fn pooled(kernel: &[usize], window: &Window, x: &Type) -> Result<Shape, Mistake> {
    want_float(x)?;
    window.check(kernel)?;
    let input = spatial_sizes(x, kernel.len())?;
    let mut dims = x.shape.0[..x.shape.rank() - kernel.len()].to_vec();
    dims.extend(window.out_sizes(&input, kernel)?.into_iter().map(Dim::fixed));
    Ok(Shape(dims))
}

impl MaxPool {
    /// The first element of the window at place `o` along an axis that is not padding.
    pub fn first(&self, axis: usize, o: usize, n: usize) -> Option<usize> {
        let (low, start) = (self.window.low[axis], o * self.window.stride[axis]);
        let k = low.saturating_sub(start).div_ceil(self.window.dilation[axis]);
        if k < self.kernel[axis] { self.window.at(axis, o, k, n) } else { None }
    }

    fn check_places(&self, x: &Type) -> Result<(), Mistake> {
        let input = spatial_sizes(x, self.kernel.len())?;
        let count = input.iter().try_fold(1usize, |n, &s| n.checked_mul(s));
        if count.is_none_or(|n| i32::try_from(n).is_err()) {
            return Err(Mistake::new("the places of the elements do not fit i32", "pool smaller images"));
        }
        let out = self.window.out_sizes(&input, &self.kernel)?;
        for axis in 0..input.len() {
            let (n, last) = (input[axis], out[axis] - 1);
            // Windows within the elements need no look; those at the ends are few when the padding is small.
            if (0..=last).any(|o| self.first(axis, o, n).is_none()) {
                let found = format!("a window along axis {axis} of the spatial ones meets padding only");
                return Err(Mistake::new(found, "pad by less than the window's size"));
            }
        }
        Ok(())
    }
}

impl OpRule for MaxPool {
    fn name(&self) -> &'static str {
        "max_pool"
    }
    fn attrs(&self) -> Attrs {
        let mut attrs = vec![("kernel", ints(&self.kernel))];
        attrs.extend(self.window.attrs());
        attrs
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        let shape = pooled(&self.kernel, &self.window, x)?;
        self.check_places(x)?;
        Ok(vec![Type::new(x.dtype, shape.clone()), Type::new(DType::I32, shape)])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let x = inputs[0];
        let lead = x.shape.len() - self.kernel.len();
        let sizes = results[0].sizes();
        let (input, out) = (&x.shape[lead..], &sizes[lead..]);
        let taps = self.window.taps(input, &self.kernel, out);
        let (planes, places): (usize, usize) = (sizes[..lead].iter().product(), out.iter().product());
        let pixels: usize = input.iter().product();
        let (mut values, mut indices) = (vec![0.0; planes * places], vec![-1; planes * places]);
        for plane in 0..planes {
            let x = &x.reals()[plane * pixels..][..pixels];
            for tap in &taps {
                let at = plane * places + tap.out;
                if indices[at] < 0 || ArgKind::Max.beats(x[tap.input], values[at]) {
                    (values[at], indices[at]) = (x[tap.input], tap.input as i64);
                }
            }
        }
        Ok(vec![Dense::from_reals(x.dtype, &sizes, values), Dense::from_ints(DType::I32, &sizes, indices)])
    }
    /// A running maximum over the window's elements, each a strided slice of the operand padded with −∞.
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let x = operands[0];
        let axes = self.kernel.len();
        let lead = x.rank() - axes;
        let input = spatial_sizes(&x.ty()?, axes).ok()?;
        let out = self.window.out_sizes(&input, &self.kernel).ok()?;
        let shape = pooled(&self.kernel, &self.window, &x.ty()?).ok()?;
        // The place that a number for each axis means: numbers along an axis are constants.
        let place = |along: &dyn Fn(usize, usize) -> i32| {
            let mut total = None::<Tensor<'g>>;
            for a in 0..axes {
                let below: usize = input[a + 1..].iter().product();
                let numbers: Vec<i32> =
                    (0..out[a]).map(|o| along(a, o).saturating_mul(below as i32)).collect();
                let mut sizes = vec![1; axes];
                sizes[a] = out[a];
                let part = g.constant(Array::new(&sizes, &numbers).ok()?).broadcast(&shape);
                total = Some(total.map_or(part, |t| t + part));
            }
            total
        };
        let mut best = g.full(x.dtype(), shape.clone(), f64::NEG_INFINITY);
        let mut index = place(&|a, o| self.first(a, o, input[a]).unwrap_or(0) as i32)?;
        let padded = (0..axes).fold(x, |x, a| {
            let (low, high) = (self.window.low[a], self.window.high[a]);
            if low + high == 0 { x } else { x.pad((lead + a) as isize, low, high, f64::NEG_INFINITY) }
        });
        let mut elements = vec![];
        for_each_index(&self.kernel, |at| elements.push(at.to_vec()));
        for at in elements {
            let part = (0..axes).fold(padded, |x, a| {
                let (start, step) = (at[a] * self.window.dilation[a], self.window.stride[a]);
                x.slice_step((lead + a) as isize, start, start + (out[a] - 1) * step + 1, step)
            });
            let wins = part.greater(best).or(part.is_nan().and(best.is_nan().not()));
            let here = place(&|a, o| {
                let at = o * self.window.stride[a] + at[a] * self.window.dilation[a];
                at as i32 - self.window.low[a] as i32
            })?;
            best = wins.select(part, best);
            index = wins.select(here, index);
        }
        Some(vec![best, index])
    }
}

/// Samples of both pooling ops: kernel, window, and the operand's sizes.
pub(super) fn shapes() -> Vec<(Vec<usize>, Window, Vec<usize>)> {
    let each = |stride: &[usize], low: &[usize], high: &[usize], dilation: &[usize]| Window {
        stride: stride.to_vec(),
        low: low.to_vec(),
        high: high.to_vec(),
        dilation: dilation.to_vec(),
    };
    vec![
        (vec![2], Window::tiles(&[2]), vec![2, 5]),
        (vec![3], each(&[1], &[1], &[1], &[2]), vec![1, 2, 6]),
        (vec![2, 2], Window::tiles(&[2, 2]), vec![1, 2, 4, 4]),
        (vec![2, 3], each(&[1, 2], &[1, 1], &[0, 2], &[2, 1]), vec![2, 4, 5]),
        (vec![2, 1, 2], each(&[1, 1, 2], &[1, 0, 0], &[0, 0, 1], &[1, 1, 1]), vec![2, 3, 2, 3]),
    ]
}

impl OpTable for MaxPool {
    const NAMES: &'static [&'static str] = &["max_pool"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(MaxPool { kernel: attrs.sizes("kernel")?, window: Window::parse(attrs)? })
    }
    fn samples() -> Vec<Sample> {
        let sample = |(kernel, window, x): (_, _, Vec<usize>)| {
            Sample::within(MaxPool { kernel, window }, &[&x], Range::Distinct)
        };
        shapes().into_iter().map(sample).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_of_equals_first_nan_and_never_padding() {
        let pool = |v: &[f64]| {
            let x = Dense::from_reals(DType::F64, &[v.len()], v.to_vec());
            let op = MaxPool { kernel: vec![3], window: Window { low: vec![1], ..Window::tiles(&[3]) } };
            let out = op.reference(&[&x], &op.infer(&[x.ty()]).unwrap()).unwrap();
            (out[0].reals().to_vec(), out[1].ints().to_vec())
        };
        assert_eq!(pool(&[-5.0, -5.0, 1.0, 2.0, 2.0]), (vec![-5.0, 2.0], vec![0, 3]));
        let low = f64::NEG_INFINITY;
        assert_eq!(pool(&[low, low, 1.0, f64::NAN, f64::NAN]).1, [0, 3]);
        let only_padding = MaxPool { kernel: vec![1], window: Window { low: vec![1], ..Window::plain(1) } };
        assert!(only_padding.infer(&[Type::new(DType::F64, Shape::fixed(&[3]))]).is_err());
    }
}
