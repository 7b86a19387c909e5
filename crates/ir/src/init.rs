//! First values of state, as published: from a seed and the state's path, the same on every device.

mod normal;

use crate::array::count;
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
    /// Normal with what lies outside `[low, high]` drawn again, by the inverse of the distribution function: PyTorch's
    /// `trunc_normal_`. `std` is that of the whole normal, not of what is left.
    TruncatedNormal {
        /// Mean of the whole normal.
        mean: f64,
        /// Standard deviation of the whole normal.
        std: f64,
        /// The least value.
        low: f64,
        /// The largest value.
        high: f64,
    },
    /// `gain` times a matrix whose rows, or columns where there are fewer of them, are orthonormal: uniform among such
    /// matrices (Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear neural
    /// networks", 2014). The axes behind the first count as one; of a vector or scalar, one row.
    Orthogonal {
        /// The length of each row or column.
        gain: f64,
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
        if matches!(self, Init::Constant(c) if c.to_bits() == 0) {
            return Array::zeros(dtype, shape);
        }
        let key = [seed as u32, (seed >> 32) as u32];
        let stream = random::stream_id(path);
        let uniform = |i: usize| random::unit(random::draw(key, stream, 0, i as u64));
        let normal = |i: usize| normal(key, stream, i);
        match self {
            Init::Constant(c) => Array::drawn(dtype, shape, &|_| c),
            Init::Uniform { low, high } => Array::drawn(dtype, shape, &|i| low + (high - low) * uniform(i)),
            Init::Normal { mean, std } => Array::drawn(dtype, shape, &|i| mean + std * normal(i)),
            Init::TruncatedNormal { mean, std, low, high } => {
                let within = |x: f64| normal::distribution((x - mean) / std);
                let (least, most) = (within(low), within(high));
                Array::drawn(dtype, shape, &|i| {
                    // The middle of the interval that the draw stands for: never an end, where the inverse is infinite.
                    let p = least + (most - least) * (uniform(i) + 0.5 / 16_777_216.0);
                    (mean + std * normal::quantile(p)).max(low).min(high)
                })
            }
            Init::Orthogonal { gain } => {
                let mut values = Array::drawn(DType::F64, shape, &normal)?.to_f64();
                let rows = if shape.len() < 2 { 1 } else { shape[0] };
                orthonormal(&mut values, rows, n.checked_div(rows).unwrap_or(0));
                values.iter_mut().for_each(|x| *x *= gain);
                Array::from_f64(dtype, shape, &values)
            }
            Init::Seed => Array::drawn(dtype, shape, &|i| f64::from(key[i % 2])),
        }
    }
}

/// Number `i` of a standard normal stream, from numbers `2i` and `2i + 1` of the uniform one (Box and Muller, 1958), which are
/// of one block.
fn normal(key: [u32; 2], stream: u64, i: usize) -> f64 {
    let words = random::block(key, stream, 0, i as u64 / 2);
    let [u, v] = [2 * (i % 2), 2 * (i % 2) + 1].map(|w| random::unit(words[w]));
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - u));
    radius * libm::cos(std::f64::consts::TAU * v)
}

/// Makes the rows of a matrix orthonormal, or the columns where these are fewer: Gram and Schmidt's method, each vector
/// twice, so that rounding leaves nothing behind (Giraud and others, 2005). Of normal numbers it makes a matrix that is
/// uniform among all such.
fn orthonormal(matrix: &mut [f64], rows: usize, columns: usize) {
    let (count, length) = (rows.min(columns), rows.max(columns));
    // Element `j` of vector `i`.
    let at = |i: usize, j: usize| if rows <= columns { i * columns + j } else { j * columns + i };
    for i in 0..count {
        for _ in 0..2 {
            for before in 0..i {
                let dot: f64 = (0..length).map(|j| matrix[at(i, j)] * matrix[at(before, j)]).sum();
                (0..length).for_each(|j| matrix[at(i, j)] -= dot * matrix[at(before, j)]);
            }
            let norm = libm::sqrt((0..length).map(|j| matrix[at(i, j)] * matrix[at(i, j)]).sum());
            (0..length).for_each(|j| matrix[at(i, j)] /= norm);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(init: Init, shape: &[usize]) -> Vec<f64> {
        init.array(DType::F64, shape, 7, "w").unwrap().to_f64()
    }

    /// Mean and variance of what is left of a normal between −2σ and 2σ are exact: φ and Φ are tabulated.
    #[test]
    fn a_truncated_normal_has_its_moments_and_bounds() {
        let (mean, std) = (0.5, 0.2);
        let init = Init::TruncatedNormal { mean, std, low: mean - 2.0 * std, high: mean + 2.0 * std };
        let x = values(init, &[400_000]);
        let n = x.len() as f64;
        let average = x.iter().sum::<f64>() / n;
        let moment = |k: i32| x.iter().map(|x| ((x - mean) / std).powi(k)).sum::<f64>() / n;
        // With r = 2φ(2)/(2Φ(2) − 1): 1 − 2r, and 3·(1 − 2r) − 8r.
        let ratio = 2.0 * 0.053_990_966_513_188_06 / 0.954_499_736_103_641_6;
        let (second, fourth) = (1.0 - 2.0 * ratio, 3.0 - 14.0 * ratio);
        assert!((average - mean).abs() < 2e-3 * std, "{average}");
        assert!((moment(2) - second).abs() < 5e-3, "{} not {second}", moment(2));
        assert!((moment(4) - fourth).abs() < 1.5e-2, "{} not {fourth}", moment(4));
        let largest = x.iter().fold(0.0, |m: f64, x| m.max((x - mean).abs()));
        assert!(largest <= 2.0 * std && largest > 1.999 * std, "{largest}");
        // One side alone, far out, where the distribution function is nearly 1.
        let tail = values(Init::TruncatedNormal { mean: 0.0, std: 1.0, low: 5.0, high: 6.0 }, &[1000]);
        assert!(tail.iter().all(|x| (5.0..=6.0).contains(x)));
        assert!((tail.iter().sum::<f64>() / 1000.0 - 5.183).abs() < 0.02);
    }

    #[test]
    fn an_orthogonal_matrix_is_one_either_way() {
        for shape in [&[3, 8][..], &[8, 3], &[5, 5], &[4, 3, 2], &[6]] {
            let x = values(Init::Orthogonal { gain: 2.0 }, shape);
            let rows = if shape.len() < 2 { 1 } else { shape[0] };
            let columns = x.len() / rows;
            let (count, length) = (rows.min(columns), rows.max(columns));
            let at =
                |i: usize, j: usize| if rows <= columns { x[i * columns + j] } else { x[j * columns + i] };
            for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
                let dot: f64 = (0..length).map(|j| at(a, j) * at(b, j)).sum();
                let want = if a == b { 4.0 } else { 0.0 };
                assert!((dot - want).abs() < 1e-13, "{shape:?}: {a}·{b} is {dot}");
            }
        }
        assert!(values(Init::Orthogonal { gain: 1.0 }, &[0, 4]).is_empty());
    }
}
