//! Nested regions under construction: what is emitted between opening and closing one belongs to it. A region uses only its
//! own values; one that captures gets a parameter for each value from outside.

use super::Inner;
use crate::op::RegionType;
use crate::{Def, Dim, Graph, GraphBuilder, Loc, Mistake, Op, Region, Shape, Tensor, Type, ValueId};
use std::collections::{HashMap, HashSet};

/// A nested region under construction.
#[derive(Debug, Default)]
pub(super) struct Open {
    pub region: Region,
    /// Which one it is of those that were begun, from 1.
    pub number: usize,
    /// Where parameters declared in it are one for each iteration.
    pub stack: Option<Stack>,
    /// Keys of random numbers, and those that stand for them in this iteration.
    pub keys: Vec<(ValueId, ValueId)>,
}

/// The parameters that a repeated region declares.
#[derive(Debug)]
pub(super) struct Stack {
    pub length: usize,
    /// The number of the iteration.
    pub number: ValueId,
    /// The sequence outside the region, and the slice that is the region's parameter.
    pub slices: Vec<(ValueId, ValueId)>,
}

/// A nested region with what it uses from outside.
pub(super) struct Captured {
    pub region: Region,
    /// Sequences of the parameters that it declared; their slices stand behind the parameters that it was opened with.
    pub stacked: Vec<ValueId>,
    /// Values of the regions around it; what stands for them are its last parameters.
    pub constants: Vec<ValueId>,
}

impl Inner {
    /// The type of a parameter that is `ty` in the innermost open region: with an axis for each repetition around it.
    pub(super) fn repeated(&self, ty: Type) -> Type {
        let lengths = self.regions.iter().filter_map(|open| Some(Dim::fixed(open.stack.as_ref()?.length)));
        Type::new(ty.dtype, Shape(lengths.chain(ty.shape.0).collect()))
    }

    /// The slice of a parameter that the innermost open region sees.
    pub(super) fn slice(&mut self, mut value: ValueId) -> ValueId {
        for open in &mut self.regions {
            let Some(stack) = &mut open.stack else { continue };
            let whole = self.graph.ty(value);
            let rest = Type::new(whole.dtype, Shape(whole.shape.0[1..].to_vec()));
            let slice = self.graph.add_value(rest, Def::Param);
            stack.slices.push((value, slice));
            value = slice;
        }
        value
    }
}

impl GraphBuilder {
    /// Runs `f` with what it adds going to the graph's body, whatever region is under construction: for state that is
    /// updated once a call. `f` uses values of the body only.
    pub fn in_body<R>(&self, f: impl FnOnce() -> R) -> R {
        let regions = std::mem::take(&mut self.inner.borrow_mut().regions);
        let out = f();
        self.inner.borrow_mut().regions = regions;
        out
    }

    /// The values of what the interface reads, which are of the graph's body.
    #[track_caller]
    pub(super) fn check_body(&self, what: &str, operands: &[Tensor<'_>]) -> Option<Vec<ValueId>> {
        let values = self.check(what, operands)?;
        if self.inner.borrow().regions.is_empty() {
            return Some(values);
        }
        let mistake = Mistake::new(
            format!("the {what} stands in a nested region"),
            "make the value a result of the region, and use that outside of it",
        );
        self.mistake(what, operands, mistake);
        None
    }

    /// Applies an op with one nested region: `body` gets handles for the region's parameters, which have the types
    /// given, and gives the region's results. The body may use only its parameters and what it computes.
    #[track_caller]
    pub fn emit_with_region<'g>(
        &'g self,
        op: impl Into<Op>,
        operands: &[Tensor<'g>],
        params: &[Type],
        body: impl FnOnce(&[Tensor<'g>]) -> Vec<Tensor<'g>>,
    ) -> Vec<Tensor<'g>> {
        let op = op.into();
        let results = body(&self.open_region(params));
        match self.close_region(op.rule().name(), &results) {
            Some(region) => self.emit_regions(op, operands, vec![region]),
            None => vec![Tensor { g: self, value: None }],
        }
    }

    /// Begins a nested region: what is emitted from now on belongs to it, until [`GraphBuilder::close_region`].
    /// Gives the handles of its parameters.
    pub(crate) fn open_region(&self, params: &[Type]) -> Vec<Tensor<'_>> {
        let ids: Vec<ValueId> = {
            let mut inner = self.inner.borrow_mut();
            let ids: Vec<ValueId> =
                params.iter().map(|t| inner.graph.add_value(t.clone(), Def::Param)).collect();
            inner.begun += 1;
            let region = Region { params: ids.clone(), ..Region::default() };
            let number = inner.begun;
            inner.regions.push(Open { region, number, ..Open::default() });
            ids
        };
        ids.into_iter().map(|v| self.tensor(v)).collect()
    }

    /// The number of the innermost region under construction, which no other region has; 0 for the body.
    pub fn innermost_region(&self) -> usize {
        self.inner.borrow().regions.last().map_or(0, |open| open.number)
    }

    /// Ends the innermost open region with its results; `None` when a result is poisoned or the region uses a value
    /// from outside (the mistake is on record).
    #[track_caller]
    pub(crate) fn close_region(&self, op: &str, results: &[Tensor<'_>]) -> Option<Region> {
        let (open, foreign) = self.pop_region(op, results)?;
        if foreign.is_empty() {
            return Some(open.region);
        }
        let mistake = Mistake::new(
            "the region uses a value from outside",
            "pass it as an operand and use the region's parameter",
        );
        self.mistake(op, &[], mistake);
        None
    }

    /// Ends the innermost open region, which may use values of the regions around it: each becomes a parameter. `None`
    /// as for [`GraphBuilder::close_region`].
    #[track_caller]
    pub(super) fn capture_region(&self, op: &str, results: &[Tensor<'_>]) -> Option<Captured> {
        let (Open { mut region, stack, .. }, foreign) = self.pop_region(op, results)?;
        let (stacked, slices): (Vec<_>, Vec<_>) = stack.into_iter().flat_map(|stack| stack.slices).unzip();
        let mut inner = self.inner.borrow_mut();
        let around = inner.regions.iter().map(|open| &open.region).chain([&inner.graph.body]);
        let visible: HashSet<ValueId> = around.flat_map(|r| inner.graph.defined(r)).collect();
        let slices_around = inner.regions.iter().filter_map(|open| open.stack.as_ref());
        let slices_around: HashSet<ValueId> =
            slices_around.flat_map(|stack| stack.slices.iter().map(|s| s.1)).collect();
        let constants: Vec<ValueId> = foreign.into_iter().filter(|v| !slices.contains(v)).collect();
        if constants.iter().any(|v| !visible.contains(v) && !slices_around.contains(v)) {
            let what = "the region uses a value of a region that is complete";
            let mistake = Mistake::new(what, "make it a result of that region, and use the op's result");
            inner.fail(op, vec![], mistake, Loc::caller());
            return None;
        }
        region.params.extend(slices);
        let mut inside: HashMap<ValueId, ValueId> = HashMap::new();
        for &v in &constants {
            let ty = inner.graph.ty(v).clone();
            let param = inner.graph.add_value(ty, Def::Param);
            region.params.push(param);
            inside.insert(v, param);
        }
        let swap = |v: &mut ValueId| *v = inside.get(v).copied().unwrap_or(*v);
        for id in &region.nodes {
            inner.graph.nodes[id.index()].operands.iter_mut().for_each(swap);
        }
        region.results.iter_mut().for_each(swap);
        Some(Captured { region, stacked, constants })
    }

    /// Takes the innermost open region, with its results, and what it uses from outside, each once, in the order of use.
    /// `None` when a result is poisoned or regions nest too deep (the mistake is on record).
    #[track_caller]
    pub(super) fn pop_region(&self, op: &str, results: &[Tensor<'_>]) -> Option<(Open, Vec<ValueId>)> {
        let (mut open, depth) = {
            let mut inner = self.inner.borrow_mut();
            (inner.regions.pop()?, inner.regions.len() + 1)
        };
        open.region.results = self.check(op, results)?;
        if depth > Graph::MAX_NESTING {
            let what = format!("regions nest more than {} deep", Graph::MAX_NESTING);
            self.mistake(op, &[], Mistake::new(what, "inline some of the calls"));
            return None;
        }
        let foreign = self.with_graph(|g| {
            let mut known: HashSet<ValueId> = g.defined(&open.region).collect();
            let nodes = open.region.nodes.iter().map(|n| g.node(*n));
            let uses = nodes.flat_map(|n| &n.operands).chain(&open.region.results);
            uses.copied().filter(|v| known.insert(*v)).collect()
        });
        Some((open, foreign))
    }
}

impl Graph {
    /// The values that a region defines itself: its parameters and its nodes' results.
    fn defined<'a>(&'a self, r: &'a Region) -> impl Iterator<Item = ValueId> + 'a {
        let results = r.nodes.iter().flat_map(|n| &self.node(*n).results);
        r.params.iter().chain(results).copied()
    }

    /// The types at a region's boundary.
    pub fn region_type(&self, r: &Region) -> RegionType {
        let types = |vs: &[ValueId]| vs.iter().map(|v| self.ty(*v).clone()).collect();
        RegionType { params: types(&r.params), results: types(&r.results) }
    }
}
