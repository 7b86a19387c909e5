//! Differentiation, graph to graph, in reverse and forward mode: the derivative is appended to the graph under
//! construction, and is then nothing but more of the same graph. It can be printed, interpreted, optimised, and
//! differentiated again.
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
//! Reverse mode is one sweep from the outputs back ([`vjp`]). Only nodes on a path from an output to a wanted value are visited; a
//! value used several times gets the sum of its uses' cotangents. What a node passes back is its op's *rule*, a file
//! in `rules/` of the same name as the op's own file. A composite without a rule is differentiated through its
//! decomposition. Forward mode ([`jvp`]) is the same on the way from the inputs on, with rules in `forward/rules/`; for
//! most ops the rule is the op itself on tangents. A Hessian times a vector ([`hvp`]) is forward over reverse.
//!
//! [`vmap`] maps a graph over members that share some of its inputs and state: several runs in one.
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
mod forward;
mod recompute;
mod rules;
mod sums;
mod vmap;

pub use error::AutodiffError;
pub use recompute::{activations_again, segmented};
pub use rules::without_gradient;
pub use vmap::{Names, Over, VmapError, vmap};

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
///
/// ```
/// use onestep_autodiff::vjp;
/// use onestep_ir::{DType, GraphBuilder};
///
/// let g = GraphBuilder::new("rows");
/// let (x, w) = (g.input("x", DType::F32, [4, 3]), g.input("w", DType::F32, [3, 2]));
/// let cotangent = g.input("cotangent", DType::F32, [4, 2]);
/// let dw = vjp(&g, &[(x.matmul(w), cotangent)], &[w])?[0].expect("the product depends on w");
/// assert_eq!(dw.ty(), w.ty()); // xᵀ · cotangent
/// # Ok::<(), onestep_autodiff::AutodiffError>(())
/// ```
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

/// Forward mode: given a tangent for each input, the tangent of each output, that is
/// Σᵢ ∂ outputₖ / ∂ inputᵢ · tangentᵢ; `None` where an output depends on no input. A tangent has its input's type.
///
/// The inputs may be any float values of the graph. Where one depends on another, the tangent given for it is added to
/// the one that reaches it, so that `jvp` is the transpose of [`vjp`]: ⟨v, jvp(t)⟩ = ⟨vjp(v), t⟩.
///
/// ```
/// use onestep_autodiff::jvp;
/// use onestep_ir::{DType, GraphBuilder};
///
/// let g = GraphBuilder::new("slope");
/// let (x, direction) = (g.input("x", DType::F32, [3]), g.input("direction", DType::F32, [3]));
/// let slope = jvp(&g, &[x.square().sum_all()], &[(x, direction)])?[0].expect("the result depends on x");
/// assert_eq!(slope.rank(), 0); // 2·⟨x, direction⟩
/// # Ok::<(), onestep_autodiff::AutodiffError>(())
/// ```
#[track_caller]
pub fn jvp<'g>(
    g: &'g GraphBuilder,
    outputs: &[Tensor<'g>],
    inputs: &[(Tensor<'g>, Tensor<'g>)],
) -> Result<Vec<Option<Tensor<'g>>>, AutodiffError> {
    for (i, (input, tangent)) in inputs.iter().enumerate() {
        let want = backward::check(&format!("input {i}"), g, *input)?;
        let got = backward::check(&format!("tangent {i}"), g, *tangent)?;
        if want != got {
            return Err(AutodiffError::Tangent { index: i, want: Box::new(want), got: Box::new(got) });
        }
    }
    for (i, y) in outputs.iter().enumerate() {
        backward::check(&format!("output {i}"), g, *y)?;
    }
    forward::sweep(g, outputs, inputs, backward::Extent::Whole)
}

/// The Hessian of `loss` times a vector, without the Hessian: for each value `xᵢ` with its vector `vᵢ`,
/// Σⱼ ∂² loss / ∂xᵢ∂xⱼ · vⱼ, of `xᵢ`'s type; `None` where the loss's slope along `xᵢ` depends on none of the values.
///
/// Forward over reverse: the gradient's derivative along the vector, at about twice the gradient's cost (Pearlmutter,
/// "Fast exact multiplication by the Hessian", 1994). `loss` is a scalar.
///
/// ```
/// use onestep_autodiff::hvp;
/// use onestep_ir::{DType, GraphBuilder};
///
/// let g = GraphBuilder::new("curvature");
/// let (x, v) = (g.input("x", DType::F32, [3]), g.input("v", DType::F32, [3]));
/// let product = hvp(&g, (x * x * x).sum_all(), &[(x, v)])?[0].expect("x is cubed"); // 6·x·v
/// assert_eq!(product.ty(), x.ty());
/// # Ok::<(), onestep_autodiff::AutodiffError>(())
/// ```
#[track_caller]
pub fn hvp<'g>(
    g: &'g GraphBuilder,
    loss: Tensor<'g>,
    at: &[(Tensor<'g>, Tensor<'g>)],
) -> Result<Vec<Option<Tensor<'g>>>, AutodiffError> {
    let wrt: Vec<Tensor<'g>> = at.iter().map(|a| a.0).collect();
    let slopes = gradients(g, loss, &wrt)?;
    let some: Vec<Tensor<'g>> = slopes.iter().flatten().copied().collect();
    let mut moved = jvp(g, &some, at)?.into_iter();
    Ok(slopes.iter().map(|slope| slope.and_then(|_| moved.next().flatten())).collect())
}
