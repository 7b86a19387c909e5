//! First values of state, as published: from a seed and the state's path, the same on every device.

use crate::array::{count, reserve};
use crate::{Array, ArrayError, DType, random};

/// How a state tensor starts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Init {
    /// Every element is this number.
    Constant(f64),
    /// Uniform in `[low, high)`.
    Uniform {
        /// Lower end.
        low: f64,
        /// Upper end.
        high: f64,
    },
    /// Normal (Box–Muller on the Philox stream).
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// The seed of the run itself: a `u32` key pair for counter-based random numbers.
    Seed,
}

impl Init {
    /// Zeros.
    pub const ZEROS: Init = Init::Constant(0.0);
    /// Ones.
    pub const ONES: Init = Init::Constant(1.0);

    /// The values for a tensor at `path`, from `seed`. Each path has its own stream, so that adding a parameter
    /// changes no other.
    pub fn array(self, dtype: DType, shape: &[usize], seed: u64, path: &str) -> Result<Array, ArrayError> {
        let n = count(dtype, shape)?;
        let mut values: Vec<f64> = Vec::new();
        reserve(&mut values, n, shape)?;
        let key = [seed as u32, (seed >> 32) as u32];
        let stream = random::stream_id(path);
        let uniform = |i: usize| random::unit(random::draw(key, stream, 0, i as u64));
        match self {
            Init::Constant(c) => values.resize(n, c),
            Init::Uniform { low, high } => values.extend((0..n).map(|i| low + (high - low) * uniform(i))),
            Init::Normal { mean, std } => values.extend((0..n).map(|i| {
                let (u, v) = (uniform(2 * i), uniform(2 * i + 1));
                let radius = libm::sqrt(-2.0 * libm::log(1.0 - u));
                mean + std * radius * libm::cos(std::f64::consts::TAU * v)
            })),
            Init::Seed => values.extend(key.iter().cycle().take(n).map(|&k| k as f64)),
        }
        Array::from_f64(dtype, shape, &values)
    }
}
