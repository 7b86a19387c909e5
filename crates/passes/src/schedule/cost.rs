//! What a kernel costs at the least, from the schedule alone: floating-point operations and bytes. Estimates for people:
//! they choose nothing.
//!
//! An addition, a product, a comparison of reals and an exponential count as one operation each; a matrix product counts
//! two for each term, attention is counted in full though half of it may be masked. Bytes are those of the elements that a
//! kernel touches in each buffer, once, as if the caches were endless.

use super::{Access, BufferId, Expr, Kernel, LibraryKernel, LoopKernel, Schedule, View};
use onestep_ir::Op;
use onestep_ir::ops::AttentionLayout;
use std::collections::HashMap;
use std::ops::AddAssign;

/// Operations and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

impl Cost {
    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_add(self.written)
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.flops = self.flops.saturating_add(other.flops);
        self.read = self.read.saturating_add(other.read);
        self.written = self.written.saturating_add(other.written);
    }
}

/// The product, as far as it fits.
fn product(sizes: impl IntoIterator<Item = usize>) -> u64 {
    sizes.into_iter().fold(1u64, |n, s| n.saturating_mul(s as u64))
}

impl Kernel {
    /// What the kernel costs.
    pub fn cost(&self, schedule: &Schedule) -> Cost {
        let mut touched: HashMap<BufferId, u64> = HashMap::new();
        let flops = match self {
            Kernel::Loops(parts) => parts.iter().map(|p| p.work(&mut touched)).fold(0, u64::saturating_add),
            Kernel::Matmul(m) => {
                let (batch, rows, n, k) = m.sizes();
                [&m.lhs, &m.rhs].into_iter().for_each(|v| view(v, &mut touched));
                let epilogue = m.epilogue.iter().map(|e| e.work(&mut touched)).sum::<u64>();
                // The product is in cache when its epilogue reads it.
                touched.remove(&m.out);
                product([2, batch, rows, n, k]).saturating_add(epilogue)
            }
            Kernel::Library(l) => {
                l.operands.iter().for_each(|v| view(v, &mut touched));
                l.flops()
            }
            Kernel::Scan(s) => {
                s.operands().for_each(|v| view(v, &mut touched));
                let body = s.body.kernels.iter().map(|k| k.cost(&s.body).flops);
                body.fold(0, u64::saturating_add).saturating_mul(s.length as u64)
            }
        };
        let element = |b: &BufferId| schedule.buffer(*b).dtype.size() as u64;
        let whole = |b: &BufferId| product(schedule.buffer(*b).shape.iter().copied());
        let read = touched
            .iter()
            .map(|(b, n)| (*n).min(whole(b)).saturating_mul(element(b)))
            .fold(0, u64::saturating_add);
        // What stays within an iteration of a scan is in cache.
        let scratch = if let Kernel::Scan(s) = self { s.arena } else { None };
        let stored = self.written(schedule).into_iter().filter(|v| Some(v.buffer) != scratch);
        let bytes = |v: View| product(v.shape.iter().copied()).saturating_mul(element(&v.buffer));
        let written = stored.map(bytes).fold(0, u64::saturating_add);
        Cost { flops, read, written }
    }
}

/// Adds the elements that a view reads.
fn view(v: &View, touched: &mut HashMap<BufferId, u64>) {
    let axes = v.shape.iter().zip(&v.strides);
    let n = product(axes.map(|(&n, &stride)| if stride == 0 { n.min(1) } else { n }));
    let sum = touched.entry(v.buffer).or_insert(0);
    *sum = sum.saturating_add(n);
}

impl LoopKernel {
    /// Its operations; adds the elements that it loads.
    fn work(&self, touched: &mut HashMap<BufferId, u64>) -> u64 {
        let varies = self.varies();
        let (rows, all) =
            (product(self.extents[..self.parallel].iter().copied()), product(self.extents.iter().copied()));
        let mut flops = 0u64;
        let mut seen: Vec<&Access> = vec![];
        for (e, varies) in self.body.iter().zip(varies) {
            let points = if varies { all } else { rows };
            match &e.expr {
                Expr::Unary(..) | Expr::Binary(..) if e.dtype.is_float() => {
                    flops = flops.saturating_add(points)
                }
                Expr::Reduce(..) if e.dtype.is_float() => flops = flops.saturating_add(all),
                Expr::Compare(_, a, _) if self.body[a.index()].dtype.is_float() => {
                    flops = flops.saturating_add(points)
                }
                Expr::Load { access, .. } if !seen.contains(&access) => {
                    seen.push(access);
                    let axes = self.extents.iter().zip(&access.place.coefs);
                    let n = product(axes.map(|(&n, &c)| if c == 0 { n.min(1) } else { n }));
                    let sum = touched.entry(access.buffer).or_insert(0);
                    *sum = sum.saturating_add(n);
                }
                _ => {}
            }
        }
        flops
    }
}

impl LibraryKernel {
    fn flops(&self) -> u64 {
        let elements = |n: usize| self.operands.get(n).map_or(0, |v| product(v.shape.iter().copied()));
        // Pairs of a query and a key, each with `q` products over the head's size and `v` over the values' size.
        let attention = |layout: AttentionLayout, of_q: u64, of_v: u64| {
            let arranged = |n: usize| {
                let shape: Option<[usize; 4]> =
                    self.operands.get(n).and_then(|v| v.shape[..].try_into().ok());
                shape.map(|s| layout.arrange(s)).unwrap_or_default()
            };
            let ([b, h, t, d], [_, _, s, _], [_, _, _, values]) = (arranged(0), arranged(1), arranged(2));
            let terms = of_q.saturating_mul(d as u64).saturating_add(of_v.saturating_mul(values as u64));
            product([2, b, h, t, s]).saturating_mul(terms)
        };
        // For each element of the output, the elements of the kernel that it sees.
        let convolution = |outputs: &[usize], weight: &[usize]| {
            let seen = product(weight.iter().skip(1).copied());
            product([2].into_iter().chain(outputs.iter().copied())).saturating_mul(seen)
        };
        let shape = |n: usize| self.operands.get(n).map_or(&[][..], |v| &v.shape);
        let result = self.results.first().map_or(&[][..], |v| &v.shape);
        match &self.op {
            Op::Convolution(_) => convolution(result, shape(1)),
            Op::ConvolutionInputGrad(_) => convolution(shape(0), shape(1)),
            Op::ConvolutionWeightGrad(_) => convolution(shape(1), result),
            Op::MaxPool(_) => elements(0),
            // Each of three exponentials and a logarithm, forward and back, for each state at each time.
            Op::CtcLoss(_) => {
                let states = elements(1).saturating_mul(2).saturating_add(elements(2));
                product([8, shape(0).first().copied().unwrap_or(0)]).saturating_mul(states)
            }
            Op::Attention(a) => attention(a.layout, 1, 1),
            Op::AttentionGrad(a) => attention(a.forward.layout, 3, 2),
            Op::ScatterAdd(_) | Op::ScatterAddAlong(_) => elements(2),
            Op::ArgReduce(_) => elements(0),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Affine, Buffer, BufferKind, ExprId, MatmulKernel, Store, TypedExpr};
    use onestep_ir::DType;
    use onestep_ir::ops::{BinaryKind, ReduceKind};

    fn schedule(shapes: &[&[usize]]) -> Schedule {
        let buffer = |s: &&[usize]| Buffer {
            name: String::new(),
            dtype: DType::F32,
            shape: s.to_vec(),
            kind: BufferKind::Temp,
        };
        Schedule { buffers: shapes.iter().map(buffer).collect(), ..Schedule::default() }
    }

    fn dense(b: u32, shape: [usize; 3]) -> View {
        let strides = onestep_ir::row_major(&shape);
        View { buffer: BufferId(b), offset: 0, shape: shape.to_vec(), strides }
    }

    #[test]
    fn a_matrix_product_counts_two_for_each_term() {
        let s = schedule(&[&[1, 8, 16], &[1, 16, 4], &[1, 8, 4]]);
        let (lhs, rhs) = (dense(0, [1, 8, 16]), dense(1, [1, 16, 4]));
        let cost = Kernel::Matmul(MatmulKernel { lhs, rhs, out: BufferId(2), epilogue: None }).cost(&s);
        assert_eq!(cost, Cost { flops: 2 * 8 * 16 * 4, read: 4 * (8 * 16 + 16 * 4), written: 4 * 8 * 4 });
    }

    #[test]
    fn what_is_of_the_row_counts_once_a_row_and_a_broadcast_is_read_once() {
        let s = schedule(&[&[8, 16], &[16], &[8]]);
        let load = |b, coefs: [i64; 2]| Expr::Load {
            access: Access { buffer: BufferId(b), place: Affine { offset: 0, coefs: coefs.to_vec() } },
            bounds: vec![],
            fill: 0,
        };
        let body = [
            load(0, [16, 1]),
            load(1, [0, 1]),
            Expr::Binary(BinaryKind::Mul, ExprId(0), ExprId(1)),
            Expr::Reduce(ReduceKind::Sum, ExprId(2)),
            Expr::Binary(BinaryKind::Add, ExprId(3), ExprId(3)),
        ];
        let body = body.into_iter().map(|expr| TypedExpr { dtype: DType::F32, expr }).collect();
        let place = Affine { offset: 0, coefs: vec![1, 0] };
        let stores = vec![Store { value: ExprId(4), access: Access { buffer: BufferId(2), place } }];
        let kernel = LoopKernel { extents: vec![8, 16], parallel: 1, body, stores };
        let cost = Kernel::Loops(vec![kernel]).cost(&s);
        assert_eq!(cost, Cost { flops: 128 + 128 + 8, read: 4 * (128 + 16), written: 32 });
    }
}
