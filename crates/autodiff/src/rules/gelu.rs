//! Gradient of `gelu`. Exact form x·Φ(x): dx = dy·(Φ(x) + x·φ(x)), with the normal distribution Φ and its density φ.
//! Tanh form, with t = tanh(k·(x + c·x³)): dx = dy/2·(1 + t + x·(1 − t²)·k·(1 + 3c·x²)).

use super::{At, Cotangents, Gradient, wide};
use onestep_ir::ops::Gelu;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

impl Gradient for Gelu {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (x, dy) = (wide(at.x()), wide(at.dy()));
        let slope = if self.tanh {
            let (k, c) = (Gelu::SQRT_2_OVER_PI, Gelu::CUBIC);
            let t = ((x + x * c * x * x) * k).tanh();
            (t + 1.0 + x * (1.0 - t * t) * (x * x * (3.0 * c) + 1.0) * k) * 0.5
        } else {
            let density = (x * x * -0.5).exp() * (0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
            ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5 + x * density
        };
        Some(vec![Some((dy * slope).cast(at.x().dtype()))])
    }
}
