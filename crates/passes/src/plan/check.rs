//! An independent check of a plan: it replays the kernels over a map of bytes and shares no code with the planner.
//!
//! - Kernels write every element of a buffer once, and no kernel reads it before they all have.
//! - Every read finds, in every byte of its buffer, the value that was last meant to be there.
//! - A kernel that reads and writes overlapping bytes does so element by element at one place, and reads first.
//! - Kernels that run together write nothing that another of them needs, but what it reads from them.
//! - No kernel writes an input or a constant; a state is written only by its own new value.
//! - Pending copies are intact after the last kernel, and go where they belong; outputs are intact after the copies.
//! - Every state holds its new value at the end, or its old one if it has no new one.
//! - Nothing lies beyond the arena, and every offset is aligned for its dtype.
//! - All this holds for an iteration of each scan, whose buffers have the sizes of what the scan gives them.

use super::{Place, Plan};
use crate::schedule::{Affine, BufferId, BufferKind, Expr, Kernel, LoopKernel, Schedule, View};
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
    let mut pieces: Vec<Vec<View>> = vec![vec![]; s.buffers.len()];
    for v in s.kernels.iter().flat_map(|k| k.written(s)) {
        let of = pieces.get_mut(v.buffer.index()).ok_or("a kernel writes a buffer that is not there")?;
        of.push(v);
    }
    let mut missing: Vec<usize> = pieces.iter().map(Vec::len).collect();
    for (at, k) in s.kernels.iter().enumerate() {
        if let Kernel::Scan(scan) = k {
            let fault = scan.fault(s).or_else(|| check(&scan.body, &scan.plan).err());
            if let Some(fault) = fault {
                return Err(format!("k{at}: {fault}"));
            }
        }
        let (reads, writes) = (k.reads(), k.writes());
        for &b in &reads {
            let left = missing[b.index()] > 0 || pieces[b.index()].is_empty();
            if matches!(s.buffer(b).kind, BufferKind::Temp) && left {
                return Err(format!("k{at} reads {b} before it is written"));
            }
            if !intact(&held, b) {
                return Err(format!("k{at} reads {b}, whose storage holds something else"));
            }
        }
        let own = k.written(s);
        for &w in &writes {
            if !matches!(s.buffer(w).kind, BufferKind::Temp) {
                return Err(format!("k{at} writes {w}, which is not its to write"));
            }
            let (all, left) = (&pieces[w.index()], &mut missing[w.index()]);
            if *left < all.len() && !intact(&held, w) {
                return Err(format!("k{at} writes the rest of {w}, whose storage holds something else"));
            }
            *left -= own.iter().filter(|v| v.buffer == w).count();
            if *left == 0 && !tile(all, s.buffer(w).numel()) {
                return Err(format!("the elements of {w} are not all written, each once"));
            }
            let (storage, from, to) = span(w);
            for &o in reads.iter().chain(&writes).filter(|o| **o != w) {
                let (os, of, ot) = span(o);
                if os != storage || of >= to || from >= ot || from == to {
                    continue;
                }
                let same = (of, ot) == (from, to);
                // A matmul's result is written first, and its epilogue may write over it.
                let handed_on = || writes.contains(&o) && elementwise(k, w, o, same);
                if !elementwise(k, o, w, same) && !handed_on() {
                    return Err(format!("k{at} writes {w} over {o}, which it still needs"));
                }
            }
        }
        let group = s.beside(at);
        for (other, k) in (group.start..group.end).zip(&s.kernels[group]).filter(|(other, _)| *other != at) {
            let needed = [k.reads(), k.writes()].concat();
            let meets = |w: BufferId, o: BufferId| {
                let ((a, a0, a1), (b, b0, b1)) = (span(w), span(o));
                w != o && a == b && a0 < b1 && b0 < a1
            };
            for &w in &writes {
                if let Some(o) = needed.iter().find(|o| meets(w, **o)) {
                    return Err(format!("k{at} writes {w} over {o}, which k{other} needs beside it"));
                }
            }
        }
        // The matmul's own result first: its epilogue may write over it.
        for w in writes {
            occupy(&mut held, w, span(w));
        }
    }
    let mut committed = vec![false; s.states.len()];
    for &(b, i) in &p.commits {
        if !intact(&held, b) {
            return Err(format!("{b} is not intact when it is copied to state {i}"));
        }
        let state = s.states.get(i).ok_or(format!("{b} is copied to a state that is not there"))?;
        if state.update != Some(b) || s.buffer(b).bytes() != s.buffer(state.buffer).bytes() {
            return Err(format!("{b} is copied to state '{}', whose new value it is not", state.name));
        }
        // The copy leaves the source, which may be copied again; the state's storage holds nothing else any more.
        let (storage, _, end) = span(state.buffer);
        if span(b).0 != storage {
            held.insert(storage, BTreeMap::from([(0, (end, b))]));
        }
        committed[i] = true;
    }
    for (name, b) in &s.outputs {
        if !intact(&held, *b) {
            return Err(format!("output '{name}' ({b}) is overwritten before the call ends"));
        }
    }
    for (i, state) in s.states.iter().enumerate() {
        let holds = |b: BufferId| p.places[b.index()] == Place::State(i) && intact(&held, b);
        let fine = match state.update {
            Some(u) => committed[i] || holds(u),
            None => holds(state.buffer),
        };
        if !fine {
            return Err(format!("state '{}' does not hold its value at the end", state.name));
        }
    }
    Ok(())
}

/// Whether views of a buffer of `n` elements cover it, each element once. They do where they are the same rows, of each a run, and
/// the runs lie one behind the other along the row.
fn tile(views: &[View], n: usize) -> bool {
    let mut rows: Option<(usize, usize)> = None;
    let mut runs = vec![];
    for v in views.iter().filter(|v| !v.shape.contains(&0)) {
        let mut axes: Vec<(usize, usize)> =
            v.shape.iter().copied().zip(v.strides.iter().copied()).filter(|(size, _)| *size > 1).collect();
        axes.sort_by_key(|(_, stride)| *stride);
        let mut run = 1;
        let inner = axes.iter().take_while(|&&(size, stride)| {
            let joins = stride == run;
            run *= if joins { size } else { 1 };
            joins
        });
        let outer = &axes[inner.count()..];
        // Without outer axes there is one row: the buffer.
        let (mut count, length) = (1, outer.first().map_or(n, |(_, stride)| *stride));
        for &(size, stride) in outer {
            if stride != count * length {
                return false;
            }
            count *= size;
        }
        if rows.is_some_and(|known| known != (count, length)) {
            return false;
        }
        rows = Some((count, length));
        runs.push((v.offset, v.offset + run));
    }
    runs.sort_unstable();
    let end = runs.iter().try_fold(0, |end, &(from, to)| (from == end).then_some(to));
    match rows {
        Some((count, length)) => end == Some(length) && count.checked_mul(length) == Some(n),
        None => n == 0,
    }
}

/// Whether kernel `k` may write `w` over `o`: the same bytes, element for element, and read first.
fn elementwise(k: &Kernel, o: BufferId, w: BufferId, same: bool) -> bool {
    same && match k {
        Kernel::Loops(parts) => {
            let readers: Vec<&LoopKernel> = parts.iter().filter(|p| p.reads().contains(&o)).collect();
            let writers: Vec<&LoopKernel> = parts.iter().filter(|p| p.writes().contains(&w)).collect();
            matches!((&readers[..], &writers[..]), ([r], [w1]) if std::ptr::eq(*r, *w1) && reads_first(r, o, w))
        }
        Kernel::Matmul(m) => {
            o != m.lhs.buffer
                && o != m.rhs.buffer
                && w != m.out
                && m.epilogue.as_ref().is_some_and(|e| e.reads().contains(&o) && reads_first(e, o, w))
        }
        Kernel::Library(l) => {
            let first = |v: &View, b| v.buffer == b && v.offset == 0 && v.is_dense();
            l.in_place().is_some_and(|n| first(&l.operands[n], o))
                && matches!(&l.results[..], [r] if first(r, w))
                && l.operands.iter().filter(|v| v.buffer == o).count() == 1
        }
        // The first value of a carry is where its last one will be; nothing else of the scan may look there.
        Kernel::Scan(scan) => {
            let uses: Vec<_> = scan.operands().enumerate().filter(|(_, v)| v.buffer == o).collect();
            let carry = scan.results[..scan.carries.len()].iter().position(|r| *r == w);
            matches!(uses[..], [(i, v)] if Some(i) == carry && v.offset == 0 && v.is_dense())
        }
    }
}

/// Whether a loop kernel has read an element of `o` for the last time when it stores to it as one of `w`.
///
/// What is computed from the element may be computed again in every pass over the row that needs it, so the store must
/// stand in the last such pass. A store of the row's value may come before other points of that pass.
fn reads_first(p: &LoopKernel, o: BufferId, w: BufferId) -> bool {
    let stores: Vec<_> = p.stores.iter().filter(|s| s.access.buffer == w).collect();
    let [store] = stores[..] else { return false };
    // For each expression: the pass in which it is known, whether it differs within a row, whether `o` is below it.
    let mut known: Vec<(usize, bool, bool)> = vec![];
    for e in &p.body {
        let below = e.expr.operands();
        let pass = below.iter().map(|x| known[x.index()].0).max().unwrap_or(0);
        let differs = below.iter().any(|x| known[x.index()].1);
        let from = below.iter().any(|x| known[x.index()].2);
        known.push(match &e.expr {
            Expr::Reduce(..) => (pass + 1, false, from),
            Expr::Load { access, bounds, .. } => {
                if access.buffer == o && !(bounds.is_empty() && access.place == store.access.place) {
                    return false;
                }
                let moves = |a: &Affine| (p.parallel..p.extents.len()).any(|d| a.coefs[d] != 0);
                let differs = moves(&access.place) || bounds.iter().any(|b| moves(&b.index));
                (0, differs, access.buffer == o)
            }
            Expr::Index(a) => (0, (p.parallel..p.extents.len()).any(|d| a.coefs[d] != 0), false),
            _ => (pass, differs, from),
        });
    }
    let once_a_row =
        (p.parallel..p.extents.len()).all(|d| p.extents[d] == 1 || store.access.place.coefs[d] == 0);
    let many = p.extents[p.parallel..].iter().product::<usize>() > 1;
    let written = known[store.value.index()].0;
    known
        .iter()
        .filter(|(_, _, from)| *from)
        .all(|&(pass, differs, _)| pass < written || pass == written && !(once_a_row && many && differs))
}
