//! Counter-based random numbers: Philox 4×32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
//! as 1, 2, 3", SC 2011).

/// One Philox 4×32 block with ten rounds: four words from a counter and a key.
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut c0, mut c1, mut c2, mut c3], [mut k0, mut k1]) = (counter, key);
    for round in 0..10 {
        if round > 0 {
            k0 = k0.wrapping_add(0x9E37_79B9);
            k1 = k1.wrapping_add(0xBB67_AE85);
        }
        let p0 = 0xD251_1F53u64 * c0 as u64;
        let p1 = 0xCD9E_8D57u64 * c2 as u64;
        (c0, c1, c2, c3) = ((p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32);
    }
    [c0, c1, c2, c3]
}

/// Element `index` of a stream at a step: word `index % 4` of the block whose counter is
/// `(index / 4, step, stream low, stream high)`. A tensor has at most 2^34 elements.
pub fn draw(key: [u32; 2], stream: u64, step: u32, index: u64) -> u32 {
    block(key, stream, step, index / 4)[(index % 4) as usize]
}

/// Elements `4 · number` to `4 · number + 3` of a stream at a step.
pub fn block(key: [u32; 2], stream: u64, step: u32, number: u64) -> [u32; 4] {
    philox([number as u32, step, stream as u32, (stream >> 32) as u32], key)
}

/// 32 random bits as a real in [0, 1): the top 24 bits, so that the value is exact in `f32`.
pub fn unit(bits: u32) -> f64 {
    (bits >> 8) as f64 / 16_777_216.0
}

/// The stream of a path: FNV-1a, 64 bits.
pub fn stream_id(path: &str) -> u64 {
    path.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ b as u64).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of Random123 (kat_vectors, philox4x32-10).
    #[test]
    fn known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            philox([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }
}
