//! The same bits from every instruction set: each f32 function in a portable loop, in an AVX2 + FMA loop and in an
//! AVX-512 loop (where the processor has them) over every 509th bit pattern.
//!
//! Run it with `--release` too: the test profile does not vectorise.
#![cfg(target_arch = "x86_64")]

use onestep_cpu::math::single;

macro_rules! loops {
    ($($name:ident)*) => {
        mod portable {
            $(pub fn $name(dst: &mut [f32], src: &[f32]) {
                for (d, &s) in dst.iter_mut().zip(src) {
                    *d = super::single::$name(s);
                }
            })*
        }
        mod avx2 {
            $(#[target_feature(enable = "avx2,fma")]
            pub fn $name(dst: &mut [f32], src: &[f32]) {
                for (d, &s) in dst.iter_mut().zip(src) {
                    *d = super::single::$name(s);
                }
            })*
        }
        mod avx512 {
            $(#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
            pub fn $name(dst: &mut [f32], src: &[f32]) {
                for (d, &s) in dst.iter_mut().zip(src) {
                    *d = super::single::$name(s);
                }
            })*
        }

        fn check(src: &[f32], wide: bool, widest: bool) {
            let (mut a, mut b) = (vec![0.0; src.len()], vec![0.0; src.len()]);
            $(
                portable::$name(&mut a, src);
                if wide {
                    // SAFETY: `wide` says that the processor has AVX2 and FMA.
                    unsafe { avx2::$name(&mut b, src) };
                    same(stringify!($name), src, &a, &b);
                }
                if widest {
                    // SAFETY: `widest` says that the processor has these parts of AVX-512, and FMA.
                    unsafe { avx512::$name(&mut b, src) };
                    same(stringify!($name), src, &a, &b);
                }
            )*
        }
    };
}

loops!(exp log tanh erf sigmoid sin cos sin_near cos_near sqrt floor ceil round_even trunc);

fn same(name: &str, src: &[f32], a: &[f32], b: &[f32]) {
    for ((x, a), b) in src.iter().zip(a).zip(b) {
        assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{name}({x:e}): {a:e} and {b:e}");
    }
}

#[test]
fn one_result_for_every_instruction_set() {
    let wide = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let widest = wide
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    let mut block = Vec::with_capacity(4099);
    for bits in (0..=u32::MAX).step_by(509) {
        block.push(f32::from_bits(bits));
        // Not a multiple of any vector length, so that remainders are met too.
        if block.len() == 4099 {
            check(&block, wide, widest);
            block.clear();
        }
    }
    check(&block, wide, widest);
}
