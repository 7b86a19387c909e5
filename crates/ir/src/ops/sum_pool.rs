//! `sum_pool`: the sum of each window; padding counts as 0. Over the number of elements it is average pooling.

use super::max_pool::{pooled, shapes};
use super::window::{Window, spatial_sizes};
use crate::attrs::{AttrReader, Attrs, ints};
use crate::op::{OpRule, OpTable, Range, Sample, arity};
use crate::{DType, Dense, Dim, GraphBuilder, Mistake, Shape, Tensor, Type};

/// `[.., places…]` from `[.., spatial…]`, added in `f32` at least.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SumPool {
    /// Sizes of the window, one for each of the last axes.
    pub kernel: Vec<usize>,
    /// How the window moves.
    pub window: Window,
}

impl OpRule for SumPool {
    fn name(&self) -> &'static str {
        "sum_pool"
    }
    fn attrs(&self) -> Attrs {
        let mut attrs = vec![("kernel", ints(&self.kernel))];
        attrs.extend(self.window.attrs());
        attrs
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        Ok(vec![Type::new(x.dtype, pooled(&self.kernel, &self.window, x)?)])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let x = inputs[0];
        let lead = x.shape.len() - self.kernel.len();
        let sizes = results[0].sizes();
        let taps = self.window.taps(&x.shape[lead..], &self.kernel, &sizes[lead..]);
        let count = |sizes: &[usize]| sizes.iter().product::<usize>();
        let (planes, places, pixels) =
            (count(&sizes[..lead]), count(&sizes[lead..]), count(&x.shape[lead..]));
        let mut out = vec![0.0; planes * places];
        for plane in 0..planes {
            taps.iter().for_each(|t| out[plane * places + t.out] += x.reals()[plane * pixels + t.input]);
        }
        Ok(vec![Dense::from_reals(x.dtype, &sizes, out)])
    }
    /// One axis after the other, as a window is a product of its axes: tiles are the sum over an axis of their own,
    /// other windows a sum of strided slices.
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let x = operands[0];
        let (axes, lead) = (self.kernel.len(), x.rank() - self.kernel.len());
        let input = spatial_sizes(&x.ty()?, axes).ok()?;
        let out = self.window.out_sizes(&input, &self.kernel).ok()?;
        let mut y = x.cast(x.dtype().accumulator());
        for a in (0..axes).rev() {
            let Window { stride, low, high, dilation } = &self.window;
            let (axis, n, k, step) = ((lead + a) as isize, input[a], self.kernel[a], stride[a]);
            if low[a] + high[a] > 0 {
                y = y.pad(axis, low[a], high[a], 0.0);
            }
            let n = n + low[a] + high[a];
            let side_by_side = step == k && dilation[a] == 1;
            if (k == n || side_by_side) && dilation[a] == 1 {
                if out[a] * k < n {
                    y = y.slice(axis, 0, out[a] * k);
                }
                let mut dims = y.shape().0;
                dims[lead + a] = Dim::fixed(out[a]);
                dims.insert(lead + a + 1, Dim::fixed(k));
                y = y.reshape(Shape(dims)).sum(&[axis + 1]);
                continue;
            }
            let slices = (0..k).map(|i| {
                let start = i * dilation[a];
                y.slice_step(axis, start, start + (out[a] - 1) * step + 1, step)
            });
            y = slices.reduce(|a, b| a + b)?;
        }
        Some(vec![y.cast(x.dtype())])
    }
}

impl OpTable for SumPool {
    const NAMES: &'static [&'static str] = &["sum_pool"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(SumPool { kernel: attrs.sizes("kernel")?, window: Window::parse(attrs)? })
    }
    fn samples() -> Vec<Sample> {
        let all = shapes().into_iter();
        let mut all: Vec<Sample> =
            all.map(|(kernel, window, x)| Sample::reals(SumPool { kernel, window }, &[&x])).collect();
        let op = |kernel: &[usize]| SumPool { kernel: kernel.to_vec(), window: Window::plain(kernel.len()) };
        all.push(Sample::reals(op(&[3, 2]), &[&[2, 3, 4]]));
        all.push(Sample::reals(op(&[2]), &[]).and(DType::BF16, &[2, 4], Range::Real(-2.0, 2.0)));
        all
    }
}
