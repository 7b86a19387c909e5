//! Unions of clusters: of two that want one node, and of reductions that read one value; and the paths between clusters,
//! which decide whether a union would wait for itself.

use super::analysis::{Kind, Reader};
use super::cluster::{Cluster, Clusters, Member, across_rows};
use crate::schedule::Affine;

impl Clusters<'_, '_> {
    /// The union of two clusters that share node `at`, if their domains agree axis by axis.
    pub fn merged(&self, one: &Cluster, two: &Cluster, at: usize) -> Option<Cluster> {
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
        // A long row is not gone over again for what follows its reduction.
        let row: usize = out.reduced.iter().map(|&d| out.extents[d]).product();
        if one.reduced.is_empty() != two.reduced.is_empty() && row > self.a.target.max_row() {
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
            let apart = some && across_rows(&out.extents, &out.reduced, &m.index);
            (!is_reduce || (whole && !some)) && (!outside || (whole && (!some || all) && !apart))
        });
        let small = out.members.len() < self.a.target.max_body() / 3;
        (fine && small && self.agrees(&out)).then_some(out)
    }

    /// Whether every read within a cluster is of the element at which its node is computed: a union may bring a reader
    /// together with a node whose buffer it used to read at other places.
    fn agrees(&self, cluster: &Cluster) -> bool {
        cluster.members.iter().all(|(&at, m)| {
            let inside = self.readers[at].iter().filter(|r| cluster.members.contains_key(&r.at));
            inside.into_iter().all(|r| cluster.needed_at(self.a, r).is_some_and(|(need, _)| need == m.index))
        })
    }

    /// Clusters over one domain that read the same value at the same index become one, if neither depends on the other:
    /// the value is read once. Only reductions, for which reading is the cost.
    pub fn join_siblings(&mut self) {
        let params = self.a.graph.body.params.iter().map(|&v| self.a.readers_of(v));
        let stored = (0..self.a.nodes.len())
            .filter(|&at| self.of[at].is_none_or(|id| self.stored(at, id)) && !self.a.inlined(at))
            .map(|at| self.readers[at].clone());
        let values: Vec<Vec<Reader>> = params.chain(stored).collect();
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

    /// Whether two clusters reduce long rows, one after the other, that the target would not go over again.
    pub fn stages_apart(&self, one: usize, two: usize) -> bool {
        let (c1, c2) = (&self.list[one], &self.list[two]);
        let row: usize = c1.reduced.iter().map(|&d| c1.extents[d]).product();
        let rows = c1.extents.iter().product::<usize>().checked_div(row).unwrap_or(0);
        let target = self.a.target;
        !c1.reduced.is_empty()
            && !c2.reduced.is_empty()
            && row > target.max_row()
            && !target.stages_long_rows(rows)
            && (self.direct(one, two) || self.direct(two, one))
    }

    /// Whether any path leads from a cluster to another.
    fn direct(&self, from: usize, to: usize) -> bool {
        self.list[from].members.keys().any(|&at| self.readers[at].iter().any(|r| self.of[r.at] == Some(to)))
            || self.path(from, to)
    }

    /// Whether a path leads from one cluster to another through a third kernel.
    pub fn path(&self, from: usize, to: usize) -> bool {
        let inside = |at: usize| self.of[at] == Some(from) || self.of[at] == Some(to);
        let readers = self.list[from].members.keys().flat_map(|&at| self.readers[at].iter().map(|r| r.at));
        self.leads_to(readers.filter(|&at| !inside(at)).collect(), to)
    }

    /// Whether cluster `id` would give a state its new value too early with node `at` in it, for which the nodes `outside`
    /// wait: one of them, or what follows from it, reads the old value.
    pub fn hastens_update(&self, at: usize, outside: &[usize], id: usize) -> bool {
        let g = self.a.graph;
        let here = |r: usize| r == at || self.of[r] == Some(id);
        let writes =
            |v| self.a.def[self.a.through_reshapes(v).index()].is_some_and(|w| self.of[w] == Some(id));
        let updated = g.updates.iter().filter(|u| !outside.is_empty() && writes(u.value));
        let readers = updated.flat_map(|u| self.a.readers_of(g.states[u.state].value));
        let old: Vec<usize> = readers.map(|r| r.at).filter(|&r| !here(r)).collect();
        let Some(&last) = old.iter().max() else { return false };
        let mut seen = vec![false; self.a.nodes.len()];
        let mut stack = outside.to_vec();
        while let Some(n) = stack.pop() {
            if old.contains(&n) {
                return true;
            }
            if n < last && !std::mem::replace(&mut seen[n], true) {
                stack.extend(self.readers[n].iter().map(|r| r.at).filter(|&r| !seen[r] && !here(r)));
            }
        }
        false
    }

    /// Whether the kernel of one of the nodes `from` leads to a cluster.
    pub fn leads_to(&self, from: Vec<usize>, to: usize) -> bool {
        if from.is_empty() {
            return false;
        }
        // A value is read by later nodes only: what stands behind the last node of the cluster does not lead to it, but by
        // way of the earlier nodes of its own cluster.
        let Some((&end, _)) = self.list[to].members.last_key_value() else { return false };
        let mut seen = vec![false; self.a.nodes.len()];
        let mut entered = vec![false; self.list.len()];
        let mut stack = from;
        while let Some(at) = stack.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            if let Some(id) = self.of[at] {
                if id == to {
                    return true;
                }
                if !std::mem::replace(&mut entered[id], true) {
                    stack.extend(self.list[id].members.range(..end).map(|(&m, _)| m).filter(|&m| !seen[m]));
                }
            }
            if at < end {
                stack.extend(self.readers[at].iter().map(|r| r.at).filter(|&r| !seen[r]));
            }
        }
        false
    }
}
