//! Named initialisations of weights, as published.

use onestep_ir::Init;

/// The shape of a distribution with mean 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Spread {
    /// Uniform between `±√3` standard deviations.
    Uniform,
    /// Normal.
    Normal,
}

impl Spread {
    /// The distribution with this standard deviation.
    fn of(self, std: f64) -> Init {
        match self {
            Spread::Uniform => Init::Uniform { low: -f64::sqrt(3.0) * std, high: f64::sqrt(3.0) * std },
            Spread::Normal => Init::Normal { mean: 0.0, std },
        }
    }
}

/// Which side of a layer keeps its variance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fan {
    /// The activations, on the way forward: what counts are the inputs.
    In,
    /// Their gradients, on the way back: what counts are the outputs.
    Out,
}

/// How the weight of a layer with `inputs` and `outputs` features starts. Of a convolution, these are channels times the
/// kernel's area. The constants are the usual cases of the published families.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum WeightInit {
    /// Uniform in `±1/√inputs`: PyTorch's default of `nn.Linear`, which spells it `kaiming_uniform_(a=√5)`.
    #[default]
    Torch,
    /// Standard deviation `gain/√fan` (He and others, "Delving deep into rectifiers", 2015).
    Kaiming {
        /// Uniform or normal.
        spread: Spread,
        /// Whether `fan` is the inputs or the outputs.
        fan: Fan,
        /// That of the function behind the layer: [`crate::Activation::gain`].
        gain: f64,
    },
    /// Standard deviation `gain · √(2/(inputs + outputs))` (Glorot and Bengio, "Understanding the difficulty of training deep
    /// feedforward neural networks", 2010).
    Xavier {
        /// Uniform or normal.
        spread: Spread,
        /// That of the function behind the layer: [`crate::Activation::gain`].
        gain: f64,
    },
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// Normal with mean 0 and this standard deviation, without what lies beyond two of them, so that 0.88 of it is left:
    /// BERT's and the vision transformers'.
    TruncatedNormal(f64),
    /// A matrix of orthonormal rows or columns, times this gain (Saxe and others, 2014).
    Orthogonal(f64),
    /// Any other.
    Given(Init),
}

impl WeightInit {
    /// Uniform in `±√(6/inputs)`: for ReLU.
    pub const KAIMING_UNIFORM: WeightInit = WeightInit::kaiming(Spread::Uniform, Fan::In);
    /// Normal with variance `2/inputs`: for ReLU.
    pub const KAIMING_NORMAL: WeightInit = WeightInit::kaiming(Spread::Normal, Fan::In);
    /// Uniform in `±√(6/(inputs + outputs))`.
    pub const XAVIER_UNIFORM: WeightInit = WeightInit::Xavier { spread: Spread::Uniform, gain: 1.0 };
    /// Normal with variance `2/(inputs + outputs)`.
    pub const XAVIER_NORMAL: WeightInit = WeightInit::Xavier { spread: Spread::Normal, gain: 1.0 };
    /// Normal with standard deviation 0.02, as in GPT-2.
    pub const GPT2: WeightInit = WeightInit::Normal(0.02);
    /// Zeros.
    pub const ZEROS: WeightInit = WeightInit::Given(Init::ZEROS);

    /// He's for ReLU.
    pub const fn kaiming(spread: Spread, fan: Fan) -> WeightInit {
        WeightInit::Kaiming { spread, fan, gain: std::f64::consts::SQRT_2 }
    }

    /// The initialisation of a weight between so many features. Zero features count as one.
    pub fn init(self, inputs: usize, outputs: usize) -> Init {
        let (fan_in, fan_out) = (inputs.max(1) as f64, outputs.max(1) as f64);
        match self {
            WeightInit::Torch => Init::Uniform { low: -1.0 / fan_in.sqrt(), high: 1.0 / fan_in.sqrt() },
            WeightInit::Kaiming { spread, fan: Fan::In, gain } => spread.of(gain / fan_in.sqrt()),
            WeightInit::Kaiming { spread, fan: Fan::Out, gain } => spread.of(gain / fan_out.sqrt()),
            WeightInit::Xavier { spread, gain } => spread.of(gain * (2.0 / (fan_in + fan_out)).sqrt()),
            WeightInit::Normal(std) => Spread::Normal.of(std),
            WeightInit::TruncatedNormal(std) => {
                Init::TruncatedNormal { mean: 0.0, std, low: -2.0 * std, high: 2.0 * std }
            }
            WeightInit::Orthogonal(gain) => Init::Orthogonal { gain },
            WeightInit::Given(init) => init,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Activation;
    use onestep_ir::DType;

    /// Mean, standard deviation and largest magnitude of a 300 × 500 weight.
    fn statistics(weight: WeightInit) -> (f64, f64, f64) {
        let values = weight.init(500, 300).array(DType::F32, &[300, 500], 3, "w").unwrap().to_f64();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        (mean, variance.sqrt(), values.iter().fold(0.0, |a, x| x.abs().max(a)))
    }

    #[test]
    fn each_has_its_published_spread() {
        let tanh = |spread| WeightInit::Kaiming { spread, fan: Fan::In, gain: Activation::Tanh.gain() };
        for (weight, std, bound) in [
            (WeightInit::Torch, 0.044_721_36 / f64::sqrt(3.0), 0.044_721_36),
            (WeightInit::KAIMING_UNIFORM, 0.063_245_55, 0.109_544_52),
            (WeightInit::KAIMING_NORMAL, 0.063_245_55, f64::INFINITY),
            (WeightInit::kaiming(Spread::Uniform, Fan::Out), 0.081_649_66, 0.141_421_36),
            (WeightInit::kaiming(Spread::Normal, Fan::Out), 0.081_649_66, f64::INFINITY),
            (tanh(Spread::Uniform), 0.074_535_6, 0.129_099_45),
            (tanh(Spread::Normal), 0.074_535_6, f64::INFINITY),
            (WeightInit::XAVIER_UNIFORM, 0.05, 0.086_602_55),
            (WeightInit::XAVIER_NORMAL, 0.05, f64::INFINITY),
            (WeightInit::TruncatedNormal(0.02), 0.02 * 0.879_625_66, 0.04),
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
        // The shorter rows are orthonormal, so that each column's squares add up to 300/500 on average.
        let (_, deviation, _) = statistics(WeightInit::Orthogonal(1.0));
        assert!((deviation - 1.0 / f64::sqrt(500.0)).abs() < 1e-6, "{deviation}");
        assert_eq!(WeightInit::Torch.init(0, 0), Init::Uniform { low: -1.0, high: 1.0 });
    }
}
