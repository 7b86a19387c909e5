//! Which clusters become epilogues of matmuls, and the order of the kernels.

use super::analysis::Kind;
use super::{Lower, Unit};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The units as a graph in which some have been made one.
struct Joined {
    /// By unit: those that read its results.
    next: Vec<Vec<usize>>,
    /// By unit: what has been made one with it, itself too.
    with: Vec<Vec<usize>>,
}

impl Joined {
    /// Whether a path leads from one of the units through others back to one of them.
    fn comes_back(&self, units: &[usize]) -> bool {
        let mut seen = vec![false; self.next.len()];
        let mut stack: Vec<usize> = vec![];
        let mut visit = |from: usize, stack: &mut Vec<usize>| {
            for &to in self.next[from].iter().filter(|to| !units.contains(to)) {
                for &same in &self.with[to] {
                    if !std::mem::replace(&mut seen[same], true) {
                        stack.push(same);
                    }
                }
            }
        };
        units.iter().for_each(|&u| visit(u, &mut stack));
        while let Some(u) = stack.pop() {
            if self.next[u].iter().any(|to| units.contains(to)) {
                return true;
            }
            visit(u, &mut stack);
        }
        false
    }
}

impl Lower<'_, '_> {
    /// For each cluster that can be a matmul's epilogue, the matmul's node.
    pub fn epilogues(&self) -> HashMap<usize, usize> {
        let mut hosts: HashMap<usize, usize> = HashMap::new();
        if !self.merge {
            return hosts;
        }
        let nodes = self.a.nodes.len();
        let mut number: HashMap<Unit, usize> = HashMap::new();
        let of: Vec<Option<usize>> = (0..nodes)
            .map(|at| {
                let unit = self.unit_of(at)?;
                let next = number.len();
                Some(*number.entry(unit).or_insert(next))
            })
            .collect();
        let mut units =
            Joined { next: vec![vec![]; number.len()], with: (0..number.len()).map(|u| vec![u]).collect() };
        for at in 0..nodes {
            let Some(u) = of[at] else { continue };
            units.next[u]
                .extend(self.clusters.readers[at].iter().filter_map(|r| of[r.at]).filter(|&r| r != u));
        }
        units.next.iter_mut().for_each(|next| {
            next.sort_unstable();
            next.dedup();
        });
        // The last matmul before a cluster hosts it.
        for at in (0..nodes).rev().filter(|&at| self.a.kinds[at] == Kind::Matmul) {
            let mut ids: Vec<usize> =
                self.clusters.readers[at].iter().filter_map(|r| self.clusters.of[r.at]).collect();
            ids.sort_unstable();
            ids.dedup();
            let matmul = number[&Unit::Node(at)];
            for id in ids.into_iter().filter(|id| !hosts.contains_key(id)).collect::<Vec<_>>() {
                let cluster = number[&Unit::Cluster(id)];
                // Two kernels that each wait for a part of the other cannot be, nor one that waits for itself.
                if units.next[cluster].contains(&matmul) || units.comes_back(&[matmul, cluster]) {
                    continue;
                }
                if let Ok(Some(_)) = self.epilogue(at, id) {
                    hosts.insert(id, at);
                    units.with[matmul].push(cluster);
                    units.with[cluster].push(matmul);
                    break;
                }
            }
        }
        hosts
    }

    /// The units in an order in which each stands after those that it reads; among the free ones, the earliest of the
    /// graph first, but what gives a state its new value after what reads the old one, so that it can be written in
    /// place. `None` if units wait for each other.
    pub fn ordered(&self, hosts: &HashMap<usize, usize>) -> Option<Vec<Unit>> {
        let unit = |at: usize| match self.unit_of(at)? {
            Unit::Cluster(id) if hosts.contains_key(&id) => Some(Unit::Node(hosts[&id])),
            u => Some(u),
        };
        let mut first: HashMap<Unit, usize> = HashMap::new();
        let mut after: HashMap<Unit, BTreeSet<Unit>> = HashMap::new();
        let mut waits: HashMap<Unit, usize> = HashMap::new();
        for at in 0..self.a.nodes.len() {
            let Some(u) = unit(at) else { continue };
            let last = first.entry(u).or_insert(at);
            *last = (*last).max(at);
            waits.entry(u).or_insert(0);
            for r in &self.clusters.readers[at] {
                if let Some(w) = unit(r.at)
                    && w != u
                    && after.entry(u).or_default().insert(w)
                {
                    *waits.entry(w).or_insert(0) += 1;
                }
            }
        }
        // For each unit that updates a state, the others that read the old value.
        let mut better_first: HashMap<Unit, BTreeSet<Unit>> = HashMap::new();
        for update in &self.a.graph.updates {
            let Some(writer) = self.a.def[self.a.through_reshapes(update.value).index()].and_then(unit)
            else {
                continue;
            };
            let readers = self.a.kernels_reading(self.a.graph.states[update.state].value);
            let again = self.clusters.late.get(&self.a.graph.states[update.state].value);
            let again = again.into_iter().flatten().map(|id| match hosts.get(id) {
                Some(&host) => Unit::Node(host),
                None => Unit::Cluster(*id),
            });
            let others = readers.into_iter().filter_map(unit).chain(again).filter(|r| *r != writer);
            better_first.entry(writer).or_default().extend(others);
        }
        let mut ready: BTreeSet<(usize, Unit)> =
            waits.iter().filter(|(_, n)| **n == 0).map(|(u, _)| (first[u], *u)).collect();
        let mut out = vec![];
        let mut done: HashSet<Unit> = HashSet::new();
        loop {
            let free = |(_, u): &&(usize, Unit)| {
                better_first.get(u).is_none_or(|r| r.iter().all(|x| done.contains(x)))
            };
            let Some(&next) = ready.iter().find(free).or(ready.first()) else { break };
            ready.remove(&next);
            let u = next.1;
            done.insert(u);
            out.push(u);
            for w in after.get(&u).into_iter().flatten() {
                let n = waits.get_mut(w).expect("every unit was counted");
                *n -= 1;
                if *n == 0 {
                    ready.insert((first[w], *w));
                }
            }
        }
        (out.len() == waits.len()).then_some(out)
    }
}
