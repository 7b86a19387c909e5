//! Concatenations that are only a place: each part is computed where it lies in the whole, and no kernel puts it there.
//!
//! A part may be a result that its library kernel gives strided, or whatever a loop kernel stores, if nothing else reads it. A copy
//! stands in for any other: a parameter, a product, a value that has its place already.

use super::analysis::BaseView;
use super::copy;
use super::index::reshape_strides;
use crate::Target;
use onestep_ir::{Def, Graph, Op, Type, ValueId, row_major};
use std::collections::{BTreeMap, BTreeSet};

/// The values that are computed in their places: the concatenation of each, and the value as a view of its elements.
pub struct Places(BTreeMap<ValueId, (ValueId, BaseView)>);

impl Places {
    /// Finds the places of the parts of a graph's concatenations, which are among the `forced` values from then on. Copies are put
    /// in for the parts that need one.
    pub fn find(graph: &mut Graph, target: &dyn Target, forced: &mut BTreeSet<ValueId>) -> Places {
        let (mut places, uses) = (BTreeMap::new(), graph.uses());
        for id in graph.body.nodes.clone() {
            let Op::Concat(concat) = graph.node(id).op else { continue };
            let whole = graph.node(id).results[0];
            let strides = row_major(&graph.ty(whole).sizes());
            let mut start = 0;
            for slot in 0..graph.node(id).operands.len() {
                let part = graph.node(id).operands[slot];
                let shape = graph.ty(part).sizes();
                let offset = start * strides[concat.axis];
                start += shape[concat.axis];
                let view = BaseView { base: part, offset, shape, strides: strides.clone() };
                let found = computed(graph, &uses, &view).filter(|v| stays(graph, target, v));
                let view = found.unwrap_or_else(|| {
                    let base = copy(graph, part, Some(id));
                    graph.nodes[id.index()].operands[slot] = base;
                    BaseView { base, ..view }
                });
                forced.insert(view.base);
                places.insert(view.base, (whole, view));
            }
        }
        Places(places)
    }

    /// All of them, each with its concatenation.
    pub fn all(&self) -> impl Iterator<Item = (ValueId, ValueId)> {
        self.0.iter().map(|(part, (whole, _))| (*part, *whole))
    }

    /// Where a value lies in its concatenation, if it has one.
    pub fn of(&self, v: ValueId) -> Option<&BaseView> {
        self.0.get(&v).map(|(_, view)| view)
    }
}

/// The view of a part as one of the value of which the part is a reshape. `None` where that is not read here alone, or would not
/// be strided.
fn computed(graph: &Graph, uses: &[usize], part: &BaseView) -> Option<BaseView> {
    let mut base = part.base;
    let alone = |v: ValueId| uses.get(v.index()) == Some(&1);
    while let Some(node) = graph.def(base).filter(|n| matches!(n.op, Op::Reshape(_))) {
        if !alone(base) {
            return None;
        }
        base = node.operands[0];
    }
    let shape = graph.ty(base).sizes();
    let strides = reshape_strides(&part.shape, &part.strides, &shape)?;
    alone(base).then_some(BaseView { base, offset: part.offset, shape, strides })
}

/// Whether the kernel that computes a value can leave it as this view.
fn stays(graph: &Graph, target: &dyn Target, view: &BaseView) -> bool {
    let Def::Node(id, result) = graph.values[view.base.index()].def else { return false };
    let node = graph.node(id);
    let types: Vec<Type> = node.operands.iter().map(|v| graph.ty(*v).clone()).collect();
    let side_by_side = view.shape.last().is_none_or(|&n| n <= 1) || view.strides.ends_with(&[1]);
    match &node.op {
        Op::Constant(_) | Op::Barrier(_) | Op::Concat(_) | Op::Scan(_) | Op::Matmul(_) => false,
        op if target.accepts(op, &types) => side_by_side && target.gives_strided(op, result as usize),
        _ => true,
    }
}
