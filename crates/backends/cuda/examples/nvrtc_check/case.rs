//! A kernel with inputs to run it on, and how near its results must come to the reference.

use onestep_ir::ops::{BinaryKind, ReduceKind, UnaryKind};
use onestep_ir::{Array, DType, Dense};
use onestep_passes::schedule::{
    Access, Affine, Bound, BufferId, Expr, ExprId, LoopKernel, Store, TypedExpr, reference,
};
use std::collections::BTreeMap;

/// What a buffer holds before the launch.
#[derive(Clone, Debug)]
pub enum Fill {
    /// Written by the kernel; poisoned.
    Output,
    /// Uniform reals, or integers truncated from them.
    Uniform(f64, f64),
    /// The numbers at the edges (zeros, infinities, NaN, subnormal, extreme) among random ones of any size.
    Edges,
    /// Reals of at most 16 digits of mantissa, which every conversion to a shorter format rounds alike.
    Short,
    /// Given.
    Numbers(Vec<f64>),
}

/// A buffer of a case.
#[derive(Clone, Debug)]
pub struct Slot {
    pub dtype: DType,
    pub len: usize,
    pub fill: Fill,
}

/// A kernel under test.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub kernel: LoopKernel,
    pub slots: Vec<Slot>,
    /// The greatest relative error; 0 asks for equal bits (any NaN for NaN).
    pub tolerance: f64,
    /// Whether −0 and 0 differ.
    pub zero_signs: bool,
    /// The reference runs these many rows at either end only.
    pub sample: Option<usize>,
}

/// A result that the reference did not write.
const UNWRITTEN: f64 = 77.0;

impl Case {
    pub fn new(name: impl Into<String>, parallel: &[usize], reduced: &[usize]) -> Case {
        let kernel = LoopKernel {
            extents: [parallel, reduced].concat(),
            parallel: parallel.len(),
            body: vec![],
            stores: vec![],
        };
        let name = name.into();
        Case { name, kernel, slots: vec![], tolerance: 0.0, zero_signs: true, sample: None }
    }

    pub fn within(mut self, tolerance: f64) -> Case {
        self.tolerance = tolerance;
        self
    }

    pub fn buffer(&mut self, dtype: DType, len: usize, fill: Fill) -> BufferId {
        self.slots.push(Slot { dtype, len, fill });
        BufferId(self.slots.len() as u32 - 1)
    }

    pub fn push(&mut self, dtype: DType, expr: Expr) -> ExprId {
        self.kernel.body.push(TypedExpr { dtype, expr });
        ExprId(self.kernel.body.len() as u32 - 1)
    }

    pub fn dtype(&self, e: ExprId) -> DType {
        self.kernel.body[e.index()].dtype
    }

    pub fn load_at(&mut self, buffer: BufferId, offset: i64, coefs: &[i64], bounds: Vec<Bound>) -> ExprId {
        let access = Access { buffer, place: Affine { offset, coefs: coefs.to_vec() } };
        self.push(self.slots[buffer.index()].dtype, Expr::Load { access, bounds, fill: 0 })
    }

    pub fn load(&mut self, buffer: BufferId, coefs: &[i64]) -> ExprId {
        self.load_at(buffer, 0, coefs, vec![])
    }

    pub fn number(&mut self, dtype: DType, x: f64) -> ExprId {
        let bytes = Array::from_f64(dtype, &[1], &[x]).expect("one number").bytes().to_vec();
        let bits = bytes.iter().rev().fold(0u64, |bits, &b| bits << 8 | b as u64);
        self.push(dtype, Expr::Literal(bits))
    }

    pub fn index(&mut self, dtype: DType, offset: i64, coefs: &[i64]) -> ExprId {
        self.push(dtype, Expr::Index(Affine { offset, coefs: coefs.to_vec() }))
    }

    pub fn unary(&mut self, kind: UnaryKind, a: ExprId) -> ExprId {
        let dtype = match kind {
            UnaryKind::IsFinite | UnaryKind::IsNan => DType::Bool,
            _ => self.dtype(a),
        };
        self.push(dtype, Expr::Unary(kind, a))
    }

    pub fn binary(&mut self, kind: BinaryKind, a: ExprId, b: ExprId) -> ExprId {
        self.push(self.dtype(a), Expr::Binary(kind, a, b))
    }

    pub fn reduce(&mut self, kind: ReduceKind, a: ExprId) -> ExprId {
        self.push(self.dtype(a), Expr::Reduce(kind, a))
    }

    pub fn cast(&mut self, to: DType, a: ExprId) -> ExprId {
        self.push(to, Expr::Cast(a))
    }

    pub fn store_at(&mut self, buffer: BufferId, value: ExprId, coefs: &[i64]) {
        let access = Access { buffer, place: Affine { offset: 0, coefs: coefs.to_vec() } };
        self.kernel.stores.push(Store { value, access });
    }

    /// Stores to a new buffer of `len` elements.
    pub fn store(&mut self, value: ExprId, len: usize, coefs: &[i64]) -> BufferId {
        let out = self.buffer(self.dtype(value), len, Fill::Output);
        self.store_at(out, value, coefs);
        out
    }

    pub fn dtype_of(&self, b: BufferId) -> DType {
        self.slots[b.index()].dtype
    }

    /// The buffers' contents before the launch, poison in the results.
    pub fn contents(&self) -> Vec<Array> {
        // Never 0, where the generator would stay.
        let mut random = Random(onestep_ir::random::stream_id(&self.name) | 1);
        self.slots.iter().map(|s| s.contents(&mut random)).collect()
    }

    /// What the reference makes of `contents`.
    pub fn reference(&self, contents: &[Array]) -> Vec<Dense> {
        let tensor = |a: &Array| Dense::from_array(a);
        let mut memory: BTreeMap<BufferId, Dense> =
            contents.iter().enumerate().map(|(i, a)| (BufferId(i as u32), tensor(a))).collect();
        let rows = self.kernel.rows();
        match self.sample {
            None => reference::run_loop(&self.kernel, &mut memory),
            Some(n) => {
                reference::run_rows(&self.kernel, 0..n, &mut memory);
                reference::run_rows(&self.kernel, rows - n..rows, &mut memory);
            }
        }
        memory.into_values().collect()
    }

    /// The greatest error of result `b`, infinite for a difference that no tolerance covers.
    pub fn error(&self, b: usize, got: &Array, want: &Dense) -> f64 {
        let slot = &self.slots[b];
        if !slot.dtype.is_float() {
            let unwritten = UNWRITTEN as i64;
            let wrong = |(g, w): (&i64, &i64)| g != w && !(self.sample.is_some() && *w == unwritten);
            let wrong = got.to_i64().iter().zip(want.ints()).any(wrong);
            return if wrong { f64::INFINITY } else { 0.0 };
        }
        let least = match slot.dtype {
            DType::F16 => 6.1e-5,
            DType::F64 => f64::MIN_POSITIVE,
            _ => f32::MIN_POSITIVE as f64,
        };
        let one = |(&g, &w): (&f64, &f64)| {
            if self.sample.is_some() && w == UNWRITTEN || g.is_nan() && w.is_nan() {
                0.0
            } else if g == w {
                let signs =
                    self.zero_signs && self.tolerance == 0.0 && g.is_sign_positive() != w.is_sign_positive();
                if signs { f64::INFINITY } else { 0.0 }
            } else {
                let e = (g - w).abs() / w.abs().max(least);
                if e.is_nan() { f64::INFINITY } else { e }
            }
        };
        let want = want.to_array().map(|a| a.to_f64()).unwrap_or_default();
        if want.len() != got.len() {
            return f64::INFINITY;
        }
        got.to_f64().iter().zip(&want).map(one).fold(0.0, f64::max)
    }

    /// Bytes that the kernel reads and writes if it touches every buffer once.
    pub fn bytes(&self) -> usize {
        self.slots.iter().map(|s| s.len * s.dtype.size()).sum()
    }
}

impl Slot {
    fn contents(&self, random: &mut Random) -> Array {
        let float = self.dtype.is_float();
        let mut reals = |f: &mut dyn FnMut(&mut Random) -> f64| -> Vec<f64> {
            (0..self.len).map(|_| f(random)).collect()
        };
        let numbers = match &self.fill {
            Fill::Output => vec![UNWRITTEN; self.len],
            Fill::Uniform(a, b) => reals(&mut |r| a + (b - a) * r.unit()),
            Fill::Short => reals(&mut |r| {
                let size = (r.unit() * 40.0 - 20.0).exp2();
                f64::from_bits((size * (r.unit() - 0.5)).to_bits() & !((1 << 37) - 1))
            }),
            Fill::Numbers(n) => n.clone(),
            Fill::Edges if float => reals(&mut |r| match r.next() % 24 {
                0 => 0.0,
                1 => -0.0,
                2 => f64::INFINITY,
                3 => f64::NEG_INFINITY,
                4 => f64::NAN,
                5 => 1.0,
                6 => -1.0,
                7 => 2.5,
                8 => 1e-40,
                9 => -3e-7,
                10 => 3e38,
                11 => -7e4,
                n if n < 16 => (r.unit() - 0.5) * 8.0,
                n if n < 20 => ((r.unit() * 240.0) - 120.0).exp2(),
                _ => -((r.unit() * 20.0) - 10.0).exp2(),
            }),
            Fill::Edges => {
                let any = (0..self.len).map(|_| match random.next() % 12 {
                    0 => i64::MIN,
                    1 => i64::MAX,
                    2 | 3 => 0,
                    4 => -1,
                    5 => i32::MIN as i64,
                    6 => 1,
                    7 | 8 => random.next() as i64 % 20,
                    _ => (random.next() << 8) as i64,
                });
                let all = any.map(|x| self.dtype.wrap(x)).collect();
                return Dense::from_ints(self.dtype, &[self.len], all).to_array().expect("sizes agree");
            }
        };
        Array::from_f64(self.dtype, &[self.len], &numbers).expect("sizes agree")
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }
    fn unit(&mut self) -> f64 {
        (self.next() & 0xff_ffff) as f64 / 16_777_216.0 + (self.next() & 0xff_ffff) as f64 / 2.8147497671e14
    }
}
