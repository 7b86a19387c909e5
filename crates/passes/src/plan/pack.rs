//! Packs lifetimes into an arena.
//!
//! Buffers that share storage form one item. Items are placed one after the other at the lowest offset that is free for
//! their whole life. The order decides how well that goes: by size, by life, by birth; and, when none of these comes within
//! 5% of the bound (the most bytes live at once), by shuffles of the best order, a fixed number of them; those that make
//! it no worse are kept, so that the search leaves plateaus.

use super::{Life, Place};
use crate::schedule::{BufferId, Schedule};

/// How much larger than the bound an arena may be.
const SLACK: f64 = 1.05;

/// Sets of buffers that share storage.
pub struct Groups {
    of: Vec<usize>,
    members: Vec<Vec<BufferId>>,
}

impl Groups {
    /// Every buffer by itself.
    pub fn new(n: usize) -> Groups {
        Groups { of: (0..n).collect(), members: (0..n).map(|i| vec![BufferId(i as u32)]).collect() }
    }

    fn group(&self, b: BufferId) -> &[BufferId] {
        &self.members[self.of[b.index()]]
    }

    /// The last kernel that needs anything in the group of `b`.
    pub fn last(&self, b: BufferId, lives: &[Life]) -> usize {
        self.group(b).iter().map(|m| lives[m.index()].last).max().unwrap_or(0)
    }

    /// Whether `b`, born in kernel `at`, may follow `a`: all of `a`'s group is dead after that kernel, and nothing else was
    /// born into it there but what the kernel hands on.
    pub fn free_at(&self, a: BufferId, b: BufferId, lives: &[Life], at: usize) -> bool {
        self.of[a.index()] != self.of[b.index()]
            && self.group(b).len() == 1
            && self.group(a).iter().all(|m| lives[m.index()].last <= at)
            && self.group(a).iter().filter(|m| lives[m.index()].last == at).count() == 1
    }

    /// Lets `b` take the storage of `a`.
    pub fn join(&mut self, a: BufferId, b: BufferId) {
        let (to, from) = (self.of[a.index()], self.of[b.index()]);
        let moved = std::mem::take(&mut self.members[from]);
        moved.iter().for_each(|m| self.of[m.index()] = to);
        self.members[to].extend(moved);
    }

    /// What the arena holds.
    pub fn items(
        &self,
        s: &Schedule,
        places: &[Option<Place>],
        lives: &[Life],
        alignment: usize,
    ) -> Vec<Item> {
        let mut out = vec![];
        for members in self.members.iter().filter(|m| !m.is_empty()) {
            if members.iter().any(|m| places[m.index()].is_some()) {
                continue;
            }
            out.push(Item {
                first: members.iter().map(|m| lives[m.index()].first).min().unwrap_or(0),
                last: members.iter().map(|m| lives[m.index()].last).max().unwrap_or(0),
                bytes: s.buffer(members[0]).bytes().next_multiple_of(alignment),
                buffers: members.clone(),
            });
        }
        out
    }
}

/// Storage that is needed from one kernel to another.
#[derive(Clone, Debug)]
pub struct Item {
    /// First kernel.
    pub first: usize,
    /// Last kernel.
    pub last: usize,
    /// Size, a multiple of the alignment.
    pub bytes: usize,
    /// The buffers that share it.
    pub buffers: Vec<BufferId>,
}

/// The most bytes that are live at once.
pub fn most_live(items: &[Item], kernels: usize) -> usize {
    let mut change = vec![0i128; kernels + 1];
    for i in items {
        change[i.first] += i.bytes as i128;
        change[i.last + 1] -= i.bytes as i128;
    }
    let (mut live, mut most) = (0, 0);
    for c in change {
        live += c;
        most = most.max(live);
    }
    most as usize
}

/// One after the other, without sharing.
pub fn apart(items: &[Item]) -> Vec<usize> {
    let mut at = 0;
    items
        .iter()
        .map(|i| {
            at += i.bytes;
            at - i.bytes
        })
        .collect()
}

/// Offsets for all items.
pub fn pack(items: &[Item], bound: usize) -> Vec<usize> {
    let life = |i: &Item| (i.last - i.first + 1) as u128;
    let keys: [&dyn Fn(&Item) -> u128; 4] =
        [&|i| i.bytes as u128, &|i| i.bytes as u128 * life(i), &|i| life(i), &|i| {
            u128::MAX - i.first as u128
        }];
    let mut best: Option<(usize, Vec<usize>, Vec<usize>)> = None;
    let consider = |order: Vec<usize>, best: &mut Option<(usize, Vec<usize>, Vec<usize>)>| {
        let offsets = place(items, &order);
        let total = items.iter().zip(&offsets).map(|(i, o)| o + i.bytes).max().unwrap_or(0);
        if best.as_ref().is_none_or(|b| total <= b.0) {
            *best = Some((total, offsets, order));
        }
        best.as_ref().is_some_and(|b| b.0 as f64 <= SLACK * bound as f64)
    };
    for key in keys {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(key(&items[i])), items[i].first, i));
        if consider(order, &mut best) {
            break;
        }
    }
    // A fixed generator: the same program gets the same plan.
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n.max(1) as u64) as usize
    };
    let tries = (200_000 / (items.len() * items.len() / 64 + 1)).clamp(16, 2000);
    for _ in 0..tries {
        let Some((total, offsets, order)) = &best else { break };
        if items.len() < 2 || *total as f64 <= SLACK * bound as f64 {
            break;
        }
        let mut order = order.clone();
        // Move a few items to the front part of the order: one that reaches the end of the arena, or any.
        for _ in 0..1 + random(3) {
            let high = (0..order.len()).filter(|&at| offsets[order[at]] + items[order[at]].bytes == *total);
            let high: Vec<usize> = high.collect();
            let from = if random(2) == 0 && !high.is_empty() {
                high[random(high.len())]
            } else {
                random(order.len())
            };
            let item = order.remove(from);
            order.insert(random(from + 1), item);
        }
        consider(order, &mut best);
    }
    best.map(|b| b.1).unwrap_or_default()
}

/// Places items in the given order, each at the lowest free offset.
fn place(items: &[Item], order: &[usize]) -> Vec<usize> {
    let mut offsets = vec![0; items.len()];
    let mut placed: Vec<usize> = vec![];
    let mut taken: Vec<(usize, usize)> = vec![];
    for &i in order {
        let item = &items[i];
        taken.clear();
        let clash = placed.iter().filter(|&&j| items[j].first <= item.last && item.first <= items[j].last);
        taken.extend(clash.map(|&j| (offsets[j], offsets[j] + items[j].bytes)));
        taken.sort_unstable();
        let mut at = 0;
        for &(start, end) in &taken {
            if at + item.bytes <= start {
                break;
            }
            at = at.max(end);
        }
        offsets[i] = at;
        placed.push(i);
    }
    offsets
}
