//! tmp
use onestep_cpu::library::gemm::{self, Isa, Mat};
use std::time::Instant;
fn best(flops: f64, f: &mut dyn FnMut(usize)) -> [f64; 3] {
    let reps = ((3e7 / flops) as usize).clamp(1, 3000);
    let mut best = [f64::MAX; 3];
    for _ in 0..60 {
        for w in 0..3 {
            let t = Instant::now();
            for _ in 0..reps {
                f(w);
            }
            best[w] = best[w].min(t.elapsed().as_secs_f64() / reps as f64);
        }
    }
    best.map(|b| flops / b / 1e9)
}
fn main() {
    let shapes: &[(usize, usize, usize, bool, bool)] = &[
        (1024, 512, 128, false, false),
        (1024, 128, 512, false, false),
        (1024, 128, 128, false, false),
        (1024, 256, 128, false, false),
        (1024, 512, 128, false, true),
        (1024, 128, 512, false, true),
        (128, 512, 1024, true, false),
        (128, 256, 784, false, false),
        (784, 256, 128, true, false),
        (10, 256, 128, true, false),
        (1, 512, 512, false, false),
        (1, 512, 512, false, true),
        (512, 512, 512, false, false),
        (64, 64, 64, false, false),
        (128, 128, 32, false, true),
        (128, 32, 128, false, false),
    ];
    for &(m, n, k, ta, tb) in shapes {
        let a: Vec<f32> = (0..m * k).map(|i| (i * 37 % 101) as f32 * 0.01).collect();
        let b: Vec<f32> = (0..k * n).map(|i| (i * 53 % 103) as f32 * 0.01).collect();
        let mut c = vec![0f32; m * n];
        let mut s = vec![0f32; gemm::scratch_elements(m, k)];
        let (ars, acs) = if ta { (1, m) } else { (k, 1) };
        let (brs, bcs) = if tb { (1, k) } else { (n, 1) };
        let flops = 2.0 * (m * n * k) as f64;
        let r = best(flops, &mut |w| unsafe {
            if w == 2 {
                ::gemm::gemm(
                    m,
                    n,
                    k,
                    c.as_mut_ptr(),
                    1,
                    n as isize,
                    false,
                    a.as_ptr(),
                    acs as isize,
                    ars as isize,
                    b.as_ptr(),
                    bcs as isize,
                    brs as isize,
                    0.0,
                    1.0,
                    false,
                    false,
                    false,
                    ::gemm::Parallelism::None,
                )
            } else {
                gemm::Gemm { isa: [Isa::Avx2, Isa::Avx512][w], m, n, k, add: false }.run(
                    Mat { ptr: a.as_ptr(), rs: ars, cs: acs },
                    Mat { ptr: b.as_ptr(), rs: brs, cs: bcs },
                    c.as_mut_ptr(),
                    n,
                    s.as_mut_ptr(),
                )
            };
        });
        println!(
            "{m:5} {n:5} {k:5} {}{}  avx2 {:6.1} avx512 {:6.1}   gemm {:6.1}",
            if ta { 't' } else { 'n' },
            if tb { 't' } else { 'n' },
            r[0],
            r[1],
            r[2]
        );
    }
}
