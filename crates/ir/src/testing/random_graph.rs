//! Random valid graphs with values for their inputs and states, from a seed: what compiled code is compared with the
//! interpreter on.
//!
//! Every float in the pool from which operands are drawn is at most [`TAME`] in magnitude, by squashing whatever
//! grows; so results stay finite, and rounding differences stay small.

use crate::ops::ReduceKind;
use crate::rewrite::rewrite;
use crate::{Array, DType, Dim, Graph, GraphBuilder, Init, Role, Shape, Tensor, Type, dim, random};
use std::collections::BTreeMap;
use std::sync::Arc;

mod scan;

/// The largest magnitude in the pool.
const TAME: f64 = 4.0;
/// The most elements of a tensor.
const LARGEST: usize = 400;
/// The bound of the dimension variable.
const BOUND: usize = 4;

/// What a random graph may contain.
#[derive(Clone, Copy, Debug)]
pub struct RandomOptions {
    /// How many steps are taken; each adds one to four nodes.
    pub steps: usize,
    /// Integer and `bool` tensors too.
    pub integers: bool,
    /// Sizes of 0, now and then.
    pub empty: bool,
    /// Nested regions.
    pub calls: bool,
    /// A dimension variable `B` (at most 4) in some inputs. Such a graph must be bound before it is run.
    pub variables: bool,
}

impl Default for RandomOptions {
    fn default() -> Self {
        RandomOptions { steps: 24, integers: true, empty: true, calls: true, variables: false }
    }
}

struct Rng {
    seed: u64,
    stream: u64,
    drawn: u64,
}

impl Rng {
    fn bits(&mut self) -> u32 {
        self.drawn += 1;
        random::draw([self.seed as u32, (self.seed >> 32) as u32], self.stream, 0, self.drawn - 1)
    }

    fn below(&mut self, n: usize) -> usize {
        self.bits() as usize % n.max(1)
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// A real within `TAME / 2` of 0.
    fn real(&mut self) -> f64 {
        (random::unit(self.bits()) - 0.5) * TAME
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

struct Maker<'g> {
    g: &'g GraphBuilder,
    rng: Rng,
    options: RandomOptions,
    reals: Vec<Tensor<'g>>,
    ints: Vec<Tensor<'g>>,
    bools: Vec<Tensor<'g>>,
}

/// A valid graph, the same for the same seed and options.
pub fn random_graph(seed: u64, options: RandomOptions) -> Graph {
    let g = GraphBuilder::new(&format!("random {seed}"));
    let rng = Rng { seed, stream: random::stream_id("graph"), drawn: 0 };
    let mut m = Maker { g: &g, rng, options, reals: vec![], ints: vec![], bools: vec![] };
    let states = m.interface();
    for _ in 0..options.steps {
        m.step();
    }
    m.finish(&states);
    let graph = g.build().expect("the generator builds only what the rules accept");
    // With values in the order of the text form, in which those that scans capture come first.
    rewrite(&graph, &mut |_, _, _| None).expect("a copy of a valid graph")
}

impl<'g> Maker<'g> {
    fn size(&mut self) -> usize {
        if self.options.empty && self.rng.chance(40) { 0 } else { self.rng.pick(&[1, 2, 3, 4, 5, 7]) }
    }

    fn sizes(&mut self) -> Vec<usize> {
        let rank = self.rng.pick(&[0, 1, 2, 2, 2, 3]);
        (0..rank).map(|_| self.size()).collect()
    }

    /// Inputs and states; gives the states that are floats.
    fn interface(&mut self) -> Vec<Tensor<'g>> {
        for i in 0..2 + self.rng.below(3) {
            let mut shape = Shape::fixed(&self.sizes());
            if self.options.variables && i != 1 && shape.rank() > 0 {
                shape.0[0] = Dim::var("B");
                // Declares the variable.
                self.g.input(&format!("sizes{i}"), DType::F32, [dim("B").at_most(BOUND)]);
            }
            let x = self.g.input(&format!("x{i}"), DType::F32, shape);
            self.reals.push(x);
        }
        if self.options.integers {
            let (a, b) = (self.sizes(), self.sizes());
            self.ints.push(self.g.input("n", DType::I32, Shape::fixed(&a)));
            self.bools.push(self.g.input("mask", DType::Bool, Shape::fixed(&b)));
        }
        let shared = self.sizes();
        let mut states = vec![];
        for i in 0..2 + self.rng.below(4) {
            // The first two have one shape, so that they can be swapped.
            let shape = if i < 2 { shared.clone() } else { self.sizes() };
            let init = self.rng.pick(&[
                Init::ZEROS,
                Init::Constant(0.1),
                Init::Uniform { low: -0.5, high: 0.5 },
                Init::Normal { mean: 0.0, std: 0.5 },
            ]);
            let role = self.rng.pick(&[Role::Parameter, Role::Slot, Role::Buffer]);
            states.push(self.g.state(&format!("layer.{i}.w"), role, DType::F32, &shape, init));
        }
        self.reals.extend(&states);
        states
    }

    /// The most elements that the tensor may have.
    fn count(t: Tensor<'g>) -> usize {
        let most = |d: &Dim| d.vars().iter().fold(d.coef(), |n, _| n.saturating_mul(BOUND));
        t.shape().0.iter().map(most).fold(1, usize::saturating_mul)
    }

    fn keep(&mut self, t: Tensor<'g>) {
        if Self::count(t) > LARGEST || t.rank() > 4 {
            return;
        }
        match t.dtype() {
            DType::F32 => self.reals.push(t),
            DType::Bool => self.bools.push(t),
            _ => self.ints.push(t),
        }
    }

    /// A float tensor, more often a late one.
    fn real(&mut self) -> Tensor<'g> {
        let n = self.reals.len();
        let from = if self.rng.chance(2) { n.saturating_sub(6) } else { 0 };
        self.reals[from + self.rng.below(n - from)]
    }

    /// Two float tensors that go together elementwise.
    fn pair(&mut self) -> (Tensor<'g>, Tensor<'g>) {
        let a = self.real();
        let same: Vec<Tensor<'g>> = self.reals.iter().copied().filter(|t| t.shape() == a.shape()).collect();
        let b = match self.rng.below(4) {
            0 => self.real().sum_all().tanh(),
            1 if a.rank() > 0 => {
                let axis = self.rng.below(a.rank()) as isize;
                a.max_keep(&[axis]).tanh()
            }
            _ => self.rng.pick(&same),
        };
        (a, b)
    }

    fn step(&mut self) {
        let made = match self.rng.below(if self.options.integers { 17 } else { 12 }) {
            0 | 1 => self.unary(),
            2 | 3 => self.binary(),
            4 => self.reduce(),
            5 if self.rng.chance(2) => self.join(),
            5 => self.reshape(),
            6 => self.transpose(),
            7 => self.broadcast(),
            8 | 9 => self.matmul(),
            10 => self.constant(),
            11 => self.call(),
            12 => {
                let (a, b) = self.pair();
                match self.rng.below(4) {
                    0 => a.less(b),
                    1 => a.greater_equal(b),
                    2 => a.equals(b),
                    _ => a.is_finite(),
                }
            }
            13 => self.select(),
            14 => self.cast(),
            15 => self.integer(),
            _ => self.truth(),
        };
        self.keep(made);
    }

    fn unary(&mut self) -> Tensor<'g> {
        let x = self.real();
        match self.rng.below(18) {
            0 => x.tanh(),
            13 => x.atan(),
            14 => x.asinh(),
            15 => (x * 0.25).cosh(),
            16 => x.erfc(),
            1 => x.sigmoid(),
            2 => x.relu(),
            3 => x.negate(),
            4 => x.abs(),
            5 => x.abs().negate().exp(),
            6 => (x.abs() + 1.0).log(),
            7 => x.abs().sqrt(),
            8 => (x.square() + 1.0).rsqrt(),
            9 => x.sin(),
            10 => x.cos(),
            11 => x.erf(),
            12 => (x.square() + 1.0).reciprocal(),
            _ => x * 0.75,
        }
    }

    fn binary(&mut self) -> Tensor<'g> {
        let (a, b) = self.pair();
        match self.rng.below(7) {
            0 => (a + b) * 0.5,
            6 => a.atan2(b.square() + 1.0),
            1 => (a - b) * 0.5,
            2 => (a * b).tanh(),
            3 => a / (b.square() + 1.0),
            4 => a.maximum(b),
            _ => a.minimum(b),
        }
    }

    fn reduce(&mut self) -> Tensor<'g> {
        let x = self.real();
        if x.rank() > 0 && self.rng.chance(4) {
            return self.ordered(x);
        }
        let axes: Vec<isize> = (0..x.rank() as isize).filter(|_| self.rng.chance(2)).collect();
        let out = match self.rng.below(6) {
            0 => x.max(&axes),
            1 => x.min(&axes),
            2 => x.tanh().prod(&axes),
            3 => x.sum_keep(&axes),
            _ => x.sum(&axes),
        };
        // Also makes the extremes over nothing finite.
        (out * 0.5).tanh()
    }

    /// Scans, and the values of a sort: the places would hang on the last bit of equal ones.
    fn ordered(&mut self, x: Tensor<'g>) -> Tensor<'g> {
        let axis = self.rng.below(x.rank()) as isize;
        let (exclusive, reverse) = (self.rng.chance(3), self.rng.chance(2));
        let out = match self.rng.below(5) {
            0 => return x.sort(axis, reverse).0,
            1 => x.tanh().cumulative(ReduceKind::Prod, axis, exclusive, reverse),
            2 => x.cumulative(ReduceKind::Max, axis, exclusive, reverse),
            3 => x.cumulative(ReduceKind::Min, axis, exclusive, reverse),
            _ => x.cumulative(ReduceKind::Sum, axis, exclusive, reverse),
        };
        // Also makes the extremes over nothing finite.
        (out * 0.5).tanh()
    }

    fn reshape(&mut self) -> Tensor<'g> {
        let x = self.real();
        let mut dims = x.shape().0;
        match self.rng.below(4) {
            0 => {
                let axis = self.rng.below(dims.len() + 1);
                dims.insert(axis, Dim::fixed(1));
            }
            1 => dims.retain(|d| !d.is_one()),
            2 if dims.len() > 1 => {
                let at = self.rng.below(dims.len() - 1);
                let next = dims.remove(at + 1);
                if let Some(both) = dims[at].times(&next) {
                    dims[at] = both;
                }
            }
            _ => dims = x.shape().count().into_iter().collect(),
        }
        x.reshape(Shape(dims))
    }

    /// Tensors of one shape, or the parts of one, one behind the other.
    fn join(&mut self) -> Tensor<'g> {
        let x = self.real();
        let fixed: Vec<usize> = (0..x.rank()).filter(|&d| x.shape().0[d].size().is_some()).collect();
        let Some(&axis) = fixed.get(self.rng.below(fixed.len())) else { return x };
        let size = x.shape().0[axis].size().unwrap_or(0);
        let axis = axis as isize;
        let mut parts: Vec<Tensor<'g>> = if self.rng.chance(2) {
            let cut = self.rng.below(size + 1);
            let (a, b) = (x.slice(axis, 0, cut), x.slice(axis, cut, size));
            // As they come they would be the tensor itself.
            vec![b, (a * 0.5).sin()]
        } else {
            let same: Vec<Tensor<'g>> =
                self.reals.iter().copied().filter(|t| t.shape() == x.shape()).collect();
            vec![x, self.rng.pick(&same), self.rng.pick(&same)]
        };
        if self.rng.chance(2) {
            parts.rotate_left(1);
        }
        self.g.concat(&parts, axis)
    }

    fn transpose(&mut self) -> Tensor<'g> {
        let x = self.real();
        if self.rng.chance(3) {
            let axes: Vec<isize> = (0..x.rank() as isize).filter(|_| self.rng.chance(2)).collect();
            return x.reverse(&axes);
        }
        let mut perm: Vec<usize> = (0..x.rank()).collect();
        for i in (1..perm.len()).rev() {
            let j = self.rng.below(i + 1);
            perm.swap(i, j);
        }
        x.transpose(&perm)
    }

    fn broadcast(&mut self) -> Tensor<'g> {
        let x = self.real();
        let mut dims = x.shape().0;
        for d in dims.iter_mut().filter(|d| d.is_one()) {
            *d = Dim::fixed(self.rng.pick(&[1, 2, 3]));
        }
        if self.rng.chance(2) {
            dims.insert(0, Dim::fixed(self.rng.pick(&[1, 2, 3])));
        }
        x.broadcast(&Shape(dims))
    }

    fn matmul(&mut self) -> Tensor<'g> {
        let matrices: Vec<Tensor<'g>> = self.reals.iter().copied().filter(|t| t.rank() >= 2).collect();
        if matrices.is_empty() {
            return self.unary();
        }
        let a = self.rng.pick(&matrices);
        let rows = |t: Tensor<'g>| t.shape().0[t.rank() - 2].clone();
        let columns = |t: Tensor<'g>| t.shape().0[t.rank() - 1].clone();
        let fits = |b: &Tensor<'g>| b.rank() == 2 && rows(*b) == columns(a);
        let right: Vec<Tensor<'g>> = matrices.iter().copied().filter(fits).collect();
        let product = match self.rng.below(3) {
            0 => a.matmul_t(a, true, false),
            1 if !right.is_empty() => a.matmul(self.rng.pick(&right)),
            _ => a.matmul_t(a, false, true),
        };
        (product * 0.25).tanh()
    }

    fn constant(&mut self) -> Tensor<'g> {
        let shape = self.real().shape();
        match (self.rng.below(3), shape.sizes()) {
            (0, Some(sizes)) if sizes.iter().product::<usize>() <= LARGEST => {
                let n = sizes.iter().product();
                let values: Vec<f64> = (0..n).map(|_| self.rng.real()).collect();
                let array = Array::from_f64(DType::F32, &sizes, &values);
                self.g.constant(array.expect("as many values as the sizes say"))
            }
            (1, _) if shape.rank() > 0 => {
                let axis = self.rng.below(shape.rank());
                (self.g.iota(DType::F32, shape, axis) * 0.25).sin()
            }
            _ => {
                let value = self.rng.real();
                self.g.full(DType::F32, shape, value)
            }
        }
    }

    fn call(&mut self) -> Tensor<'g> {
        if !self.options.calls {
            return self.unary();
        }
        if self.rng.chance(2) {
            return self.scan();
        }
        let (a, b) = self.pair();
        let nested = self.rng.chance(3);
        if self.rng.chance(3) {
            // What is kept for later steps leaves the checkpoint.
            return self.g.checkpoint("again", || (a.exp() * 0.1 + b.tanh()).sin() * a);
        }
        let results = self.g.call("part", &[a, b], |p| {
            let product = (p[0] * p[1]).tanh();
            if nested {
                let inner = self.g.call("part.inner", &[product], |q| vec![q[0].cos(), q[0] * 0.5]);
                vec![inner[1] - inner[0], p[1]]
            } else {
                vec![product.abs(), p[0]]
            }
        });
        results[0]
    }

    fn select(&mut self) -> Tensor<'g> {
        let (a, b) = self.pair();
        let (a, b) = a.stretched(b);
        let fits: Vec<Tensor<'g>> =
            self.bools.iter().copied().filter(|c| c.shape() == a.shape() || c.rank() == 0).collect();
        let condition = if fits.is_empty() { a.less(b) } else { self.rng.pick(&fits) };
        condition.select(a, b)
    }

    fn cast(&mut self) -> Tensor<'g> {
        match self.rng.below(4) {
            0 => (self.real() * 3.0).cast(DType::I32),
            1 if !self.ints.is_empty() => (self.rng.pick(&self.ints).cast(DType::F32) * 0.125).tanh(),
            2 if !self.bools.is_empty() => self.rng.pick(&self.bools).cast(DType::F32),
            _ if !self.bools.is_empty() => self.rng.pick(&self.bools).cast(DType::I32),
            _ => self.real().cast(DType::I32),
        }
    }

    fn integer(&mut self) -> Tensor<'g> {
        let a = self.rng.pick(&self.ints);
        let same: Vec<Tensor<'g>> = self.ints.iter().copied().filter(|t| t.shape() == a.shape()).collect();
        let b = self.rng.pick(&same);
        match self.rng.below(9) {
            0 => a + b,
            1 => a - b,
            2 => a * b,
            3 => a / b,
            4 => a.maximum(b),
            5 => a.remainder(b),
            6 => a.xor(b),
            7 => a.less(b),
            _ => a.sum_all(),
        }
    }

    fn truth(&mut self) -> Tensor<'g> {
        let a = self.rng.pick(&self.bools);
        let same: Vec<Tensor<'g>> = self.bools.iter().copied().filter(|t| t.shape() == a.shape()).collect();
        let b = self.rng.pick(&same);
        match self.rng.below(5) {
            0 => a.and(b),
            1 => a.or(b),
            2 => a.not(),
            3 => a.all(),
            _ => a.any(),
        }
    }

    fn finish(&mut self, states: &[Tensor<'g>]) {
        let loss = self.real().sum_all().tanh();
        self.g.output("loss", loss);
        for i in 0..1 + self.rng.below(3) {
            let out = match self.rng.below(4) {
                0 if !self.ints.is_empty() => self.rng.pick(&self.ints),
                1 if !self.bools.is_empty() => self.rng.pick(&self.bools),
                _ => self.real(),
            };
            self.g.output(&format!("out{i}"), out);
        }
        let swapped = self.rng.chance(3);
        for (i, &state) in states.iter().enumerate() {
            let guarded = !self.rng.chance(3);
            let same: Vec<Tensor<'g>> =
                self.reals.iter().copied().filter(|t| t.shape() == state.shape()).collect();
            let new = match self.rng.below(4) {
                _ if swapped && i < 2 => states[1 - i],
                0 => continue,
                1 => self.rng.pick(&same),
                _ => state * 0.875 + self.real().sum_all().tanh() * 0.125,
            };
            self.g.update(state, new, guarded);
        }
        if self.rng.chance(2) {
            let guard = if self.rng.chance(3) { loss.greater(0.0) } else { loss.is_finite() };
            self.g.set_guard(guard);
        }
    }
}

fn values(ty: &Type, seed: u64, path: &str) -> Array {
    let sizes = ty.sizes();
    let n: usize = sizes.iter().product();
    let mut rng = Rng { seed, stream: random::stream_id(path), drawn: 0 };
    let data: Vec<f64> = (0..n)
        .map(|_| match ty.dtype {
            d if d.is_float() => rng.real(),
            DType::Bool => rng.below(2) as f64,
            DType::U32 | DType::I8 | DType::U8 => rng.below(9) as f64,
            _ => rng.below(19) as f64 - 9.0,
        })
        .collect();
    Array::from_f64(ty.dtype, &sizes, &data).expect("as many values as the sizes say")
}

/// Values for the inputs of a bound graph, in order.
pub fn random_inputs(graph: &Graph, seed: u64) -> Vec<Array> {
    graph.inputs.iter().map(|p| values(graph.ty(p.value), seed, &format!("input {}", p.name))).collect()
}

/// Values for the states of a graph.
pub fn random_state(graph: &Graph, seed: u64) -> BTreeMap<Arc<str>, Array> {
    let one = |s: &crate::StatePort| values(graph.ty(s.value), seed, &format!("state {}", s.name));
    graph.states.iter().map(|s| (s.name.clone(), one(s))).collect()
}
