//! Activations composed of other functions. Each is computed in `f32` at least and rounded once.

use super::Tensor;

/// The scale and α of SELU (Klambauer et al., 2017).
const SELU: (f64, f64) = (1.050_700_987_355_480_5, 1.673_263_242_354_377_2);

impl<'g> Tensor<'g> {
    /// log(1 + eˣ), exact at both ends.
    #[track_caller]
    pub fn softplus(self) -> Tensor<'g> {
        let x = self.wide();
        // The larger of x and 0, whose slope at 0 is half: there the two halves make up σ(0).
        (x.maximum(0.0) + (-x.abs()).exp().log_1p()).cast(self.dtype())
    }

    /// log σ(x), exact also where σ(x) is tiny.
    #[track_caller]
    pub fn log_sigmoid(self) -> Tensor<'g> {
        -(-self).softplus()
    }

    /// x above 0 and α·(eˣ − 1) below.
    #[track_caller]
    pub fn elu(self, alpha: f64) -> Tensor<'g> {
        self.exponential(1.0, alpha, 1.0)
    }

    /// The scaled [`Tensor::elu`] that keeps mean 0 and variance 1.
    #[track_caller]
    pub fn selu(self) -> Tensor<'g> {
        self.exponential(SELU.0, SELU.0 * SELU.1, 1.0)
    }

    /// x above 0 and α·(e^(x/α) − 1) below: [`Tensor::elu`] with a continuous slope.
    #[track_caller]
    pub fn celu(self, alpha: f64) -> Tensor<'g> {
        self.exponential(1.0, alpha, 1.0 / alpha)
    }

    /// `scale`·x above 0 and `alpha`·(e^(`rate`·x) − 1) below, where the exponential never sees a positive number.
    #[track_caller]
    fn exponential(self, scale: f64, alpha: f64, rate: f64) -> Tensor<'g> {
        let x = self.wide();
        let above = x.greater(0.0);
        let below = (above.select(0.0, x) * rate).exp_m1() * alpha;
        above.select(x * scale, below).cast(self.dtype())
    }

    /// x·tanh(log(1 + eˣ)).
    #[track_caller]
    pub fn mish(self) -> Tensor<'g> {
        let x = self.wide();
        (x * x.softplus().tanh()).cast(self.dtype())
    }

    /// x held between two numbers, and flat at both: unlike [`Tensor::clamp`], the gradient there is 0. NaN stays.
    #[track_caller]
    pub fn hard_tanh(self, low: f64, high: f64) -> Tensor<'g> {
        let x = self.less_equal(low).select(low, self);
        x.greater_equal(high).select(high, x)
    }

    /// (x + 3)/6 held between 0 and 1.
    #[track_caller]
    pub fn hard_sigmoid(self) -> Tensor<'g> {
        ((self.wide() + 3.0).hard_tanh(0.0, 6.0) / 6.0).cast(self.dtype())
    }

    /// x·[`hard_sigmoid`](Tensor::hard_sigmoid)(x).
    #[track_caller]
    pub fn hard_swish(self) -> Tensor<'g> {
        let x = self.wide();
        (x * (x + 3.0).hard_tanh(0.0, 6.0) / 6.0).cast(self.dtype())
    }

    /// x above 0 and `slope`·x below.
    #[track_caller]
    pub fn leaky_relu(self, slope: f64) -> Tensor<'g> {
        self.greater(0.0).select(self, self * slope)
    }

    /// x above 0 and `weight`·x below. The weight is broadcast: `[channels, 1, 1]` for `[batch, channels, h, w]`.
    #[track_caller]
    pub fn prelu(self, weight: Tensor<'g>) -> Tensor<'g> {
        self.greater(0.0).select(self, self * weight)
    }

    /// x/(1 + |x|).
    #[track_caller]
    pub fn softsign(self) -> Tensor<'g> {
        let x = self.wide();
        (x / (x.abs() + 1.0)).cast(self.dtype())
    }

    /// The gated linear unit: the first half along `axis`, of even size, times the sigmoid of the second.
    #[track_caller]
    pub fn glu(self, axis: isize) -> Tensor<'g> {
        let halves = self.chunk(axis, 2);
        halves[0] * halves[1].sigmoid()
    }

    /// SwiGLU (Shazeer, 2020): `silu` of the first half along `axis`, of even size, times the second.
    #[track_caller]
    pub fn swiglu(self, axis: isize) -> Tensor<'g> {
        let halves = self.chunk(axis, 2);
        halves[0].silu() * halves[1]
    }

    /// GeGLU (Shazeer, 2020): `gelu` of the first half along `axis`, of even size, times the second.
    #[track_caller]
    pub fn geglu(self, axis: isize) -> Tensor<'g> {
        let halves = self.chunk(axis, 2);
        halves[0].gelu() * halves[1]
    }
}
