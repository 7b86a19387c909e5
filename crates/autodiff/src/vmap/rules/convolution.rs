//! The three convolutions. Members that differ in the data alone are more examples; members with kernels of their own are
//! more groups of channels, or, of one group over shared data, just more outputs.

use super::{At, Batch, merged, parted};
use crate::rules::sizes;
use onestep_ir::Tensor;
use onestep_ir::ops::{Convolution, ConvolutionInputGrad, ConvolutionWeightGrad};

/// `[members, examples, channels, …]` as `[examples, members·channels, …]`.
fn channels(t: Tensor<'_>) -> Tensor<'_> {
    let t = t.transpose(&swapped(t.rank()));
    let of = sizes(t);
    t.reshape(&[&[of[0], of[1] * of[2]], &of[3..]].concat()[..])
}

/// The reverse.
fn members(t: Tensor<'_>, size: usize) -> Tensor<'_> {
    let of = sizes(t);
    let t = t.reshape(&[&[of[0], size, of[1] / size], &of[2..]].concat()[..]);
    t.transpose(&swapped(t.rank()))
}

/// The first two axes swapped.
fn swapped(rank: usize) -> Vec<usize> {
    [1, 0].into_iter().chain(2..rank).collect()
}

impl Batch for Convolution {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        if !at.mapped(1) {
            let y = at.g.emit1(self.clone(), &[merged(at.wide(0)), at.operand(1)]);
            return Some(vec![parted(y, at.size)]);
        }
        let w = merged(at.wide(1));
        let y = if !at.mapped(0) && self.groups == 1 {
            at.g.emit1(self.clone(), &[at.operand(0), w])
        } else {
            let op = Convolution { groups: at.size * self.groups, ..self.clone() };
            at.g.emit1(op, &[channels(at.wide(0)), w])
        };
        Some(vec![members(y, at.size)])
    }
}

impl Batch for ConvolutionInputGrad {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        if !at.mapped(1) {
            let dx = at.g.emit1(self.clone(), &[merged(at.wide(0)), at.operand(1)]);
            return Some(vec![parted(dx, at.size)]);
        }
        let op = ConvolutionInputGrad { groups: at.size * self.groups, ..self.clone() };
        let dx = at.g.emit1(op, &[channels(at.wide(0)), merged(at.wide(1))]);
        Some(vec![members(dx, at.size)])
    }
}

impl Batch for ConvolutionWeightGrad {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        let dy = channels(at.wide(1));
        let dw = if !at.mapped(0) && self.groups == 1 {
            at.g.emit1(self.clone(), &[at.operand(0), dy])
        } else {
            let op = ConvolutionWeightGrad { groups: at.size * self.groups, ..self.clone() };
            at.g.emit1(op, &[channels(at.wide(0)), dy])
        };
        Some(vec![parted(dw, at.size)])
    }
}
