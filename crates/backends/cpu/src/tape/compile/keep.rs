//! Which values a pass leaves in scratch for later ones, and which are computed again.

use super::super::lower::NodeOp;
use super::{Compiler, Level};
use onestep_ir::ops::{BinaryKind, UnaryKind};
use std::collections::{BTreeMap, BTreeSet};

impl Compiler<'_> {
    /// The nodes that vary in the row below `roots`, not looking below those where `stop`.
    pub(super) fn closure(&self, roots: &[usize], stop: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let mut need = BTreeSet::new();
        let mut open = roots.to_vec();
        while let Some(node) = open.pop() {
            if self.level(node) == Level::Term && need.insert(node) && !stop(node) {
                open.extend(&self.nodes[node].args);
            }
        }
        need
    }

    /// The nodes that are kept for later passes, and the pass that computes each.
    pub(super) fn kept(
        &self,
        roots: &dyn Fn(usize) -> Vec<usize>,
        passes: usize,
        first_store: usize,
    ) -> BTreeMap<usize, usize> {
        let natural: Vec<BTreeSet<usize>> = (0..passes).map(|p| self.closure(&roots(p), |_| false)).collect();
        let mut kept: BTreeMap<usize, usize> = BTreeMap::new();
        for pass in (1..passes).rev() {
            let mut open = roots(pass);
            open.extend(kept.iter().filter(|(_, p)| **p == pass).map(|(&n, _)| n).collect::<Vec<_>>());
            let mut seen = BTreeSet::new();
            while let Some(node) = open.pop() {
                let n = &self.nodes[node];
                if self.level(node) != Level::Term || !seen.insert(node) {
                    continue;
                }
                if n.stage < pass {
                    // A load's place may be taken by then.
                    if first_store < pass && n.stage <= first_store {
                        kept.insert(node, n.stage);
                        continue;
                    }
                    let first = (n.stage..pass).find(|&p| natural[p].contains(&node));
                    if let Some(first) = first
                        && self.cost(node) > 1
                    {
                        let at = kept.get(&node).map_or(first, |&p| p.min(first));
                        kept.insert(node, at);
                        continue;
                    }
                }
                open.extend(&n.args);
            }
        }
        kept
    }

    /// What computing a node again costs, in cheap instructions.
    fn cost(&self, node: usize) -> usize {
        let n = &self.nodes[node];
        if self.level(node) != Level::Term {
            return 0;
        }
        let own = match &n.op {
            NodeOp::Load(load) if load.bounds.is_empty() && matches!(load.place.step, Some(0 | 1)) => 0,
            NodeOp::Load(_) | NodeOp::Index(_) => 2,
            NodeOp::Random(_) => 20,
            NodeOp::Binary(BinaryKind::Pow | BinaryKind::Atan2 | BinaryKind::Rem | BinaryKind::Div) => 4,
            NodeOp::Unary(
                UnaryKind::Neg | UnaryKind::Abs | UnaryKind::Relu | UnaryKind::Not | UnaryKind::IsNan,
            ) => 1,
            NodeOp::Unary(_) | NodeOp::Composed { .. } | NodeOp::RootQuotient => 4,
            _ => 1,
        };
        n.args.iter().fold(own, |sum, &a| sum + self.cost(a).min(100)).min(100)
    }
}
