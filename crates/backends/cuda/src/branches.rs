//! Which kernels may run beside each other: the ranges of memory that they read and write, and from those the branches of the
//! captured graph.
//!
//! Kernels keep the schedule's order but for what does not touch the same memory. One that fills the device by itself gains
//! nothing from company and stays in order with the others of its kind; small ones run beside them.

use crate::code::{PROCESSORS, Space};
use std::collections::{BTreeSet, HashMap};

/// The most branches.
const MOST_BRANCHES: usize = 4;
/// Blocks that a large device runs at a time, one on each processor, and those that fill it.
const WAVE: usize = PROCESSORS;
const WIDE: usize = 2 * WAVE;

/// A range of memory that a kernel reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// Which memory.
    pub space: Space,
    /// Its first byte.
    pub start: usize,
    /// The byte behind its last.
    pub end: usize,
    /// Whether it is written.
    pub writes: bool,
}

impl Use {
    /// Whether two kernels with these uses have to keep their order.
    pub fn conflicts(&self, other: &Use) -> bool {
        self.space == other.space
            && self.start < other.end
            && other.start < self.end
            && (self.writes || other.writes)
    }

    fn covers(&self, other: &Use) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// A kernel, as far as its order matters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unit {
    /// What it uses.
    pub uses: Vec<Use>,
    /// Blocks of its largest launch.
    pub blocks: usize,
}

impl Unit {
    /// Whether it fills the device by itself.
    fn wide(&self) -> bool {
        self.blocks > WIDE
    }
}

/// The kernels dealt out to branches. Those of a branch run one after the other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Branches {
    /// How many there are.
    pub count: usize,
    /// By kernel: its branch.
    pub of: Vec<usize>,
    /// By kernel: earlier ones on other branches that it waits for.
    pub waits: Vec<Vec<usize>>,
}

/// A set of numbers.
#[derive(Clone, Default)]
struct Set(Vec<u64>);

impl Set {
    fn insert(&mut self, n: usize) {
        if self.0.len() <= n / 64 {
            self.0.resize(n / 64 + 1, 0);
        }
        self.0[n / 64] |= 1 << (n % 64);
    }
    fn contains(&self, n: usize) -> bool {
        self.0.get(n / 64).is_some_and(|word| word >> (n % 64) & 1 == 1)
    }
    fn extend(&mut self, other: &Set) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }
}

/// Those of `before` that no other one of them comes after, the latest first, and all that is before them or one of them.
fn last(before: &BTreeSet<usize>, ancestors: &[Set]) -> (Vec<usize>, Set) {
    let (mut latest, mut all) = (vec![], Set::default());
    for &b in before.iter().rev() {
        if !all.contains(b) {
            latest.push(b);
            all.insert(b);
            all.extend(&ancestors[b]);
        }
    }
    (latest, all)
}

/// By kernel: the earlier ones that it has to come after, but for those that others of them come after.
fn dependencies(units: &[Unit]) -> Vec<Vec<usize>> {
    let mut touched: HashMap<Space, Vec<(Use, usize)>> = HashMap::new();
    let mut wide = None;
    let (mut all, mut ancestors): (Vec<Vec<usize>>, Vec<Set>) = (vec![], vec![]);
    for (n, unit) in units.iter().enumerate() {
        let mut before: BTreeSet<usize> = BTreeSet::new();
        if unit.wide() {
            before.extend(wide.replace(n));
        }
        for u in &unit.uses {
            let of_space = touched.entry(u.space).or_default();
            before.extend(of_space.iter().filter(|(t, _)| t.conflicts(u)).map(|(_, by)| *by));
        }
        for u in &unit.uses {
            let of_space = touched.entry(u.space).or_default();
            if u.writes {
                // Whoever conflicts with these conflicts with this one.
                of_space.retain(|(t, _)| !u.covers(t));
            }
            of_space.push((*u, n));
        }
        let (latest, before) = last(&before, &ancestors);
        all.push(latest);
        ancestors.push(before);
    }
    all
}

/// By kernel: which of those that come next after it has the longest chain below, in waves, and so goes on where it ends.
fn heirs(units: &[Unit], dependencies: &[Vec<usize>]) -> Vec<Option<usize>> {
    let mut below = vec![0; units.len()];
    let mut heirs: Vec<Option<usize>> = vec![None; units.len()];
    for (n, before) in dependencies.iter().enumerate().rev() {
        let chain = below[n] + WAVE + units[n].blocks;
        for &d in before {
            if chain >= below[d] {
                (below[d], heirs[d]) = (chain, Some(n));
            }
        }
    }
    heirs
}

/// Deals kernels out to branches.
pub(crate) fn deal(units: &[Unit]) -> Branches {
    let dependencies = dependencies(units);
    let heirs = heirs(units, &dependencies);
    let mut branches = Branches::default();
    // The last kernel of each branch.
    let mut tails: Vec<usize> = vec![];
    let mut ancestors: Vec<Set> = vec![];
    for (n, before) in dependencies.iter().enumerate() {
        let mut before: BTreeSet<usize> = before.iter().copied().collect();
        let (_, above) = last(&before, &ancestors);
        // Where it is the heir; or where all has ended; or on a new branch; or behind what began longest ago.
        let number = 0..tails.len();
        let inherited = number.clone().filter(|&b| heirs[tails[b]] == Some(n)).max_by_key(|&b| tails[b]);
        let left = |t: usize| above.contains(t) && heirs[t].is_none_or(|heir| heir < n);
        let free = || number.clone().find(|&b| left(tails[b]));
        let new = (tails.len() < MOST_BRANCHES).then_some(tails.len());
        let longest = || number.clone().min_by_key(|&b| tails[b]);
        let branch = inherited.or_else(free).or(new).or_else(longest).unwrap_or(0);
        match tails.get_mut(branch) {
            Some(tail) => _ = before.insert(std::mem::replace(tail, n)),
            None => tails.push(n),
        }
        let (latest, all) = last(&before, &ancestors);
        ancestors.push(all);
        branches.waits.push(latest.into_iter().filter(|&d| branches.of[d] != branch).collect());
        branches.of.push(branch);
    }
    branches.count = tails.len().max(1);
    branches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(reads: &[usize], writes: &[usize], blocks: usize) -> Unit {
        let of = |writes: bool| move |&n: &usize| Use { space: Space::Arena, start: n, end: n + 1, writes };
        Unit { uses: reads.iter().map(of(false)).chain(writes.iter().map(of(true))).collect(), blocks }
    }

    #[test]
    fn a_chain_is_one_branch() {
        let units: Vec<Unit> = (0..5).map(|n| unit(&[n], &[n + 1], 1)).collect();
        let b = deal(&units);
        assert_eq!((b.count, b.of), (1, vec![0; 5]));
        assert!(b.waits.iter().all(Vec::is_empty));
    }

    #[test]
    fn what_is_apart_runs_beside_and_meets_again() {
        // 0 feeds 1 and 2; 3 needs both.
        let units = [unit(&[], &[0], 1), unit(&[0], &[1], 1), unit(&[0], &[2], 1), unit(&[1, 2], &[3], 1)];
        let b = deal(&units);
        assert_eq!((b.count, b.of), (2, vec![0, 0, 1, 1]));
        assert_eq!(b.waits, [vec![], vec![], vec![0], vec![1]]);
    }

    /// The longer way stays on the branch, so that what is beside it waits and not the other way round.
    #[test]
    fn the_longest_chain_goes_on() {
        let units = [unit(&[], &[0], 1), unit(&[0], &[1], 1), unit(&[0], &[2], 1), unit(&[2], &[3], 1)];
        let b = deal(&units);
        assert_eq!(b.of, [0, 1, 0, 0]);
        assert_eq!(b.waits, [vec![], vec![0], vec![], vec![]]);
    }

    /// A kernel that writes over what another one reads comes after it, though no value passes between them.
    #[test]
    fn memory_that_is_used_again_keeps_the_order() {
        let units = [unit(&[], &[0], 1), unit(&[0], &[1], 1), unit(&[], &[0], 1)];
        assert_eq!(dependencies(&units), [vec![], vec![0], vec![1]]);
    }

    #[test]
    fn what_fills_the_device_stays_in_order() {
        let units = [unit(&[], &[0], 1000), unit(&[], &[1], 1000), unit(&[], &[2], 1)];
        let b = deal(&units);
        assert_eq!(b.of, [0, 0, 1]);
    }
}
