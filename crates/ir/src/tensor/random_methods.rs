//! Random tensors from [`GraphBuilder::random_bits`]: the same numbers on every device, from a key and a counter that
//! are state. For `name`, `key` and `counter`, see there. And rounding by chance.

use super::Tensor;
use crate::ops::RoundStochastic;
use crate::{DType, GraphBuilder, IntoShape};
use std::f64::consts::PI;

/// What one of 2²⁴ equal steps of [0, 1) measures.
const STEP: f64 = 1.0 / (1u64 << 24) as f64;

impl GraphBuilder {
    /// `f32` numbers from [0, 1), each a multiple of 2⁻²⁴ and equally likely.
    #[track_caller]
    pub fn random_uniform<'g>(
        &'g self,
        name: &str,
        key: Tensor<'g>,
        counter: Tensor<'g>,
        shape: impl IntoShape,
    ) -> Tensor<'g> {
        // The upper 24 bits: as many as an f32 has digits, so that no rounding reaches 1.
        self.random_bits(name, key, counter, shape).shr(8.0).cast(DType::F32) * STEP
    }

    /// Truth values, each true with probability `p`, to the next multiple of 2⁻²⁴.
    #[track_caller]
    pub fn random_bernoulli<'g>(
        &'g self,
        name: &str,
        key: Tensor<'g>,
        counter: Tensor<'g>,
        shape: impl IntoShape,
        p: f64,
    ) -> Tensor<'g> {
        self.random_uniform(name, key, counter, shape).less(p)
    }

    /// `f32` numbers of the normal distribution with mean 0 and variance 1, by the method of Box and Muller (1958): two
    /// words of bits for each.
    #[track_caller]
    pub fn random_normal<'g>(
        &'g self,
        name: &str,
        key: Tensor<'g>,
        counter: Tensor<'g>,
        shape: impl IntoShape,
    ) -> Tensor<'g> {
        let Some(mut shape) = self.shape("random_normal", shape) else {
            return Tensor { g: self, value: None };
        };
        shape.0.insert(0, 2.into());
        let u = self.random_uniform(name, key, counter, shape);
        // 1 − u is never 0, whose logarithm is infinite.
        let (radius, angle) = ((1.0 - u.at(0, 0)).log() * -2.0, u.at(0, 1) * (2.0 * PI));
        radius.sqrt() * angle.cos()
    }
}

impl<'g> Tensor<'g> {
    /// This `f32` tensor in `bf16`, each element up or down by chance so that the mean is the number itself. `bits`
    /// (`u32`, this shape) come from [`GraphBuilder::random_bits`].
    #[track_caller]
    pub fn round_stochastic(self, bits: Tensor<'g>) -> Tensor<'g> {
        self.g.emit1(RoundStochastic, &[self, bits])
    }
}
