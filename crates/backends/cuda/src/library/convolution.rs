//! Convolution and its two gradients, each as one product by [`Tiles`] for every group, which gathers windows as it loads:
//!
//! | result | rows | columns | summed |
//! |---|---|---|---|
//! | `y` | outputs | examples × places | channels × kernel |
//! | `dx` | channels | examples × pixels | outputs × kernel |
//! | `dw` | outputs | channels × kernel | examples × places |

use super::text::store;
use super::tiles::{Factor, Tiles};
use super::{Launches, Operands};
use onestep_ir::ops::{Convolution, ConvolutionInputGrad, ConvolutionSizes, ConvolutionWeightGrad, Window};
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
            let _ = writeln!(text, "          const word {name}{a} = {flat} / {below} % {n};");
        }
        text
    }

    /// The flat index of coordinates.
    fn flat(sizes: &[usize], name: &str) -> String {
        (0..sizes.len()).fold("0".into(), |text, a| format!("({text}) * {} + {name}{a}", sizes[a]))
    }

    /// Statements that set `inside`, and `x0` … to the pixel that element `t0` … of the window at place `o0` … meets.
    fn pixel(&self) -> String {
        let (w, mut text) = (self.window, String::from("          bool inside = true;\n"));
        for a in 0..w.axes() {
            let _ = writeln!(
                text,
                "          const word x{a} = o{a} * {} + t{a} * {} - {};\n          inside &= x{a} >= 0 && x{a} < {};",
                w.stride[a], w.dilation[a], w.low[a], self.sizes.input[a]
            );
        }
        text
    }

    /// Statements that set `inside`, and `o0` … to the place whose element `t0` … is pixel `x0` ….
    fn place(&self) -> String {
        let (w, mut text) = (self.window, String::from("          bool inside = true;\n"));
        for a in 0..w.axes() {
            let _ = writeln!(
                text,
                "          const word s{a} = x{a} + {} - t{a} * {}, o{a} = s{a} / {};\n          inside &= s{a} >= 0 && s{a} % {} == 0 && o{a} < {};",
                w.low[a], w.dilation[a], w.stride[a], w.stride[a], self.sizes.out[a]
            );
        }
        text
    }

    /// Element of the input: channel `c` of group `b` of example `n`.
    fn x(&self, pixel: &str) -> String {
        let s = &self.sizes;
        format!("((n * {} + b) * {} + c) * {} + {pixel}", s.groups, s.channels, self.pixels)
    }

    /// Element of the output: output `o` of group `b` of example `n`.
    fn y(&self, o: &str, place: &str) -> String {
        let s = &self.sizes;
        format!("((n * {} + b) * {} + {o}) * {} + {place}", s.groups, s.outputs, self.places)
    }

    /// Element of the weight.
    fn w(&self, o: &str, rest: &str) -> String {
        format!("(b * {} + {o}) * {} + {rest}", self.sizes.outputs, self.sizes.channels * self.taps)
    }

    /// Statements that split a flat index in two names.
    fn split(outer: &str, inner: &str, flat: &str, size: usize) -> String {
        format!("          const word {outer} = {flat} / {size}, {inner} = {flat} % {size};\n")
    }

    /// The input where window element `t` of place `p` meets it, both of which the statements `before` set.
    fn window_of_x(&self, before: [String; 2]) -> Factor {
        let s = &self.sizes;
        let windows = [Self::axes(&s.kernel, "t", "t"), Self::axes(&s.out, "o", "p"), self.pixel()];
        Factor {
            parameter: 0,
            statements: before.concat() + &windows.concat(),
            padded: true,
            at: self.x(&format!("({})", Self::flat(&s.input, "x"))),
            along: false,
        }
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
    let left = Factor::dense(1, String::new(), parts.w("i", "k"), true);
    let right = parts
        .window_of_x([Parts::split("c", "t", "k", parts.taps), Parts::split("n", "p", "j", parts.places)]);
    let out =
        Parts::split("n", "p", "j", parts.places) + "          " + &store(d, 2, &parts.y("i", "p"), "x");
    let sizes = [s.outputs, s.batch * parts.places, s.channels * parts.taps];
    parts.tiles(k, sizes, [left, right], out)
}

/// Its adjoint in the input.
pub(super) fn input_grad(op: &ConvolutionInputGrad, k: &Operands<'_>) -> Launches {
    let x = k.results[0].sizes();
    let parts = Parts::new(&op.window, ConvolutionSizes::new(&op.forward(), &x, k.sizes(1)));
    let (s, d) = (&parts.sizes, k.dtype(0));
    let weight = parts.w("o", &format!("i * {} + t", parts.taps));
    let left = Factor::dense(1, Parts::split("o", "t", "k", parts.taps), weight, false);
    let statements = [
        Parts::split("o", "t", "k", parts.taps),
        Parts::split("n", "p", "j", parts.pixels),
        Parts::axes(&s.kernel, "t", "t"),
        Parts::axes(&s.input, "x", "p"),
        parts.place(),
    ]
    .concat();
    let at = parts.y("o", &format!("({})", Parts::flat(&s.out, "o")));
    let right = Factor { parameter: 0, statements, padded: true, at, along: false };
    let at = parts.x("p").replace("+ c)", "+ i)");
    let out = Parts::split("n", "p", "j", parts.pixels) + "          " + &store(d, 2, &at, "x");
    let sizes = [s.channels, s.batch * parts.pixels, s.outputs * parts.taps];
    parts.tiles(k, sizes, [left, right], out)
}

/// Its adjoint in the weight.
pub(super) fn weight_grad(op: &ConvolutionWeightGrad, k: &Operands<'_>) -> Launches {
    let w = k.results[0].sizes();
    let parts = Parts::new(&op.window, ConvolutionSizes::new(&op.forward(), k.sizes(0), &w));
    let (s, d) = (&parts.sizes, k.dtype(0));
    let left = Factor::dense(1, Parts::split("n", "p", "k", parts.places), parts.y("i", "p"), true);
    let right = parts
        .window_of_x([Parts::split("n", "p", "k", parts.places), Parts::split("c", "t", "j", parts.taps)]);
    let right = Factor { along: true, ..right };
    let out = format!("          {}", store(d, 2, &parts.w("i", "j"), "x"));
    let sizes = [s.outputs, s.channels * parts.taps, s.batch * parts.places];
    parts.tiles(k, sizes, [left, right], out)
}
