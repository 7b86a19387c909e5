//! Gradient clipping: by the norm of all gradients together, or element by element.
//!
//! The limit is a state scalar (`opt/clip_norm` or `opt/clip_value`), so that it may change between steps.

use crate::OptimError;
use crate::error::check;
use onestep_ir::{DType, GraphBuilder, Init, Role, Tensor};

/// How gradients are kept from growing too large.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Clip {
    /// Scales all gradients by `min(1, max / (‖g‖ + 1e-6))`, where `‖g‖` is the 2-norm of all of them as one vector
    /// (`torch.nn.utils.clip_grad_norm_`; Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural
    /// networks", ICML 2013). An infinite limit measures the norm and changes nothing.
    GlobalNorm(f64),
    /// Limits each element to `[−max, max]` (`torch.nn.utils.clip_grad_value_`).
    Value(f64),
}

impl Clip {
    /// Refuses a limit out of range.
    pub fn check(&self) -> Result<(), OptimError> {
        let (Clip::GlobalNorm(max) | Clip::Value(max)) = *self;
        check("clip", "max", max, |x| x > 0.0, "use a number above 0")
    }

    /// The clipped gradients. `norm` is what [`global_norm`] gave; declares the limit's state in the norm's dtype.
    pub fn apply<'g>(
        &self,
        g: &'g GraphBuilder,
        gradients: &[Tensor<'g>],
        norm: Tensor<'g>,
    ) -> Vec<Tensor<'g>> {
        let limit = |name, max| g.state(name, Role::Scalar, norm.dtype(), &[], Init::Constant(max));
        match *self {
            Clip::GlobalNorm(max) => {
                let scale = (limit("opt/clip_norm", max) / (norm + 1e-6)).minimum(1.0);
                gradients.iter().map(|x| *x * scale.cast(x.dtype())).collect()
            }
            Clip::Value(max) => {
                let limit = limit("opt/clip_value", max);
                let clamp = |x: &Tensor<'g>| {
                    let limit = limit.cast(x.dtype());
                    x.minimum(limit).maximum(-limit)
                };
                gradients.iter().map(clamp).collect()
            }
        }
    }
}

/// The 2-norm of all gradients as one vector: `√Σ g²`, in `dtype`. Any infinity or NaN in them leaves it not finite.
pub fn global_norm<'g>(g: &'g GraphBuilder, gradients: &[Tensor<'g>], dtype: DType) -> Tensor<'g> {
    let squares = gradients.iter().map(|x| x.cast(dtype).square().sum_all());
    squares.reduce(|a, b| a + b).unwrap_or_else(|| g.scalar(dtype, 0.0)).sqrt()
}
