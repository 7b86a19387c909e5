//! Which buffers a kernel may overwrite while it reads them.
//!
//! A loop kernel may write `b` over `a` when it stores `b` once, at the very place where it loads `a`, everywhere and
//! without bounds, and nothing that depends on `a` is computed in a later stage than `b`. When that place is of the row, the
//! points of a row share it: what varies in the row and depends on `a` must be of an earlier stage than `b`. A library
//! kernel that changes a part of its operand may write over that operand, if it reads it as a whole and only so. So may a
//! scan with a carry: the last value over the first.

use crate::schedule::{BufferId, Expr, Kernel, LoopKernel, View};

/// Why a kernel cannot write over what it reads.
const OTHER_PLACES: &str = "at other places than it writes the new one";
const LATER_STAGE: &str = "after it has written the new one";
const OTHER_LOOP: &str = "in another loop of its dispatch";
const OPERAND: &str = "for every part of the new one";

/// The buffers that `kernel` reads (or, for a matmul, hands to its epilogue) and that its result `b` may replace.
pub fn candidates(kernel: &Kernel, b: BufferId) -> Vec<BufferId> {
    let read = match kernel {
        // Only the loop that writes it can.
        Kernel::Loops(parts) => {
            let writer = parts.iter().find(|p| p.writes().contains(&b));
            let mut read = writer.map_or(vec![], LoopKernel::reads);
            read.sort();
            read
        }
        Kernel::Matmul(m) => kernel.reads().into_iter().chain([m.out]).collect(),
        Kernel::Library(_) | Kernel::Scan(_) => kernel.reads(),
    };
    read.into_iter().filter(|&a| obstacle(kernel, a, b).is_none()).collect()
}

/// What forbids that result `b` of `kernel` replaces `a`, which the kernel reads: how it reads `a`.
pub fn obstacle(kernel: &Kernel, a: BufferId, b: BufferId) -> Option<&'static str> {
    match kernel {
        Kernel::Loops(parts) => {
            let writers = parts.iter().filter(|p| p.writes().contains(&b)).count();
            let mut readers = parts.iter().filter(|p| p.reads().contains(&a));
            match (readers.next(), readers.next()) {
                (Some(p), None) if p.writes().contains(&b) && writers == 1 => within(p, a, b),
                _ => Some(OTHER_LOOP),
            }
        }
        Kernel::Matmul(m) if a == m.lhs.buffer || a == m.rhs.buffer => Some(OPERAND),
        Kernel::Matmul(m) => match &m.epilogue {
            Some(e) if e.reads().contains(&a) && e.writes().contains(&b) => within(e, a, b),
            _ => Some(OTHER_LOOP),
        },
        Kernel::Library(l) => {
            let changed = l.in_place().filter(|_| is_all(&l.results, b)).map(|n| &l.operands[n]);
            let once = l.operands.iter().filter(|o| o.buffer == a).count() == 1;
            let fits = changed.is_some_and(|v| v.buffer == a && v.is_dense() && v.offset == 0) && once;
            (!fits).then_some(OPERAND)
        }
        Kernel::Scan(s) => {
            let carry = s.results[..s.carries.len()].iter().position(|r| *r == b);
            (!carry.is_some_and(|i| s.carries_in(i, a))).then_some(OPERAND)
        }
    }
}

/// Whether the only result of a library kernel lies in this buffer, all in order.
fn is_all(results: &[View], b: BufferId) -> bool {
    matches!(results, [v] if v.buffer == b && v.is_dense() && v.offset == 0)
}

fn within(k: &LoopKernel, a: BufferId, b: BufferId) -> Option<&'static str> {
    let mut stores = k.stores.iter().filter(|s| s.access.buffer == b);
    let (Some(store), None) = (stores.next(), stores.next()) else { return Some(OTHER_PLACES) };
    let (stages, varies) = (k.stages(), k.varies());
    let known = stages[store.value.index()];
    let shared = k.row_len() > 1 && store.access.place.coefs[k.parallel..].iter().all(|&c| c == 0);
    let mut depends = vec![false; k.body.len()];
    for (i, e) in k.body.iter().enumerate() {
        depends[i] = match &e.expr {
            Expr::Load { access, bounds, .. } if access.buffer == a => {
                if access.place != store.access.place || !bounds.is_empty() {
                    return Some(OTHER_PLACES);
                }
                true
            }
            other => other.operands().iter().any(|o| depends[o.index()]),
        };
        if depends[i] && (stages[i] > known || shared && varies[i] && stages[i] == known) {
            return Some(LATER_STAGE);
        }
    }
    None
}
