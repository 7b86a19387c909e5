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
//! - a reduction down the columns takes no full-size output along;
//! - what others wait for does not join the update of a state whose old value they still read, which could then not be
//!   written in place.
//!
//! Two clusters that both want a node become one when their domains agree and neither depends on the other.

use super::analysis::{Analysis, Kind, Reader, costly};
use super::index::through;
use crate::schedule::{Affine, Bound};
use onestep_ir::{Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

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

/// How a node joins a cluster: the domain with it, and its place there.
struct Join {
    extents: Vec<usize>,
    reduced: Vec<usize>,
    member: Member,
}

impl Cluster {
    pub fn axis_added(&mut self, size: usize) -> usize {
        self.extents.push(size);
        for m in self.members.values_mut() {
            m.index.iter_mut().for_each(|a| a.coefs.push(0));
        }
        self.extents.len() - 1
    }

    /// Takes a node in.
    fn accept(&mut self, at: usize, join: Join) {
        let rank = join.extents.len();
        if rank > self.extents.len() {
            self.members.values_mut().flat_map(|m| &mut m.index).for_each(|a| a.coefs.resize(rank, 0));
        }
        self.extents = join.extents;
        self.reduced = join.reduced;
        self.members.insert(at, join.member);
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
    pub fn needed_at(&self, a: &Analysis<'_>, reader: &Reader) -> Option<(Vec<Affine>, bool)> {
        let (mut index, bounds) = self.operand_index(a, reader.at, reader.slot)?;
        let mut bounded = !bounds.is_empty();
        for &view in reader.views.iter().filter(|v| a.kinds[**v] == Kind::View) {
            let node = a.nodes[view];
            let (from, to) = (a.sizes(node.operands[0]), a.sizes(node.results[0]));
            let t = through(&node.op, &from, &to, &index, &self.extents)?;
            bounded |= !t.bounds.is_empty();
            index = t.index;
        }
        // Along an axis of size 1 every index is 0, whichever way it came here.
        for a in &mut index {
            a.coefs.iter_mut().zip(&self.extents).filter(|(_, n)| **n == 1).for_each(|(c, _)| *c = 0);
        }
        Some((index, bounded))
    }
}

/// All clusters, and the cluster of each node.
pub struct Clusters<'a, 'g> {
    /// What is grouped.
    pub a: &'a Analysis<'g>,
    /// The clusters; merged ones are empty.
    pub list: Vec<Cluster>,
    /// By node position.
    pub of: Vec<Option<usize>>,
    /// By node position.
    pub readers: Vec<Vec<Reader>>,
    /// By node position: whether readers in other kernels compute it again, so that it is not stored.
    pub again: Vec<bool>,
    /// Maps on the way to such values, which any kernel may compute.
    pub through: BTreeSet<usize>,
    /// What is stored for such values alone.
    pub kept: BTreeSet<usize>,
    /// By parameter of the graph: the clusters that read it for such values.
    pub late: BTreeMap<ValueId, BTreeSet<usize>>,
}

impl<'a, 'g> Clusters<'a, 'g> {
    /// Forms the clusters of a graph; without `merge`, one for each node.
    pub fn form(a: &'a Analysis<'g>, merge: bool) -> Clusters<'a, 'g> {
        let n = a.nodes.len();
        let readers = (0..n).map(|at| a.readers(at)).collect();
        let mut c = Clusters {
            a,
            list: vec![],
            of: vec![None; n],
            readers,
            again: vec![false; n],
            through: BTreeSet::new(),
            kept: BTreeSet::new(),
            late: BTreeMap::new(),
        };
        for at in (0..n).rev() {
            let kernel = match a.kinds[at] {
                Kind::Reduce => true,
                Kind::Map | Kind::Leaf | Kind::View => !a.inlined(at),
                Kind::Matmul | Kind::Library | Kind::Join | Kind::Barrier => false,
            };
            if kernel {
                c.place(at, merge);
            }
        }
        if merge {
            c.join_siblings();
            c.choose_recomputed();
        }
        c
    }

    /// Puts a node into a cluster of its readers, or into a new one.
    fn place(&mut self, at: usize, merge: bool) {
        let mut wanted: Vec<usize> = self.readers[at].iter().filter_map(|r| self.of[r.at]).collect();
        wanted.sort_unstable();
        wanted.dedup();
        // 8-bit floats are stored as they come, and turned by copies, which a target may make through tiles.
        if self.a.graph.ty(self.a.nodes[at].results[0]).dtype.is_fp8() {
            wanted.retain(|&id| !self.is_copy(id));
        }
        // A forced view or leaf keeps a kernel of its own: it is a copy.
        let joins = merge && matches!(self.a.kinds[at], Kind::Map | Kind::Reduce);
        let home = wanted.iter().copied().filter(|_| joins).find_map(|id| {
            let join = self.joining(at, id, &[])?;
            self.list[id].accept(at, join);
            Some(id)
        });
        self.of[at] = home;
        // The other readers' clusters may become one with it, also those that could not take the node by themselves.
        for id in wanted.into_iter().filter(|id| home.is_some_and(|h| h != *id)) {
            let Some(first) = home else { break };
            if self.path(first, id) || self.path(id, first) || self.stages_apart(first, id) {
                continue;
            }
            if let Some(join) = self.joining(at, id, &[first]) {
                let mut other = self.list[id].clone();
                other.accept(at, join);
                if let Some(merged) = self.merged(&self.list[first], &other, at) {
                    self.merge(first, id, merged);
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

    /// Whether a cluster does nothing but move elements.
    fn is_copy(&self, id: usize) -> bool {
        self.list[id].members.keys().all(|&at| self.a.kinds[at] == Kind::View)
    }

    pub fn merge(&mut self, into: usize, from: usize, merged: Cluster) {
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
        let one = |d: usize| match extents[d] {
            1 => Affine::constant(0, extents.len()),
            _ => Affine::axis(d, extents.len()),
        };
        let index = (0..rank).map(one).collect();
        let members = [(at, Member { index, over: reduced.clone() })].into();
        Cluster { extents, reduced, members }
    }

    /// Whether a reduction goes over the last axes of its operand.
    fn trailing(&self, at: usize) -> bool {
        let node = self.a.nodes[at];
        let Op::Reduce(r) = &node.op else { return false };
        let rank = self.a.sizes(node.operands[0]).len();
        sorted(&r.axes).iter().rev().zip((0..rank).rev()).all(|(&x, last)| x == last)
    }

    /// How the node joins cluster `id`, if it may. Readers in the clusters `also` do not count as outside.
    fn joining(&self, at: usize, id: usize, also: &[usize]) -> Option<Join> {
        let a = self.a;
        let cluster = &self.list[id];
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
        let (mut extents, mut reduced) = (cluster.extents.clone(), cluster.reduced.clone());
        let mut added = |size: usize| {
            extents.push(size);
            extents.len() - 1
        };
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
            let again = self.trailing(at) && row <= a.target.max_row();
            if !cluster.reduced.is_empty() {
                // Reductions of one kernel go over the same axes in the same order.
                let same: Vec<usize> = cluster.reduced.iter().map(|&d| cluster.extents[d]).collect();
                // A row that one reduction reads along memory and another across it is slow for either.
                let along = |(&m, _): (&usize, &Member)| a.kinds[m] != Kind::Reduce || self.trailing(m);
                if same != lengths
                    || !again
                    || !cluster.members.iter().all(along)
                    || spare.iter().any(|d| !cluster.reduced.contains(d))
                    || cluster.reduced.iter().any(|&d| uses_axis(d))
                {
                    return None;
                }
                over = reduced.clone();
            } else if spare.is_empty() {
                // What follows is of the row alone; a long row is better split among threads, by itself.
                if row > a.target.max_row() {
                    return None;
                }
                over = lengths.iter().map(|&n| added(n)).collect();
                reduced = over.clone();
            } else {
                if real != spare.iter().map(|&d| cluster.extents[d]).collect::<Vec<_>>() || !again {
                    return None;
                }
                let mut rest = spare.into_iter();
                over = lengths
                    .iter()
                    .map(|&n| if n == 1 { None } else { rest.next() })
                    .map(|d| d.unwrap_or_else(|| added(1)))
                    .collect();
                reduced = over.clone();
            }
        }
        let index: Vec<Affine> = index
            .into_iter()
            .map(|mut i| {
                i.coefs.resize(extents.len(), 0);
                i
            })
            .collect();
        let varies = |d: usize| index.iter().any(|i| i.coefs[d] != 0);
        let of_row = !reduced.is_empty() && !reduced.iter().any(|&d| varies(d));
        let points = (0..extents.len())
            .filter(|d| !(of_row && reduced.contains(d)))
            .map(|d| extents[d])
            .product::<usize>();
        let elements: usize = sizes.iter().product();
        if points > elements && (output || costly(&node.op)) {
            return None;
        }
        if output {
            let covers =
                (0..extents.len()).all(|d| extents[d] == 1 || varies(d) || (of_row && reduced.contains(&d)));
            if !exact || bounded || !covers || (!of_row && across_rows(&extents, &reduced, &index)) {
                return None;
            }
            if self.hastens_update(at, &outside, id) || self.leads_to(outside, id) {
                return None;
            }
        }
        Some(Join { extents, reduced, member: Member { index, over } })
    }

    /// Whether a node has readers outside the cluster, or must have a buffer.
    pub fn is_output(&self, at: usize, cluster: &Cluster) -> bool {
        self.a.forced.contains(&self.a.nodes[at].results[0])
            || self.readers[at].iter().any(|r| !cluster.members.contains_key(&r.at))
    }

    /// Whether member `at` of cluster `id` is stored.
    pub fn stored(&self, at: usize, id: usize) -> bool {
        (self.is_output(at, &self.list[id]) && !self.again[at]) || self.kept.contains(&at)
    }
}

/// Whether a full-size value's last axes are not the reduced ones. A sum down the columns does not take such a value along
/// as a result: by itself it can follow a matmul in the cache, or run in the order of memory.
pub fn across_rows(extents: &[usize], reduced: &[usize], index: &[Affine]) -> bool {
    let real = |d: &usize| extents[*d] != 1;
    let reduced: Vec<usize> = reduced.iter().copied().filter(real).collect();
    let axes: Vec<usize> = index.iter().filter_map(Affine::as_axis).filter(real).collect();
    !axes.ends_with(&reduced)
}

fn sorted(axes: &[usize]) -> Vec<usize> {
    let mut axes = axes.to_vec();
    axes.sort_unstable();
    axes
}
