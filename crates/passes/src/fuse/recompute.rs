//! What is computed again in the kernels that read it, instead of being stored for them.
//!
//! Grouping stores what a group computes and another one reads. Where that is a chain of element-wise ops over buffers that are
//! stored anyway, the reader may load those instead: a normalised value from its operand and two numbers a row, the inner
//! values of an activation from the product before it, a softmax from its logits. It is done where that loads no more bytes than
//! the value has, and the target finds the arithmetic cheap. Then nothing is written for the reader.
//!
//! The groups are as they were: this only decides which of their values get a buffer. An op gives the same bits wherever it
//! is computed.

use super::analysis::{Kind, costly};
use super::cluster::Clusters;
use crate::schedule::Affine;
use onestep_ir::{Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// A value with this many times fewer elements than another one is small beside it: it is stored rather than computed at each
/// element, and reading it costs nothing.
const SMALL: usize = 8;

/// How a value comes of stored ones.
#[derive(Default)]
struct Recipe {
    /// The maps on the way, by position.
    through: BTreeSet<usize>,
    /// Small values on the way that have to be stored for it.
    kept: BTreeSet<usize>,
    /// What is loaded, with the number of elements touched.
    sources: BTreeMap<ValueId, usize>,
}

impl Clusters<'_, '_> {
    /// Chooses the values, from the first to the last: a later one may come of an earlier one's sources.
    pub fn choose_recomputed(&mut self) {
        for at in 0..self.a.nodes.len() {
            if let Some(recipe) = self.recomputed_by(at) {
                let readers: Vec<usize> = self.readers[at].iter().filter_map(|r| self.of[r.at]).collect();
                for v in recipe.sources.keys().filter(|v| self.a.def[v.index()].is_none()) {
                    self.late.entry(*v).or_default().extend(&readers);
                }
                self.again[at] = true;
                self.through.extend(recipe.through);
                self.kept.extend(recipe.kept);
            }
        }
    }

    /// Whether a cluster stores nothing: all that it computes is computed again by those who read it.
    pub fn is_idle(&self, id: usize) -> bool {
        !self.list[id].members.keys().any(|&at| self.stored(at, id))
    }

    /// How a stored value is computed again by each of its readers outside its kernel, if that is better.
    fn recomputed_by(&self, at: usize) -> Option<Recipe> {
        let (a, id) = (self.a, self.of[at]?);
        let value = a.nodes[at].results[0];
        let random = matches!(a.nodes[at].op, Op::RandomBits(_));
        let stored = self.stored(at, id) && !self.kept.contains(&at);
        if a.kinds[at] != Kind::Map || random || !stored || a.forced.contains(&value) {
            return None;
        }
        let (elements, own) = (a.graph.ty(value).numel(), a.graph.ty(value).bytes());
        let mut recipe = Recipe { through: [at].into(), ..Recipe::default() };
        let mut operands = a.nodes[at].operands.iter();
        if !operands.all(|&o| self.recipe(o, elements, a.graph.ty(o).numel(), &mut recipe)) {
            return None;
        }
        let large = recipe.sources.iter().filter(|(_, n)| **n * SMALL > elements);
        let loaded: usize = large.map(|(v, n)| n * a.graph.ty(*v).dtype.size()).sum();
        let functions = recipe.through.iter().filter(|&&n| costly(&a.nodes[n].op)).count();
        let operations = recipe.through.len() - functions;
        if loaded > own || !a.target.recomputes(operations, functions, loaded, own) {
            return None;
        }
        // Each reader goes over no more points than the value has, and reads it at affine places.
        for r in self.readers[at].iter().filter(|r| self.of[r.at] != Some(id)) {
            let reader = &self.list[self.of[r.at]?];
            let (_, bounded) = reader.needed_at(a, r)?;
            let points: usize = reader.extents.iter().product();
            if bounded || points > elements || !self.in_time(&recipe, self.of[r.at]?) {
                return None;
            }
        }
        Some(recipe)
    }

    /// Collects how a value comes of stored ones; `elements` are those of the value at the end, `touched` those of this one
    /// that are read. Whether it does.
    fn recipe(&self, v: ValueId, elements: usize, touched: usize, recipe: &mut Recipe) -> bool {
        let a = self.a;
        let source = |recipe: &mut Recipe| {
            let most = recipe.sources.entry(v).or_default();
            *most = touched.max(*most);
            true
        };
        let Some(at) = a.def[v.index()].filter(|_| !a.has_own_buffer(v)) else { return source(recipe) };
        let node = a.nodes[at];
        let below = |recipe: &mut Recipe| {
            let mut all = node.operands.iter();
            all.all(|&o| self.recipe(o, elements, touched.min(a.graph.ty(o).numel()), recipe))
        };
        if let Some(id) = self.of[at] {
            if self.stored(at, id) {
                return source(recipe);
            }
            if a.graph.ty(v).numel() * SMALL <= elements && self.can_store(at, id) {
                recipe.kept.insert(at);
                return source(recipe);
            }
        }
        match a.kinds[at] {
            Kind::Leaf => true,
            Kind::View => below(recipe),
            Kind::Map if !matches!(node.op, Op::RandomBits(_)) => !recipe.through.insert(at) || below(recipe),
            _ => false,
        }
    }

    /// Whether the kernel of a member computes it once for each of its elements, at every row.
    fn can_store(&self, at: usize, id: usize) -> bool {
        let (cluster, sizes) = (&self.list[id], self.a.sizes(self.a.nodes[at].results[0]));
        let axes: Vec<Option<usize>> = cluster.members[&at].index.iter().map(Affine::as_axis).collect();
        let exact = axes.iter().zip(&sizes).enumerate().all(|(i, (axis, &n))| match axis {
            Some(d) => cluster.extents[*d] == n && !axes[..i].contains(axis),
            None => n == 1,
        });
        let parallel = (0..cluster.extents.len()).filter(|d| !cluster.reduced.contains(d));
        let covered = parallel.clone().all(|d| cluster.extents[d] == 1 || axes.contains(&Some(d)));
        exact
            && covered
            && !cluster.reduced.is_empty()
            && !axes.iter().flatten().any(|d| cluster.reduced.contains(d))
    }

    /// Whether a kernel may read the sources when it runs: none is the old value of a state that has its new one by then.
    fn in_time(&self, recipe: &Recipe, reader: usize) -> bool {
        let graph = self.a.graph;
        let updates =
            graph.updates.iter().filter(|u| recipe.sources.contains_key(&graph.states[u.state].value));
        let mut writers = updates.filter_map(|u| self.a.def[self.a.through_reshapes(u.value).index()]);
        writers.all(|w| self.of[w] != Some(reader) && !self.leads_to(vec![w], reader))
    }
}
