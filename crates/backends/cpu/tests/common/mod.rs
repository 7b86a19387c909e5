//! A schedule of one kernel, its storage, and random numbers for the tests of this backend.
#![allow(dead_code)]

pub mod op;

use onestep_cpu::CpuProgram;
use onestep_cpu::library::gemm::Isa;
use onestep_cpu::pool::Pool;
use onestep_ir::ops::{BinaryKind, UnaryKind};
use onestep_ir::{Array, DType};
use onestep_passes::schedule::{
    Access, Affine, Buffer, BufferId, BufferKind, Expr, ExprId, Kernel, LoopKernel, Schedule, Store,
    TypedExpr, View,
};

/// A schedule under construction, with the inputs' values.
#[derive(Default)]
pub struct Case {
    pub schedule: Schedule,
    pub values: Vec<Option<Array>>,
}

impl Case {
    pub fn input(&mut self, value: Array) -> BufferId {
        let id = self.buffer(value.dtype(), value.shape(), BufferKind::Input(self.values.len()));
        self.values[id.index()] = Some(value);
        id
    }

    pub fn temp(&mut self, dtype: DType, shape: &[usize]) -> BufferId {
        self.buffer(dtype, shape, BufferKind::Temp)
    }

    fn buffer(&mut self, dtype: DType, shape: &[usize], kind: BufferKind) -> BufferId {
        let id = BufferId(self.values.len() as u32);
        self.schedule.buffers.push(Buffer { name: format!("b{}", id.0), dtype, shape: shape.to_vec(), kind });
        self.values.push(None);
        id
    }

    pub fn push(&mut self, kernel: Kernel) {
        self.schedule.kernels.push(kernel);
    }

    /// Runs with so many threads; the values of all buffers. Temporaries begin as garbage.
    pub fn run_with(&self, threads: usize, isa: Isa) -> Vec<Array> {
        self.run_shifted(threads, isa, 0)
    }

    /// The same with every buffer this many elements behind a multiple of 8 bytes.
    fn run_shifted(&self, threads: usize, isa: Isa, shift: usize) -> Vec<Array> {
        let program = CpuProgram::with_isa(&self.schedule, isa).expect("the schedule compiles");
        let pool = Pool::new(threads).unwrap();
        let offsets: Vec<usize> = self.schedule.buffers.iter().map(|b| shift * b.dtype.size()).collect();
        let moved = self.storage().into_iter().zip(&offsets).map(|(s, &offset)| shifted(&s, offset));
        let mut storage: Vec<Vec<u64>> = moved.collect();
        let starts = storage.iter_mut().map(|s| s.as_mut_ptr().cast::<u8>());
        let pointers: Vec<*mut u8> =
            starts.zip(&offsets).map(|(p, &offset)| p.wrapping_add(offset)).collect();
        let mut scratch = vec![0xffu8; program.scratch_bytes(threads) + 64];
        let scratch = scratch.as_mut_ptr();
        let scratch = scratch.wrapping_add(scratch.align_offset(64));
        // SAFETY: every buffer has its bytes, aligned for its dtype, in a vector of its own; the scratch is as large as
        // asked.
        unsafe { program.run(&pool, &pointers, scratch) };
        let buffers = self.schedule.buffers.iter().zip(&storage).zip(&offsets);
        let array = |((b, s), &at): ((&Buffer, &Vec<u64>), &usize)| {
            Array::from_bytes(b.dtype, &b.shape, &bytes(s)[at..][..b.bytes()]).unwrap()
        };
        buffers.map(array).collect()
    }

    pub fn run(&self) -> Vec<Array> {
        let one = self.run_with(1, Isa::detect());
        let two = self.run_with(2, Isa::detect());
        for (a, b) in one.iter().zip(&two) {
            assert_eq!(a.bytes(), b.bytes(), "one thread and two differ");
        }
        // A caller's own storage is aligned for its elements, and no better.
        let shifted = self.run_shifted(1, Isa::detect(), 1);
        for (a, b) in one.iter().zip(&shifted) {
            assert_eq!(a.bytes(), b.bytes(), "the bits depend on the storage's alignment");
        }
        one
    }

    pub fn storage(&self) -> Vec<Vec<u64>> {
        let fill = |(b, v): (&Buffer, &Option<Array>)| {
            let mut words = vec![u64::MAX; b.bytes().div_ceil(8).max(1)];
            if let Some(v) = v {
                for (w, part) in words.iter_mut().zip(v.bytes().chunks(8)) {
                    let mut eight = [0; 8];
                    eight[..part.len()].copy_from_slice(part);
                    *w = u64::from_le_bytes(eight);
                }
            }
            words
        };
        self.schedule.buffers.iter().zip(&self.values).map(fill).collect()
    }
}

/// The same bytes behind `offset` others.
fn shifted(words: &[u64], offset: usize) -> Vec<u64> {
    let mut all = [vec![0xff; offset], bytes(words)].concat();
    all.resize(all.len().next_multiple_of(8), 0xff);
    all.chunks(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap())).collect()
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// The dense view of a whole buffer.
pub fn dense(buffer: BufferId, shape: &[usize]) -> View {
    View { buffer, offset: 0, shape: shape.to_vec(), strides: onestep_ir::row_major(shape) }
}

/// Numbers in (-1, 1), the same for the same seed (an LCG's upper bits).
pub fn noise(seed: u64, n: usize) -> Vec<f64> {
    let mut s = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        s = s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (s >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    };
    (0..n).map(next).collect()
}

pub fn random(dtype: DType, shape: &[usize], seed: u64) -> Array {
    Array::from_f64(dtype, shape, &noise(seed, shape.iter().product())).unwrap()
}

/// `store = tanh(out + bias[column])`, over `[rows, n]`.
pub fn bias_tanh(rows: usize, n: usize, case: &mut Case, out: BufferId) -> LoopKernel {
    let bias = case.input(random(DType::F32, &[n], 3));
    let result = case.temp(DType::F32, &[rows, n]);
    let at = |buffer, row: i64| Access { buffer, place: Affine { offset: 0, coefs: vec![row, 1] } };
    let load = |buffer, row| Expr::Load { access: at(buffer, row), bounds: vec![], fill: 0 };
    let body = [
        load(out, n as i64),
        load(bias, 0),
        Expr::Binary(BinaryKind::Add, ExprId(0), ExprId(1)),
        Expr::Unary(UnaryKind::Tanh, ExprId(2)),
    ];
    let body = body.into_iter().map(|expr| TypedExpr { dtype: DType::F32, expr }).collect();
    let stores = vec![Store { value: ExprId(3), access: at(result, n as i64) }];
    LoopKernel { extents: vec![rows, n], parallel: 2, body, stores }
}
