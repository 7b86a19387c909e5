//! Which buffers a kernel may overwrite while it reads them.
//!
//! A loop kernel may write `b` over `a` when it stores `b` once, at the very place where it loads `a`, everywhere and
//! without bounds, and nothing that depends on `a` is computed in a later stage than `b`. A library kernel that changes a
//! part of its operand may write over that operand, if it reads it as a whole and only so.

use crate::schedule::{BufferId, Expr, Kernel, LoopKernel};

/// The buffers that `kernel` reads (or, for a matmul, hands to its epilogue) and that its result `b` may replace.
pub fn candidates(kernel: &Kernel, b: BufferId) -> Vec<BufferId> {
    match kernel {
        Kernel::Loops(parts) => {
            let Some(own) = parts.iter().position(|p| p.writes().contains(&b)) else { return vec![] };
            let others =
                |a: &BufferId| parts.iter().enumerate().any(|(i, p)| i != own && p.reads().contains(a));
            over(&parts[own], b).into_iter().filter(|a| !others(a)).collect()
        }
        Kernel::Matmul(m) => match &m.epilogue {
            Some(e) => {
                let of_product = |a: &BufferId| *a == m.lhs.buffer || *a == m.rhs.buffer;
                over(e, b).into_iter().filter(|a| !of_product(a)).collect()
            }
            None => vec![],
        },
        Kernel::Library(l) => match l.in_place() {
            Some(n) if l.results == [b] => {
                let v = &l.operands[n];
                let once = l.operands.iter().filter(|o| o.buffer == v.buffer).count() == 1;
                if v.is_dense() && v.offset == 0 && once { vec![v.buffer] } else { vec![] }
            }
            _ => vec![],
        },
    }
}

fn over(k: &LoopKernel, b: BufferId) -> Vec<BufferId> {
    let mut stores = k.stores.iter().filter(|s| s.access.buffer == b);
    let (Some(store), None) = (stores.next(), stores.next()) else { return vec![] };
    let stages = k.stages();
    let known = stages[store.value.index()];
    k.reads()
        .into_iter()
        .filter(|a| {
            let mut depends = vec![false; k.body.len()];
            for (i, e) in k.body.iter().enumerate() {
                depends[i] = match &e.expr {
                    Expr::Load { access, bounds, .. } if access.buffer == *a => {
                        if access.place != store.access.place || !bounds.is_empty() {
                            return false;
                        }
                        true
                    }
                    other => other.operands().iter().any(|o| depends[o.index()]),
                };
                if depends[i] && stages[i] > known {
                    return false;
                }
            }
            true
        })
        .collect()
}
