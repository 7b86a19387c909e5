//! `convolution_input_grad`: the adjoint of `convolution` in its input, which is the transposed convolution.

use super::convolution::{Convolution, ConvolutionSizes, Parts, shapes};
use super::window::{Window, spatial_sizes};
use crate::attrs::{AttrReader, Attrs, ints};
use crate::op::{OpRule, OpTable, Range, Sample, arity, fixed_size, want_shape};
use crate::ops::Matmul;
use crate::{DType, Dense, Dim, GraphBuilder, Mistake, Shape, Tensor, Type};

/// `dx[n, c, i] = Σ dy[n, o, p] · w[o, c, k]` over the outputs `o` of `c`'s group and every `p` and `k` whose window
/// element is `i`. `dy` is `[batch, outputs, places…]`, `w` is `[outputs, channels/groups, kernel…]`, and the result is
/// `[batch, channels, input_size…]` of their dtype. The sizes must be those of a convolution: `input_size` says which of
/// the several inputs that give as many places.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ConvolutionInputGrad {
    /// How the kernel moves.
    pub window: Window,
    /// Groups of channels.
    pub groups: usize,
    /// The spatial sizes of the result.
    pub input_size: Vec<usize>,
}

impl ConvolutionInputGrad {
    /// The convolution that this is the adjoint of.
    pub fn forward(&self) -> Convolution {
        Convolution { window: self.window.clone(), groups: self.groups }
    }

    /// The type of that convolution's input.
    fn input(&self, dy: &Type, w: &Type) -> Result<Type, Mistake> {
        let axes = self.window.axes();
        if w.shape.rank() != axes + 2 || dy.shape.rank() != axes + 2 || self.input_size.len() != axes {
            let found = format!("{dy}, {w} and input_size {:?} for {axes} spatial axes", self.input_size);
            let help = "give dy as [batch, outputs, places…] and w as [outputs, channels/groups, kernel…]";
            return Err(Mistake::new(found, help));
        }
        spatial_sizes(dy, axes)?;
        let channels = fixed_size(1, w)?.checked_mul(self.groups);
        let channels = channels.ok_or_else(|| Mistake::new("too many channels", "use fewer groups"))?;
        let mut dims = vec![dy.shape.0[0].clone(), Dim::fixed(channels)];
        dims.extend(self.input_size.iter().copied().map(Dim::fixed));
        Ok(Type::new(dy.dtype, Shape(dims)))
    }
}

impl OpRule for ConvolutionInputGrad {
    fn name(&self) -> &'static str {
        "convolution_input_grad"
    }
    fn attrs(&self) -> Attrs {
        let mut attrs = Convolution::attrs_of(&self.window, self.groups);
        attrs.push(("input_size", ints(&self.input_size)));
        attrs
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [dy, w] = arity(operands)?;
        let x = self.input(dy, w)?;
        want_shape("dy", dy, &self.forward().result(&x, w)?.shape)?;
        Ok(vec![x])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (dy, w) = (inputs[0], inputs[1]);
        let mut out = vec![0.0; results[0].numel()];
        let (rd, rw) = (dy.reals(), w.reals());
        let sizes = ConvolutionSizes::new(&self.forward(), &results[0].sizes(), &w.shape);
        sizes.for_each_product(&self.window, |x, w, y| out[x] += rd[y] * rw[w]);
        Ok(vec![Dense::from_reals(dy.dtype, &results[0].sizes(), out)])
    }
    /// For each element of the kernel a product of matrices, spread over the places that it reads.
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let (dy, w) = (operands[0], operands[1]);
        let (forward, x) = (self.forward(), self.input(&dy.ty()?, &w.ty()?).ok()?);
        let parts = Parts::new(&forward, x.shape.0.first()?.clone(), x.shape.clone(), w.shape())?;
        let (acc, dy_columns) = (dy.dtype().accumulator(), parts.columns(dy, parts.outputs));
        let weight = parts.weight(w);
        let mut sum = None::<Tensor<'g>>;
        for (k, at) in parts.elements() {
            let part = g.emit1(
                Matmul { transpose_a: true, transpose_b: false, dtype: acc },
                &[parts.batched(weight.at(-1, k)), dy_columns],
            );
            let part = parts.spread(parts.places(part), &at);
            sum = Some(sum.map_or(part, |s| s + part));
        }
        Some(vec![sum?.cast(dy.dtype())])
    }
}

impl OpTable for ConvolutionInputGrad {
    const NAMES: &'static [&'static str] = &["convolution_input_grad"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(ConvolutionInputGrad {
            window: Window::parse(attrs)?,
            groups: attrs.size("groups")?,
            input_size: attrs.sizes("input_size")?,
        })
    }
    fn samples() -> Vec<Sample> {
        let sample = |(op, x, w): (Convolution, Vec<usize>, Vec<usize>)| {
            let out = op.window.out_sizes(&x[2..], &w[2..]).unwrap_or_default();
            let dy = [&[x[0], w[0]], &out[..]].concat();
            let Convolution { window, groups } = op;
            let op = ConvolutionInputGrad { window, groups, input_size: x[2..].to_vec() };
            Sample::reals(op, &[&dy, &w])
        };
        let mut all: Vec<Sample> = shapes().into_iter().map(sample).collect();
        let r = Range::Real(-2.0, 2.0);
        let op = ConvolutionInputGrad { window: Window::plain(1), groups: 1, input_size: vec![4] };
        all.push(Sample::reals(op, &[]).and(DType::BF16, &[1, 2, 3], r).and(DType::BF16, &[2, 2, 2], r));
        all
    }
}
