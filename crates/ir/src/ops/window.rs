//! Windows that slide over spatial axes: the geometry that convolutions and pooling share.

use crate::attrs::{AttrReader, Attrs, ints};
use crate::op::fixed_size;
use crate::shape::for_each_index;
use crate::{Mistake, Type};

/// How a window moves: for each spatial axis a step, padding at both ends, and the distance of neighbours in the
/// window. Element `k` of the window at place `o` reads element `o·stride + k·dilation − low` of the input.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    /// Distance of neighbouring places of the window.
    pub stride: Vec<usize>,
    /// Elements before the first one that count as padding.
    pub low: Vec<usize>,
    /// Elements behind the last one that count as padding.
    pub high: Vec<usize>,
    /// Distance of neighbouring elements in the window.
    pub dilation: Vec<usize>,
}

/// An element of a window over the input: places in the output, the window and the input, each in row-major order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tap {
    /// The place of the window.
    pub out: usize,
    /// The element of the window.
    pub kernel: usize,
    /// The element of the input.
    pub input: usize,
}

impl Window {
    /// Steps of one, no padding, neighbours side by side.
    pub fn plain(axes: usize) -> Window {
        Window { stride: vec![1; axes], low: vec![0; axes], high: vec![0; axes], dilation: vec![1; axes] }
    }

    /// Steps of the kernel's own size: windows side by side.
    pub fn tiles(kernel: &[usize]) -> Window {
        Window { stride: kernel.to_vec(), ..Window::plain(kernel.len()) }
    }

    /// The number of spatial axes.
    pub fn axes(&self) -> usize {
        self.stride.len()
    }

    pub(crate) fn attrs(&self) -> Attrs {
        vec![
            ("stride", ints(&self.stride)),
            ("low", ints(&self.low)),
            ("high", ints(&self.high)),
            ("dilation", ints(&self.dilation)),
        ]
    }

    pub(crate) fn parse(attrs: &mut AttrReader) -> Result<Window, Mistake> {
        Ok(Window {
            stride: attrs.sizes("stride")?,
            low: attrs.sizes("low")?,
            high: attrs.sizes("high")?,
            dilation: attrs.sizes("dilation")?,
        })
    }

    /// Checks the attributes against the number of the kernel's axes.
    pub(crate) fn check(&self, kernel: &[usize]) -> Result<(), Mistake> {
        let axes = kernel.len();
        if !(1..=3).contains(&axes) {
            return Err(Mistake::new(format!("a window over {axes} axes"), "use one, two or three"));
        }
        for (what, list) in
            [("stride", &self.stride), ("low", &self.low), ("high", &self.high), ("dilation", &self.dilation)]
        {
            if list.len() != axes {
                let found = format!("{what} {list:?} for {axes} spatial axes");
                return Err(Mistake::new(found, "give one number for each of them"));
            }
        }
        if [&self.stride, &self.dilation].into_iter().any(|list| list.contains(&0)) || kernel.contains(&0) {
            return Err(Mistake::new("a size, stride or dilation of 0", "use 1 at least"));
        }
        Ok(())
    }

    /// How far a kernel of size `kernel` reaches along an axis; `None` beyond the numbers that exist.
    pub fn reach(&self, axis: usize, kernel: usize) -> Option<usize> {
        kernel.checked_sub(1)?.checked_mul(self.dilation[axis])?.checked_add(1)
    }

    /// Sizes of the output for these spatial sizes.
    pub fn out_sizes(&self, input: &[usize], kernel: &[usize]) -> Result<Vec<usize>, Mistake> {
        self.check(kernel)?;
        let one = |axis: usize| {
            let padded = input[axis].checked_add(self.low[axis])?.checked_add(self.high[axis])?;
            // Places are counted in `isize` below.
            isize::try_from(padded).ok()?;
            Some(padded.checked_sub(self.reach(axis, kernel[axis])?)? / self.stride[axis] + 1)
        };
        let sizes: Option<Vec<usize>> = (0..kernel.len()).map(one).collect();
        sizes.ok_or_else(|| {
            let found = format!("a window of {kernel:?} does not fit into {input:?} with this padding");
            Mistake::new(found, "use a smaller kernel or dilation, or more padding")
        })
    }

    /// Element `k` of the window at place `o` along an axis of `n` elements; `None` in the padding.
    pub fn at(&self, axis: usize, o: usize, k: usize, n: usize) -> Option<usize> {
        let place = o * self.stride[axis] + k * self.dilation[axis];
        place.checked_sub(self.low[axis]).filter(|&i| i < n)
    }

    /// Every element of every window that is not padding: windows in order, and the elements of each in order.
    pub fn taps(&self, input: &[usize], kernel: &[usize], out: &[usize]) -> Vec<Tap> {
        let mut taps = vec![];
        let mut o = 0;
        for_each_index(out, |at| {
            let mut k = 0;
            for_each_index(kernel, |within| {
                let place = (0..input.len())
                    .try_fold(0, |sum, a| Some(sum * input[a] + self.at(a, at[a], within[a], input[a])?));
                taps.extend(place.map(|input| Tap { out: o, kernel: k, input }));
                k += 1;
            });
            o += 1;
        });
        taps
    }
}

/// The sizes of the last `axes` axes, which must be numbers.
pub(crate) fn spatial_sizes(ty: &Type, axes: usize) -> Result<Vec<usize>, Mistake> {
    let rank = ty.shape.rank();
    if rank < axes {
        return Err(Mistake::new(
            format!("{ty} has not {axes} spatial axes"),
            "give one for each axis of the kernel",
        ));
    }
    (rank - axes..rank).map(|axis| fixed_size(axis, ty)).collect()
}

/// Ways to say how a window moves.
impl Window {
    /// The same window with these steps.
    pub fn strides(self, stride: &[usize]) -> Window {
        Window { stride: stride.to_vec(), ..self }
    }

    /// The same window with this padding at both ends of each axis.
    pub fn padding(self, padding: &[usize]) -> Window {
        Window { low: padding.to_vec(), high: padding.to_vec(), ..self }
    }

    /// The same window with its elements this far apart.
    pub fn dilations(self, dilation: &[usize]) -> Window {
        Window { dilation: dilation.to_vec(), ..self }
    }

    /// The same window with as much more padding at the end that the last elements are met too: `ceil_mode`, in which a
    /// window that would begin in the padding behind the elements is left out.
    pub fn to_the_end(mut self, input: &[usize], kernel: &[usize]) -> Window {
        for axis in 0..kernel.len().min(input.len()).min(self.axes()) {
            let (n, step) = (input[axis] + self.low[axis], self.stride[axis].max(1));
            let Some(reach) = self.reach(axis, kernel[axis]) else { continue };
            let steps = (n + self.high[axis]).saturating_sub(reach).div_ceil(step);
            // The last window begins among the elements, or in the padding before them.
            let steps = if steps * step >= n { steps.saturating_sub(1) } else { steps };
            self.high[axis] = self.high[axis].max((steps * step + reach).saturating_sub(n));
        }
        self
    }
}
