//! An independent check of a plan: it replays the kernels over a map of bytes and shares no code with the planner.
//!
//! - Every read finds, in every byte of its buffer, the value that was last meant to be there.
//! - A kernel that reads and writes overlapping bytes does so element by element at one place, and reads first.
//! - No kernel writes an input or a constant; a state is written only by its own new value.
//! - Outputs and pending copies are intact after the last kernel.
//! - Nothing lies beyond the arena, and every offset is aligned for its dtype.

use super::{Place, Plan};
use crate::schedule::{BufferId, BufferKind, Expr, Kernel, LoopKernel, Schedule};
use std::collections::BTreeMap;

/// A span of storage: which storage, from, to.
type Span = ((u8, usize), usize, usize);

/// What each piece of storage holds: start → (end, buffer).
type Held = BTreeMap<(u8, usize), BTreeMap<usize, (usize, BufferId)>>;

/// Records that `b` now holds a span, cutting what was there.
fn occupy(held: &mut Held, b: BufferId, (storage, start, end): Span) {
    let pieces = held.entry(storage).or_default();
    let clash: Vec<(usize, usize, BufferId)> =
        pieces.iter().filter(|(f, (t, _))| **f < end && start < *t).map(|(f, (t, b))| (*f, *t, *b)).collect();
    for (from, to, old) in clash {
        pieces.remove(&from);
        if from < start {
            pieces.insert(from, (start, old));
        }
        if to > end {
            pieces.insert(end, (to, old));
        }
    }
    if start < end {
        pieces.insert(start, (end, b));
    }
}

/// Says what is wrong, if anything is.
pub fn check(s: &Schedule, p: &Plan) -> Result<(), String> {
    if p.places.len() != s.buffers.len() {
        return Err(format!("{} places for {} buffers", p.places.len(), s.buffers.len()));
    }
    let span = |b: BufferId| -> Span {
        let bytes = s.buffer(b).bytes();
        match p.places[b.index()] {
            Place::Input(i) => ((0, i), 0, bytes),
            Place::State(i) => ((1, i), 0, bytes),
            Place::Constant => ((2, b.index()), 0, bytes),
            Place::Arena(o) => ((3, 0), o, o + bytes),
        }
    };
    for (i, b) in s.buffers.iter().enumerate() {
        let id = BufferId(i as u32);
        if let Place::Arena(o) = p.places[i]
            && (o + b.bytes() > p.arena_bytes || o % b.dtype.size() != 0)
        {
            return Err(format!("{id} lies outside the arena or is not aligned"));
        }
        let fits = match (&b.kind, p.places[i]) {
            (BufferKind::Input(n), Place::Input(m)) | (BufferKind::State(n), Place::State(m)) => *n == m,
            (BufferKind::Constant(_), Place::Constant) | (BufferKind::Temp, Place::Arena(_)) => true,
            (BufferKind::Temp, Place::State(n)) => {
                let state = s.states.get(n).ok_or(format!("{id} lies in a state that is not there"))?;
                state.update == Some(id) && s.buffer(state.buffer).bytes() == b.bytes()
            }
            _ => false,
        };
        if !fits {
            return Err(format!("{id} lies where it may not"));
        }
    }
    let mut held = Held::new();
    for (i, b) in s.buffers.iter().enumerate() {
        if !matches!(b.kind, BufferKind::Temp) {
            let id = BufferId(i as u32);
            occupy(&mut held, id, span(id));
        }
    }
    let intact = |held: &Held, b: BufferId| {
        let (storage, from, to) = span(b);
        from == to
            || held.get(&storage).and_then(|p| p.get(&from)).is_some_and(|(end, who)| *end == to && *who == b)
    };
    let mut written = vec![false; s.buffers.len()];
    for (at, k) in s.kernels.iter().enumerate() {
        for b in k.reads() {
            if matches!(s.buffer(b).kind, BufferKind::Temp) && !written[b.index()] {
                return Err(format!("k{at} reads {b} before it is written"));
            }
            if !intact(&held, b) {
                return Err(format!("k{at} reads {b}, whose storage holds something else"));
            }
        }
        for w in k.writes() {
            if !matches!(s.buffer(w).kind, BufferKind::Temp) {
                return Err(format!("k{at} writes {w}, which is not its to write"));
            }
            if std::mem::replace(&mut written[w.index()], true) {
                return Err(format!("{w} is written twice"));
            }
            let (storage, from, to) = span(w);
            let others = k.reads().into_iter().chain(k.writes()).filter(|o| *o != w);
            for o in others {
                let (os, of, ot) = span(o);
                let overlap = os == storage && of < to && from < ot && from < to;
                let same = (of, ot) == (from, to);
                // A matmul's result is written first, and its epilogue may write over it.
                let handed_on = k.writes().contains(&o) && elementwise(k, w, o, same);
                if overlap && !elementwise(k, o, w, same) && !handed_on {
                    return Err(format!("k{at} writes {w} over {o}, which it still needs"));
                }
            }
        }
        // The matmul's own result first: its epilogue may write over it.
        for w in k.writes() {
            occupy(&mut held, w, span(w));
        }
    }
    for (name, b) in &s.outputs {
        if !intact(&held, *b) {
            return Err(format!("output '{name}' ({b}) is overwritten before the call ends"));
        }
    }
    let mut committed = vec![false; s.states.len()];
    for (b, i) in &p.commits {
        // A source that lies in another state is that state's new value, so no copy overwrites it.
        if !intact(&held, *b) {
            return Err(format!("{b} is not intact when it is copied to state {i}"));
        }
        committed[*i] = true;
    }
    for (i, state) in s.states.iter().enumerate() {
        if let Some(u) = state.update
            && !committed[i]
            && (p.places[u.index()] != Place::State(i) || !intact(&held, u))
        {
            return Err(format!("state '{}' does not hold its new value at the end", state.name));
        }
    }
    Ok(())
}

/// Whether kernel `k` may write `w` over `o`: the same bytes, element for element, and read first.
fn elementwise(k: &Kernel, o: BufferId, w: BufferId, same: bool) -> bool {
    let by_part = |p: &LoopKernel| {
        let stores: Vec<_> = p.stores.iter().filter(|s| s.access.buffer == w).collect();
        let [store] = stores[..] else { return false };
        let stage = stage_of(p, store.value.index());
        p.body.iter().enumerate().all(|(i, e)| match &e.expr {
            Expr::Load { access, bounds, .. } if access.buffer == o => {
                bounds.is_empty() && access.place == store.access.place && latest_user(p, i) <= stage
            }
            _ => true,
        })
    };
    same && match k {
        Kernel::Loops(parts) => {
            let readers: Vec<&LoopKernel> = parts.iter().filter(|p| p.reads().contains(&o)).collect();
            let writers: Vec<&LoopKernel> = parts.iter().filter(|p| p.writes().contains(&w)).collect();
            matches!((&readers[..], &writers[..]), ([r], [w]) if std::ptr::eq(*r, *w) && by_part(r))
        }
        Kernel::Matmul(m) => {
            o != m.lhs.buffer
                && o != m.rhs.buffer
                && w != m.out
                && m.epilogue.as_ref().is_some_and(|e| by_part(e))
        }
        Kernel::Library(l) => {
            l.in_place().is_some_and(|n| l.operands[n].buffer == o)
                && l.operands.iter().filter(|v| v.buffer == o).count() == 1
        }
    }
}

fn stage_of(p: &LoopKernel, i: usize) -> usize {
    let e = &p.body[i].expr;
    let below = e.operands().iter().map(|o| stage_of(p, o.index())).max().unwrap_or(0);
    below + matches!(e, Expr::Reduce(..)) as usize
}

/// The latest stage in which anything that depends on expression `i` is computed.
fn latest_user(p: &LoopKernel, i: usize) -> usize {
    let mut depends = vec![false; p.body.len()];
    depends[i] = true;
    let mut latest = stage_of(p, i);
    for j in i + 1..p.body.len() {
        depends[j] = p.body[j].expr.operands().iter().any(|o| depends[o.index()]);
        if depends[j] {
            latest = latest.max(stage_of(p, j));
        }
    }
    latest
}
