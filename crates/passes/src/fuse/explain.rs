//! Why fusion grouped as it did: for each value, the kernels that compute or read it, and for each kernel that has to read
//! it from memory, the rule of grouping that kept the two apart.
//!
//! The grouping itself keeps no record, so that compiling costs nothing for it. This module groups once more, which gives
//! the same groups, and asks of each pair that was kept apart which rule of [`super::cluster`] speaks against it, in the
//! order in which the rules are applied there.

use super::analysis::{Analysis, Kind, Reader, costly};
use super::cluster::Clusters;
use super::{Lower, Unit, settle};
use crate::plan::PlanOptions;
use crate::schedule::{Affine, BufferId, Schedule};
use crate::{CompileError, Target};
use onestep_ir::{Graph, Op, ValueId};
use std::collections::HashMap;

/// Why a value is read from memory rather than computed in the kernel of its reader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// The reader is a library kernel or a matrix product, which reads memory.
    LibraryReader,
    /// The value is the result of a library kernel, or of a matrix product whose epilogue the reader is not.
    LibraryResult,
    /// A barrier stands between the two: a checkpoint is computed again behind it.
    Barrier,
    /// It is a part of a concatenation, or one, and is computed in its place.
    Joined,
    /// A copy: a value that must be dense in memory where it is used.
    Copy,
    /// The reader's kernel is as large as the target allows.
    Full,
    /// The element that is needed is not an affine function of the kernel's index.
    NotAffine,
    /// The kernel needs more than one element of it at each of its points.
    ManyPlaces,
    /// It is needed with padding around it, and others need it as it is.
    Padded,
    /// It reduces a row that is too long to go over again.
    LongRow,
    /// It reduces a row whose elements lie scattered, which is slow to go over again.
    ScatteredRow,
    /// It reduces other axes than the reader's kernel goes over.
    OtherAxes,
    /// It would be computed more often than it has elements, and is costly or needed by others too.
    Repeated,
    /// Others read it too, and the reader's kernel does not go over all of it once.
    NotCovered,
    /// Each of the two kernels would wait for the other.
    Cycle,
    /// The kernels that it would have to be part of go over different domains.
    Domains,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 16] = [
        Reason::LibraryReader,
        Reason::LibraryResult,
        Reason::Barrier,
        Reason::Joined,
        Reason::Copy,
        Reason::Full,
        Reason::NotAffine,
        Reason::ManyPlaces,
        Reason::Padded,
        Reason::LongRow,
        Reason::ScatteredRow,
        Reason::OtherAxes,
        Reason::Repeated,
        Reason::NotCovered,
        Reason::Cycle,
        Reason::Domains,
    ];

    /// The reason as a clause that begins with what the value is or would be.
    pub fn text(self) -> &'static str {
        match self {
            Reason::LibraryReader => "its reader is a library kernel, which reads its operands from memory",
            Reason::LibraryResult => {
                "it is the result of a library kernel, and this reader is not part of that kernel's epilogue"
            }
            Reason::Joined => "a concatenation needs it in its place",
            Reason::Barrier => "it is kept across a barrier, behind which a checkpoint is computed again",
            Reason::Copy => "it is a copy, made because a reader needs it dense in memory",
            Reason::Full => "the reader's kernel is as large as the target allows",
            Reason::NotAffine => {
                "which element the reader needs is not an affine function of its kernel's index"
            }
            Reason::ManyPlaces => "the reader's kernel needs more than one of its elements at each point",
            Reason::Padded => "the reader needs it with padding around it, and others need it as it is",
            Reason::LongRow => "it reduces a row too long for one kernel to go over again for what follows",
            Reason::ScatteredRow => {
                "it reduces elements that lie scattered, too slow to go over again for what follows"
            }
            Reason::OtherAxes => "it reduces other axes than the reader's kernel goes over",
            Reason::Repeated => {
                "the reader's kernel would compute it more often than it has elements, and it is costly or needed elsewhere too"
            }
            Reason::NotCovered => {
                "others read it too, and the reader's kernel does not go over each of its elements once"
            }
            Reason::Cycle => "another reader leads back to this one: each kernel would wait for the other",
            Reason::Domains => "the kernels that it would have to join go over different domains",
        }
    }
}

/// How a value comes about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// An input or a state: it is there when the call begins.
    Given,
    /// A constant with many numbers: it lies beside the program.
    Constant,
    /// A number, an index or a cheap function of few elements: written into each kernel that reads it.
    Inlined,
    /// Another way to read its operand: it costs nothing.
    View,
    /// Computed in a kernel and kept in registers.
    Fused,
    /// Computed in a kernel, and again in each other one that reads it.
    Recomputed,
    /// Computed in a kernel and stored.
    Stored,
}

/// A reader that takes the value from memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// The reading node's first result.
    pub reader: ValueId,
    /// Why it is not computed there.
    pub reason: Reason,
}

/// What became of each value of a graph.
#[derive(Clone, Debug)]
pub struct Provenance {
    /// The graph as it was grouped: the one before fusion, and copies.
    pub graph: Graph,
    /// By value.
    pub roles: Vec<Role>,
    /// By value: its buffer.
    pub buffers: Vec<Option<BufferId>>,
    /// By value: the kernel that computes it, in the schedule; for what is inlined, none.
    pub kernels: Vec<Option<usize>>,
    /// By value: those that read it from memory in another kernel.
    pub waits: Vec<Vec<Waits>>,
}

/// Finds out what became of each value; `graph` and `schedule` are the pipeline's.
pub fn provenance(
    graph: &Graph,
    target: &dyn Target,
    merge: bool,
    schedule: &Schedule,
) -> Result<Provenance, CompileError> {
    let plan = PlanOptions { alignment: target.alignment(), ..PlanOptions::default() };
    // By buffer and the first element there: what lies in a concatenation shares its buffer.
    let mut writer: HashMap<(BufferId, usize), usize> = HashMap::new();
    for (k, kernel) in schedule.kernels.iter().enumerate() {
        writer.extend(kernel.written(schedule).into_iter().map(|v| ((v.buffer, v.offset), k)));
    }
    settle(graph, target, merge, &plan, |a, bodies, _| {
        let mut lower = Lower::new(a, bodies, merge);
        lower.assign_buffers();
        let hosts = lower.epilogues();
        let unit = |at: usize| match lower.unit_of(at) {
            Some(Unit::Cluster(id)) if hosts.contains_key(&id) => Some(Unit::Node(hosts[&id])),
            u => u,
        };
        let n = a.graph.values.len();
        let mut p = Provenance {
            graph: a.graph.clone(),
            roles: vec![Role::Given; n],
            buffers: (0..n).map(|v| lower.of.get(&ValueId(v as u32)).copied()).collect(),
            kernels: vec![None; n],
            waits: vec![vec![]; n],
        };
        let mut kernel_of: HashMap<Unit, usize> = HashMap::new();
        for at in 0..a.nodes.len() {
            let home = |v: &ValueId| Some((*lower.of.get(v)?, a.stored(*v).offset));
            let stored = a.nodes[at].results.iter().filter_map(home);
            if let (Some(u), Some(&k)) = (unit(at), stored.filter_map(|at| writer.get(&at)).next()) {
                kernel_of.insert(u, k);
            }
        }
        for at in 0..a.nodes.len() {
            let waits = waits(a, &lower.clusters, at, &unit);
            for &v in &a.nodes[at].results {
                let i = v.index();
                p.kernels[i] = unit(at).and_then(|u| kernel_of.get(&u)).copied();
                p.roles[i] = match (p.kernels[i], p.buffers[i]) {
                    (_, None) if lower.clusters.again[at] => Role::Recomputed,
                    (Some(_), Some(_)) => Role::Stored,
                    (Some(_), None) => Role::Fused,
                    (None, Some(_)) => Role::Constant,
                    (None, None) if a.kinds[at] == Kind::View => Role::View,
                    (None, None) => Role::Inlined,
                };
                if p.roles[i] == Role::Stored {
                    p.waits[i].clone_from(&waits);
                }
            }
        }
        p
    })
}

/// The readers of a node in other kernels, each with the reason.
fn waits(
    a: &Analysis<'_>,
    clusters: &Clusters<'_, '_>,
    at: usize,
    unit: &dyn Fn(usize) -> Option<Unit>,
) -> Vec<Waits> {
    let readers = a.readers(at);
    let mut out: Vec<Waits> = vec![];
    for r in readers.iter().filter(|r| unit(r.at) != unit(at)) {
        let Some(&reader) = a.nodes[r.at].results.first() else { continue };
        if out.iter().all(|w| w.reader != reader) {
            out.push(Waits { reader, reason: reason(a, clusters, at, r, &readers) });
        }
    }
    out
}

/// The first rule that speaks against computing node `at` in the kernel of a reader.
fn reason(
    a: &Analysis<'_>,
    clusters: &Clusters<'_, '_>,
    at: usize,
    reader: &Reader,
    readers: &[Reader],
) -> Reason {
    let node = a.nodes[at];
    if matches!(a.kinds[reader.at], Kind::Matmul | Kind::Library) {
        return Reason::LibraryReader;
    }
    match a.kinds[reader.at] {
        Kind::Barrier => return Reason::Barrier,
        Kind::Join => return Reason::Joined,
        _ => {}
    }
    match a.kinds[at] {
        Kind::Matmul | Kind::Library => return Reason::LibraryResult,
        Kind::Barrier => return Reason::Barrier,
        Kind::Join => return Reason::Joined,
        Kind::Leaf | Kind::View => return Reason::Copy,
        Kind::Map | Kind::Reduce => {}
    }
    let Some(id) = clusters.of[reader.at] else { return Reason::Copy };
    let cluster = &clusters.list[id];
    if cluster.members.len() >= a.target.max_body() / 3 {
        return Reason::Full;
    }
    let (mut index, mut padded): (Option<Vec<Affine>>, bool) = (None, false);
    for r in readers.iter().filter(|r| clusters.of[r.at] == Some(id)) {
        let Some((need, bounded)) = cluster.needed_at(a, r) else { return Reason::NotAffine };
        padded |= bounded;
        if index.as_ref().is_some_and(|i| *i != need) {
            return Reason::ManyPlaces;
        }
        index = Some(need);
    }
    let Some(index) = index else { return Reason::Domains };
    let others: Vec<usize> = readers.iter().map(|r| r.at).filter(|&r| clusters.of[r] != Some(id)).collect();
    let output = a.forced.contains(&node.results[0]) || !others.is_empty();
    let sizes = a.sizes(node.results[0]);
    let axes: Vec<Option<usize>> = index.iter().map(Affine::as_axis).collect();
    let exact = axes.iter().zip(&sizes).enumerate().all(|(i, (d, &n))| match d {
        Some(d) => cluster.extents[*d] == n && !axes[..i].contains(&Some(*d)),
        None => n == 1,
    });
    let varies = |d: usize| index.iter().any(|i| i.coefs[d] != 0);
    if let Op::Reduce(r) = &node.op {
        if padded {
            return Reason::Padded;
        }
        if !exact {
            return Reason::NotCovered;
        }
        let from = a.sizes(node.operands[0]);
        let mut order = r.axes.clone();
        order.sort_unstable();
        let row: usize = order.iter().map(|&x| from[x]).product();
        let trailing = order.iter().rev().zip((0..from.len()).rev()).all(|(&x, last)| x == last);
        let spare: Vec<usize> =
            (0..cluster.extents.len()).filter(|&d| !varies(d) && cluster.extents[d] != 1).collect();
        if row > a.target.max_row() {
            return Reason::LongRow;
        }
        let again = !(cluster.reduced.is_empty() && spare.is_empty());
        if again && !trailing {
            return Reason::ScatteredRow;
        }
        let lengths: Vec<usize> = order.iter().map(|&x| from[x]).filter(|&n| n != 1).collect();
        let domain = if cluster.reduced.is_empty() { &spare } else { &cluster.reduced };
        let domain: Vec<usize> = domain.iter().map(|&d| cluster.extents[d]).filter(|&n| n != 1).collect();
        if !domain.is_empty() && domain != lengths {
            return Reason::OtherAxes;
        }
    }
    let of_row = !cluster.reduced.is_empty() && !cluster.reduced.iter().any(|&d| varies(d));
    let needed = |d: &usize| !(of_row && cluster.reduced.contains(d));
    let points: usize = (0..cluster.extents.len()).filter(needed).map(|d| cluster.extents[d]).product();
    if points > sizes.iter().product() && (output || costly(&node.op)) {
        return Reason::Repeated;
    }
    if output {
        if padded {
            return Reason::Padded;
        }
        let covers = (0..cluster.extents.len())
            .all(|d| cluster.extents[d] == 1 || varies(d) || (of_row && cluster.reduced.contains(&d)));
        if !exact || !covers {
            return Reason::NotCovered;
        }
        if clusters.leads_to(others, id) {
            return Reason::Cycle;
        }
    }
    Reason::Domains
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Options, compile};
    use crate::schedule::{LoopKernel, MatmulKernel};
    use onestep_ir::{DType, GraphBuilder, Tensor, Type};

    /// A target with matrix products, and no epilogues.
    struct Plain;

    impl Target for Plain {
        fn name(&self) -> &'static str {
            "plain"
        }
        fn accepts(&self, op: &Op, _: &[Type]) -> bool {
            matches!(op, Op::Matmul(_))
        }
        fn takes_strided(&self, _: &Op, _: usize) -> bool {
            true
        }
        fn computes_in(&self, _: DType) -> bool {
            true
        }
        fn takes_epilogue(&self, _: &MatmulKernel, _: &LoopKernel) -> bool {
            false
        }
    }

    /// What became of the graph that `f` makes of an input of this shape.
    fn explained(shape: &[usize], f: impl for<'g> Fn(Tensor<'g>) -> Tensor<'g>) -> Provenance {
        let g = GraphBuilder::new("g");
        let y = f(g.input("x", DType::F32, shape));
        g.output("y", y);
        let c = compile(&g.build().unwrap(), &Plain, &Options::default()).unwrap();
        let p = provenance(&c.graph, &Plain, true, &c.schedule).unwrap();
        // What is said to be stored by a kernel is written by it.
        for (v, role) in p.roles.iter().enumerate().filter(|(_, r)| **r == Role::Stored) {
            let (k, b) = (p.kernels[v].unwrap(), p.buffers[v].unwrap());
            assert!(c.schedule.kernels[k].writes().contains(&b), "%{v} {role:?}");
        }
        p
    }

    /// The reasons why the results of an op go through memory, and where they stand.
    fn reasons(p: &Provenance, op: &str) -> Vec<Reason> {
        let named = |v: &usize| p.graph.def(ValueId(*v as u32)).is_some_and(|n| n.op.rule().name() == op);
        (0..p.graph.values.len()).filter(named).flat_map(|v| p.waits[v].iter().map(|w| w.reason)).collect()
    }

    #[test]
    fn a_matrix_product_reads_memory_and_gives_memory() {
        let p = explained(&[8, 8], |x| x.exp().matmul(x).tanh());
        assert_eq!(reasons(&p, "exp"), [Reason::LibraryReader]);
        assert_eq!(reasons(&p, "matmul"), [Reason::LibraryResult]);
        assert_eq!(reasons(&p, "tanh"), []);
    }

    #[test]
    fn what_is_costly_is_not_computed_again_for_each_row() {
        let p = explained(&[64, 8], |x| x + x.slice(0, 0, 1).exp());
        assert_eq!(reasons(&p, "exp"), [Reason::Repeated]);
    }

    #[test]
    fn a_long_row_is_not_gone_over_again() {
        assert_eq!(reasons(&explained(&[20_000], |x| x / x.sum_all()), "sum"), [Reason::LongRow]);
        let short = explained(&[2_000], |x| x / x.sum_all());
        assert_eq!(reasons(&short, "sum"), []);
        assert!(short.roles.contains(&Role::Fused));
    }

    #[test]
    fn a_kernel_computes_one_element_at_a_point() {
        let p = explained(&[8, 8], |x| x.exp() + x.exp().transpose(&[1, 0]));
        assert_eq!(reasons(&p, "exp"), [Reason::ManyPlaces]);
    }
}
