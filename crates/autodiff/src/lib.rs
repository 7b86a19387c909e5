//! Reverse-mode differentiation, graph to graph: the backward pass is appended to the graph under construction, and
//! is then nothing but more of the same graph. It can be printed, interpreted, optimised, and differentiated again.
//!
//! ```
//! use onestep_autodiff::gradients;
//! use onestep_ir::{DType, GraphBuilder};
//!
//! let g = GraphBuilder::new("square");
//! let x = g.input("x", DType::F32, [3]);
//! let loss = x.square().sum_all();
//! let dx = gradients(&g, loss, &[x])?[0].expect("the loss depends on x");
//! assert_eq!(dx.ty(), x.ty());
//! # Ok::<(), onestep_autodiff::AutodiffError>(())
//! ```
//!
//! # Method
//!
//! One sweep from the outputs back ([`vjp`]). Only nodes on a path from an output to a wanted value are visited; a
//! value used several times gets the sum of its uses' cotangents. What a node passes back is its op's *rule*, a file
//! in `rules/` of the same name as the op's own file. A composite without a rule is differentiated through its
//! decomposition.
//!
//! # Conventions
//!
//! Those of PyTorch: the derivative of `relu` and `abs` at 0 is 0, equal operands of `max` and `min` share the
//! cotangent, as do equal elements of a reduction; `floor`, `ceil`, `round`, `trunc` and `sign` have gradient 0;
//! d/da aᵇ is 0 at b = 0, and d/db aᵇ is 0 at a = 0, b ≥ 0. A cotangent has the dtype of its value; formulas of more
//! than one op are computed in `f32` at least and rounded once. Integers and truth values carry no gradient: a path
//! through a comparison, an index or a cast to an integer is no path.

mod backward;
mod error;
mod recompute;
mod rules;

pub use error::AutodiffError;
pub use recompute::segmented;
pub use rules::without_gradient;

use onestep_ir::{GraphBuilder, Tensor};

/// Appends the backward graph of `loss` and gives d `loss` / d `wrt[i]` for each `i`; `None` where the loss does not
/// depend on it. The values in `wrt` may be any float values of the graph, not only inputs and state.
#[track_caller]
pub fn gradients<'g>(
    g: &'g GraphBuilder,
    loss: Tensor<'g>,
    wrt: &[Tensor<'g>],
) -> Result<Vec<Option<Tensor<'g>>>, AutodiffError> {
    let ty = backward::check("the loss", g, loss)?;
    if ty.shape.rank() != 0 {
        return Err(AutodiffError::NotScalar { ty: Box::new(ty) });
    }
    vjp(g, &[(loss, g.scalar(ty.dtype, 1.0))], wrt)
}

/// The general form: given a cotangent for each output, the cotangent of each value in `wrt`, that is
/// Σₖ (∂ outputₖ / ∂ wrtᵢ)ᵀ · cotangentₖ. A cotangent has its output's type.
#[track_caller]
pub fn vjp<'g>(
    g: &'g GraphBuilder,
    outputs: &[(Tensor<'g>, Tensor<'g>)],
    wrt: &[Tensor<'g>],
) -> Result<Vec<Option<Tensor<'g>>>, AutodiffError> {
    for (i, (output, cotangent)) in outputs.iter().enumerate() {
        let want = backward::check(&format!("output {i}"), g, *output)?;
        let got = backward::check(&format!("cotangent {i}"), g, *cotangent)?;
        if want != got {
            return Err(AutodiffError::Cotangent { index: i, want: Box::new(want), got: Box::new(got) });
        }
    }
    for (i, x) in wrt.iter().enumerate() {
        backward::check(&format!("wrt[{i}]"), g, *x)?;
    }
    backward::sweep(g, outputs, wrt, backward::Extent::Whole)
}
