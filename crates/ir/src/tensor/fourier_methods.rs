//! Discrete Fourier transforms along one axis, and the complex numbers that they are of: a pair of real tensors.
//!
//! A transform is a product with a table of cosines and sines, which is linear in the elements and so has its adjoint for a
//! gradient. A length with factors is split (Cooley and Tukey, "An algorithm for the machine calculation of complex
//! Fourier series", 1965), so that the tables stay small.

use super::Tensor;
use crate::{Array, Dim, Shape};
use std::f64::consts::PI;

/// The longest transform that is one product; a longer one is split where it has a factor up to this.
const DIRECT: usize = 64;

/// The longest table: for lengths whose factors are large.
const LONGEST: usize = 4096;

/// What the sums of a transform of `n` elements are multiplied by, there and back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FourierNorm {
    /// There by 1, back by 1/n.
    #[default]
    Backward,
    /// Both by 1/√n.
    Ortho,
    /// There by 1/n, back by 1.
    Forward,
}

impl FourierNorm {
    fn scale(self, n: usize, inverse: bool) -> f64 {
        match (self, inverse) {
            (FourierNorm::Ortho, _) => 1.0 / (n as f64).sqrt(),
            (FourierNorm::Backward, false) | (FourierNorm::Forward, true) => 1.0,
            (FourierNorm::Backward, true) | (FourierNorm::Forward, false) => 1.0 / n as f64,
        }
    }
}

/// Complex numbers: two tensors of one shape and one float dtype.
#[derive(Clone, Copy, Debug)]
pub struct Complex<'g> {
    /// The real parts.
    pub re: Tensor<'g>,
    /// The imaginary parts.
    pub im: Tensor<'g>,
}

impl<'g> Complex<'g> {
    /// The complex numbers whose parts stand side by side in a last axis of 2.
    #[track_caller]
    pub fn from_pairs(pairs: Tensor<'g>) -> Complex<'g> {
        Complex { re: pairs.at(-1, 0), im: pairs.at(-1, 1) }
    }

    /// Both parts side by side in a new last axis of 2.
    #[track_caller]
    pub fn pairs(self) -> Tensor<'g> {
        self.re.graph().stack(&[self.re, self.im], -1)
    }

    /// The numbers of length `size` at the angle `angle`, in radians.
    #[track_caller]
    pub fn polar(size: Tensor<'g>, angle: Tensor<'g>) -> Complex<'g> {
        Complex { re: size * angle.cos(), im: size * angle.sin() }
    }

    /// The conjugates: the imaginary parts negated.
    #[track_caller]
    pub fn conj(self) -> Complex<'g> {
        Complex { re: self.re, im: -self.im }
    }

    /// The products, element by element.
    #[track_caller]
    pub fn times(self, other: Complex<'g>) -> Complex<'g> {
        let re = self.re * other.re - self.im * other.im;
        Complex { re, im: self.re * other.im + self.im * other.re }
    }

    /// Element k is Σⱼ xⱼ·e^(−2πi·jk/n) along `axis`, cut or filled with zeros to `n` elements first where `n` is given.
    #[track_caller]
    pub fn fft(self, axis: isize, n: Option<usize>, norm: FourierNorm) -> Complex<'g> {
        fourier(self.re, Some(self.im), axis, n, norm, false)
    }

    /// The inverse of [`Complex::fft`]: the sign of the exponent and the scale are the other's.
    #[track_caller]
    pub fn ifft(self, axis: isize, n: Option<usize>, norm: FourierNorm) -> Complex<'g> {
        fourier(self.re, Some(self.im), axis, n, norm, true)
    }

    /// The inverse of [`Tensor::rfft`]: the `n` real numbers whose transform begins with these ⌊n/2⌋ + 1 elements of `axis`
    /// (cut or filled with zeros). `None` for the even number, twice the size less two.
    #[track_caller]
    pub fn irfft(self, axis: isize, n: Option<usize>, norm: FourierNorm) -> Tensor<'g> {
        let Some(size) = self.re.transformed("irfft", axis) else { return self.re.poison() };
        let n = n.unwrap_or((2 * size).saturating_sub(2));
        let Some(half) = n.checked_sub(1).map(|_| n / 2 + 1) else {
            return self.re.mistake("irfft", "a transform of no elements", "give a length of 1 at least");
        };
        let (re, im) = (self.re.resized(axis, size, half), self.im.resized(axis, size, half));
        // The rest is the mirror image of the first half, conjugated.
        let mirrored = |t: Tensor<'g>| t.slice(axis, 1, n - half + 1).reverse(&[axis]);
        let whole = |t: Tensor<'g>, mirror: Tensor<'g>| t.graph().concat(&[t, mirror], axis);
        let full = Complex { re: whole(re, mirrored(re)), im: whole(im, -mirrored(im)) };
        full.ifft(axis, None, norm).re
    }
}

impl<'g> Tensor<'g> {
    /// These real numbers as complex ones.
    #[track_caller]
    pub fn complex(self) -> Complex<'g> {
        Complex { re: self, im: self.graph().full(self.dtype(), self.shape(), 0.0) }
    }

    /// The first ⌊n/2⌋ + 1 elements of the transform of real numbers along `axis`, which are all that is not repeated: see
    /// [`Complex::fft`].
    #[track_caller]
    pub fn rfft(self, axis: isize, n: Option<usize>, norm: FourierNorm) -> Complex<'g> {
        let full = fourier(self, None, axis, n, norm, false);
        let size = full.re.axis("fft", axis).and_then(|at| full.re.shape().0[at].size());
        let half = |t: Tensor<'g>| size.map_or(t.poison(), |n| t.slice(axis, 0, n / 2 + 1));
        Complex { re: half(full.re), im: half(full.im) }
    }

    /// The size of an axis that is to be transformed; `None` and a mistake on record where it cannot be.
    #[track_caller]
    fn transformed(self, op: &str, axis: isize) -> Option<usize> {
        let at = self.axis(op, axis)?;
        let size = self.shape().0[at].size();
        if size.is_none() || !self.dtype().is_float() {
            let what = format!("axis {axis} of {} cannot be transformed", self.ty()?);
            self.mistake(op, what, "give floats, and an axis whose size is a number");
            return None;
        }
        size
    }

    /// An axis of `size` elements cut or filled with zeros to `n`.
    #[track_caller]
    fn resized(self, axis: isize, size: usize, n: usize) -> Tensor<'g> {
        match n.cmp(&size) {
            std::cmp::Ordering::Less => self.slice(axis, 0, n),
            std::cmp::Ordering::Equal => self,
            std::cmp::Ordering::Greater => self.pad(axis, 0, n - size, 0.0),
        }
    }
}

/// The transform of `re + i·im` along an axis; without imaginary parts, half the products.
#[track_caller]
fn fourier<'g>(
    re: Tensor<'g>,
    im: Option<Tensor<'g>>,
    axis: isize,
    n: Option<usize>,
    norm: FourierNorm,
    inverse: bool,
) -> Complex<'g> {
    let poison = Complex { re: re.poison(), im: re.poison() };
    let Some(size) = re.transformed("fft", axis) else { return poison };
    let n = n.unwrap_or(size);
    if n == 0 || largest(n) > LONGEST {
        let what = format!("a transform of {n} elements");
        re.mistake("fft", what, format!("give a length of 1 at least, with prime factors up to {LONGEST}"));
        return poison;
    }
    // The axis last; a vector is a matrix of one row.
    let Some(at) = re.axis("fft", axis) else { return poison };
    let (rank, dtype) = (re.rank(), re.dtype());
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(at, rank - 1);
    let moved = |t: Tensor<'g>| {
        let rows = t.wide().resized(axis, size, n).transpose(&order);
        if rank == 1 { rows.expand(0) } else { rows }
    };
    let whole = rows(moved(re), im.map(moved), n, inverse);
    let scale = norm.scale(n, inverse);
    let back = |t: Tensor<'g>| {
        let t = if scale == 1.0 { t } else { t * scale };
        (if rank == 1 { t.squeeze(0) } else { t.transpose(&order) }).cast(dtype)
    };
    Complex { re: back(whole.re), im: back(whole.im) }
}

/// The transform of the last axis, of `n` elements.
#[track_caller]
fn rows<'g>(re: Tensor<'g>, im: Option<Tensor<'g>>, n: usize, inverse: bool) -> Complex<'g> {
    let split = (2..=DIRECT).rev().find(|a| n.is_multiple_of(*a));
    let Some(a) = split.filter(|_| n > DIRECT) else { return direct(re, im, n, inverse) };
    // With j = j₁·b + j₂ and k = k₁ + a·k₂: transforms of a over j₁, turned by j₂·k₁/n, then transforms of b over j₂.
    let b = n / a;
    let lead = re.shape().0[..re.rank() - 1].to_vec();
    let with =
        |sizes: &[usize]| Shape([lead.clone(), sizes.iter().copied().map(Dim::fixed).collect()].concat());
    let apart = |t: Tensor<'g>| t.reshape(with(&[a, b])).transpose_last();
    let inner = direct(apart(re), im.map(apart), a, inverse);
    let turned = inner.times(table(re, b, a, n, inverse));
    let outer = rows(turned.re.transpose_last(), Some(turned.im.transpose_last()), b, inverse);
    let joined = |t: Tensor<'g>| t.transpose_last().reshape(with(&[n]));
    Complex { re: joined(outer.re), im: joined(outer.im) }
}

/// The transform of the last axis as products with one table.
#[track_caller]
fn direct<'g>(re: Tensor<'g>, im: Option<Tensor<'g>>, n: usize, inverse: bool) -> Complex<'g> {
    let w = table(re, n, n, n, inverse);
    let Some(im) = im else { return Complex { re: re.matmul(w.re), im: re.matmul(w.im) } };
    Complex { re: re.matmul(w.re) - im.matmul(w.im), im: re.matmul(w.im) + im.matmul(w.re) }
}

/// e^(∓2πi·jk/n) for rows j and columns k, in the dtype of `like`.
#[track_caller]
fn table<'g>(like: Tensor<'g>, rows: usize, columns: usize, n: usize, inverse: bool) -> Complex<'g> {
    let sign = if inverse { 1.0 } else { -1.0 };
    let places = (0..rows).flat_map(|j| (0..columns).map(move |k| j * k % n));
    let (re, im): (Vec<f64>, Vec<f64>) = places.map(|r| unit(r, n)).map(|(c, s)| (c, sign * s)).unzip();
    let constant = |data: &[f64]| match Array::from_f64(like.dtype(), &[rows, columns], data) {
        Ok(array) => like.graph().constant(array),
        Err(e) => like.mistake("fft", e.to_string(), "transform a float tensor"),
    };
    Complex { re: constant(&re), im: constant(&im) }
}

/// Cosine and sine of the `r`-th of `n` parts of a turn; exact at quarters.
fn unit(r: usize, n: usize) -> (f64, f64) {
    match 4 * r {
        0 => (1.0, 0.0),
        q if q == n => (0.0, 1.0),
        q if q == 2 * n => (-1.0, 0.0),
        q if q == 3 * n => (0.0, -1.0),
        _ => {
            let angle = 2.0 * PI * r as f64 / n as f64;
            (libm::cos(angle), libm::sin(angle))
        }
    }
}

/// The largest table that a transform of `n` elements needs.
fn largest(n: usize) -> usize {
    let (mut rest, mut most) = (n, 1);
    while rest > DIRECT {
        let Some(a) = (2..=DIRECT).rev().find(|a| rest.is_multiple_of(*a)) else { return rest };
        most = most.max(a);
        rest /= a;
    }
    most.max(rest)
}
