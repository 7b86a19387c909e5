//! SplitMix64: the generator behind shuffles and batch offsets on the host.
//!
//! Its state after `n` draws is `seed + n * GAMMA`, so that a stream can be taken up at any position at once; a resumed
//! run then sees the batches that an uninterrupted one would have seen. Random numbers *inside* a program are another
//! matter: they come from a counter-based generator in the graph.

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// A deterministic stream of 64-bit numbers; equal seeds give equal streams on every machine.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The stream of `seed`, at its beginning.
    pub fn new(seed: u64) -> Self {
        Self::at(seed, 0)
    }

    /// The stream of `seed` after `draws` draws.
    pub fn at(seed: u64, draws: u64) -> Self {
        Self { state: seed.wrapping_add(GAMMA.wrapping_mul(draws)) }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`, from exactly one draw; 0 when `bound` is 0.
    ///
    /// The multiply-and-shift map is off uniform by less than `bound / 2^64`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Puts `items` into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_stream() {
        let mut rng = SplitMix64::new(1_234_567);
        let drawn: Vec<u64> = (0..5).map(|_| rng.next_u64()).collect();
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
    }

    #[test]
    fn a_stream_is_taken_up_anywhere() {
        let mut whole = SplitMix64::new(7);
        let drawn: Vec<u64> = (0..10).map(|_| whole.next_u64()).collect();
        let mut rest = SplitMix64::at(7, 6);
        assert_eq!(drawn[6..], (0..4).map(|_| rest.next_u64()).collect::<Vec<_>>());
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut rng = SplitMix64::new(0);
        let mut seen = [0; 7];
        for _ in 0..7000 {
            seen[rng.below(7)] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn shuffle_permutes() {
        let mut items: Vec<usize> = (0..100).collect();
        SplitMix64::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
