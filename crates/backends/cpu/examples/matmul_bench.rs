//! What matrix products and attention cost: `cargo run --release -p onestep-cpu --example matmul_bench [words]`.
//!
//! GFLOP/s of a whole kernel with 1 and 2 threads, beside the crate `gemm` on one thread for the whole matrix, for the
//! shapes of small GPT and MLP steps; then attention and its gradient. The best of many short runs counts, since other
//! work on the machine only ever slows them. With words, only the lines that contain one of them.

use onestep_cpu::CpuProgram;
use onestep_cpu::pool::Pool;
use onestep_ir::ops::{Attention, AttentionGrad, AttentionLayout};
use onestep_ir::{DType, Op, row_major};
use onestep_passes::schedule::{
    Buffer, BufferId, BufferKind, Kernel, LibraryKernel, MatmulKernel, Schedule, View,
};
use std::time::Instant;

/// `m`, `n`, `k`, and whether the left and the right factor are stored transposed.
const SHAPES: &[(usize, usize, usize, bool, bool)] = &[
    (1024, 512, 128, false, false),
    (1024, 128, 512, false, false),
    (1024, 128, 128, false, false),
    (1024, 256, 128, false, false),
    (1024, 512, 128, false, true),
    (1024, 128, 512, false, true),
    (128, 512, 1024, true, false),
    (512, 128, 1024, true, false),
    (128, 128, 1024, true, false),
    (65, 128, 1024, true, false),
    (128, 256, 784, false, false),
    (128, 10, 256, false, false),
    (784, 256, 128, true, false),
    (256, 10, 128, true, false),
    (128, 256, 10, false, true),
    (1, 512, 512, false, false),
    (1, 512, 512, false, true),
    (1, 4096, 1024, false, false),
    (1, 4096, 1024, false, true),
    (512, 512, 512, false, false),
    (64, 64, 64, false, false),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |line: &str| words.is_empty() || words.iter().any(|w| line.contains(w.as_str()));
    let pools = [1, 2].map(|n| Pool::new(n).expect("the threads start"));
    for &(m, n, k, ta, tb) in SHAPES {
        let stored = |t: bool| if t { 't' } else { 'n' };
        let line = format!("matmul {m:4}×{n:4}×{k:4} {}{}", stored(ta), stored(tb));
        if wanted(&line) {
            matmul(&pools, &line, [m, n, k], [ta, tb]);
        }
    }
    for (name, causal, t) in
        [("attention", false, 128), ("attention causal", true, 128), ("attention causal", true, 512)]
    {
        let line = format!("{name} B8 H4 T{t} D32");
        if wanted(&line) {
            attention(&pools, &line, causal, [8, 4, t, 32]);
        }
    }
}

/// A program and storage for it.
struct Bench {
    schedule: Schedule,
}

impl Bench {
    fn new() -> Bench {
        Bench { schedule: Schedule::default() }
    }

    fn buffer(&mut self, shape: &[usize]) -> BufferId {
        let id = BufferId(self.schedule.buffers.len() as u32);
        let kind = BufferKind::Temp;
        self.schedule.buffers.push(Buffer {
            name: String::new(),
            dtype: DType::F32,
            shape: shape.to_vec(),
            kind,
        });
        id
    }

    fn view(&mut self, shape: &[usize]) -> View {
        View { buffer: self.buffer(shape), offset: 0, shape: shape.to_vec(), strides: row_major(shape) }
    }

    /// The best time of a run with each pool, and of `other`, in seconds.
    fn best(&self, pools: &[Pool; 2], work: f64, other: &mut dyn FnMut()) -> [f64; 3] {
        let program = CpuProgram::new(&self.schedule).expect("the schedule compiles");
        let fill =
            |b: &Buffer| (0..b.numel()).map(|i| (i * 37 % 101) as f32 * 0.01 - 0.5).collect::<Vec<_>>();
        let mut storage: Vec<Vec<f32>> = self.schedule.buffers.iter().map(fill).collect();
        let buffers: Vec<*mut u8> = storage.iter_mut().map(|s| s.as_mut_ptr().cast()).collect();
        let mut scratch = vec![0u64; program.scratch_bytes(2) / 8 + 8];
        let scratch = scratch.as_mut_ptr().cast::<u8>();
        let scratch = scratch.wrapping_add(scratch.align_offset(64));
        let repeats = ((2e7 / work) as usize).clamp(1, 2000);
        let mut best = [f64::MAX; 3];
        for _ in 0..60 {
            for (which, best) in best.iter_mut().enumerate() {
                let session = pools.get(which).map(Pool::session);
                let start = Instant::now();
                for _ in 0..repeats {
                    match pools.get(which) {
                        // SAFETY: every buffer has its floats in a vector of its own; the scratch is large enough.
                        Some(pool) => unsafe { program.run(pool, &buffers, scratch) },
                        None => other(),
                    }
                }
                *best = best.min(start.elapsed().as_secs_f64() / repeats as f64);
                drop(session);
            }
        }
        best
    }
}

fn matmul(pools: &[Pool; 2], line: &str, [m, n, k]: [usize; 3], [ta, tb]: [bool; 2]) {
    let mut bench = Bench::new();
    let factor = |bench: &mut Bench, rows: usize, columns: usize, transposed: bool| {
        let mut view = bench.view(&[1, rows, columns]);
        if transposed {
            view.strides = vec![rows * columns, 1, rows];
        }
        view
    };
    let (lhs, rhs) = (factor(&mut bench, m, k, ta), factor(&mut bench, k, n, tb));
    let strides = [&lhs.strides, &rhs.strides].map(|s| (s[1] as isize, s[2] as isize));
    let out = bench.buffer(&[m, n]);
    bench.schedule.kernels.push(Kernel::Matmul(MatmulKernel { lhs, rhs, out, epilogue: None }));
    let flops = 2.0 * (m * n * k) as f64;
    let (a, b, mut c) = (vec![0.5f32; m * k], vec![0.25f32; k * n], vec![0f32; m * n]);
    let [(ars, acs), (brs, bcs)] = strides;
    let mut other = || {
        // SAFETY: the strides are those of dense matrices of these sizes, in either order.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                c.as_mut_ptr(),
                1,
                n as isize,
                false,
                a.as_ptr(),
                acs,
                ars,
                b.as_ptr(),
                bcs,
                brs,
                0.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            )
        }
    };
    let [one, two, other] = bench.best(pools, flops, &mut other).map(|t| flops / t / 1e9);
    println!("{line}   1 thread {one:6.1}   2 threads {two:6.1}   crate gemm {other:6.1} GFLOP/s");
}

fn attention(pools: &[Pool; 2], line: &str, causal: bool, [b, h, t, d]: [usize; 4]) {
    let layout = AttentionLayout::Bthd;
    let shape = [b, t, h, d];
    let attention = Attention { causal, ..Attention::new(layout, 0.2) };
    let forward: Op = attention.into();
    let backward: Op = AttentionGrad { forward: attention, mask_grad: false }.into();
    // Products of the full square of scores: two forward, five backward.
    for (name, op, products) in [("forward", forward, 2.0), ("backward", backward, 5.0)] {
        let mut bench = Bench::new();
        let mut operands: Vec<View> = (0..3).map(|_| bench.view(&shape)).collect();
        let mut results = vec![];
        if name == "forward" {
            results.extend([bench.view(&shape), bench.view(&[b, h, t])]);
        } else {
            operands.extend([bench.view(&shape), bench.view(&[b, h, t]), bench.view(&shape)]);
            results.extend((0..3).map(|_| bench.view(&shape)));
        }
        bench.schedule.kernels.push(Kernel::Library(LibraryKernel { op, operands, results }));
        let flops = products * 2.0 * (b * h * t * t * d) as f64 * if causal { 0.5 } else { 1.0 };
        let [one, two, _] = bench.best(pools, flops, &mut || {});
        let [rate, both] = [one, two].map(|t| flops / t / 1e9);
        println!(
            "{line} {name:8}  1 thread {:7.1} µs ({rate:5.1} GFLOP/s)   2 threads {:7.1} µs ({both:5.1})",
            one * 1e6,
            two * 1e6
        );
    }
}
