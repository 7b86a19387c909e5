//! Rotary position embedding: pairs of features turned by angles that grow with the position (Su and others, "RoFormer:
//! enhanced transformer with rotary position embedding", 2021).
//!
//! It is a composition and no op: a rotation is `x·cos + partner·(±sin)`, where a feature's partner is a reversed view of
//! its pair, so that fusion makes one loop over `x` of it, forward and backward, with the tables of cosines and sines in
//! kernels of their own that all layers of a model share.
//!
//! Angles are as exact at position 10⁶ as at 1. A frequency is kept as turns per position, a fraction of 2⁶⁴ in an `i64`:
//! its product with a position wraps, which takes whole turns away without error, and what is left, between −½ and ½ of a
//! turn, is then rounded once.

use super::Tensor;
use crate::ops::AttentionLayout;
use crate::{Array, DType, Dim, Mistake, Shape, Type};
use std::f64::consts::{PI, TAU};

/// Which features of a head are turned together, of the first `dims`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RotaryPairing {
    /// Features `i` and `i + dims/2`, as in GPT-NeoX and Llama.
    HalfSplit,
    /// Features `2i` and `2i + 1`, as in the paper and in GPT-J.
    Interleaved,
}

/// The change of frequencies with which Llama 3.1 and its followers read longer texts than they first learned (Llama team,
/// "The Llama 3 herd of models", 2024, and their code): a wave shorter than `context / high` stays, one longer than
/// `context / low` becomes `factor` times as long, and in between the frequency is interpolated by `context / wavelength`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RotaryScaling {
    /// By how much long waves are stretched.
    pub factor: f64,
    /// Waves longer than `context / low` are long.
    pub low: f64,
    /// Waves shorter than `context / high` are short; more than `low`.
    pub high: f64,
    /// Positions of the texts learned first.
    pub context: usize,
}

impl RotaryScaling {
    /// That of Llama 3.1: 8-fold.
    pub const LLAMA_3_1: RotaryScaling = RotaryScaling { factor: 8.0, low: 1.0, high: 4.0, context: 8192 };
    /// That of Llama 3.2: 32-fold.
    pub const LLAMA_3_2: RotaryScaling = RotaryScaling { factor: 32.0, ..RotaryScaling::LLAMA_3_1 };

    fn apply(self, frequency: f64) -> f64 {
        let RotaryScaling { factor, low, high, context } = self;
        // Waves of this frequency in the context.
        let waves = context as f64 * frequency / TAU;
        let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
        frequency * (kept + (1.0 - kept) / factor)
    }
}

/// How [`Tensor::rotary`] turns. The default is Llama's: `[batch, sequence, heads, head size]`, halves, base 10,000, all
/// features, no scaling.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RotaryOptions {
    /// The order of the axes.
    pub layout: AttentionLayout,
    /// Which features make a pair.
    pub pairing: RotaryPairing,
    /// Pair `i` of `dims/2` turns by `base^(−2i/dims)` for each position.
    pub base: f64,
    /// How many features of a head turn, the first ones: an even number; `None` for all. The others stay.
    pub dims: Option<usize>,
    /// A change of the frequencies.
    pub scaling: Option<RotaryScaling>,
}

impl Default for RotaryOptions {
    fn default() -> Self {
        let (layout, pairing) = (AttentionLayout::Bthd, RotaryPairing::HalfSplit);
        RotaryOptions { layout, pairing, base: 10_000.0, dims: None, scaling: None }
    }
}

impl RotaryOptions {
    /// The turns of each pair for one position, in units of 2⁻⁶⁴: less than half of a turn, as no frequency is above 1.
    fn turns(&self, dims: usize) -> Vec<i64> {
        let turn = |i: usize| {
            let frequency = libm::pow(self.base, -2.0 * i as f64 / dims as f64);
            let turns = self.scaling.map_or(frequency, |s| s.apply(frequency)) / TAU;
            (turns * 2f64.powi(64)) as i64
        };
        (0..dims / 2).map(turn).collect()
    }

    /// The sizes of a rotation of `x` at `positions`, or what is wrong.
    fn sizes(&self, x: &Type, positions: &Type) -> Result<Sizes, Mistake> {
        let dims: [Dim; 4] = x.shape.0.clone().try_into().map_err(|_| {
            let help = format!("give it four axes ({})", self.layout.name());
            Mistake::new(format!("x has shape {}", x.shape), help)
        })?;
        let [batch, heads, time, size] = self.layout.arrange(dims);
        let size = size.size().filter(|_| x.dtype.is_float());
        let size = size.ok_or_else(|| {
            Mistake::new(format!("x is {x}"), "give floats, with a number as head size, the last axis")
        })?;
        let sequences = match &positions.shape.0[..] {
            [t] if *t == time => Dim::fixed(1),
            [b, t] if *b == batch && *t == time => batch.clone(),
            _ => {
                let help = format!("give them shape [{time}] or [{batch}, {time}]");
                return Err(Mistake::new(format!("the positions have shape {}", positions.shape), help));
            }
        };
        if !positions.dtype.is_int() {
            return Err(Mistake::new(format!("the positions are {}", positions.dtype), "cast them to i32"));
        }
        let dims = self.dims.unwrap_or(size);
        if dims == 0 || !dims.is_multiple_of(2) || dims > size {
            let what = format!("{dims} of {size} features do not turn in pairs");
            return Err(Mistake::new(what, "turn an even number of features, up to the head size"));
        }
        if !(self.base.is_finite() && self.base >= 1.0) {
            return Err(Mistake::new(format!("the base is {}", self.base), "give a number of at least 1"));
        }
        if let Some(s) = self.scaling
            && !(s.factor >= 1.0 && s.low > 0.0 && s.high > s.low && s.high.is_finite())
        {
            let help = "give a factor of at least 1, and 0 < low < high";
            return Err(Mistake::new(format!("the frequencies cannot be scaled by {s:?}"), help));
        }
        // Behind the other axes, `inner` of features: the pairs, and the two of each.
        let shape = |[b, h, t]: [&Dim; 3], inner: [usize; 2]| {
            let front = self.layout.arrange([b.clone(), h.clone(), t.clone(), Dim::fixed(1)]);
            Shape([&front[..3], &inner.map(Dim::fixed)].concat())
        };
        let (one, half) = (Dim::fixed(1), dims / 2);
        let (features, table, sides) = match self.pairing {
            RotaryPairing::HalfSplit => ([2, half], [1, half], [2, 1]),
            RotaryPairing::Interleaved => ([half, 2], [half, 1], [1, 2]),
        };
        Ok(Sizes {
            size,
            dims,
            positions: Shape(vec![sequences.clone(), time.clone(), one.clone()]),
            pairs: shape([&batch, &heads, &time], features),
            table: shape([&sequences, &one, &time], table),
            sides,
        })
    }
}

/// The shapes of a rotation.
struct Sizes {
    /// Features of a head.
    size: usize,
    /// Those that turn.
    dims: usize,
    /// Of the positions, in front of an axis of pairs.
    positions: Shape,
    /// Of the features that turn, with an axis for the two of each pair.
    pairs: Shape,
    /// Of cosines and sines.
    table: Shape,
    /// Of the two signs.
    sides: [usize; 2],
}

impl<'g> Tensor<'g> {
    /// Queries or keys with their features turned in pairs by angles that grow with the position, so that a product of a
    /// query and a key depends on the distance between them (Su and others, 2021).
    ///
    /// This tensor is `[batch, time, heads, size]` of any float dtype, or as the layout says, and the result has its type.
    /// `positions` are integers, `[time]`, or `[batch, time]` where each sequence has its own; those of new tokens behind a
    /// cache begin with its length. Pair `i` at position `p` turns by `p · base^(−2i/dims)` radians, exact modulo whole
    /// turns and then computed in `f32` at least.
    #[track_caller]
    pub fn rotary(self, positions: Tensor<'g>, options: RotaryOptions) -> Tensor<'g> {
        let (Some(x), Some(places)) = (self.ty(), positions.ty()) else { return self.poison() };
        let sizes = match options.sizes(&x, &places) {
            Ok(sizes) => sizes,
            Err(mistake) => return self.g.mistake("rotary", &[self, positions], mistake),
        };
        let Sizes { size, dims, .. } = sizes;
        let signs = Array::new(&sizes.sides, &[-1.0f32, 1.0]);
        let turns = Array::new(&[dims / 2], &options.turns(dims));
        let (Ok(signs), Ok(turns)) = (signs, turns) else { return self.poison() };
        let acc = x.dtype.accumulator();
        // The product wraps: what is left of it is the part of a turn.
        let part = positions.cast(DType::I64).reshape(sizes.positions) * self.g.constant(turns);
        let half_turns = part.cast(acc) * 0.5f64.powi(63);
        // π in two parts: the second is what the first, an f32, leaves.
        let high = f64::from(PI as f32);
        let angles = (half_turns * high + half_turns * (PI - high)).reshape(sizes.table);
        let (cos, sin) = (angles.cos(), angles.sin() * self.g.constant(signs).cast(acc));

        let turning = if dims == size { self } else { self.slice(-1, 0, dims) };
        let pairs = turning.cast(acc).reshape(sizes.pairs);
        let side = if sizes.sides[0] == 2 { -2 } else { -1 };
        let turned = (pairs * cos + pairs.reverse(&[side]) * sin).cast(x.dtype).reshape(turning.shape());
        if dims == size { turned } else { self.g.concat(&[turned, self.slice(-1, dims, size)], -1) }
    }
}
