//! Groups maps and reductions into clusters; each becomes one loop kernel.
//!
//! Nodes are visited from the last to the first, so that all readers of a node are placed before it. A node joins the
//! cluster of a reader when its elements are needed at the points of that cluster's domain, each once:
//!
//! - the index of the element that a reader needs is the same affine function for all its readers in the cluster;
//! - a node that others read too becomes an output of the cluster, if it covers the domain's parallel axes (and all or none
//!   of the reduced ones), and no reader outside leads back into the cluster;
//! - a reduction gives the cluster its reduced axes, or has the same ones;
//! - nothing costly is computed more often than it has elements;
//! - a reduction down the columns takes no full-size output along.
//!
//! Two clusters that both want a node become one when their domains agree and neither depends on the other.

use super::analysis::{Analysis, Kind, Reader, costly};
use super::index::through;
use crate::schedule::{Affine, Bound};
use onestep_ir::Op;
use std::collections::BTreeMap;

/// A node's place in a cluster.
#[derive(Clone, Debug)]
pub struct Member {
    /// The index of its element at a point of the domain.
    pub index: Vec<Affine>,
    /// For a reduction: the domain's axes of its reduced axes, in order.
    pub over: Vec<usize>,
}

/// A group of nodes over one domain.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Sizes of the domain's axes, in order of their invention.
    pub extents: Vec<usize>,
    /// The axes that are reduced, in the order of the reduction.
    pub reduced: Vec<usize>,
    /// Its nodes by position.
    pub members: BTreeMap<usize, Member>,
}

impl Cluster {
    fn axis_added(&mut self, size: usize) -> usize {
        self.extents.push(size);
        for m in self.members.values_mut() {
            m.index.iter_mut().for_each(|a| a.coefs.push(0));
        }
        self.extents.len() - 1
    }

    /// Points of the axes for which `keep` holds.
    fn points(&self, keep: impl Fn(usize) -> bool) -> usize {
        (0..self.extents.len()).filter(|&a| keep(a)).map(|a| self.extents[a]).product()
    }

    /// The index of operand `slot` of a member.
    pub fn operand_index(
        &self,
        a: &Analysis<'_>,
        at: usize,
        slot: usize,
    ) -> Option<(Vec<Affine>, Vec<Bound>)> {
        let node = a.nodes[at];
        let m = &self.members[&at];
        match (&node.op, a.kinds[at]) {
            (Op::Reduce(r), _) => {
                let rank = self.extents.len();
                let mut kept = m.index.iter();
                let mut over = m.over.iter();
                let from = a.sizes(node.operands[0]);
                let index = (0..from.len())
                    .map(|axis| {
                        if r.axes.contains(&axis) {
                            over.next().map(|&d| Affine::axis(d, rank))
                        } else {
                            kept.next().cloned()
                        }
                    })
                    .collect::<Option<Vec<_>>>()?;
                Some((index, vec![]))
            }
            (op, Kind::View) => {
                let (from, to) = (a.sizes(node.operands[0]), a.sizes(node.results[0]));
                let t = through(op, &from, &to, &m.index, &self.extents)?;
                Some((t.index, t.bounds))
            }
            (Op::RandomBits(_), _) if slot == 0 => None,
            (Op::RandomBits(_), _) => Some((vec![], vec![])),
            _ => Some((m.index.clone(), vec![])),
        }
    }

    /// The index at which a reader in this cluster needs the node's element.
    fn needed_at(&self, a: &Analysis<'_>, reader: &Reader) -> Option<(Vec<Affine>, bool)> {
        let (mut index, bounds) = self.operand_index(a, reader.at, reader.slot)?;
        let mut bounded = !bounds.is_empty();
        for &view in reader.views.iter().filter(|v| a.kinds[**v] == Kind::View) {
            let node = a.nodes[view];
            let (from, to) = (a.sizes(node.operands[0]), a.sizes(node.results[0]));
            let t = through(&node.op, &from, &to, &index, &self.extents)?;
            bounded |= !t.bounds.is_empty();
            index = t.index;
        }
        Some((index, bounded))
    }
}

/// All clusters, and the cluster of each node.
pub struct Clusters<'a, 'g> {
    a: &'a Analysis<'g>,
    /// The clusters; merged ones are empty.
    pub list: Vec<Cluster>,
    /// By node position.
    pub of: Vec<Option<usize>>,
    readers: Vec<Vec<Reader>>,
}

impl<'a, 'g> Clusters<'a, 'g> {
    /// Forms the clusters of a graph; without `merge`, one for each node.
    pub fn form(a: &'a Analysis<'g>, merge: bool) -> Clusters<'a, 'g> {
        let n = a.nodes.len();
        let readers = (0..n).map(|at| a.readers(at)).collect();
        let mut c = Clusters { a, list: vec![], of: vec![None; n], readers };
        for at in (0..n).rev() {
            let kernel = match a.kinds[at] {
                Kind::Reduce => true,
                Kind::Map | Kind::Leaf | Kind::View => !a.inlined(at),
                Kind::Matmul | Kind::Library => false,
            };
            if kernel {
                c.place(at, merge);
            }
        }
        if merge {
            c.join_siblings();
        }
        c
    }

    /// Puts a node into a cluster of its readers, or into a new one.
    fn place(&mut self, at: usize, merge: bool) {
        let mut wanted: Vec<usize> = self.readers[at].iter().filter_map(|r| self.of[r.at]).collect();
        wanted.sort_unstable();
        wanted.dedup();
        // A forced view or leaf keeps a kernel of its own: it is a copy.
        let joins = merge && matches!(self.a.kinds[at], Kind::Map | Kind::Reduce);
        let mut home: Option<usize> = None;
        for id in wanted.into_iter().filter(|_| joins) {
            match home {
                None => {
                    if let Some(cluster) = self.joined(at, id, &[]) {
                        self.list[id] = cluster;
                        self.of[at] = Some(id);
                        home = Some(id);
                    }
                }
                Some(first) => {
                    if self.path(first, id) || self.path(id, first) {
                        continue;
                    }
                    if let Some(other) = self.joined(at, id, &[first])
                        && let Some(merged) = self.merged(&self.list[first], &other, at)
                    {
                        self.merge(first, id, merged);
                    }
                }
            }
        }
        if home.is_none() {
            let id = self.list.len();
            let cluster = self.root(at);
            self.list.push(cluster);
            self.of[at] = Some(id);
        }
    }

    fn merge(&mut self, into: usize, from: usize, merged: Cluster) {
        for &m in merged.members.keys() {
            self.of[m] = Some(into);
        }
        self.list[into] = merged;
        self.list[from] = Cluster::default();
    }

    /// A cluster of one node: its result's axes are parallel, and the axes that it reduces come after them.
    fn root(&self, at: usize) -> Cluster {
        let node = self.a.nodes[at];
        let mut extents = self.a.sizes(node.results[0]);
        let rank = extents.len();
        let mut reduced = vec![];
        if let Op::Reduce(r) = &node.op {
            let from = self.a.sizes(node.operands[0]);
            for &axis in &sorted(&r.axes) {
                reduced.push(extents.len());
                extents.push(from[axis]);
            }
        }
        let index = (0..rank).map(|d| Affine::axis(d, extents.len())).collect();
        let members = [(at, Member { index, over: reduced.clone() })].into();
        Cluster { extents, reduced, members }
    }

    /// Cluster `id` with the node added, if it may join. Readers in the clusters `also` do not count as outside.
    fn joined(&self, at: usize, id: usize, also: &[usize]) -> Option<Cluster> {
        let a = self.a;
        let mut cluster = self.list[id].clone();
        let node = a.nodes[at];
        if cluster.members.len() >= a.target.max_body() / 3 {
            return None;
        }
        let mut index: Option<Vec<Affine>> = None;
        let mut bounded = false;
        let mut outside: Vec<usize> = vec![];
        for r in &self.readers[at] {
            match self.of[r.at] {
                Some(c) if c == id => {
                    let (need, b) = cluster.needed_at(a, r)?;
                    bounded |= b;
                    if index.as_ref().is_some_and(|i| *i != need) {
                        return None;
                    }
                    index = Some(need);
                }
                Some(c) if also.contains(&c) => {}
                _ => outside.push(r.at),
            }
        }
        let index = index?;
        let forced = a.forced.contains(&node.results[0]);
        let output = forced || !outside.is_empty() || !also.is_empty();
        // Where the node stands in the domain.
        let axes: Vec<Option<usize>> = index.iter().map(Affine::as_axis).collect();
        let sizes = a.sizes(node.results[0]);
        let exact = axes.iter().zip(&sizes).enumerate().all(|(i, (d, &n))| match d {
            Some(d) => cluster.extents[*d] == n && !axes[..i].contains(&Some(*d)),
            None => n == 1,
        });
        let uses_axis = |d: usize| index.iter().any(|i| i.coefs[d] != 0);
        let mut over = vec![];
        if let Op::Reduce(r) = &node.op {
            let from = a.sizes(node.operands[0]);
            let order = sorted(&r.axes);
            let lengths: Vec<usize> = order.iter().map(|&x| from[x]).collect();
            if !exact || bounded {
                return None;
            }
            let spare: Vec<usize> =
                (0..cluster.extents.len()).filter(|&d| !uses_axis(d) && cluster.extents[d] != 1).collect();
            let real: Vec<usize> = lengths.iter().copied().filter(|&n| n != 1).collect();
            // The row may be read again for what follows the reduction, so it must be short and lie together in memory.
            let row: usize = lengths.iter().product();
            let trailing = order.iter().rev().zip((0..from.len()).rev()).all(|(&x, last)| x == last);
            let again = trailing && row <= a.target.max_row();
            if !cluster.reduced.is_empty() {
                // Reductions of one kernel go over the same axes in the same order.
                let same: Vec<usize> = cluster.reduced.iter().map(|&d| cluster.extents[d]).collect();
                if same != lengths
                    || !again
                    || spare.iter().any(|d| !cluster.reduced.contains(d))
                    || cluster.reduced.iter().any(|&d| uses_axis(d))
                {
                    return None;
                }
                over = cluster.reduced.clone();
            } else if spare.is_empty() {
                // What follows is of the row alone; a long row is better split among threads, by itself.
                if row > a.target.max_row() {
                    return None;
                }
                over = lengths.iter().map(|&n| cluster.axis_added(n)).collect();
                cluster.reduced = over.clone();
            } else {
                if real != spare.iter().map(|&d| cluster.extents[d]).collect::<Vec<_>>() || !again {
                    return None;
                }
                let mut rest = spare.into_iter();
                over = lengths
                    .iter()
                    .map(|&n| if n == 1 { None } else { rest.next() })
                    .map(|d| d.unwrap_or_else(|| cluster.axis_added(1)))
                    .collect();
                cluster.reduced = over.clone();
            }
        }
        let index: Vec<Affine> = index
            .into_iter()
            .map(|mut i| {
                i.coefs.resize(cluster.extents.len(), 0);
                i
            })
            .collect();
        let varies = |d: usize| index.iter().any(|i| i.coefs[d] != 0);
        let of_row = !cluster.reduced.is_empty() && !cluster.reduced.iter().any(|&d| varies(d));
        let points = cluster.points(|d| !(of_row && cluster.reduced.contains(&d)));
        let elements: usize = sizes.iter().product();
        if points > elements && (output || costly(&node.op)) {
            return None;
        }
        if output {
            let covers = (0..cluster.extents.len())
                .all(|d| cluster.extents[d] == 1 || varies(d) || (of_row && cluster.reduced.contains(&d)));
            if !exact || bounded || !covers || (!of_row && across_rows(&cluster, &index)) {
                return None;
            }
            if outside.iter().any(|&o| self.leads_to(o, id)) {
                return None;
            }
        }
        cluster.members.insert(at, Member { index, over });
        Some(cluster)
    }

    /// The union of two clusters that share node `at`, if their domains agree axis by axis.
    fn merged(&self, one: &Cluster, two: &Cluster, at: usize) -> Option<Cluster> {
        let (m1, m2) = (&one.members[&at], &two.members[&at]);
        let mut map: Vec<Option<usize>> = vec![None; two.extents.len()];
        for (i1, i2) in m1.index.iter().zip(&m2.index) {
            match (i1.as_axis(), i2.as_axis()) {
                (Some(d1), Some(d2)) => map[d2] = Some(d1),
                (None, None) if i1.offset == i2.offset => {}
                _ => return None,
            }
        }
        for (&d1, &d2) in m1.over.iter().zip(&m2.over) {
            map[d2] = Some(d1);
        }
        self.united(one, two, map)
    }

    /// The union under a map from the second's axes to the first's.
    fn united(&self, one: &Cluster, two: &Cluster, map: Vec<Option<usize>>) -> Option<Cluster> {
        let mut out = one.clone();
        let mut full = vec![];
        for (d2, d1) in map.into_iter().enumerate() {
            let d1 = match d1 {
                Some(d) if one.extents[d] == two.extents[d2] => d,
                None if two.extents[d2] == 1 => out.axis_added(1),
                // The other cluster goes over an axis that this one does not know: only a reduced one may be new.
                None if two.reduced.contains(&d2) && one.reduced.is_empty() => {
                    out.axis_added(two.extents[d2])
                }
                _ => return None,
            };
            full.push(d1);
        }
        let reduced: Vec<usize> = two.reduced.iter().map(|&d| full[d]).collect();
        if out.reduced.is_empty() {
            out.reduced = reduced;
        } else if !two.reduced.is_empty() && out.reduced != reduced {
            return None;
        }
        let rank = out.extents.len();
        for (&at, m) in &two.members {
            let index = m
                .index
                .iter()
                .map(|i| {
                    let mut new = Affine::constant(i.offset, rank);
                    i.coefs.iter().enumerate().for_each(|(d, c)| new.coefs[full[d]] += c);
                    new
                })
                .collect();
            let over = m.over.iter().map(|&d| full[d]).collect();
            out.members.entry(at).or_insert(Member { index, over });
        }
        // Every parallel axis is covered by every member that has a buffer, and reductions stay reductions.
        let fine = out.members.iter().all(|(&at, m)| {
            let varies = |d: usize| m.index.iter().any(|i| i.coefs[d] != 0);
            let parallel = (0..rank).filter(|d| !out.reduced.contains(d) && out.extents[*d] != 1);
            let some = out.reduced.iter().any(|&d| varies(d));
            let all = out.reduced.iter().all(|&d| varies(d) || out.extents[d] == 1);
            let is_reduce = self.a.kinds[at] == Kind::Reduce;
            let outside = self.is_output(at, &out);
            let whole = parallel.clone().all(varies);
            let stored = whole && (!some || (all && !across_rows(&out, &m.index)));
            (!is_reduce || (whole && !some)) && (!outside || stored)
        });
        let small = out.members.len() < self.a.target.max_body() / 3;
        // Clusters that only store full-size results must not gain a reduction over a long or scattered row.
        (fine && small).then_some(out)
    }

    /// Whether a node has readers outside the cluster, or must have a buffer.
    fn is_output(&self, at: usize, cluster: &Cluster) -> bool {
        self.a.forced.contains(&self.a.nodes[at].results[0])
            || self.readers[at].iter().any(|r| !cluster.members.contains_key(&r.at))
    }

    /// Whether member `at` of cluster `id` is stored.
    pub fn stored(&self, at: usize, id: usize) -> bool {
        self.is_output(at, &self.list[id])
    }

    /// Clusters over one domain that read the same value at the same index become one, if neither depends on the other:
    /// the value is read once. Only reductions, for which reading is the cost.
    fn join_siblings(&mut self) {
        let values: Vec<Vec<Reader>> = (0..self.a.nodes.len())
            .filter(|&at| self.of[at].is_none_or(|id| self.stored(at, id)) && !self.a.inlined(at))
            .map(|at| self.readers[at].clone())
            .collect();
        for readers in values {
            let mut ids: Vec<usize> = readers.iter().filter_map(|r| self.of[r.at]).collect();
            ids.sort_unstable();
            ids.dedup();
            for i in 0..ids.len() {
                for j in i + 1..ids.len() {
                    self.join_pair(ids[i], ids[j], &readers);
                }
            }
        }
    }

    fn join_pair(&mut self, one: usize, two: usize, readers: &[Reader]) {
        let (c1, c2) = (&self.list[one], &self.list[two]);
        if c1.members.is_empty() || c2.members.is_empty() || c1.reduced.is_empty() || c2.reduced.is_empty() {
            return;
        }
        let needs = |c: &Cluster| {
            let r = readers.iter().find(|r| c.members.contains_key(&r.at))?;
            c.needed_at(self.a, r).map(|(index, _)| index)
        };
        let (Some(i1), Some(i2)) = (needs(c1), needs(c2)) else { return };
        let mut map = vec![None; c2.extents.len()];
        for (a1, a2) in i1.iter().zip(&i2) {
            match (a1.as_axis(), a2.as_axis()) {
                (Some(d1), Some(d2)) => map[d2] = Some(d1),
                (None, None) => {}
                _ => return,
            }
        }
        if map.iter().enumerate().any(|(d, m)| m.is_none() && c2.extents[d] != 1)
            || self.direct(one, two)
            || self.direct(two, one)
        {
            return;
        }
        if let Some(merged) = self.united(c1, c2, map) {
            self.merge(one, two, merged);
        }
    }

    /// Whether any path leads from a cluster to another.
    fn direct(&self, from: usize, to: usize) -> bool {
        self.list[from].members.keys().any(|&at| self.readers[at].iter().any(|r| self.of[r.at] == Some(to)))
            || self.path(from, to)
    }

    /// Whether a path leads from one cluster to another through a third kernel.
    fn path(&self, from: usize, to: usize) -> bool {
        let inside = |at: usize| self.of[at] == Some(from) || self.of[at] == Some(to);
        self.list[from]
            .members
            .keys()
            .any(|&at| self.readers[at].iter().any(|r| !inside(r.at) && self.leads_to(r.at, to)))
    }

    /// Whether the kernel of node `from` leads to a cluster.
    pub fn leads_to(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.a.nodes.len()];
        let mut stack = vec![from];
        while let Some(at) = stack.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            match self.of[at] {
                Some(id) if id == to => return true,
                Some(id) => stack.extend(self.list[id].members.keys().copied().filter(|&m| !seen[m])),
                None => {}
            }
            stack.extend(self.readers[at].iter().map(|r| r.at).filter(|&r| !seen[r]));
        }
        false
    }

    /// The readers of a node.
    pub fn readers_of(&self, at: usize) -> &[Reader] {
        &self.readers[at]
    }
}

/// Whether a full-size value's last axes are not the reduced ones. A sum down the columns does not take such a value along
/// as a result: by itself it can follow a matmul in the cache, or run in the order of memory.
fn across_rows(cluster: &Cluster, index: &[Affine]) -> bool {
    let real = |d: &usize| cluster.extents[*d] != 1;
    let reduced: Vec<usize> = cluster.reduced.iter().copied().filter(real).collect();
    let axes: Vec<usize> = index.iter().filter_map(Affine::as_axis).filter(real).collect();
    !axes.ends_with(&reduced)
}

fn sorted(axes: &[usize]) -> Vec<usize> {
    let mut axes = axes.to_vec();
    axes.sort_unstable();
    axes
}
