//! `convolution`: windows of the input times a kernel, over one to three spatial axes, in groups of channels.
//!
//! It is bilinear, and so are its two gradients: [`ConvolutionInputGrad`](super::ConvolutionInputGrad) (which is the
//! transposed convolution) and [`ConvolutionWeightGrad`](super::ConvolutionWeightGrad). Each one's gradients are the
//! other two, so that derivatives of any order stay among the three.

use super::window::{Tap, Window, spatial_sizes};
use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, fixed_size, same_dtype, want_float};
use crate::ops::Matmul;
use crate::{DType, Dense, Dim, GraphBuilder, Mistake, Shape, Tensor, Type};

/// `y[n, o, p] = Σ x[n, c, p·stride + k·dilation − low] · w[o, c, k]` over the channels `c` of `o`'s group and the kernel's
/// elements `k`. `x` is `[batch, channels, spatial…]`, `w` is `[outputs, channels/groups, kernel…]`, and the result is
/// `[batch, outputs, places…]` of their dtype; products are added in `f32` at least.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Convolution {
    /// How the kernel moves.
    pub window: Window,
    /// Groups of channels; outputs of a group see that group's channels only.
    pub groups: usize,
}

/// The sizes of a convolution, however it is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConvolutionSizes {
    /// Examples.
    pub batch: usize,
    /// Groups of channels.
    pub groups: usize,
    /// Input channels of a group.
    pub channels: usize,
    /// Output channels of a group.
    pub outputs: usize,
    /// Spatial sizes of the input.
    pub input: Vec<usize>,
    /// Sizes of the kernel.
    pub kernel: Vec<usize>,
    /// Spatial sizes of the output.
    pub out: Vec<usize>,
}

impl ConvolutionSizes {
    /// From bound types of input and weight that the op's rule accepts.
    pub fn new(op: &Convolution, x: &[usize], w: &[usize]) -> ConvolutionSizes {
        let (input, kernel) = (x[2..].to_vec(), w[2..].to_vec());
        let out = op.window.out_sizes(&input, &kernel).unwrap_or_default();
        let outputs = w[0] / op.groups;
        ConvolutionSizes { batch: x[0], groups: op.groups, channels: w[1], outputs, input, kernel, out }
    }

    /// Calls `f` with the places in x, w and y of every product that is part of the sum.
    pub(super) fn for_each_product(&self, window: &Window, mut f: impl FnMut(usize, usize, usize)) {
        let count = |sizes: &[usize]| sizes.iter().product::<usize>();
        let (pixels, taps, places) = (count(&self.input), count(&self.kernel), count(&self.out));
        let all = window.taps(&self.input, &self.kernel, &self.out);
        for (n, g) in (0..self.batch).flat_map(|n| (0..self.groups).map(move |g| (n, g))) {
            for (o, c) in (0..self.outputs).flat_map(|o| (0..self.channels).map(move |c| (o, c))) {
                let x = ((n * self.groups + g) * self.channels + c) * pixels;
                let w = ((g * self.outputs + o) * self.channels + c) * taps;
                let y = ((n * self.groups + g) * self.outputs + o) * places;
                for &Tap { out, kernel, input } in &all {
                    f(x + input, w + kernel, y + out);
                }
            }
        }
    }
}

impl Convolution {
    pub(super) fn attrs_of(window: &Window, groups: usize) -> Attrs {
        let mut attrs = window.attrs();
        attrs.push(("groups", int(groups)));
        attrs
    }

    /// The numbers of a kernel `[outputs, channels/groups, kernel…]`.
    pub(super) fn kernel_sizes(&self, outputs: usize, channels: usize) -> Result<(), Mistake> {
        if self.groups == 0 || !outputs.is_multiple_of(self.groups) || !channels.is_multiple_of(self.groups) {
            let found = format!(
                "{channels} channels and {outputs} outputs do not divide into {} groups",
                self.groups
            );
            return Err(Mistake::new(found, "use a number of groups that divides both"));
        }
        Ok(())
    }

    /// The result's type for these operands.
    pub(super) fn result(&self, x: &Type, w: &Type) -> Result<Type, Mistake> {
        same_dtype(&[x, w])?;
        want_float(x)?;
        let axes = self.window.axes();
        for (what, ty) in [("the input", x), ("the weight", w)] {
            if ty.shape.rank() != axes + 2 {
                let found = format!("{what}, {ty}, has not two axes and {axes} spatial ones");
                return Err(Mistake::new(found, "give x as [batch, channels, spatial…] and w accordingly"));
            }
        }
        let (input, kernel) = (spatial_sizes(x, axes)?, spatial_sizes(w, axes)?);
        let (channels, outputs, per_group) = (fixed_size(1, x)?, fixed_size(0, w)?, fixed_size(1, w)?);
        self.kernel_sizes(outputs, channels)?;
        if channels / self.groups != per_group {
            let found = format!("a group has {} channels and the weight {per_group}", channels / self.groups);
            return Err(Mistake::new(found, "give the weight as [outputs, channels/groups, kernel…]"));
        }
        let mut dims = vec![x.shape.0[0].clone(), Dim::fixed(outputs)];
        dims.extend(self.window.out_sizes(&input, &kernel)?.into_iter().map(Dim::fixed));
        Ok(Type::new(x.dtype, Shape(dims)))
    }
}

impl OpRule for Convolution {
    fn name(&self) -> &'static str {
        "convolution"
    }
    fn attrs(&self) -> Attrs {
        Convolution::attrs_of(&self.window, self.groups)
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x, w] = arity(operands)?;
        Ok(vec![self.result(x, w)?])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, w) = (inputs[0], inputs[1]);
        let mut out = vec![0.0; results[0].numel()];
        let (rx, rw) = (x.reals(), w.reals());
        let sizes = ConvolutionSizes::new(self, &x.shape, &w.shape);
        sizes.for_each_product(&self.window, |x, w, y| out[y] += rx[x] * rw[w]);
        Ok(vec![Dense::from_reals(x.dtype, &results[0].sizes(), out)])
    }
    /// The sum, over the kernel's elements, of a product of matrices: the weight's slice times a strided slice of x.
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let (x, w) = (operands[0], operands[1]);
        let parts = Parts::new(self, x.shape().0.first()?.clone(), x.shape(), w.shape())?;
        let (acc, padded) = (x.dtype().accumulator(), parts.padded(x));
        let weight = parts.weight(w);
        let mut sum = None::<Tensor<'g>>;
        for (k, at) in parts.elements() {
            let part = g.emit1(
                Matmul { transpose_a: false, transpose_b: false, dtype: acc },
                &[parts.batched(weight.at(-1, k)), parts.columns(parts.tap(padded, &at), parts.channels)],
            );
            sum = Some(sum.map_or(part, |s| s + part));
        }
        Some(vec![sum?.cast(x.dtype()).reshape(parts.out_shape())])
    }
}

/// A convolution taken apart into the elements of its kernel, each a strided slice of the padded input.
pub(super) struct Parts<'a> {
    window: &'a Window,
    batch: Dim,
    groups: usize,
    pub channels: usize,
    pub outputs: usize,
    pub input: Vec<usize>,
    pub kernel: Vec<usize>,
    pub out: Vec<usize>,
}

impl<'a> Parts<'a> {
    pub fn new(op: &'a Convolution, batch: Dim, x: Shape, w: Shape) -> Option<Parts<'a>> {
        let numbers = |s: &Shape| s.0[2..].iter().map(|d| d.size()).collect::<Option<Vec<_>>>();
        let (input, kernel) = (numbers(&x)?, numbers(&w)?);
        let out = op.window.out_sizes(&input, &kernel).ok()?;
        let (outputs, channels) = (w.0[0].size()? / op.groups, w.0[1].size()?);
        Some(Parts { window: &op.window, batch, groups: op.groups, channels, outputs, input, kernel, out })
    }

    fn shape(&self, sizes: &[usize]) -> Shape {
        Shape([vec![self.batch.clone()], sizes.iter().copied().map(Dim::fixed).collect()].concat())
    }

    /// `[batch, outputs, places…]`.
    pub fn out_shape(&self) -> Shape {
        self.shape(&[&[self.groups * self.outputs], &self.out[..]].concat())
    }

    /// `[batch, groups, per_group, places]`.
    pub fn columns<'g>(&self, x: Tensor<'g>, per_group: usize) -> Tensor<'g> {
        x.reshape(self.shape(&[self.groups, per_group, self.out.iter().product()]))
    }

    /// The reverse, for the input's channels: `[batch, channels, places…]`.
    pub fn places<'g>(&self, x: Tensor<'g>) -> Tensor<'g> {
        x.reshape(self.shape(&[&[self.groups * self.channels], &self.out[..]].concat()))
    }

    /// `[groups, outputs, channels, elements]`.
    pub fn weight<'g>(&self, w: Tensor<'g>) -> Tensor<'g> {
        w.reshape([self.groups, self.outputs, self.channels, self.kernel.iter().product()])
    }

    /// One matrix for each group, repeated over the batch.
    pub fn batched<'g>(&self, w: Tensor<'g>) -> Tensor<'g> {
        let sizes: Vec<Dim> = w.shape().0;
        w.broadcast(&Shape([vec![self.batch.clone()], sizes].concat()))
    }

    /// The input with its padding.
    pub fn padded<'g>(&self, x: Tensor<'g>) -> Tensor<'g> {
        (0..self.input.len()).fold(x, |x, a| {
            let (low, high) = (self.window.low[a], self.window.high[a]);
            if low + high == 0 { x } else { x.pad(a as isize + 2, low, high, 0.0) }
        })
    }

    /// The kernel's elements: number and place.
    pub fn elements(&self) -> Vec<(usize, Vec<usize>)> {
        let mut all = vec![];
        crate::shape::for_each_index(&self.kernel, |at| all.push((all.len(), at.to_vec())));
        all
    }

    /// What an element of the kernel meets: `[batch, channels, places…]`.
    pub fn tap<'g>(&self, padded: Tensor<'g>, at: &[usize]) -> Tensor<'g> {
        (0..at.len()).fold(padded, |x, a| {
            let (start, step) = (at[a] * self.window.dilation[a], self.window.stride[a]);
            x.slice_step(a as isize + 2, start, start + (self.out[a] - 1) * step + 1, step)
        })
    }

    /// The reverse of [`Parts::tap`] and [`Parts::padded`]: a tensor of the input's shape that has these elements where
    /// that read them, and zeros elsewhere.
    pub fn spread<'g>(&self, part: Tensor<'g>, at: &[usize]) -> Tensor<'g> {
        (0..at.len()).fold(part, |x, a| {
            let (start, step) = (at[a] * self.window.dilation[a], self.window.stride[a]);
            let (low, n) = (self.window.low[a], self.input[a]);
            let padded = n + low + self.window.high[a];
            let high = padded - (start + (self.out[a] - 1) * step + 1);
            let pad = crate::ops::Pad {
                axis: a + 2,
                low: start,
                high,
                interior: step - 1,
                value: crate::Real::new(0.0),
            };
            let whole = x.graph().emit1(pad, &[x]);
            if padded == n { whole } else { whole.slice(a as isize + 2, low, low + n) }
        })
    }
}

/// Samples of the three ops: windows of every kind, as shapes of x and w.
pub(super) fn shapes() -> Vec<(Convolution, Vec<usize>, Vec<usize>)> {
    let op = |window, groups| Convolution { window, groups };
    let each = |stride: &[usize], low: &[usize], high: &[usize], dilation: &[usize]| Window {
        stride: stride.to_vec(),
        low: low.to_vec(),
        high: high.to_vec(),
        dilation: dilation.to_vec(),
    };
    vec![
        (op(Window::plain(1), 1), vec![2, 2, 5], vec![3, 2, 3]),
        (op(each(&[2], &[2], &[1], &[2]), 1), vec![1, 2, 6], vec![2, 2, 2]),
        (op(Window::plain(2), 1), vec![2, 2, 4, 3], vec![3, 2, 2, 3]),
        (op(each(&[2, 1], &[1, 0], &[0, 2], &[1, 2]), 2), vec![1, 4, 5, 3], vec![2, 2, 2, 2]),
        // Steps that leave out the last elements, and a kernel of one.
        (op(each(&[3, 2], &[0, 0], &[0, 0], &[1, 1]), 1), vec![1, 2, 5, 4], vec![2, 2, 1, 1]),
        // As many groups as channels.
        (op(each(&[1, 1], &[1, 1], &[1, 1], &[1, 1]), 3), vec![1, 3, 3, 2], vec![6, 1, 3, 3]),
        (
            op(each(&[1, 2, 1], &[0, 1, 0], &[1, 0, 0], &[1, 1, 2]), 1),
            vec![1, 1, 2, 3, 4],
            vec![2, 1, 2, 2, 2],
        ),
        (op(Window::plain(1), 1), vec![0, 2, 3], vec![1, 2, 2]),
    ]
}

impl OpTable for Convolution {
    const NAMES: &'static [&'static str] = &["convolution"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Convolution { window: Window::parse(attrs)?, groups: attrs.size("groups")? })
    }
    fn samples() -> Vec<Sample> {
        let mut all: Vec<Sample> =
            shapes().into_iter().map(|(op, x, w)| Sample::reals(op, &[&x, &w])).collect();
        let r = Range::Real(-2.0, 2.0);
        let op = Convolution { window: Window::plain(2), groups: 1 };
        all.push(Sample::reals(op, &[]).and(DType::BF16, &[1, 2, 3, 3], r).and(
            DType::BF16,
            &[2, 2, 2, 2],
            r,
        ));
        all
    }
}
