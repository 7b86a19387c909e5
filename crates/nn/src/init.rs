//! Named initialisations of weights, as published.

use onestep_ir::Init;

/// How the weight of a layer with `inputs` and `outputs` features starts.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum WeightInit {
    /// Uniform in `±1/√inputs`: PyTorch's default of `nn.Linear`, which spells it `kaiming_uniform_(a=√5)`.
    #[default]
    Torch,
    /// Uniform in `±√(6/inputs)` (He and others, "Delving deep into rectifiers", 2015): for ReLU.
    KaimingUniform,
    /// Normal with variance `2/inputs` (the same paper): for ReLU.
    KaimingNormal,
    /// Uniform in `±√(6/(inputs + outputs))` (Glorot and Bengio, "Understanding the difficulty of training deep
    /// feedforward neural networks", 2010): for tanh.
    XavierUniform,
    /// Normal with variance `2/(inputs + outputs)` (the same paper): for tanh.
    XavierNormal,
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// Any other.
    Given(Init),
}

impl WeightInit {
    /// Normal with standard deviation 0.02, as in GPT-2.
    pub const GPT2: WeightInit = WeightInit::Normal(0.02);

    /// The initialisation of a weight between so many features. Zero features count as one.
    pub fn init(self, inputs: usize, outputs: usize) -> Init {
        let fan_in = inputs.max(1) as f64;
        let both = fan_in + outputs as f64;
        let uniform = |bound: f64| Init::Uniform { low: -bound, high: bound };
        let normal = |std: f64| Init::Normal { mean: 0.0, std };
        match self {
            WeightInit::Torch => uniform(1.0 / fan_in.sqrt()),
            WeightInit::KaimingUniform => uniform((6.0 / fan_in).sqrt()),
            WeightInit::KaimingNormal => normal((2.0 / fan_in).sqrt()),
            WeightInit::XavierUniform => uniform((6.0 / both).sqrt()),
            WeightInit::XavierNormal => normal((2.0 / both).sqrt()),
            WeightInit::Normal(std) => normal(std),
            WeightInit::Given(init) => init,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onestep_ir::DType;

    /// Mean, standard deviation and largest magnitude of a 300 × 500 weight.
    fn statistics(weight: WeightInit) -> (f64, f64, f64) {
        let values = weight.init(500, 300).array(DType::F32, &[300, 500], 3, "w").unwrap().to_f64();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        (mean, variance.sqrt(), values.iter().fold(0.0, |a, x| x.abs().max(a)))
    }

    /// The bounds and deviations are those that `torch.nn.init` documents for fan-in 500 and fan-out 300.
    #[test]
    fn each_has_its_published_spread() {
        for (weight, std, bound) in [
            (WeightInit::Torch, 0.044_721_36 / f64::sqrt(3.0), 0.044_721_36),
            (WeightInit::KaimingUniform, 0.063_245_55, 0.109_544_51),
            (WeightInit::KaimingNormal, 0.063_245_55, f64::INFINITY),
            (WeightInit::XavierUniform, 0.05, 0.086_602_54),
            (WeightInit::XavierNormal, 0.05, f64::INFINITY),
            (WeightInit::GPT2, 0.02, f64::INFINITY),
        ] {
            let (mean, deviation, largest) = statistics(weight);
            assert!(mean.abs() < std / 100.0, "{weight:?}: mean {mean}");
            assert!((deviation / std - 1.0).abs() < 0.01, "{weight:?}: {deviation}, not {std}");
            assert!(largest <= bound, "{weight:?}: {largest} beyond {bound}");
            let reaches = if bound.is_finite() { largest > 0.999 * bound } else { largest > 4.0 * std };
            assert!(reaches, "{weight:?}: {largest}");
        }
        assert_eq!(WeightInit::Given(Init::ONES).init(1, 1), Init::ONES);
        assert_eq!(WeightInit::Torch.init(0, 0), Init::Uniform { low: -1.0, high: 1.0 });
    }
}
