//! The regions of scans, as schedules with plans: each is a program whose inputs are the slices and the constants and
//! whose states are the carries and the outputs. See [`ScanKernel`].

use super::emit::NeedsBuffer;
use super::{Lower, run};
use crate::plan::{Plan, PlanOptions, plan};
use crate::schedule::{Buffer, BufferId, BufferKind, Kernel, ScanKernel, Schedule, View, slices_are_dense};
use crate::{CompileError, Target, group};
use onestep_ir::ops::Scan;
use onestep_ir::rewrite::region_graph;
use onestep_ir::{DType, Def, Graph, Init, Node, Op, Port, Region, Role, StatePort, Update, ValueId};
use std::collections::HashMap;

/// The iterations of a graph's scans, by the scans' first results.
pub type Bodies = HashMap<ValueId, (Schedule, Plan)>;

/// Compiles the regions of the scans of a graph's body, and of those in them.
pub fn bodies(
    graph: &Graph,
    target: &dyn Target,
    merge: bool,
    options: &PlanOptions,
) -> Result<Bodies, CompileError> {
    let mut out = Bodies::new();
    for node in graph.body_nodes() {
        let (Op::Scan(op), [region]) = (&node.op, &node.regions[..]) else { continue };
        let mut schedule = run(&iteration(graph, op, region), target, merge, options)?;
        if merge {
            schedule = group::group(&schedule);
        }
        // Where a carry or an output needs a copy, it gets one: `strict` is about the state of the program.
        let plan = plan(&schedule, &PlanOptions { strict: false, ..*options })?;
        out.insert(node.results[0], (schedule, plan));
    }
    Ok(out)
}

/// An iteration as a program.
fn iteration(graph: &Graph, op: &Scan, region: &Region) -> Graph {
    let mut g = region_graph(graph, region);
    g.name = "iteration".to_string();
    let results = std::mem::take(&mut g.body.results);
    for (i, &value) in g.body.params.clone().iter().enumerate() {
        let slice = i.checked_sub(op.carries);
        let (kind, number) = match slice {
            None => ("carry", i),
            Some(n) if n < op.sequences => ("slice", n),
            Some(n) => ("constant", n - op.sequences),
        };
        let name = format!("{kind} {number}").into();
        match slice {
            None => g.states.push(StatePort { name, value, role: Role::Buffer, init: Init::ZEROS }),
            Some(_) => g.inputs.push(Port { name, value }),
        }
    }
    for (i, &new) in results.iter().enumerate() {
        if i >= op.carries {
            let value = g.add_value(g.ty(new).clone(), Def::Param);
            g.body.params.push(value);
            let name = format!("output {}", i - op.carries).into();
            g.states.push(StatePort { name, value, role: Role::Buffer, init: Init::ZEROS });
        }
        g.updates.push(Update { state: i, value: new, guarded: false });
    }
    g
}

impl Lower<'_, '_> {
    /// Gives the scan with this first result a buffer for what its iterations compute on the way.
    pub(super) fn add_arena(&mut self, first: ValueId) {
        let bytes = self.bodies[&first].1.arena_bytes;
        if bytes > 0 {
            let id = BufferId(self.buffers.len() as u32);
            let name = format!("scratch of %{}", first.0);
            let (dtype, kind) = (DType::U8, BufferKind::Temp);
            self.buffers.push(Buffer { name, dtype, shape: vec![bytes], kind });
            self.arenas.insert(first, id);
        }
    }

    /// The kernel of a scan.
    pub(super) fn scan(&self, op: &Scan, node: &Node) -> Result<Kernel, NeedsBuffer> {
        let mut views = vec![];
        let (carries, sequences) = (op.carries, op.carries + op.sequences);
        for (slot, &v) in node.operands.iter().enumerate() {
            let view: View = self.view(v)?;
            let sequence = (carries..sequences).contains(&slot);
            if !(if sequence { slices_are_dense(&view) } else { view.is_dense() }) {
                return Err(NeedsBuffer(v));
            }
            views.push(view);
        }
        let constants = views.split_off(sequences);
        let slices = views.split_off(carries);
        let (body, plan) = self.bodies[&node.results[0]].clone();
        Ok(Kernel::Scan(Box::new(ScanKernel {
            // The pipeline compiles bound graphs only.
            length: op.length.size().unwrap_or(0),
            reverse: op.reverse,
            carries: views,
            sequences: slices,
            constants,
            results: node.results.iter().map(|v| self.of[v]).collect(),
            body,
            plan,
            arena: self.arenas.get(&node.results[0]).copied(),
        })))
    }
}
