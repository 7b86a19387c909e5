//! Pass `indices`: makes indices out of range visible. For each op that reads or writes by index, the graph gains a check;
//! all checks together give one more output, the number of the first site (from 1) that met a bad index, or 0. The commit
//! guard includes them, so that no guarded state changes.
//!
//! It runs on the graph as the user built it, before decomposition, so that a site is an op and a line of theirs.

use crate::schedule::{BufferId, Schedule};
use onestep_ir::ops::{Attention, AttentionOperands, BinaryKind, Constant, Op, ReduceKind};
use onestep_ir::rewrite::rewrite;
use onestep_ir::{Array, DType, Graph, GraphBuilder, GraphError, Loc, Node, Region, Tensor, ValueId};
use std::collections::{HashMap, HashSet};

mod scan;

/// The name of the output.
pub const OUTPUT: &str = "$bad_index";

/// The buffer of that output, in a program that has it.
pub fn flag(schedule: &Schedule) -> Option<BufferId> {
    schedule.outputs.iter().find(|(name, _)| &**name == OUTPUT).map(|(_, buffer)| *buffer)
}

/// A place where an index is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The op.
    pub op: String,
    /// The line that built it.
    pub loc: String,
    /// One more than the largest valid index.
    pub bound: usize,
}

/// What is tested at a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Test {
    /// The operand that holds indices.
    value: ValueId,
    /// One more than the largest valid index.
    bound: usize,
    /// A value that is always allowed.
    allowed: Option<i64>,
    /// How many indices of each row, along the last axis, count; the rest may be anything.
    length: Option<ValueId>,
}

/// The tests of a node.
fn tested(graph: &Graph, node: &Node) -> Vec<Test> {
    let below = |value: ValueId, bound: usize| Test { value, bound, allowed: None, length: None };
    let lengths = |op: &Attention, operands: &AttentionOperands<ValueId>| {
        let k = <[usize; 4]>::try_from(graph.ty(operands.k).sizes()).ok();
        let test = k.zip(operands.lengths).map(|(k, lengths)| below(lengths, op.layout.arrange(k)[2] + 1));
        test.into_iter().collect()
    };
    let v = &node.operands;
    let size = |slot: usize, axis: usize| graph.ty(v[slot]).sizes()[axis];
    match &node.op {
        Op::Gather(o) => vec![below(v[1], size(0, o.axis))],
        Op::GatherAlong(o) => vec![below(v[1], size(0, o.axis))],
        Op::ScatterAdd(o) => vec![below(v[1], size(0, o.axis))],
        Op::ScatterAddAlong(o) => vec![below(v[1], size(0, o.axis))],
        Op::DynamicSlice(o) => vec![below(v[1], size(0, o.axis) - o.size + 1)],
        Op::DynamicUpdateSlice(o) => vec![below(v[2], size(0, o.axis) - size(1, o.axis) + 1)],
        Op::CrossEntropy(o) => {
            let classes = graph.ty(v[0]).sizes().last().copied().unwrap_or(0);
            vec![Test { allowed: Some(o.ignore_index), ..below(v[1], classes) }]
        }
        Op::CtcLoss(_) => vec![
            below(v[2], size(0, 0) + 1),
            below(v[3], size(1, 1) + 1),
            Test { length: Some(v[3]), ..below(v[1], size(0, 2)) },
        ],
        Op::Attention(o) => o.operands::<_, 0>(v).map_or(vec![], |(operands, _)| lengths(o, &operands)),
        Op::AttentionGrad(o) => {
            o.forward.operands::<_, 3>(v).map_or(vec![], |(operands, _)| lengths(&o.forward, &operands))
        }
        _ => vec![],
    }
}

/// What is tested, by the first result of the node at which it is: each site's number, and the test.
type Tests = HashMap<ValueId, Vec<(usize, Test)>>;

/// Numbers the sites of a region and of those in it, in order. What was tested before, or is known to be fine, is none.
fn number(
    graph: &Graph,
    region: &Region,
    seen: &mut HashSet<Test>,
    sites: &mut Vec<Site>,
    tests: &mut Tests,
) {
    for node in region.nodes.iter().map(|n| graph.node(*n)) {
        node.regions.iter().for_each(|inner| number(graph, inner, seen, sites, tests));
        for test in tested(graph, node) {
            if !seen.insert(test) || known(graph, test.value, test.bound) {
                continue;
            }
            let loc = node.loc.map(|l| l.to_string()).unwrap_or_else(|| "the graph's text".to_string());
            sites.push(Site { op: node.op.rule().name().to_string(), loc, bound: test.bound });
            tests.entry(node.results[0]).or_default().push((sites.len(), test));
        }
    }
}

impl Test {
    /// The same test of the values that stand for the node's operands now.
    fn of(self, node: &Node, operands: &[Tensor<'_>]) -> Option<Test> {
        let now = |v: ValueId| operands[node.operands.iter().position(|o| *o == v)?].value();
        let length = self.length.map(now);
        if length == Some(None) {
            return None;
        }
        Some(Test { value: now(self.value)?, length: length.flatten(), ..self })
    }
}

/// Runs the pass on a bound graph without calls; gives the sites in the order of their numbers.
pub fn indices(graph: &Graph) -> Result<(Graph, Vec<Site>), GraphError> {
    let (mut sites, mut tests) = (vec![], Tests::new());
    number(graph, &graph.body, &mut HashSet::new(), &mut sites, &mut tests);
    if sites.is_empty() {
        return Ok((graph.clone(), sites));
    }
    // In the body the tests come after everything else, so that they change no order. A scan carries the result of its own.
    let mut waiting: Vec<(Option<Loc>, Waiting)> = vec![];
    let graph = rewrite(graph, &mut |g, node, operands| {
        if let Some((results, first)) = scan::tested(g, graph, node, operands, &tests) {
            waiting.extend(first.value().map(|v| (node.loc, Waiting::Scan(v))));
            return Some(results);
        }
        let here = tests.get(node.results.first()?)?.iter();
        let here = here.filter_map(|(number, test)| Some(Waiting::Test(*number, test.of(node, operands)?)));
        waiting.extend(here.map(|test| (node.loc, test)));
        None
    })?;
    let g = GraphBuilder::edit(graph.clone());
    let here = |(loc, waiting): &(Option<Loc>, Waiting)| {
        g.at(*loc, || match *waiting {
            Waiting::Scan(first) => g.tensor(first),
            Waiting::Test(number, test) => first_bad(&g, number, test),
        })
    };
    let Some(first) = waiting.iter().map(here).reduce(|a, b| a.minimum(b)) else { return Ok((graph, sites)) };
    let none = g.full(DType::I32, (), i32::MAX as f64);
    let fine = first.equals(none);
    g.output(OUTPUT, fine.select(g.full(DType::I32, (), 0.0), first));
    let mut guard = None;
    if let Some(before) = graph.guard {
        let both = g.tensor(before).and(fine);
        g.set_guard(both);
        guard = both.value().map(|both| (before, both));
    } else if graph.updates.iter().any(|u| u.guarded) {
        g.set_guard(fine);
    }
    let built = g.build()?;
    let replaced = guard.and_then(|(before, both)| everywhere(&built, before, both));
    Ok((replaced.unwrap_or(built), sites))
}

/// What the body of the graph has to test.
enum Waiting {
    /// Nothing more: the least number of a site in this scan.
    Scan(ValueId),
    /// At the site of this number, this.
    Test(usize, Test),
}

/// The number of a site where the indices are bad, else the largest number.
fn first_bad(g: &GraphBuilder, number: usize, test: Test) -> Tensor<'_> {
    let bad = out_of_range(g, test);
    let number = g.full(DType::I32, (), number as f64);
    let none = g.full(DType::I32, (), i32::MAX as f64);
    bad.select(number, none)
}

/// The graph with every reader of the old guard reading the new one, so that what is computed from it (a count of skipped
/// steps) knows of bad indices too. `None` when an index depends on the old guard itself.
fn everywhere(graph: &Graph, before: ValueId, both: ValueId) -> Option<Graph> {
    let mut out = graph.clone();
    for node in &mut out.nodes {
        if !node.results.contains(&both) {
            node.operands.iter_mut().filter(|v| **v == before).for_each(|v| *v = both);
        }
    }
    for v in out.outputs.iter_mut().map(|o| &mut o.value).chain(out.updates.iter_mut().map(|u| &mut u.value))
    {
        if *v == before {
            *v = both;
        }
    }
    // The checks stand at the end of the body: readers of the guard go behind them, in their old order.
    let mut known: HashSet<ValueId> = out.body.params.iter().copied().collect();
    let mut waiting = std::mem::take(&mut out.body.nodes);
    while !waiting.is_empty() {
        let (ready, rest): (Vec<_>, Vec<_>) = waiting.iter().partition(|id| {
            let node = out.node(**id);
            let ready = node.operands.iter().all(|v| known.contains(v));
            if ready {
                known.extend(&node.results);
            }
            ready
        });
        if ready.is_empty() {
            return None;
        }
        out.body.nodes.extend(ready);
        waiting = rest;
    }
    Some(out)
}

/// Whether the indices are known to be fine, whatever the data.
fn known(graph: &Graph, v: ValueId, bound: usize) -> bool {
    between(graph, v, DEPTH).is_some_and(|(low, high)| 0 <= low && high < bound as i64)
}

/// How many nodes behind an index are looked at, one behind the other.
const DEPTH: usize = 12;

/// The least and the largest that an integer tensor can hold, where its definition says so: counts along an axis, places
/// that sorting and searching give, and what small arithmetic makes of them.
fn between(graph: &Graph, v: ValueId, depth: usize) -> Option<(i64, i64)> {
    let node = graph.def(v)?;
    let of = |slot: usize| between(graph, node.operands[slot], depth.checked_sub(1)?);
    let axis = |t: ValueId, axis: usize| {
        Some((0, i64::try_from(graph.ty(t).shape.0[axis].size()?).ok()?.saturating_sub(1).max(0)))
    };
    let dtype = graph.ty(v).dtype;
    let (low, high) = match &node.op {
        Op::Iota(i) => axis(v, i.axis)?,
        Op::Constant(c) => {
            let all = c.value.to_i64();
            (all.iter().copied().min().unwrap_or(0), all.iter().copied().max().unwrap_or(0))
        }
        Op::ArgReduce(a) => axis(node.operands[0], a.axis)?,
        Op::Sort(s) if v == node.results[1] => axis(v, s.axis)?,
        Op::Reshape(_) | Op::Broadcast(_) | Op::Transpose(_) | Op::Slice(_) | Op::Reverse(_) => of(0)?,
        Op::Cumulative(c) if !c.exclusive && matches!(c.kind, ReduceKind::Max | ReduceKind::Min) => of(0)?,
        Op::Select(_) => {
            let ((a, b), (c, d)) = (of(1)?, of(2)?);
            (a.min(c), b.max(d))
        }
        Op::Binary(op) => {
            let ((a, b), (c, d)) = (of(0)?, of(1)?);
            match op.kind {
                BinaryKind::Add => (a.checked_add(c)?, b.checked_add(d)?),
                BinaryKind::Mul if a >= 0 && c >= 0 => (a.checked_mul(c)?, b.checked_mul(d)?),
                BinaryKind::Min => (a.min(c), b.min(d)),
                BinaryKind::Max => (a.max(c), b.max(d)),
                _ => return None,
            }
        }
        Op::Cast(_) if !graph.ty(node.operands[0]).dtype.is_float() => of(0)?,
        _ => return None,
    };
    // Nothing has wrapped.
    (dtype.is_int() && dtype.wrap(low) == low && dtype.wrap(high) == high).then_some((low, high))
}

fn out_of_range(g: &GraphBuilder, test: Test) -> Tensor<'_> {
    let Test { value, bound, allowed, length } = test;
    let index = g.tensor(value);
    let dtype = index.dtype();
    // In a narrow dtype the bound itself may not be representable; then nothing is too large.
    let index = if matches!(dtype, DType::I8 | DType::U8) { index.cast(DType::I32) } else { index };
    let shape = index.shape();
    let number = |x: f64| g.full(index.dtype(), &shape, x);
    let mut bad = index.greater_equal(number(bound as f64));
    if dtype != DType::U32 && dtype != DType::U8 {
        bad = bad.or(index.less(number(0.0)));
    }
    // What the dtype cannot hold is nowhere to be found.
    let held = |x: i64| dtype.wrap(x) == x;
    if let Some(allowed) = allowed.filter(|&x| held(x)) {
        let allowed = g.emit1(Constant { value: Array::scalar(allowed), dims: shape.0.clone() }, &[]);
        bad = bad.and(index.not_equal(allowed.cast(index.dtype())));
    }
    if let Some(length) = length.map(|v| g.tensor(v).cast(DType::I64)) {
        let last = shape.rank().saturating_sub(1);
        bad = bad.and(g.iota(DType::I64, &shape, last).less(length.expand(last)));
    }
    bad.any()
}
