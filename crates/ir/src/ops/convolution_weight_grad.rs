//! `convolution_weight_grad`: the adjoint of `convolution` in its weight.

use super::convolution::{Convolution, ConvolutionSizes, Parts, shapes};
use super::window::{Window, spatial_sizes};
use crate::attrs::{AttrReader, Attrs, ints};
use crate::op::{OpRule, OpTable, Range, Sample, arity, fixed_size, want_shape};
use crate::ops::Matmul;
use crate::{DType, Dense, GraphBuilder, Mistake, Shape, Tensor, Type};

/// `dw[o, c, k] = Σ x[n, c, p·stride + k·dilation − low] · dy[n, o, p]` over examples `n` and places `p`. `x` is
/// `[batch, channels, spatial…]`, `dy` is `[batch, outputs, places…]`, and the result is
/// `[outputs, channels/groups, kernel_size…]` of their dtype.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ConvolutionWeightGrad {
    /// How the kernel moves.
    pub window: Window,
    /// Groups of channels.
    pub groups: usize,
    /// The kernel's sizes.
    pub kernel_size: Vec<usize>,
}

impl ConvolutionWeightGrad {
    /// The convolution that this is the adjoint of.
    pub fn forward(&self) -> Convolution {
        Convolution { window: self.window.clone(), groups: self.groups }
    }

    /// The type of that convolution's weight.
    fn weight(&self, x: &Type, dy: &Type) -> Result<Type, Mistake> {
        let axes = self.window.axes();
        if x.shape.rank() != axes + 2 || dy.shape.rank() != axes + 2 || self.kernel_size.len() != axes {
            let found = format!("{x}, {dy} and kernel_size {:?} for {axes} spatial axes", self.kernel_size);
            let help = "give x as [batch, channels, spatial…] and dy as [batch, outputs, places…]";
            return Err(Mistake::new(found, help));
        }
        spatial_sizes(dy, axes)?;
        let (channels, outputs) = (fixed_size(1, x)?, fixed_size(1, dy)?);
        self.forward().kernel_sizes(outputs, channels)?;
        let sizes = [&[outputs, channels / self.groups], &self.kernel_size[..]].concat();
        Ok(Type::new(x.dtype, Shape::fixed(&sizes)))
    }
}

impl OpRule for ConvolutionWeightGrad {
    fn name(&self) -> &'static str {
        "convolution_weight_grad"
    }
    fn attrs(&self) -> Attrs {
        let mut attrs = Convolution::attrs_of(&self.window, self.groups);
        attrs.push(("kernel_size", ints(&self.kernel_size)));
        attrs
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x, dy] = arity(operands)?;
        crate::op::same_dtype(&[x, dy])?;
        let w = self.weight(x, dy)?;
        want_shape("dy", dy, &self.forward().result(x, &w)?.shape)?;
        Ok(vec![w])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, dy) = (inputs[0], inputs[1]);
        let mut out = vec![0.0; results[0].numel()];
        let (rx, rd) = (x.reals(), dy.reals());
        let sizes = ConvolutionSizes::new(&self.forward(), &x.shape, &results[0].sizes());
        sizes.for_each_product(&self.window, |x, w, y| out[w] += rx[x] * rd[y]);
        Ok(vec![Dense::from_reals(x.dtype, &results[0].sizes(), out)])
    }
    /// For each element of the kernel a product of matrices: the cotangents times what the element met.
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let (x, dy) = (operands[0], operands[1]);
        let (forward, w) = (self.forward(), self.weight(&x.ty()?, &dy.ty()?).ok()?);
        let parts = Parts::new(&forward, x.shape().0.first()?.clone(), x.shape(), w.shape.clone())?;
        let (acc, padded) = (x.dtype().accumulator(), parts.padded(x));
        let dy_columns = parts.columns(dy, parts.outputs);
        let mut all = vec![];
        for (_, at) in parts.elements() {
            let part = g.emit1(
                Matmul { transpose_a: false, transpose_b: true, dtype: acc },
                &[dy_columns, parts.columns(parts.tap(padded, &at), parts.channels)],
            );
            all.push(part.sum(&[0]));
        }
        Some(vec![g.stack(&all, -1).cast(x.dtype()).reshape(w.shape)])
    }
}

impl OpTable for ConvolutionWeightGrad {
    const NAMES: &'static [&'static str] = &["convolution_weight_grad"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(ConvolutionWeightGrad {
            window: Window::parse(attrs)?,
            groups: attrs.size("groups")?,
            kernel_size: attrs.sizes("kernel_size")?,
        })
    }
    fn samples() -> Vec<Sample> {
        let sample = |(op, x, w): (Convolution, Vec<usize>, Vec<usize>)| {
            let out = op.window.out_sizes(&x[2..], &w[2..]).unwrap_or_default();
            let dy = [&[x[0], w[0]], &out[..]].concat();
            let Convolution { window, groups } = op;
            let op = ConvolutionWeightGrad { window, groups, kernel_size: w[2..].to_vec() };
            Sample::reals(op, &[&x, &dy])
        };
        let mut all: Vec<Sample> = shapes().into_iter().map(sample).collect();
        let r = Range::Real(-2.0, 2.0);
        let op = ConvolutionWeightGrad { window: Window::plain(1), groups: 1, kernel_size: vec![2] };
        all.push(Sample::reals(op, &[]).and(DType::BF16, &[2, 2, 4], r).and(DType::BF16, &[2, 2, 3], r));
        all
    }
}
