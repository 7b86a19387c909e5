//! The order of an epoch: a permutation of the samples, any place of which is found at once from seed and epoch.
//!
//! A Feistel network over the smallest even number of bits that hold every sample permutes `0..2^(2h)`; a place that leads
//! outside `0..n` is walked on until it leads inside, which permutes `0..n` (Black and Rogaway, *Ciphers with arbitrary
//! finite domains*, 2002). Less than four steps are taken on average. Nothing is stored, so that a run is taken up in the
//! middle of an epoch of any size at no cost, and only integers are used, so that every machine has the same order.

use crate::SplitMix64;

const ROUNDS: usize = 8;

/// An order of `0..n`.
#[derive(Clone, Debug)]
pub struct Order {
    n: u64,
    /// Bits of each half; none leaves every sample in its place.
    half: u32,
    keys: [u64; ROUNDS],
}

impl Order {
    /// Each sample in its own place.
    pub fn sequential(n: usize) -> Order {
        Order { n: n as u64, half: 0, keys: [0; ROUNDS] }
    }

    /// The permutation of an epoch.
    pub fn shuffled(n: usize, seed: u64, epoch: u64) -> Order {
        let n = n as u64;
        // Both are scattered first, so that neighbouring seeds and epochs share nothing.
        let mixed = SplitMix64::new(seed).next_u64() ^ SplitMix64::new(!epoch).next_u64().rotate_left(32);
        let mut rng = SplitMix64::new(mixed);
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Order { n, half: bits.div_ceil(2), keys: std::array::from_fn(|_| rng.next_u64()) }
    }

    /// The sample at a place, both below `n`; a place beyond it is its own sample.
    pub fn at(&self, place: usize) -> usize {
        let mut x = place as u64;
        if self.half == 0 || x >= self.n {
            return place;
        }
        loop {
            x = self.encrypt(x);
            if x < self.n {
                return x as usize;
            }
        }
    }

    fn encrypt(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        let (mut left, mut right) = (x >> self.half, x & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (SplitMix64::new(key ^ right).next_u64() & mask));
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(n: usize, seed: u64, epoch: u64) -> Vec<usize> {
        let order = Order::shuffled(n, seed, epoch);
        (0..n).map(|place| order.at(place)).collect()
    }

    #[test]
    fn it_permutes_any_number() {
        for n in (0..70).chain([255, 256, 257, 1000, 4096, 10_007]) {
            let mut order = all(n, 3, 1);
            if n > 20 {
                assert_ne!(order, (0..n).collect::<Vec<_>>());
            }
            order.sort_unstable();
            assert_eq!(order, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_largest_sets_have_an_order() {
        let order = Order::shuffled(usize::MAX, 1, 0);
        assert!((0..100).map(|place| order.at(place)).all(|sample| sample < usize::MAX));
    }

    /// The same on every machine and in every version: a checkpoint counts on it. Worked out by a second program.
    #[test]
    fn the_order_is_pinned() {
        assert_eq!(all(10, 1, 0), PINNED[0]);
        assert_eq!(all(10, 1, 1), PINNED[1]);
        assert_eq!(all(10, 2, 0), PINNED[2]);
    }

    const PINNED: [[usize; 10]; 3] =
        [[9, 2, 5, 6, 4, 0, 7, 8, 1, 3], [5, 2, 3, 7, 6, 8, 4, 0, 9, 1], [6, 9, 4, 7, 2, 3, 8, 1, 0, 5]];

    /// Each sample comes to each place about equally often, and neighbours do not stay neighbours.
    #[test]
    fn it_is_uniform() {
        for n in [2usize, 3, 5, 8, 13] {
            let (epochs, mut counts) = (20_000u64, vec![vec![0u32; n]; n]);
            for epoch in 0..epochs {
                for (place, sample) in all(n, 7, epoch).into_iter().enumerate() {
                    counts[place][sample] += 1;
                }
            }
            let expected = epochs as f64 / n as f64;
            let worst = counts.iter().flatten().map(|&c| (f64::from(c) - expected).abs() / expected.sqrt());
            assert!(worst.fold(0.0, f64::max) < 4.5, "n = {n}: {counts:?}");
        }
        let order = all(10_000, 1, 0);
        let near = order.windows(2).filter(|w| w[0].abs_diff(w[1]) <= 50).count();
        // 1% of the pairs by chance.
        assert!((60..140).contains(&near), "{near}");
    }
}
