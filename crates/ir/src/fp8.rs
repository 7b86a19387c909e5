//! The 8-bit floats of the Open Compute Project ("OCP 8-bit Floating Point Specification", 2023): for products and storage.
//!
//! Rounding does not saturate, as JAX's casts do not (PyTorch's to e4m3 do): what rounds beyond the largest number is infinity, or NaN where the
//! format has no infinity. An overflow so shows, and the commit guard refuses its step; `quantize` scales so that there is none.
//! Every NaN becomes the one positive NaN.

use crate::DType;

/// An 8-bit float format: a sign, an exponent, and `digits` bits of the significand behind its leading one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fp8 {
    /// Bits of the significand that are stored.
    pub digits: u32,
    /// The exponent of 1.
    pub bias: i32,
    /// The bits of the largest finite number.
    pub largest: u8,
    /// The bits of what is beyond it: infinity, or [`Fp8::NAN`] where the format has none.
    pub overflow: u8,
}

impl Fp8 {
    /// The bits of the NaN that conversions give, in both formats.
    pub const NAN: u8 = 0x7f;
    /// 4 bits of exponent and 3 of significand, at most 448, without infinities.
    pub const E4M3: Fp8 = Fp8 { digits: 3, bias: 7, largest: 0x7e, overflow: Fp8::NAN };
    /// 5 bits of exponent and 2 of significand, at most 57344.
    pub const E5M2: Fp8 = Fp8 { digits: 2, bias: 15, largest: 0x7b, overflow: 0x7c };

    /// The format of a dtype.
    pub fn of(dtype: DType) -> Option<Fp8> {
        match dtype {
            DType::F8E4M3 => Some(Fp8::E4M3),
            DType::F8E5M2 => Some(Fp8::E5M2),
            _ => None,
        }
    }

    /// The number that these bits are.
    pub fn decode(self, bits: u8) -> f64 {
        let size = bits & 0x7f;
        let (exponent, significand) =
            ((size >> self.digits) as i32, (size & ((1 << self.digits) - 1)) as f64);
        let lead = if exponent == 0 { 0.0 } else { (1 << self.digits) as f64 };
        let value = match size {
            size if size <= self.largest => {
                (lead + significand) * 2f64.powi(exponent.max(1) - self.bias - self.digits as i32)
            }
            size if size == self.overflow && size != Fp8::NAN => f64::INFINITY,
            _ => f64::NAN,
        };
        if bits & 0x80 != 0 { -value } else { value }
    }

    /// The bits of the nearest number, ties to even.
    pub fn encode(self, x: f64) -> u8 {
        let (sign, size) = ((x.is_sign_negative() as u8) << 7, x.abs());
        if x.is_nan() {
            return Fp8::NAN;
        }
        // Of the digit before the point; that of the smallest normal number for all below it.
        let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(1 - self.bias);
        let units = (size * 2f64.powi(self.digits as i32 - exponent)).round_ties_even() as i32;
        // A carry out of the significand goes on into the exponent.
        let rounded = ((exponent + self.bias - 1) << self.digits).saturating_add(units);
        match u8::try_from(rounded) {
            Ok(bits) if bits <= self.largest => sign | bits,
            _ if self.overflow == Fp8::NAN => Fp8::NAN,
            _ => sign | self.overflow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [Fp8; 2] = [Fp8::E4M3, Fp8::E5M2];

    #[test]
    fn numbers_of_the_specification() {
        for (bits, x) in
            [(0x7e, 448.0), (0x08, 0.015625), (0x01, 0.001953125), (0x07, 0.013671875), (0x38, 1.0)]
        {
            assert_eq!(Fp8::E4M3.decode(bits), x, "{bits:#x}");
        }
        let smallest = 2f64.powi(-16);
        for (bits, x) in
            [(0x7b, 57344.0), (0x04, 2f64.powi(-14)), (0x01, smallest), (0x3c, 1.0), (0x7c, f64::INFINITY)]
        {
            assert_eq!(Fp8::E5M2.decode(bits), x, "{bits:#x}");
        }
        assert!(Fp8::E4M3.decode(0x7f).is_nan() && Fp8::E4M3.decode(0xff).is_nan());
        assert!([0x7d, 0x7e, 0x7f, 0xfd].iter().all(|&b| Fp8::E5M2.decode(b).is_nan()));
    }

    #[test]
    fn every_number_comes_back() {
        for f in FORMATS {
            for bits in 0..=u8::MAX {
                let x = f.decode(bits);
                let want = match () {
                    _ if x.is_nan() => Fp8::NAN,
                    _ => bits,
                };
                assert_eq!(f.encode(x), want, "{f:?} {bits:#x}");
            }
        }
    }

    /// Between each number and the next: below the middle, at it, and above.
    #[test]
    fn ties_go_to_even() {
        for f in FORMATS {
            for bits in 0..f.largest {
                let (x, y) = (f.decode(bits), f.decode(bits + 1));
                let middle = (x + y) / 2.0;
                let even = bits + (bits & 1);
                for (at, want) in [(middle.next_down(), bits), (middle, even), (middle.next_up(), bits + 1)] {
                    assert_eq!(f.encode(at), want, "{f:?}: {at} between {x} and {y}");
                    assert_eq!(f.encode(-at), want | 0x80, "{f:?}: {at} between {x} and {y}");
                }
            }
            let negative = if f.overflow == Fp8::NAN { Fp8::NAN } else { f.overflow | 0x80 };
            for beyond in [f.decode(f.largest) * 1.2, 1e300, f64::INFINITY] {
                assert_eq!((f.encode(beyond), f.encode(-beyond)), (f.overflow, negative), "{f:?}: {beyond}");
            }
            let ulp = f.decode(f.largest) - f.decode(f.largest - 1);
            assert_eq!(f.encode(f.decode(f.largest) + ulp * 0.49), f.largest);
            assert_eq!((f.encode(1e-300), f.encode(-5e-324)), (0, 0x80));
        }
    }
}
