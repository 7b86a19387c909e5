//! Random scans: carries that swap, feed each other or hand themselves on, weights from outside, scans in scans.

use super::Maker;
use crate::{DType, ScanOptions, Shape, Tensor};

/// The longest vector whose products with itself are taken.
const SHORT: usize = 16;

impl<'g> Maker<'g> {
    pub(super) fn scan(&mut self) -> Tensor<'g> {
        let x = self.real();
        if x.rank() == 0 {
            return self.unary();
        }
        let same: Vec<Tensor<'g>> = self.reals.iter().copied().filter(|t| t.shape() == x.shape()).collect();
        let other = self.rng.pick(&same);
        let weight = self.real().sum_all().tanh();
        let first = self.first_carry(Shape(x.shape().0[1..].to_vec()));
        let count = self.g.scalar(DType::I32, 0.0);
        let (kind, integers) = (self.rng.below(4), self.options.integers && self.rng.chance(2));
        let squares = x.rank() == 2 && first.shape().sizes().is_some_and(|s| s[0] <= SHORT);
        let (nested, products) = (self.rng.chance(3) && x.rank() > 1, squares && self.rng.chance(2));
        let options = ScanOptions { length: None, reverse: self.rng.chance(2) };
        let mut carries = vec![first, x.sum(&[0]).tanh()];
        carries.extend(integers.then_some(count));
        let body = |c: &[Tensor<'g>], s: &[Tensor<'g>]| {
            let shape = c[0].shape();
            let mut a = (c[0] * weight.broadcast(&shape) + s[0] * 0.5).tanh();
            if products {
                a = (a.expand(1).matmul(c[1].expand(0)).sum(&[1]) * 0.1).tanh() + a * 0.5;
            }
            if nested {
                let zero = self.g.scalar(DType::F32, 0.0);
                let inner = self.g.scan(&[zero, weight], &[a], ScanOptions::reversed(), |d, e| {
                    let next = (d[0] * d[1].sin()).tanh() + e[0].sum_all().tanh();
                    (vec![next * 0.5, d[1]], vec![e[0] * next.broadcast(&e[0].shape())])
                });
                a = (inner.outputs[0] + inner.carries[0].broadcast(&shape)).tanh();
            }
            let next = match kind {
                0 => vec![c[1], a],
                1 => vec![a, c[1]],
                2 => vec![a, (a - c[1]) * 0.5],
                _ => vec![(a * s[1]).sin(), s[0].tanh()],
            };
            let mut outputs = vec![next[0], (c[1] * s[1]).tanh()];
            outputs.extend(c.get(2).map(|n| n.cast(DType::F32).sin().broadcast(&shape)));
            (next.into_iter().chain(c.get(2).map(|n| *n + 3.0)).collect(), outputs)
        };
        let done = self.g.scan(&carries, &[x, other], options, body);
        done.carries.iter().chain(&done.outputs).for_each(|t| self.keep(*t));
        done.outputs[1]
    }

    /// A tensor of this shape for a carry to begin with.
    fn first_carry(&mut self, shape: Shape) -> Tensor<'g> {
        let fits: Vec<Tensor<'g>> = self.reals.iter().copied().filter(|t| t.shape() == shape).collect();
        if fits.is_empty() || self.rng.chance(3) {
            let value = self.rng.real();
            return self.g.full(DType::F32, shape, value);
        }
        self.rng.pick(&fits)
    }
}
