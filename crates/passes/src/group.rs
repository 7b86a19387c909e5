//! Pass `group`: horizontal fusion. Loop kernels that do not depend on each other share one dispatch: the updates of all
//! parameters, the norms of all gradients.
//!
//! 1. A kernel with only small results (such as a norm) sinks to just before its first reader, if that keeps no operand
//!    alive longer.
//! 2. A loop kernel joins the latest dispatch of loops that stands after everything that it reads, when nothing stands in
//!    between, or when its results are small. These rather join one before the last, so that what reads them, and stands
//!    next, may join the last.
//!
//! Neither step brings a read of a state's old value past the kernel that computes the new one, nor into one dispatch with
//! it: that would cost a copy of the state.

use crate::Target;
use crate::schedule::{BufferId, BufferKind, Kernel, LoopKernel, Schedule};
use std::collections::HashMap;
use std::ops::Range;

/// Results of at most this many bytes may live longer than they must.
pub const SMALL: usize = 4096;

/// Runs the pass.
pub fn group(schedule: &Schedule) -> Schedule {
    let mut out = schedule.clone();
    out.kernels = sink(schedule);
    out.kernels = gather(&out);
    out
}

/// Which kernels the target runs as one launch, once their order is final.
pub fn together(schedule: &Schedule, target: &dyn Target) -> Vec<Range<usize>> {
    let (mut at, mut groups) = (0, vec![]);
    while at < schedule.kernels.len() {
        let end = at + target.together(schedule, at).clamp(1, schedule.kernels.len() - at);
        if end - at > 1 {
            groups.push(at..end);
        }
        at = end;
    }
    groups
}

fn written_bytes(schedule: &Schedule, k: &Kernel) -> usize {
    k.writes().iter().map(|b| schedule.buffer(*b).bytes()).sum()
}

/// Step 1: a new order, by keys: a kernel that sinks takes the place just before its first reader.
fn sink(schedule: &Schedule) -> Vec<Kernel> {
    let n = schedule.kernels.len();
    let mut first_read: HashMap<BufferId, usize> = HashMap::new();
    let mut last_read: HashMap<BufferId, usize> = HashMap::new();
    // Position of each kernel in the new order; readers are placed before what they read, so walk backwards.
    let mut place: Vec<(usize, usize)> = (0..n).map(|i| (i, 1)).collect();
    let kept = |b: &BufferId| {
        schedule.outputs.iter().any(|(_, o)| o == b)
            || schedule.states.iter().any(|s| s.update == Some(*b))
            || !matches!(schedule.buffer(*b).kind, BufferKind::Temp)
    };
    let updates = updates(schedule);
    let mut writer: HashMap<BufferId, usize> = HashMap::new();
    for (i, k) in schedule.kernels.iter().enumerate() {
        for old in k.writes().iter().filter_map(|b| updates.get(b)) {
            writer.entry(*old).or_insert(i);
        }
    }
    for i in (0..n).rev() {
        let k = &schedule.kernels[i];
        let reads = k.reads();
        if matches!(k, Kernel::Loops(_))
            && written_bytes(schedule, k) <= SMALL
            && !k.writes().iter().any(kept)
        {
            let target = k.writes().iter().filter_map(|b| first_read.get(b)).min().copied();
            if let Some(target) = target {
                let overtakes = |b: &BufferId| writer.get(b).is_some_and(|&w| i < w && w < target);
                let alive = |b: &BufferId| {
                    kept(b) && !overtakes(b)
                        || schedule.buffer(*b).bytes() <= SMALL
                        || last_read.get(b).is_some_and(|&l| l >= target)
                };
                if reads.iter().all(alive) {
                    place[i] = (target, 0);
                }
            }
        }
        for b in reads {
            let at = place[i].0;
            let first = first_read.entry(b).or_insert(at);
            *first = (*first).min(at);
            let last = last_read.entry(b).or_insert(at);
            *last = (*last).max(at);
        }
    }
    // Several kernels that sink to one place keep their order among themselves.
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|&i| (place[i], i));
    order.into_iter().map(|i| schedule.kernels[i].clone()).collect()
}

/// For each buffer with a state's new value, the buffer with its old one.
fn updates(schedule: &Schedule) -> HashMap<BufferId, BufferId> {
    schedule.states.iter().filter_map(|s| Some((s.update?, s.buffer))).collect()
}

/// Step 2.
fn gather(schedule: &Schedule) -> Vec<Kernel> {
    let mut out: Vec<Kernel> = vec![];
    let mut written: HashMap<BufferId, usize> = HashMap::new();
    let mut read: HashMap<BufferId, usize> = HashMap::new();
    let updates = updates(schedule);
    for k in &schedule.kernels {
        let operands = k.reads().into_iter().filter_map(|b| written.get(&b).copied());
        let old = k.writes().into_iter().filter_map(|b| read.get(updates.get(&b)?).copied());
        let ready = operands.chain(old).map(|at| at + 1).max().unwrap_or(0);
        let mut home = None;
        if let Kernel::Loops(parts) = k {
            let small = written_bytes(schedule, k) <= SMALL;
            let from = if small { ready } else { ready.max(out.len().saturating_sub(1)) };
            let last = out.len().saturating_sub(1);
            let loops = |at: &usize| matches!(out[*at], Kernel::Loops(_));
            home = (from..last).rev().find(loops).or_else(|| (from..out.len()).next_back().filter(loops));
            if let Some(at) = home
                && let Kernel::Loops(all) = &mut out[at]
            {
                all.extend(parts.iter().cloned());
            }
        }
        let at = home.unwrap_or_else(|| {
            out.push(k.clone());
            out.len() - 1
        });
        for b in k.writes() {
            let last = written.entry(b).or_insert(at);
            *last = (*last).max(at);
        }
        for b in k.reads() {
            let last = read.entry(b).or_insert(at);
            *last = (*last).max(at);
        }
    }
    for k in &mut out {
        if let Kernel::Loops(parts) = k {
            // Equal forms stand together, so that a renderer can serve them with one piece of code and a table.
            let all = std::mem::take(parts);
            let mut forms: Vec<Vec<LoopKernel>> = vec![];
            for p in all {
                match forms.iter_mut().find(|f| f[0].same_form(&p)) {
                    Some(f) => f.push(p),
                    None => forms.push(vec![p]),
                }
            }
            *parts = forms.into_iter().flatten().collect();
        }
    }
    out
}
