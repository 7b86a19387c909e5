//! Convolution and its two gradients, each as one product by [`Tiles`] for every group, which gathers windows as it loads:
//!
//! | result | rows | columns | summed |
//! |---|---|---|---|
//! | `y` | outputs | examples × places | channels × kernel |
//! | `dx` | channels | examples × pixels | outputs × kernel |
//! | `dw` | outputs | channels × kernel | examples × places |

use super::text::store;
use super::tiles::{Axis, Factor, Tiles, multiple_of_8};
use super::{Launches, Operands};
use onestep_ir::ops::{Convolution, ConvolutionInputGrad, ConvolutionSizes, ConvolutionWeightGrad, Window};
use onestep_ir::{DType, row_major};
use std::fmt::Write;

/// Sizes, and texts of places in the three tensors.
struct Parts<'a> {
    window: &'a Window,
    sizes: ConvolutionSizes,
    taps: usize,
    pixels: usize,
    places: usize,
}

impl<'a> Parts<'a> {
    fn new(window: &'a Window, sizes: ConvolutionSizes) -> Parts<'a> {
        let count = |s: &[usize]| s.iter().product::<usize>();
        let (taps, pixels, places) = (count(&sizes.kernel), count(&sizes.input), count(&sizes.out));
        Parts { window, sizes, taps, pixels, places }
    }

    /// Coordinates `name0`, `name1` … of a flat index.
    fn axes(sizes: &[usize], name: &str, flat: &str) -> String {
        let mut text = String::new();
        let mut below: usize = sizes.iter().product();
        for (a, n) in sizes.iter().enumerate() {
            below /= n;
            let _ = write!(text, "const word {name}{a} = {flat} / {below} % {n};\n            ");
        }
        text
    }

    /// Statements that set `name0` … to a coordinate of `from0` … each: times a factor, plus a number.
    fn coordinates(&self, name: &str, from: &str, of: impl Fn(usize) -> (i64, i64)) -> String {
        let one = |a| {
            let (times, plus) = of(a);
            format!("const word {name}{a} = {from}{a} * ({times}) + ({plus});\n            ")
        };
        (0..self.window.axes()).map(one).collect()
    }

    /// Statements that split a flat index in two names.
    fn split(outer: &str, inner: &str, flat: &str, size: usize) -> String {
        format!("const word {outer} = {flat} / {size}, {inner} = {flat} % {size};\n            ")
    }

    fn set(name: &str, to: String) -> String {
        format!("const word {name} = {to};\n")
    }

    /// The windows' axes over the input, where `k` is a window's element or else a place.
    fn over_input(&self, elements: bool) -> Vec<Axis> {
        let (sizes, kernel) = (&self.sizes.input, &self.sizes.kernel);
        let pitches = row_major(sizes);
        let of = |a: usize| Axis {
            moves: !elements || kernel[a] > 1,
            stride: 1,
            limit: sizes[a],
            pitch: pitches[a],
        };
        (0..sizes.len()).map(of).collect()
    }

    /// The places of windows that a pixel is in, where `k` is a window's element.
    fn over_places(&self) -> Vec<Axis> {
        let (sizes, strides, kernel) = (&self.sizes.out, &self.window.stride, &self.sizes.kernel);
        let pitches = row_major(sizes);
        let of =
            |a: usize| Axis { moves: kernel[a] > 1, stride: strides[a], limit: sizes[a], pitch: pitches[a] };
        (0..sizes.len()).map(of).collect()
    }

    /// Where the window at place `p` starts: `name0` ….
    fn starts(&self, name: &str, padded: bool) -> String {
        let w = self.window;
        Self::axes(&self.sizes.out, "o", "p")
            + &self
                .coordinates(name, "o", |a| (w.stride[a] as i64, if padded { -(w.low[a] as i64) } else { 0 }))
    }

    /// How far element `t` of a window is from its start: `name0` …, less the padding if asked for.
    fn taps(&self, name: &str, padded: bool) -> String {
        let w = self.window;
        Self::axes(&self.sizes.kernel, "t", "t")
            + &self.coordinates(name, "t", |a| {
                (w.dilation[a] as i64, if padded { -(w.low[a] as i64) } else { 0 })
            })
    }

    /// Statements that store `x` as line `i` of group `b`, of so many, at place or pixel `p` of example `n`.
    fn store_place(&self, d: DType, places: usize, lines: usize) -> String {
        let at = format!("((n * {} + b) * {lines} + i) * {places} + p", self.sizes.groups);
        format!("          {}{}", Self::split("n", "p", "j", places), store(d, 2, &at, "x"))
    }

    fn tiles(
        &self,
        k: &Operands<'_>,
        [rows, columns, depth]: [usize; 3],
        [left, right]: [Factor; 2],
        store: String,
    ) -> Launches {
        Tiles {
            batch: self.sizes.groups,
            rows,
            columns,
            depth,
            dtype: k.dtype(0),
            left,
            right,
            store,
            dtypes: &k.dtypes(),
            arguments: k.arguments(),
            largest: super::text::largest(k).max(depth).max(columns),
        }
        .compile()
    }
}

/// The convolution itself.
pub(super) fn forward(op: &Convolution, k: &Operands<'_>) -> Launches {
    let parts = Parts::new(&op.window, ConvolutionSizes::new(op, k.sizes(0), k.sizes(1)));
    let (s, d) = (&parts.sizes, k.dtype(0));
    let depth = s.channels * parts.taps;
    let mut left = Factor::dense(1, format!("(b * {} + i) * {depth}", s.outputs), "k".into(), true);
    left.chunks = k.in_chunks(1) && multiple_of_8(&[depth]);
    let example = format!("(n * {} + b) * {}", s.groups, s.channels * parts.pixels);
    let right = Factor {
        parameter: 0,
        line: [
            Parts::split("n", "p", "j", parts.places),
            parts.starts("y", true),
            Parts::set("base", example),
        ]
        .concat(),
        step: [
            Parts::split("c", "t", "k", parts.taps),
            parts.taps("r", false),
            Parts::set("offset", format!("c * {}", parts.pixels)),
        ]
        .concat(),
        axes: parts.over_input(true),
        along: false,
        chunks: false,
    };
    let out = parts.store_place(d, parts.places, s.outputs);
    let sizes = [s.outputs, s.batch * parts.places, depth];
    parts.tiles(k, sizes, [left, right], out)
}

/// Its adjoint in the input.
pub(super) fn input_grad(op: &ConvolutionInputGrad, k: &Operands<'_>) -> Launches {
    let x = k.results[0].sizes();
    let parts = Parts::new(&op.window, ConvolutionSizes::new(&op.forward(), &x, k.sizes(1)));
    let (s, d, w) = (&parts.sizes, k.dtype(0), parts.window);
    let (of_output, taps) = (s.channels * parts.taps, parts.taps);
    let left = Factor {
        step: [Parts::split("o", "t", "k", taps), Parts::set("offset", format!("o * {of_output} + t"))]
            .concat(),
        ..Factor::dense(1, format!("b * {} + i * {taps}", s.outputs * of_output), String::new(), false)
    };
    let example = format!("(n * {} + b) * {}", s.groups, s.outputs * parts.places);
    let pixel = Parts::axes(&s.input, "x", "p") + &parts.coordinates("y", "x", |a| (1, w.low[a] as i64));
    let tap =
        Parts::axes(&s.kernel, "t", "t") + &parts.coordinates("r", "t", |a| (-(w.dilation[a] as i64), 0));
    let right = Factor {
        parameter: 0,
        line: [Parts::split("n", "p", "j", parts.pixels), pixel, Parts::set("base", example)].concat(),
        step: [Parts::split("o", "t", "k", taps), tap, Parts::set("offset", format!("o * {}", parts.places))]
            .concat(),
        axes: parts.over_places(),
        along: false,
        chunks: false,
    };
    let out = parts.store_place(d, parts.pixels, s.channels);
    let sizes = [s.channels, s.batch * parts.pixels, s.outputs * taps];
    parts.tiles(k, sizes, [left, right], out)
}

/// Its adjoint in the weight.
pub(super) fn weight_grad(op: &ConvolutionWeightGrad, k: &Operands<'_>) -> Launches {
    let w = k.results[0].sizes();
    let parts = Parts::new(&op.window, ConvolutionSizes::new(&op.forward(), k.sizes(0), &w));
    let (s, d) = (&parts.sizes, k.dtype(0));
    let (taps, columns) = (parts.taps, s.channels * parts.taps);
    let example = Parts::split("n", "p", "k", parts.places);
    let offset = format!("n * {} + p", s.groups * s.outputs * parts.places);
    let left = Factor {
        step: [example.clone(), Parts::set("offset", offset)].concat(),
        chunks: k.in_chunks(1) && multiple_of_8(&[parts.places]),
        ..Factor::dense(1, format!("(b * {} + i) * {}", s.outputs, parts.places), String::new(), true)
    };
    let base = format!("(b * {} + c) * {}", s.channels, parts.pixels);
    let offset = format!("n * {}", s.groups * s.channels * parts.pixels);
    let right = Factor {
        parameter: 0,
        line: [Parts::split("c", "t", "j", taps), parts.taps("y", true), Parts::set("base", base)].concat(),
        step: [example, parts.starts("r", false), Parts::set("offset", offset)].concat(),
        axes: parts.over_input(false),
        along: true,
        chunks: false,
    };
    let at = format!("(b * {} + i) * {columns} + j", s.outputs);
    let out = format!("          {}", store(d, 2, &at, "x"));
    let sizes = [s.outputs, columns, s.batch * parts.places];
    parts.tiles(k, sizes, [left, right], out)
}
