//! Digests: 128 bits that stand for a tensor's dtype, shape and bytes, the same on every machine and in every version.
//!
//! They are XXH3's 128 bits: fast enough to take of a whole state at every step, and as good as certain to differ where
//! tensors do by accident. They do not withstand somebody who makes two tensors agree on purpose.

use onestep_ir::{Array, DType};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// A digest, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(u128);

/// Text that is no digest.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is no digest of 32 hexadecimal digits")]
pub struct NoDigest(String);

impl Digest {
    /// That of a tensor from its parts. In order, the digest is taken of the dtype's name and a zero byte, the rank, each
    /// size (both as little-endian `u64`), and the elements' bytes.
    pub fn of_tensor(dtype: DType, shape: &[usize], bytes: &[u8]) -> Digest {
        let mut hash = Xxh3::new();
        hash.update(dtype.to_string().as_bytes());
        hash.update(&[0]);
        hash.update(&(shape.len() as u64).to_le_bytes());
        shape.iter().for_each(|&size| hash.update(&(size as u64).to_le_bytes()));
        hash.update(bytes);
        Digest(hash.digest128())
    }

    /// That of an array.
    pub fn of_array(array: &Array) -> Digest {
        Digest::of_tensor(array.dtype(), array.shape(), array.bytes())
    }

    /// That of bytes.
    pub fn of_bytes(bytes: &[u8]) -> Digest {
        Digest(xxh3_128(bytes))
    }

    /// That of a list of named digests.
    pub fn of_all<'a>(parts: impl IntoIterator<Item = (&'a str, Digest)>) -> Digest {
        let mut hash = Xxh3::new();
        for (name, part) in parts {
            hash.update(&(name.len() as u64).to_le_bytes());
            hash.update(name.as_bytes());
            hash.update(&part.0.to_le_bytes());
        }
        Digest(hash.digest128())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Digest, NoDigest> {
        let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(Digest).ok_or_else(|| NoDigest(text.chars().take(40).collect()))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Digest, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dtype: DType, shape: &[usize], bytes: &[u8]) -> Digest {
        Digest::of_tensor(dtype, shape, bytes)
    }

    /// As the reference implementation has them for no input, and for a tensor's parts laid out by hand.
    #[test]
    fn the_digests_are_pinned() {
        assert_eq!(Digest::of_bytes(b"").to_string(), "99aa06d3014798d86001c324468d497f");
        assert_eq!(
            of(DType::F32, &[2], &[0, 0, 128, 63, 0, 0, 0, 64]).to_string(),
            "ff8cb44431f9f4e50712dd983c4c2cde"
        );
    }

    #[test]
    fn dtype_shape_and_every_bit_count() {
        let bytes: Vec<u8> = (0..48).collect();
        let digest = of(DType::F32, &[3, 4], &bytes);
        assert_eq!(digest, of(DType::F32, &[3, 4], &bytes));
        assert_ne!(digest, of(DType::I32, &[3, 4], &bytes));
        for shape in [&[4, 3][..], &[12], &[3, 4, 1]] {
            assert_ne!(digest, of(DType::F32, shape, &bytes));
        }
        for bit in 0..48 * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(digest, of(DType::F32, &[3, 4], &other));
        }
        // Zero and its negative are equal numbers and other bits.
        let of_number = |x: f32| Digest::of_array(&Array::scalar(x));
        assert_ne!(of_number(0.0), of_number(-0.0));
    }

    #[test]
    fn names_and_their_order_count() {
        let (a, b) = (Digest::of_bytes(b"a"), Digest::of_bytes(b"b"));
        let all = Digest::of_all([("x", a), ("y", b)]);
        for other in [&[("x", b), ("y", a)][..], &[("y", b), ("x", a)], &[("xy", a), ("", b)], &[("x", a)]] {
            assert_ne!(all, Digest::of_all(other.iter().copied()));
        }
    }

    #[test]
    fn the_text_form_round_trips() {
        let digest = Digest::of_bytes(b"text");
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        assert_eq!(serde_json::from_str::<Digest>(&serde_json::to_string(&digest).unwrap()).unwrap(), digest);
        for wrong in ["", "12", "+9aa06d3014798d86001c324468d497f", &"g".repeat(32), &"é".repeat(16)] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
