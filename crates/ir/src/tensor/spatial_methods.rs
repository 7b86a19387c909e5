//! Methods of images and other grids: convolutions and pooling over the last axes.

use super::Tensor;
use crate::ops::{Convolution, ConvolutionInputGrad, MaxPool, SumPool, Window};
use crate::shape::for_each_index;
use crate::{Array, Dim, Shape};

/// The options of [`Tensor::conv2d`] and its like, the same along every axis. The default: steps of 1, no padding,
/// neighbouring elements, one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConvOptions {
    /// Distance of neighbouring places of the kernel.
    pub stride: usize,
    /// Zeros before and behind each axis.
    pub padding: usize,
    /// Distance of neighbouring elements of the kernel.
    pub dilation: usize,
    /// Groups of channels that see nothing of each other.
    pub groups: usize,
}

impl Default for ConvOptions {
    fn default() -> Self {
        ConvOptions { stride: 1, padding: 0, dilation: 1, groups: 1 }
    }
}

impl ConvOptions {
    /// The window over so many axes.
    pub fn window(&self, axes: usize) -> Window {
        Window::plain(axes)
            .strides(&vec![self.stride; axes])
            .padding(&vec![self.padding; axes])
            .dilations(&vec![self.dilation; axes])
    }
}

/// What [`Tensor::avg_pool`] divides a window's sum by.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Divisor {
    /// The elements of the window and the padding that it meets; not what lies beyond the padding, where the last window
    /// may reach. PyTorch's `count_include_pad=True`, its default.
    #[default]
    WithPadding,
    /// The elements of the window alone.
    Elements,
    /// This number.
    Given(f64),
}

macro_rules! convolutions {
    ($($name:ident $transpose:ident $axes:literal $shape:literal),+) => {$(
        #[doc = concat!("The cross-correlation with `weight`, `[outputs, channels/groups, ", $shape, "]`, of `[batch, channels, ", $shape, "]`.")]
        #[track_caller]
        pub fn $name(self, weight: Tensor<'g>, options: ConvOptions) -> Tensor<'g> {
            self.conv(weight, options.window($axes), options.groups)
        }
        #[doc = concat!("The transposed convolution with `weight`, `[channels, outputs/groups, ", $shape, "]`, of `[batch, channels, ", $shape, "]`: [`Tensor::conv_transpose`].")]
        #[track_caller]
        pub fn $transpose(self, weight: Tensor<'g>, options: ConvOptions) -> Tensor<'g> {
            self.conv_transpose(weight, options.window($axes), options.groups, &[0; $axes])
        }
    )+};
}

impl<'g> Tensor<'g> {
    convolutions!(
        conv1d conv_transpose1d 1 "length",
        conv2d conv_transpose2d 2 "height, width",
        conv3d conv_transpose3d 3 "depth, height, width"
    );

    /// A convolution over one to three spatial axes, `[batch, channels, spatial…]` with a weight
    /// `[outputs, channels/groups, kernel…]`: the result is `[batch, outputs, places…]`. As in every library of the field
    /// the kernel is not turned around.
    #[track_caller]
    pub fn conv(self, weight: Tensor<'g>, window: Window, groups: usize) -> Tensor<'g> {
        self.g.emit1(Convolution { window, groups }, &[self, weight])
    }

    /// The adjoint of [`Tensor::conv`]: `[batch, channels, spatial…]` with a weight `[channels, outputs/groups, kernel…]`
    /// gives `[batch, outputs, (spatial − 1)·stride + reach of the kernel − padding + output_padding…]`.
    #[track_caller]
    pub fn conv_transpose(
        self,
        weight: Tensor<'g>,
        window: Window,
        groups: usize,
        output_padding: &[usize],
    ) -> Tensor<'g> {
        let op = "conv_transpose";
        let axes = window.axes();
        if self.value.is_none() || weight.value.is_none() {
            return self.poison();
        }
        let numbers =
            |t: Tensor<'g>| t.shape().0.iter().skip(2).map(|d| d.size()).collect::<Option<Vec<_>>>();
        let (Some(input), Some(kernel)) = (numbers(self), numbers(weight)) else {
            return self.mistake(op, "a spatial size is a variable", "bind it first");
        };
        if let Err(mistake) = window.check(&kernel) {
            return self.g.mistake(op, &[self, weight], mistake);
        }
        if input.len() != axes || output_padding.len() != axes {
            let what = format!("{input:?} and output padding {output_padding:?} for {axes} spatial axes");
            return self.mistake(op, what, "give one number for each spatial axis");
        }
        // More output is less padding at the end; what even no padding reaches is zero.
        let (mut window, mut size, mut beyond) = (window, vec![], vec![]);
        for a in 0..axes {
            let cut = window.high[a].min(output_padding[a]);
            window.high[a] -= cut;
            beyond.push(output_padding[a] - cut);
            let whole = input[a].checked_sub(1).and_then(|n| n.checked_mul(window.stride[a]));
            let whole = whole.and_then(|n| n.checked_add(window.reach(a, kernel[a])?));
            let size_here = whole.and_then(|n| n.checked_sub(window.low[a])?.checked_sub(window.high[a]));
            match size_here {
                Some(n) => size.push(n),
                None => return self.mistake(op, "the padding leaves nothing of the result", "pad by less"),
            }
        }
        let y = self.g.emit1(ConvolutionInputGrad { window, groups, input_size: size }, &[self, weight]);
        beyond.iter().enumerate().fold(
            y,
            |y, (a, &more)| {
                if more == 0 { y } else { y.pad(a as isize + 2, 0, more, 0.0) }
            },
        )
    }

    /// The largest element of each window over the last axes, as many as `kernel` has sizes: `[.., spatial…]` gives
    /// `[.., places…]`. NaN if the window has one; its gradient goes to the first of equal elements.
    #[track_caller]
    pub fn max_pool(self, kernel: &[usize], window: Window) -> Tensor<'g> {
        self.max_pool_with_indices(kernel, window).0
    }

    /// [`Tensor::max_pool`], and where the elements stand among the spatial ones in row-major order, as `i32`.
    #[track_caller]
    pub fn max_pool_with_indices(self, kernel: &[usize], window: Window) -> (Tensor<'g>, Tensor<'g>) {
        let out = self.g.emit(MaxPool { kernel: kernel.to_vec(), window }, &[self]);
        // A mistake gives one poisoned handle.
        (out[0], out.get(1).copied().unwrap_or(out[0]))
    }

    /// The inverse of [`Tensor::max_pool_with_indices`]: over the last axes, as many as `out` has sizes, each element at its
    /// place of `indices` (integers of this tensor's shape) among spatial elements of the sizes `out`, in row-major order;
    /// zeros elsewhere. Of elements with one place, which windows that overlap have, the mean.
    #[track_caller]
    pub fn max_unpool(self, indices: Tensor<'g>, out: &[usize]) -> Tensor<'g> {
        if self.value.is_none() || indices.value.is_none() {
            return self.poison();
        }
        let Some(own) = self.spatial(out.len()).filter(|_| self.shape() == indices.shape()) else {
            let what = format!("{} with places {} does not unpool to {out:?}", self.shape(), indices.shape());
            return self.mistake("max_unpool", what, "give both one shape whose last axes have sizes");
        };
        let lead = self.shape().0[..self.rank() - out.len()].to_vec();
        let with =
            |sizes: &[usize]| Shape([lead.clone(), sizes.iter().copied().map(Dim::fixed).collect()].concat());
        let flat = |t: Tensor<'g>| t.reshape(with(&[own.iter().product()]));
        let none = self.g.full(self.dtype(), with(&[out.iter().product()]), 0.0);
        let spread = |t: Tensor<'g>| none.scatter_add_along(-1, flat(indices), flat(t));
        let count = spread(self.g.full(self.dtype(), self.shape(), 1.0));
        (spread(self) / count.maximum(1.0)).reshape(with(out))
    }

    /// The p-norm of each window over the last axes, as many as `kernel` has sizes: PyTorch's `lp_pool` for even p, which
    /// raises elements, not their magnitudes. The gradient is 0 at 0.
    #[track_caller]
    pub fn lp_pool(self, p: f64, kernel: &[usize], window: Window) -> Tensor<'g> {
        let x = self.wide();
        let size = x.abs();
        let norm = match p {
            f64::INFINITY => size.max_pool(kernel, window),
            1.0 => size.sum_pool(kernel, window),
            2.0 => x.square().sum_pool(kernel, window).safe_sqrt(),
            p if p > 0.0 => size.magnitude_pow(p).sum_pool(kernel, window).magnitude_pow(1.0 / p),
            _ => return self.mistake("lp_pool", format!("there is no {p}-norm of windows"), "use p above 0"),
        };
        norm.cast(self.dtype())
    }

    /// The sum of each window over the last axes, as many as `kernel` has sizes; padding counts as 0.
    #[track_caller]
    pub fn sum_pool(self, kernel: &[usize], window: Window) -> Tensor<'g> {
        self.g.emit1(SumPool { kernel: kernel.to_vec(), window }, &[self])
    }

    /// The average of each window over the last axes, as many as `kernel` has sizes: `[.., spatial…]` gives `[.., places…]`.
    /// With `to_the_end`, a last window that reaches beyond the padding counts too: PyTorch's `ceil_mode`.
    #[track_caller]
    pub fn avg_pool(
        self,
        kernel: &[usize],
        window: Window,
        divisor: Divisor,
        to_the_end: bool,
    ) -> Tensor<'g> {
        let input = self.spatial(kernel.len());
        let (Some(input), Ok(())) = (input, window.check(kernel)) else {
            return self.sum_pool(kernel, window); // which says what is wrong
        };
        let whole = if to_the_end { window.clone().to_the_end(&input, kernel) } else { window.clone() };
        let sums = self.sum_pool(kernel, whole.clone());
        let Ok(out) = whole.out_sizes(&input, kernel) else { return sums };
        if let Divisor::Given(by) = divisor {
            return sums / by;
        }
        // How many elements count is a product over the axes.
        let count = |a: usize, o: usize| {
            let padded = input[a] + window.low[a] + window.high[a];
            let within = |k: &usize| match divisor {
                Divisor::Elements => whole.at(a, o, *k, input[a]).is_some(),
                _ => o * whole.stride[a] + k * whole.dilation[a] < padded,
            };
            (0..kernel[a]).filter(within).count() as f64
        };
        let mut counts = vec![];
        for_each_index(&out, |at| counts.push((0..at.len()).map(|a| count(a, at[a])).product::<f64>()));
        if counts.windows(2).all(|pair| pair[0] == pair[1]) {
            return sums / counts.first().copied().unwrap_or(1.0);
        }
        match Array::from_f64(self.dtype(), &out, &counts) {
            Ok(counts) => sums / self.g.constant(counts),
            Err(e) => self.mistake("avg_pool", e.to_string(), "pool in a wider dtype"),
        }
    }

    /// Averages over windows that share the last axes out evenly, as many places as `out` says; PyTorch's
    /// `adaptive_avg_pool`. Window `i` of an axis of `n` elements reaches from `⌊i·n/out⌋` to `⌈(i+1)·n/out⌉`.
    #[track_caller]
    pub fn adaptive_avg_pool(self, out: &[usize]) -> Tensor<'g> {
        let Some(input) = self.adaptive("adaptive_avg_pool", out) else { return self.poison() };
        let lead = self.rank() - out.len();
        if let Some(kernel) = even(&input, out) {
            return self.avg_pool(&kernel, Window::tiles(&kernel), Divisor::default(), false);
        }
        (0..out.len()).rev().fold(self, |x, a| {
            let axis = (lead + a) as isize;
            let part = |i| {
                let (start, end) = share(i, input[a], out[a]);
                x.slice(axis, start, end).mean_keep(&[axis])
            };
            let parts: Vec<Tensor<'g>> = (0..out[a]).map(part).collect();
            self.g.concat(&parts, axis)
        })
    }

    /// The largest elements of the windows of [`Tensor::adaptive_avg_pool`], and where they stand among the spatial
    /// elements, as `i32`.
    #[track_caller]
    pub fn adaptive_max_pool(self, out: &[usize]) -> (Tensor<'g>, Tensor<'g>) {
        let Some(input) = self.adaptive("adaptive_max_pool", out) else {
            return (self.poison(), self.poison());
        };
        if let Some(kernel) = even(&input, out) {
            return self.max_pool_with_indices(&kernel, Window::tiles(&kernel));
        }
        // Windows of several sizes: the places of each as one row, the last one repeated up to the longest row.
        let mut rows: Vec<Vec<i32>> = vec![];
        for_each_index(out, |at| {
            let shares: Vec<_> = (0..at.len()).map(|a| share(at[a], input[a], out[a])).collect();
            let sizes: Vec<usize> = shares.iter().map(|(start, end)| end - start).collect();
            let mut row = vec![];
            for_each_index(&sizes, |i| {
                row.push((0..i.len()).fold(0, |p, a| p * input[a] + shares[a].0 + i[a]) as i32);
            });
            rows.push(row);
        });
        let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
        rows.iter_mut().for_each(|r| r.resize(longest, r.last().copied().unwrap_or(0)));
        let lead = self.shape().0[..self.rank() - out.len()].to_vec();
        let with =
            |sizes: &[usize]| Shape([lead.clone(), sizes.iter().copied().map(Dim::fixed).collect()].concat());
        let Ok(places) = Array::new(&[rows.len(), longest], &rows.concat()) else { return (self, self) };
        let places = self.g.constant(places);
        let flat = self.reshape(with(&[input.iter().product()]));
        let elements = flat.gather(-1, places);
        let winner = elements.argmax(-1).expand(lead.len() + 1);
        let of = |t: Tensor<'g>| t.gather_along(-1, winner).reshape(with(out));
        (of(elements), of(places.broadcast(&with(&[rows.len(), longest]))))
    }

    /// The sizes of the last axes, where they are numbers.
    fn spatial(self, axes: usize) -> Option<Vec<usize>> {
        let dims = self.ty()?.shape.0;
        dims[dims.len().checked_sub(axes)?..].iter().map(|d| d.size()).collect()
    }

    /// The input sizes of an adaptive pooling; `None` and a mistake on record where it has none.
    #[track_caller]
    fn adaptive(self, op: &str, out: &[usize]) -> Option<Vec<usize>> {
        self.value?;
        let input = self.spatial(out.len()).filter(|n| !n.contains(&0) && !out.contains(&0));
        if input.is_none() || !self.dtype().is_float() {
            let what =
                format!("{} does not pool to {out:?}", self.ty().map_or(String::new(), |t| t.to_string()));
            self.mistake(op, what, "give a float tensor whose last axes have sizes, and sizes of 1 at least");
            return None;
        }
        input
    }
}

/// The elements of window `i` of `out` over `n` elements.
fn share(i: usize, n: usize, out: usize) -> (usize, usize) {
    (i * n / out, ((i + 1) * n).div_ceil(out))
}

/// The size of the windows, if they all have one.
fn even(input: &[usize], out: &[usize]) -> Option<Vec<usize>> {
    let all = input.iter().zip(out);
    all.map(|(&n, &m)| n.is_multiple_of(m).then_some(n / m)).collect()
}
