//! Which kernels of a schedule are one launch of products of few rows.

use super::{MOST_ROWS, before, takes_epilogue};
use onestep_ir::DType;
use onestep_passes::schedule::{Access, Bound, BufferId, Expr, Kernel, LoopKernel, MatmulKernel, Schedule};

/// The most products of a launch.
const MOST_PRODUCTS: usize = 8;

/// Kernels that follow each other in a schedule and may be one launch.
pub(crate) struct Together<'a> {
    /// The loop that computes the rows.
    pub before: Option<&'a LoopKernel>,
    /// Products of the same rows, one at least. The last alone may have an epilogue.
    pub products: Vec<&'a MatmulKernel>,
}

impl<'a> Together<'a> {
    /// How many kernels they are.
    pub fn len(&self) -> usize {
        self.before.is_some() as usize + self.products.len()
    }

    /// What is done with the last product's elements by the threads that have their sums.
    pub fn fused(&self) -> Option<&'a LoopKernel> {
        let last = self.products.last()?;
        last.epilogue.as_deref().filter(|e| takes_epilogue(last, e) && self.has_at_hand(e))
    }

    /// What is done with them afterwards.
    pub fn afterwards(&self) -> Option<&'a LoopKernel> {
        let all = self.products.last()?.epilogue.as_deref();
        all.filter(|_| self.fused().is_none())
    }

    /// Whether an epilogue reads, of what the launch writes, only elements that the same thread has.
    fn has_at_hand(&self, epilogue: &LoopKernel) -> bool {
        let Some((last, others)) = self.products.split_last() else { return false };
        let (_, rows, columns, _) = last.sizes();
        let own = |access: &Access, bounds: &[Bound]| {
            epilogue.extents == [rows, columns]
                && bounds.is_empty()
                && access.place.offset == 0
                && (rows == 1 || access.place.coefs[0] == columns as i64)
                && access.place.coefs[1] == 1
        };
        let fits = |access: &Access, bounds: &[Bound]| match others.iter().any(|m| m.out == access.buffer) {
            true => own(access, bounds),
            false => self.before.is_none_or(|b| !b.writes().contains(&access.buffer)),
        };
        let beside = others.is_empty() || interleaves(self.products.iter().map(|m| m.sizes().2));
        beside
            && epilogue.body.iter().all(|e| match &e.expr {
                Expr::Load { access, bounds, .. } => fits(access, bounds),
                _ => true,
            })
    }
}

/// Whether products of so many columns are taken two by two: a column of each by one thread.
pub(super) fn interleaves(columns: impl IntoIterator<Item = usize>) -> bool {
    let columns: Vec<usize> = columns.into_iter().collect();
    matches!(columns[..], [a, b] if a == b)
}

/// Those of `kernels`, from the first on, that may be one launch: two at least. What follows from addresses is not asked yet.
pub(crate) fn together<'a>(schedule: &Schedule, kernels: &'a [Kernel]) -> Option<Together<'a>> {
    let (before, rest) = match kernels {
        [Kernel::Loops(parts), rest @ ..] if parts.len() == 1 => (parts.first(), rest),
        _ => (None, kernels),
    };
    // A matrix is read before the rows are there.
    let late = |m: &MatmulKernel| before.is_some_and(|k| k.writes().contains(&m.rhs.buffer));
    let mut products: Vec<&MatmulKernel> = vec![];
    for kernel in rest.iter().take(MOST_PRODUCTS) {
        let Kernel::Matmul(m) = kernel else { break };
        if late(m) || !is_few(schedule, m) || products.iter().any(|p| !joins(schedule, p, m)) {
            break;
        }
        products.push(m);
        if m.epilogue.is_some() {
            break;
        }
    }
    let first = products.first()?;
    if before.is_some_and(|k| !before::takes(schedule, k, first)) {
        return None;
    }
    let all = Together { before, products };
    (all.len() > 1).then_some(all)
}

/// Whether a product is one of few rows, as far as its sizes say.
fn is_few(schedule: &Schedule, m: &MatmulKernel) -> bool {
    let shapes = [&m.lhs, &m.rhs].map(|v| (v.shape.len(), v.strides.len()));
    let dtype = |b: BufferId| schedule.buffers.get(b.index()).map(|b| b.dtype);
    let (Some(left), Some(right), Some(out)) = (dtype(m.lhs.buffer), dtype(m.rhs.buffer), dtype(m.out))
    else {
        return false;
    };
    shapes == [(3, 3); 2]
        && left == right
        && m.lhs.shape[0] == 1
        && (1..=MOST_ROWS).contains(&m.lhs.shape[1])
        && matches!(left, DType::BF16 | DType::F16 | DType::F32)
        && out != DType::F64
}

/// Whether a product of few rows may run beside another: of the same rows and types, with a matrix that is there before.
fn joins(schedule: &Schedule, p: &MatmulKernel, m: &MatmulKernel) -> bool {
    let dtype = |b: BufferId| schedule.buffer(b).dtype;
    p.lhs == m.lhs && p.rhs.buffer != p.out && m.rhs.buffer != p.out && dtype(p.out) == dtype(m.out)
}
