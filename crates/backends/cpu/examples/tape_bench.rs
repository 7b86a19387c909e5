//! Times tapes against loops written by hand for the same work under AVX2, on one thread.
//!
//! `cargo run --release -p onestep-cpu --example tape_bench`. Small sizes stay in the second-level cache and show the
//! tape's overhead; large ones run at the speed of memory.

use onestep_cpu::math::single;
use onestep_cpu::tape::{LoopTape, Options};
use onestep_ir::DType::{self, F32};
use onestep_ir::ops::{BinaryKind::*, ReduceKind, UnaryKind};
use onestep_passes::schedule::{Access, Affine, BufferId, Expr, ExprId, LoopKernel, Store, TypedExpr};
use std::hint::black_box;
use std::time::Instant;

/// A kernel under construction: f32 buffers, numbered as they are named.
struct Kernel(LoopKernel, usize);

impl Kernel {
    fn new(extents: &[usize], parallel: usize) -> Kernel {
        Kernel(LoopKernel { extents: extents.to_vec(), parallel, body: vec![], stores: vec![] }, 0)
    }
    fn access(&mut self, coefs: &[i64]) -> Access {
        self.1 += 1;
        Access { buffer: BufferId(self.1 as u32 - 1), place: Affine { offset: 0, coefs: coefs.to_vec() } }
    }
    fn push(&mut self, expr: Expr) -> ExprId {
        self.0.body.push(TypedExpr { dtype: F32, expr });
        ExprId(self.0.body.len() as u32 - 1)
    }
    fn load(&mut self, coefs: &[i64]) -> ExprId {
        let access = self.access(coefs);
        self.push(Expr::Load { access, bounds: vec![], fill: 0 })
    }
    fn literal(&mut self, x: f32) -> ExprId {
        self.push(Expr::Literal(x.to_bits() as u64))
    }
    fn binary(&mut self, kind: onestep_ir::ops::BinaryKind, a: ExprId, b: ExprId) -> ExprId {
        self.push(Expr::Binary(kind, a, b))
    }
    fn unary(&mut self, kind: UnaryKind, a: ExprId) -> ExprId {
        self.push(Expr::Unary(kind, a))
    }
    fn store(&mut self, value: ExprId, coefs: &[i64]) {
        let access = self.access(coefs);
        self.0.stores.push(Store { value, access });
    }
    /// A store in the place of buffer `b`.
    fn store_to(&mut self, value: ExprId, b: u32, coefs: &[i64]) {
        let place = Affine { offset: 0, coefs: coefs.to_vec() };
        self.0.stores.push(Store { value, access: Access { buffer: BufferId(b), place } });
    }
}

/// Best time of a call, in nanoseconds.
fn best(mut f: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    while begin.elapsed().as_millis() < 150 {
        let start = Instant::now();
        for _ in 0..4 {
            f();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / 4.0);
    }
    best
}

/// Times a kernel over buffers of the given sizes, and prints it beside the hand-written loop.
fn line(name: &str, k: &Kernel, sizes: &[usize], points: usize, bytes: usize, hand: impl Fn(&[*mut f32])) {
    if std::env::args().nth(1).is_some_and(|only| !name.contains(&only)) {
        return;
    }
    // Each at another place in a page, as in an arena.
    let mut memory: Vec<Vec<f32>> =
        sizes.iter().map(|&n| (0..n + 4096).map(|i| 0.5 + (i % 97) as f32 / 100.0).collect()).collect();
    let shift = |(i, m): (usize, &mut Vec<f32>)| m[i * 208..].as_mut_ptr();
    let floats: Vec<*mut f32> = memory.iter_mut().enumerate().map(shift).collect();
    let buffers: Vec<*mut u8> = floats.iter().map(|p| p.cast()).collect();
    let by_hand = best(|| hand(black_box(&floats)));

    let block = std::env::var("TAPE_BLOCK").ok().and_then(|n| n.parse().ok());
    let options = Options { block, ..Options::default() };
    let dtype_of = |_: BufferId| -> DType { F32 };
    let tape = LoopTape::with(&k.0, &dtype_of, options).expect("the kernel is supported");
    let mut scratch = vec![0u8; tape.scratch_bytes()];
    let mut shared = vec![0u8; tape.shared_bytes()];
    let by_tape = best(|| {
        for phase in 0..tape.phases() {
            for chunk in 0..tape.chunks(phase) {
                // SAFETY: the buffers have the sizes that the kernel accesses; one thread runs.
                unsafe {
                    tape.run_chunk(phase, chunk, &buffers, scratch.as_mut_ptr(), shared.as_mut_ptr());
                }
            }
        }
    });
    println!(
        "{name:28} {:8.3} {:8.3} {:8.2} {:8.1} {:8.1}   {} chunks, {} KB scratch",
        by_tape / points as f64,
        by_hand / points as f64,
        by_tape / by_hand,
        bytes as f64 / by_tape,
        bytes as f64 / by_hand,
        tape.chunks(0),
        scratch.len() >> 10,
    );
}

/// A loop by hand, compiled for AVX2.
macro_rules! avx2 {
    (fn $name:ident($($arg:ident: $t:ty),*) $body:block) => {
        fn $name($($arg: $t),*) {
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
            unsafe fn inner($($arg: $t),*) $body
            // SAFETY: `main` has checked for AVX2 and FMA.
            unsafe { inner($($arg),*) }
        }
    };
}

/// The first `n` floats of a buffer.
fn of<'a>(p: *mut f32, n: usize) -> &'a mut [f32] {
    // SAFETY: the buffers of `line` have the sizes named beside the kernel, and are used one loop at a time.
    unsafe { std::slice::from_raw_parts_mut(p, n) }
}

avx2! { fn hand_add(d: &mut [f32], a: &[f32], b: &[f32]) {
    for i in 0..d.len() { d[i] = a[i] + b[i]; }
} }
avx2! { fn hand_gelu(d: &mut [f32], a: &[f32]) {
    for (d, &x) in d.iter_mut().zip(a) {
        *d = (x * 0.5) * (single::erf(x * std::f32::consts::FRAC_1_SQRT_2) + 1.0);
    }
} }
avx2! { fn hand_adam(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], rate: f32) {
    let n = p.len();
    let (g, m, v) = (&g[..n], &mut m[..n], &mut v[..n]);
    for i in 0..n {
        m[i] = m[i] * 0.9 + g[i] * 0.1;
        v[i] = v[i] * 0.999 + g[i] * g[i] * 0.001;
        p[i] -= m[i] / (v[i].sqrt() + 1e-8) * rate;
    }
} }
avx2! { fn hand_softmax(d: &mut [f32], a: &[f32], n: usize) {
    for (d, a) in d.chunks_exact_mut(n).zip(a.chunks_exact(n)) {
        let mut lanes = [f32::NEG_INFINITY; 16];
        for x in a.as_chunks::<16>().0 {
            for k in 0..16 { lanes[k] = single::fmax_nan(lanes[k], x[k]); }
        }
        let max = lanes.iter().fold(f32::NEG_INFINITY, |m, &x| single::fmax_nan(m, x));
        for i in 0..n { d[i] = single::exp(a[i] - max); }
        let mut lanes = [0.0; 16];
        for x in d.as_chunks::<16>().0 {
            for k in 0..16 { lanes[k] += x[k]; }
        }
        let sum: f32 = lanes.iter().sum();
        for x in d { *x /= sum; }
    }
} }
avx2! { fn hand_columns(d: &mut [f32], a: &[f32]) {
    d.fill(0.0);
    for a in a.chunks_exact(d.len()) {
        for i in 0..d.len() { d[i] += a[i]; }
    }
} }
avx2! { fn hand_sum(d: &mut [f32], a: &[f32]) {
    let mut lanes = [0.0; 32];
    for x in a.as_chunks::<32>().0 {
        for k in 0..32 { lanes[k] += x[k]; }
    }
    d[0] = lanes.iter().sum();
} }
avx2! { fn hand_bias(d: &mut [f32], a: &[f32], b: &[f32]) {
    for (d, a) in d.chunks_exact_mut(b.len()).zip(a.chunks_exact(b.len())) {
        for i in 0..b.len() { d[i] = single::fmax_nan(a[i] + b[i], 0.0); }
    }
} }
avx2! { fn hand_transpose(d: &mut [f32], a: &[f32], rows: usize, columns: usize) {
    for i in 0..rows { for j in 0..columns { d[i * columns + j] = a[j * rows + i] * 2.0; } }
} }

fn main() {
    #[cfg(target_arch = "x86_64")]
    assert!(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"), "for AVX2");
    println!(
        "{:28} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "one thread", "ns/elem", "by hand", "ratio", "GB/s", "by hand"
    );

    for n in [16 << 10, 4 << 20] {
        let size = format!("{}k", n >> 10);
        let mut k = Kernel::new(&[n], 1);
        let (a, b) = (k.load(&[1]), k.load(&[1]));
        let y = k.binary(Add, a, b);
        k.store(y, &[1]);
        line(&format!("add {size}"), &k, &[n; 3], n, 12 * n, |b| {
            hand_add(of(b[2], n), of(b[0], n), of(b[1], n))
        });

        let mut k = Kernel::new(&[n], 1);
        let [p, g, m, v] = [(); 4].map(|_| k.load(&[1]));
        let rate = k.load(&[0]);
        let [b1, a1, b2, a2, eps] = [0.9, 0.1, 0.999, 0.001, 1e-8].map(|x| k.literal(x));
        let (m, ga) = (k.binary(Mul, m, b1), k.binary(Mul, g, a1));
        let m = k.binary(Add, m, ga);
        let (v, gg) = (k.binary(Mul, v, b2), k.binary(Mul, g, g));
        let gg = k.binary(Mul, gg, a2);
        let v = k.binary(Add, v, gg);
        let root = k.unary(UnaryKind::Sqrt, v);
        let root = k.binary(Add, root, eps);
        let step = k.binary(Div, m, root);
        let step = k.binary(Mul, step, rate);
        let p = k.binary(Sub, p, step);
        for (x, b) in [(p, 0), (m, 2), (v, 3)] {
            k.store_to(x, b, &[1]);
        }
        line(&format!("adam {size}"), &k, &[n, n, n, n, 1], n, 28 * n, |b| {
            hand_adam(of(b[0], n), of(b[1], n), of(b[2], n), of(b[3], n), of(b[4], 1)[0]);
        });

        let mut k = Kernel::new(&[n], 1);
        let x = k.load(&[1]);
        let [half, scale, one] = [0.5, std::f32::consts::FRAC_1_SQRT_2, 1.0].map(|x| k.literal(x));
        let (h, z) = (k.binary(Mul, x, half), k.binary(Mul, x, scale));
        let e = k.unary(UnaryKind::Erf, z);
        let e = k.binary(Add, e, one);
        let y = k.binary(Mul, h, e);
        k.store(y, &[1]);
        line(&format!("gelu {size}"), &k, &[n; 2], n, 8 * n, |b| hand_gelu(of(b[1], n), of(b[0], n)));

        for columns in [128, 10] {
            let rows = n / columns;
            let mut k = Kernel::new(&[rows, columns], 2);
            let (x, b) = (k.load(&[columns as i64, 1]), k.load(&[0, 1]));
            let y = k.binary(Add, x, b);
            let y = k.unary(UnaryKind::Relu, y);
            k.store(y, &[columns as i64, 1]);
            let n = rows * columns;
            line(&format!("bias, relu {rows}x{columns}"), &k, &[n, columns, n], n, 8 * n, |b| {
                hand_bias(of(b[2], n), of(b[0], n), of(b[1], columns));
            });
        }

        for columns in [128, 10] {
            let rows = n / columns;
            let mut k = Kernel::new(&[rows, columns], 1);
            let x = k.load(&[columns as i64, 1]);
            let max = k.push(Expr::Reduce(ReduceKind::Max, x));
            let shifted = k.binary(Sub, x, max);
            let e = k.unary(UnaryKind::Exp, shifted);
            let sum = k.push(Expr::Reduce(ReduceKind::Sum, e));
            let y = k.binary(Div, e, sum);
            k.store(y, &[columns as i64, 1]);
            let n = rows * columns;
            line(&format!("softmax {rows}x{columns}"), &k, &[n; 2], n, 8 * n, |b| {
                hand_softmax(of(b[1], n), of(b[0], n), columns);
            });
        }
    }

    for (rows, columns) in [(1024, 512), (64, 64), (8192, 64)] {
        let n = rows * columns;
        let mut k = Kernel::new(&[columns, rows], 1);
        let x = k.load(&[1, columns as i64]);
        let y = k.push(Expr::Reduce(ReduceKind::Sum, x));
        k.store(y, &[1, 0]);
        line(&format!("column sums {rows}x{columns}"), &k, &[n, columns], n, 4 * n, |b| {
            hand_columns(of(b[1], columns), of(b[0], n));
        });
    }

    for n in [16 << 10, 1 << 20] {
        let mut k = Kernel::new(&[n], 0);
        let x = k.load(&[1]);
        let y = k.push(Expr::Reduce(ReduceKind::Sum, x));
        k.store(y, &[0]);
        line(&format!("sum {}k", n >> 10), &k, &[n, 1], n, 4 * n, |b| hand_sum(of(b[1], 1), of(b[0], n)));
    }

    let (rows, columns) = (512, 1024);
    let n = rows * columns;
    let mut k = Kernel::new(&[rows, columns], 2);
    let x = k.load(&[1, rows as i64]);
    let two = k.literal(2.0);
    let y = k.binary(Mul, x, two);
    k.store(y, &[columns as i64, 1]);
    line("transpose, double 512x1024", &k, &[n; 2], n, 8 * n, |b| {
        hand_transpose(of(b[1], n), of(b[0], n), rows, columns);
    });
}
