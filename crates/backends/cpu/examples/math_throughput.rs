//! Prints the nanoseconds per element of each f32 function, in a portable loop and in an AVX2 loop.
//!
//! `cargo run --release -p onestep-cpu --example math_throughput`. A function that vectorises costs a small part of the
//! scalar call's time (`pow` is one that does not).

use onestep_cpu::math::single;
use std::hint::black_box;
use std::time::Instant;

fn nanoseconds(mut kernel: impl FnMut(&mut [f32], &[f32])) -> f64 {
    let src: Vec<f32> = (0..4096).map(|i| (i as f32 - 2000.0) / 400.0).collect();
    let mut dst = vec![0.0; src.len()];
    let mut best = f64::INFINITY;
    for _ in 0..200 {
        let start = Instant::now();
        kernel(black_box(&mut dst), black_box(&src));
        best = best.min(start.elapsed().as_nanos() as f64 / src.len() as f64);
    }
    best
}

macro_rules! table {
    ($($name:ident)*) => {
        #[cfg(target_arch = "x86_64")]
        mod avx2 {
            $(#[target_feature(enable = "avx2,fma")]
            #[inline(never)]
            pub fn $name(dst: &mut [f32], src: &[f32]) {
                for (d, &s) in dst.iter_mut().zip(src) {
                    *d = super::single::$name(s);
                }
            })*
        }
        mod portable {
            $(#[inline(never)]
            pub fn $name(dst: &mut [f32], src: &[f32]) {
                for (d, &s) in dst.iter_mut().zip(src) {
                    *d = super::single::$name(s);
                }
            })*
        }
        fn table(wide: bool) {
            println!("{:10} {:>10} {:>10}  ns per element", "", "portable", "avx2");
            $({
                print!("{:10} {:10.3}", stringify!($name), nanoseconds(portable::$name));
                #[cfg(target_arch = "x86_64")]
                if wide {
                    // SAFETY: `wide` says that the processor has AVX2 and FMA.
                    print!(" {:10.3}", nanoseconds(|d, s| unsafe { avx2::$name(d, s) }));
                }
                println!();
            })*
        }
    };
}

table!(exp log tanh erf sigmoid sin_near cos_near sin cos sqrt floor round_even);

fn main() {
    #[cfg(target_arch = "x86_64")]
    let wide = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    let wide = false;
    table(wide);
    println!(
        "{:10} {:10.3}",
        "pow",
        nanoseconds(|d, s| {
            for (d, &s) in d.iter_mut().zip(s) {
                *d = single::pow(s, 1.7);
            }
        })
    );
}
