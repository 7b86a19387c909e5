//! The elementwise functions that stand between layers, by name, so that a model can hold one.

use onestep_ir::Tensor;

/// An elementwise function. The result has the operand's type, any float.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x/2 · (1 + erf(x/√2))`: PyTorch's default `gelu` (Hendrycks and Gimpel, 2016).
    Gelu,
    /// The tanh form of `gelu`, as GPT-2 uses it.
    GeluTanh,
    /// `x · sigmoid(x)`.
    Silu,
    /// The hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
}

impl Activation {
    /// The function of each element.
    #[track_caller]
    pub fn apply(self, x: Tensor<'_>) -> Tensor<'_> {
        match self {
            Activation::Relu => x.relu(),
            Activation::Gelu => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
            Activation::Silu => x.silu(),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => x.sigmoid(),
        }
    }

    /// By how much a weight before this function is scaled up, so that the variance passes through layers: √2 for ReLU (He
    /// and others, 2015), 5/3 for tanh, 1 for the others, as in PyTorch's `calculate_gain`.
    pub fn gain(self) -> f64 {
        match self {
            Activation::Relu => std::f64::consts::SQRT_2,
            Activation::Tanh => 5.0 / 3.0,
            Activation::Gelu | Activation::GeluTanh | Activation::Silu | Activation::Sigmoid => 1.0,
        }
    }
}
