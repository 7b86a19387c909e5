//! Gradients of the three convolutions. `y = convolution(x, w)` is linear in each operand, `convolution_input_grad` and
//! `convolution_weight_grad` are its adjoints, and the adjoint of an adjoint is the op itself: the three are closed under
//! differentiation.

use super::{At, Cotangents, Gradient, sizes};
use onestep_ir::Tensor;
use onestep_ir::ops::{Convolution, ConvolutionInputGrad, ConvolutionWeightGrad};

/// The three ops of one window, on tensors of the types that the forward op has.
struct Three<'a>(&'a Convolution);

impl Three<'_> {
    fn y<'g>(&self, x: Tensor<'g>, w: Tensor<'g>) -> Tensor<'g> {
        x.graph().emit1(self.0.clone(), &[x, w])
    }
    /// `like` has the type of x.
    fn x<'g>(&self, dy: Tensor<'g>, w: Tensor<'g>, like: Tensor<'g>) -> Tensor<'g> {
        let Convolution { window, groups } = self.0.clone();
        let input_size = sizes(like).into_iter().skip(2).collect();
        dy.graph().emit1(ConvolutionInputGrad { window, groups, input_size }, &[dy, w])
    }
    /// `like` has the type of w.
    fn w<'g>(&self, x: Tensor<'g>, dy: Tensor<'g>, like: Tensor<'g>) -> Tensor<'g> {
        let Convolution { window, groups } = self.0.clone();
        let kernel_size = sizes(like).into_iter().skip(2).collect();
        x.graph().emit1(ConvolutionWeightGrad { window, groups, kernel_size }, &[x, dy])
    }
}

impl Gradient for Convolution {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let ([x, w], dy, ops) = ([at.operands[0], at.operands[1]], at.dy(), Three(self));
        Some(vec![at.want(0, || ops.x(dy, w, x)), at.want(1, || ops.w(x, dy, w))])
    }
}

impl Gradient for ConvolutionInputGrad {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let forward = self.forward();
        let ([dy, w], dx, ops) = ([at.operands[0], at.operands[1]], at.dy(), Three(&forward));
        Some(vec![at.want(0, || ops.y(dx, w)), at.want(1, || ops.w(dx, dy, w))])
    }
}

impl Gradient for ConvolutionWeightGrad {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let forward = self.forward();
        let ([x, dy], dw, ops) = ([at.operands[0], at.operands[1]], at.dy(), Three(&forward));
        Some(vec![at.want(0, || ops.x(dy, dw, x)), at.want(1, || ops.y(x, dw))])
    }
}
