//! Kernels as text-like builders, buffers as bytes, and the comparison of runs.

use onestep_cpu::pool::Pool;
use onestep_cpu::tape::{LoopTape, Options};
use onestep_ir::ops::{BinaryKind, CompareKind, ReduceKind, UnaryKind};
use onestep_ir::{DType, Data, Dense, Fp8};
use onestep_passes::schedule::reference::{self, Number};
use onestep_passes::schedule::{Access, Affine, Bound, BufferId, Expr, ExprId, LoopKernel, Store, TypedExpr};
use std::collections::BTreeMap;

/// A small generator of numbers (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Builds a kernel and its buffers.
#[derive(Clone)]
pub struct Builder {
    pub kernel: LoopKernel,
    pub dtypes: Vec<DType>,
    pub sizes: Vec<usize>,
}

impl Builder {
    pub fn new(extents: &[usize], parallel: usize) -> Builder {
        let kernel = LoopKernel { extents: extents.to_vec(), parallel, body: vec![], stores: vec![] };
        Builder { kernel, dtypes: vec![], sizes: vec![] }
    }
    pub fn buffer(&mut self, dtype: DType, size: usize) -> BufferId {
        self.dtypes.push(dtype);
        self.sizes.push(size);
        BufferId(self.dtypes.len() as u32 - 1)
    }
    pub fn push(&mut self, dtype: DType, expr: Expr) -> ExprId {
        self.kernel.body.push(TypedExpr { dtype, expr });
        ExprId(self.kernel.body.len() as u32 - 1)
    }
    pub fn dtype(&self, e: ExprId) -> DType {
        self.kernel.body[e.index()].dtype
    }
    /// A buffer of the right size, loaded with these coefficients.
    pub fn load(&mut self, dtype: DType, coefs: &[i64]) -> ExprId {
        let (place, size) = self.place(coefs);
        let buffer = self.buffer(dtype, size);
        self.push(dtype, Expr::Load { access: Access { buffer, place }, bounds: vec![], fill: 0 })
    }
    /// The affine map whose least value is 0, and one more than its largest.
    pub fn place(&self, coefs: &[i64]) -> (Affine, usize) {
        let span = |c: &i64, n: usize| c * n.saturating_sub(1) as i64;
        let spans = coefs.iter().zip(&self.kernel.extents);
        let offset = -spans.clone().map(|(c, &n)| span(c, n).min(0)).sum::<i64>();
        let most = offset + spans.map(|(c, &n)| span(c, n).max(0)).sum::<i64>();
        (Affine { offset, coefs: coefs.to_vec() }, most as usize + 1)
    }
    pub fn literal(&mut self, x: f32) -> ExprId {
        self.push(DType::F32, Expr::Literal(x.to_bits() as u64))
    }
    pub fn unary(&mut self, kind: UnaryKind, a: ExprId) -> ExprId {
        let test = matches!(kind, UnaryKind::IsFinite | UnaryKind::IsNan);
        let dtype = if test { DType::Bool } else { self.dtype(a) };
        self.push(dtype, Expr::Unary(kind, a))
    }
    pub fn binary(&mut self, kind: BinaryKind, a: ExprId, b: ExprId) -> ExprId {
        self.push(self.dtype(a), Expr::Binary(kind, a, b))
    }
    pub fn compare(&mut self, kind: CompareKind, a: ExprId, b: ExprId) -> ExprId {
        self.push(DType::Bool, Expr::Compare(kind, a, b))
    }
    pub fn reduce(&mut self, kind: ReduceKind, a: ExprId) -> ExprId {
        self.push(self.dtype(a), Expr::Reduce(kind, a))
    }
    pub fn cast(&mut self, dtype: DType, a: ExprId) -> ExprId {
        self.push(dtype, Expr::Cast(a))
    }
    /// Row-major coefficients of the axes that are set.
    pub fn dense(&self, keep: &[bool]) -> Vec<i64> {
        let mut step = 1;
        let mut coefs = vec![0; keep.len()];
        for axis in (0..keep.len()).rev().filter(|&a| keep[a]) {
            coefs[axis] = step;
            step *= self.kernel.extents[axis].max(1) as i64;
        }
        coefs
    }
    /// Stores to a new buffer: over all axes, or of the row.
    pub fn store(&mut self, value: ExprId, everywhere: bool) -> BufferId {
        let keep: Vec<bool> =
            (0..self.kernel.extents.len()).map(|a| everywhere || a < self.kernel.parallel).collect();
        let (place, size) = self.place(&self.dense(&keep));
        let buffer = self.buffer(self.dtype(value), size);
        self.kernel.stores.push(Store { value, access: Access { buffer, place } });
        buffer
    }
    pub fn tape(&self, options: Options) -> LoopTape {
        LoopTape::with(&self.kernel, &|b| self.dtypes[b.index()], options)
            .unwrap_or_else(|e| panic!("{e}\n{}", self.kernel))
    }
}

/// A bound that holds where `lo <= index < hi` of one axis, the index shifted so that it starts at 0.
pub fn bound(axis: usize, rank: usize, lo: i64, hi: i64, step: i64) -> Bound {
    let mut index = Affine::constant(-lo, rank);
    index.coefs[axis] = 1;
    Bound { index, size: hi - lo, step }
}

/// Bytes of a number in a dtype.
pub fn encode(dtype: DType, x: Number) -> Vec<u8> {
    let size = dtype.size();
    let bits = match dtype {
        DType::F64 => x.real().to_bits(),
        DType::F32 => (x.real() as f32).to_bits() as u64,
        DType::F16 => half::f16::from_f64(x.real()).to_bits() as u64,
        DType::BF16 => half::bf16::from_f64(x.real()).to_bits() as u64,
        DType::F8E4M3 => Fp8::E4M3.encode(x.real()) as u64,
        DType::F8E5M2 => Fp8::E5M2.encode(x.real()) as u64,
        _ => x.int() as u64,
    };
    bits.to_le_bytes()[..size].to_vec()
}

pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<Number> {
    let one = |c: &[u8]| {
        let mut b = [0; 8];
        b[..c.len()].copy_from_slice(c);
        reference::decode(dtype, u64::from_le_bytes(b))
    };
    bytes.chunks_exact(dtype.size()).map(one).collect()
}

/// Storage of all buffers: 8-byte words, so aligned.
pub type Memory = Vec<Vec<u64>>;

pub fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |c: &[u8]| {
        let mut b = [0; 8];
        b[..c.len()].copy_from_slice(c);
        u64::from_le_bytes(b)
    };
    bytes.chunks(8).map(word).collect()
}

pub fn bytes(memory: &[u64], len: usize) -> Vec<u8> {
    memory.iter().flat_map(|w| w.to_le_bytes()).take(len).collect()
}

/// Random contents: floats around 1 with some special values when asked, small integers.
pub fn fill(b: &Builder, rng: &mut Rng, special: bool) -> Memory {
    let contents = |dtype: DType, size: usize, rng: &mut Rng| {
        let number = |rng: &mut Rng| match dtype {
            DType::Bool => Number::Int(rng.below(2) as i64),
            DType::U8 => Number::Int(rng.below(256) as i64),
            DType::U32 => Number::Int(rng.next() as u32 as i64 >> rng.below(32)),
            DType::I32 => Number::Int(rng.next() as i32 as i64 >> rng.below(32)),
            DType::I64 => Number::Int(rng.next() as i64 >> rng.below(64)),
            _ if special && rng.chance(3) => Number::Real(rng.pick(&[
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                0.0,
                -0.0,
                1e30,
                -1e30,
                1e-42,
            ])),
            _ => Number::Real((rng.unit() - 0.4) * 4.0),
        };
        let all: Vec<u8> = (0..size).flat_map(|_| encode(dtype, number(rng))).collect();
        words(&all)
    };
    b.dtypes.iter().zip(&b.sizes).map(|(&d, &n)| contents(d, n, rng)).collect()
}

/// Runs all chunks, each phase in the order that `shuffle` gives, on a pool.
pub fn run(tape: &LoopTape, memory: &mut Memory, alias: &BTreeMap<usize, usize>, pool: &Pool, shuffle: u64) {
    struct Shared(*mut u8, Vec<*mut u8>, Vec<*mut u8>);
    // SAFETY: chunks write disjoint memory, and each thread has scratch of its own.
    unsafe impl Sync for Shared {}
    let mut base: Vec<*mut u8> = memory.iter_mut().map(|m| m.as_mut_ptr().cast()).collect();
    for (&from, &to) in alias {
        base[from] = base[to];
    }
    let mut scratch: Vec<Vec<u8>> = vec![vec![0xa5; tape.scratch_bytes()]; pool.threads()];
    let mut partials = vec![0xa5u8; tape.shared_bytes()];
    let places = Shared(partials.as_mut_ptr(), base, scratch.iter_mut().map(|s| s.as_mut_ptr()).collect());
    for phase in 0..tape.phases() {
        let mut order: Vec<usize> = (0..tape.chunks(phase)).collect();
        let mut rng = Rng(shuffle);
        for i in (1..order.len()).rev().filter(|_| shuffle != 0) {
            order.swap(i, rng.below(i + 1));
        }
        let places = &places;
        pool.run(order.len(), &|thread, i| {
            // SAFETY: the buffers are as large as the kernel's accesses need, and the scratch is this thread's.
            unsafe { tape.run_chunk(phase, order[i], &places.1, places.2[thread], places.0) };
        });
    }
}

/// Runs all rows in pieces.
pub fn run_rows(tape: &LoopTape, rows: usize, memory: &mut Memory, rng: &mut Rng) {
    let base: Vec<*mut u8> = memory.iter_mut().map(|m| m.as_mut_ptr().cast()).collect();
    let mut scratch = vec![0u8; tape.scratch_bytes()];
    let mut start = 0;
    while start < rows {
        let end = (start + 1 + rng.below(rows)).min(rows);
        // SAFETY: the buffers are as large as the kernel's accesses need.
        unsafe { tape.run_rows(start..end, &base, scratch.as_mut_ptr()) };
        start = end;
    }
}

/// The reference's results from the same contents.
pub fn oracle(b: &Builder, memory: &Memory) -> Vec<Vec<Number>> {
    let dense = |i: usize| {
        let dtype = b.dtypes[i];
        let numbers = decode(dtype, &bytes(&memory[i], b.sizes[i] * dtype.size()));
        let data = if dtype.is_float() {
            Data::Reals(numbers.iter().map(|n| n.real()).collect())
        } else {
            Data::Ints(numbers.iter().map(|n| n.int()).collect())
        };
        Dense { dtype, shape: vec![b.sizes[i]], data }
    };
    let mut all: BTreeMap<BufferId, Dense> =
        (0..b.dtypes.len()).map(|i| (BufferId(i as u32), dense(i))).collect();
    reference::run_loop(&b.kernel, &mut all);
    let numbers = |d: &Dense| match &d.data {
        Data::Reals(v) => v.iter().map(|&x| Number::Real(x)).collect(),
        Data::Ints(v) => v.iter().map(|&x| Number::Int(x)).collect(),
    };
    all.values().map(numbers).collect()
}

/// A buffer's numbers.
pub fn numbers(b: &Builder, memory: &Memory, i: usize) -> Vec<Number> {
    decode(b.dtypes[i], &bytes(&memory[i], b.sizes[i] * b.dtypes[i].size()))
}

/// Equal bits, but for what NaN it is.
pub fn same_bits(b: &Builder, x: &Memory, y: &Memory, what: &str) {
    for i in 0..b.dtypes.len() {
        let (p, q) = (numbers(b, x, i), numbers(b, y, i));
        for (k, (p, q)) in p.iter().zip(&q).enumerate() {
            let same = match (p, q) {
                (Number::Real(p), Number::Real(q)) => {
                    p.to_bits() == q.to_bits() || (p.is_nan() && q.is_nan())
                }
                _ => p == q,
            };
            assert!(same, "{what}: b{i}[{k}] is {p:?} and {q:?} in\n{}", b.kernel);
        }
    }
}

/// Close to the reference: integers equal, reals within `relative` of the larger of the two and of `floor`.
pub fn close(b: &Builder, got: &Memory, want: &[Vec<Number>], relative: f64, floor: f64) {
    for i in 0..b.dtypes.len() {
        for (k, (p, q)) in numbers(b, got, i).iter().zip(&want[i]).enumerate() {
            let fine = match (p, q) {
                (Number::Real(p), Number::Real(q)) => {
                    p == q
                        || (p.is_nan() && q.is_nan())
                        || (p - q).abs() <= relative * p.abs().max(q.abs()).max(floor)
                }
                _ => p == q,
            };
            assert!(fine, "b{i}[{k}] is {p:?}, the reference says {q:?} in\n{}", b.kernel);
        }
    }
}
