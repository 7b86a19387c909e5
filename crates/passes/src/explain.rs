//! What became of a value or a kernel, in sentences: which nodes a kernel is made of and why they are together, why a value
//! goes through memory, why a state's new value is copied. Everything said here is read off [`Provenance`] and [`Plan`].

use crate::fuse::{Provenance, Role};
use crate::pipeline::Compiled;
use crate::plan::{Place, Plan};
use crate::schedule::{BufferId, Kernel, Schedule};
use onestep_ir::{Def, Graph, ValueId};
use std::fmt::Write;

/// A compiled program with what became of each value.
#[derive(Clone, Copy, Debug)]
pub struct Explain<'a> {
    /// The graph, as it was grouped, with what became of its values.
    pub provenance: &'a Provenance,
    /// The kernels.
    pub schedule: &'a Schedule,
    /// Where their buffers lie.
    pub plan: &'a Plan,
}

impl<'a> Explain<'a> {
    /// From what the pipeline made.
    pub fn new(compiled: &'a Compiled, provenance: &'a Provenance) -> Explain<'a> {
        Explain { provenance, schedule: &compiled.schedule, plan: &compiled.plan }
    }

    fn graph(&self) -> &'a Graph {
        &self.provenance.graph
    }

    /// The answer to `%12` (a value of the graph before fusion), `k7` (a kernel), `b3` (a buffer), or the name of an
    /// input, a state or an output. `None` if there is no such thing.
    pub fn answer(&self, what: &str) -> Option<String> {
        let number = |prefix: char| what.strip_prefix(prefix).and_then(|n| n.parse::<usize>().ok());
        if let Some(v) = number('%').filter(|&v| v < self.graph().values.len()) {
            return Some(self.value(ValueId(v as u32)));
        }
        if let Some(k) = number('k').filter(|&k| k < self.schedule.kernels.len()) {
            return Some(self.kernel(k));
        }
        if let Some(b) = number('b').filter(|&b| b < self.schedule.buffers.len()) {
            let of = self.provenance.buffers.iter().position(|x| x.is_some_and(|x| x.index() == b))?;
            return Some(self.value(ValueId(of as u32)));
        }
        let g = self.graph();
        let ports = g.inputs.iter().chain(&g.outputs).map(|p| (&p.name, p.value));
        let states = g.states.iter().map(|s| (&s.name, s.value));
        ports.chain(states).find(|(name, _)| &***name == what).map(|(_, v)| self.value(v))
    }

    /// `%12 = mul : f32[8, 16]`, or the name of an input or state.
    fn head(&self, v: ValueId) -> String {
        let g = self.graph();
        match g.def(v) {
            Some(node) => format!("%{} = {} : {}", v.0, node.op.rule().name(), g.ty(v)),
            None => format!("{} : {}", self.port(v), g.ty(v)),
        }
    }

    fn port(&self, v: ValueId) -> String {
        let g = self.graph();
        let input = g.inputs.iter().find(|p| p.value == v).map(|p| format!("input '{}'", p.name));
        let state = || g.states.iter().find(|s| s.value == v).map(|s| format!("state '{}'", s.name));
        input.or_else(state).unwrap_or_else(|| format!("%{}", v.0))
    }

    fn loc(&self, v: ValueId) -> Option<String> {
        self.graph().def(v)?.loc.map(|l| l.to_string())
    }

    /// What became of a value.
    pub fn value(&self, v: ValueId) -> String {
        let (p, g) = (self.provenance, self.graph());
        let mut out = self.head(v);
        if let Some(loc) = self.loc(v) {
            let _ = write!(out, "\n  from {loc}");
        }
        let kernel = p.kernels[v.index()];
        match p.roles[v.index()] {
            Role::Given => out.push_str("\n  It is there when the call begins."),
            Role::Constant => out.push_str("\n  A constant: it lies beside the program."),
            Role::Inlined => out.push_str(
                "\n  It costs next to nothing, so each kernel that reads it computes it for itself.",
            ),
            Role::View => out.push_str("\n  A view: another way to read its operand, at no cost."),
            Role::Fused => {
                let _ = write!(
                    out,
                    "\n  Fused: kernel k{} computes it and keeps it in registers.",
                    kernel.unwrap_or(0)
                );
            }
            Role::Recomputed => out.push_str(
                "\n  Computed again in each kernel that reads it: that moves fewer bytes than storing it.",
            ),
            Role::Stored => {
                let _ = write!(
                    out,
                    "\n  Stored: kernel k{} computes it and writes it to memory.",
                    kernel.unwrap_or(0)
                );
            }
        }
        for o in g.outputs.iter().filter(|o| o.value == v) {
            let _ = write!(out, "\n  It is the output '{}'.", o.name);
        }
        for u in g.updates.iter().filter(|u| u.value == v) {
            let _ = write!(out, "\n  It is the new value of state '{}'.", g.states[u.state].name);
        }
        for w in &p.waits[v.index()] {
            let k = p.kernels[w.reader.index()].map(|k| format!(" in k{k}")).unwrap_or_default();
            let name = g.def(w.reader).map_or("", |n| n.op.rule().name());
            let _ = write!(out, "\n  Not fused into %{} {name}{k}: {}.", w.reader.0, w.reason.text());
        }
        if let Some(b) = p.buffers[v.index()] {
            out.push_str(&self.buffer(b));
        }
        out.push('\n');
        out
    }

    fn buffer(&self, b: BufferId) -> String {
        let (desc, life) = (self.schedule.buffer(b), self.plan.lives[b.index()]);
        let place = match self.plan.places[b.index()] {
            Place::Input(n) => format!("where input {n} is fed"),
            Place::State(n) => format!("in state '{}' itself", self.schedule.states[n].name),
            Place::Constant => "with the constants".to_string(),
            Place::Arena(offset) => format!("in the arena at offset {offset}"),
        };
        let mut out = format!(
            "\n  Buffer {b}: {} bytes {place}, needed from k{} to k{}.",
            desc.bytes(),
            life.first,
            life.last
        );
        if let Some((_, before)) = self.plan.aliases.iter().find(|(later, _)| *later == b) {
            let _ = write!(out, "\n  It takes the place of {before}, which is not needed any more.");
        }
        for (_, state) in self.plan.commits.iter().filter(|(from, _)| *from == b) {
            let why = self.plan.refusals.iter().find(|(s, _)| s == state).map_or("", |(_, why)| why);
            let name = &self.schedule.states[*state].name;
            let _ = write!(out, "\n  It is copied into state '{name}' after the last kernel, because {why}.");
        }
        out
    }

    /// The values that a kernel computes, in the graph's order.
    pub fn members(&self, k: usize) -> Vec<ValueId> {
        let kernels = self.provenance.kernels.iter().enumerate();
        kernels.filter(|(_, of)| **of == Some(k)).map(|(v, _)| ValueId(v as u32)).collect()
    }

    /// Why a kernel is what it is.
    pub fn kernel(&self, k: usize) -> String {
        let (p, g) = (self.provenance, self.graph());
        let kernel = &self.schedule.kernels[k];
        let (members, cost) = (self.members(k), kernel.cost(self.schedule));
        let stored = |v: &&ValueId| p.roles[v.index()] == Role::Stored;
        let fused = members.iter().filter(|v| !stored(v)).count();
        let what = describe(kernel);
        let mut out = format!(
            "k{k}: {what}\n  {} operations, {} bytes read, {} bytes written",
            cost.flops, cost.read, cost.written
        );
        if let Kernel::Scan(s) = kernel {
            for (i, inner) in s.body.kernels.iter().enumerate() {
                let _ = write!(out, "\n    k{i} of an iteration: {}", describe(inner));
            }
            for (state, why) in &s.plan.refusals {
                let name = &s.body.states[*state].name;
                let _ = write!(out, "\n    {name} is copied at the end of each, because {why}.");
            }
        }
        let _ = write!(
            out,
            "\n  It computes {} values of the graph; {fused} of them never reach memory:",
            members.len()
        );
        for &v in &members {
            let kept = if stored(&&v) { "stored" } else { "in registers" };
            let loc = self.loc(v).map(|l| format!("  from {l}")).unwrap_or_default();
            let _ = write!(out, "\n    {}  {kept}{loc}", self.head(v));
        }
        for &v in members.iter().filter(|v| p.roles[v.index()] == Role::Stored) {
            for w in &p.waits[v.index()] {
                let name = g.def(w.reader).map_or("", |n| n.op.rule().name());
                let to = p.kernels[w.reader.index()].map(|k| format!(" in k{k}")).unwrap_or_default();
                let _ = write!(
                    out,
                    "\n  %{} ends here, though %{} {name}{to} reads it: {}.",
                    v.0,
                    w.reader.0,
                    w.reason.text()
                );
            }
        }
        for b in kernel.reads() {
            let def = p.buffers.iter().position(|x| *x == Some(b)).map(|v| ValueId(v as u32));
            let is_node = def.is_some_and(|v| matches!(g.values[v.index()].def, Def::Node(..)));
            let from = match (def, is_node) {
                (Some(v), true) => p.kernels[v.index()].map_or_else(String::new, |k| format!(" from k{k}")),
                _ => String::new(),
            };
            let _ = write!(out, "\n  reads {b} \"{}\"{from}", self.schedule.buffer(b).name);
        }
        out.push('\n');
        out
    }
}

/// What a kernel is, in words.
fn describe(kernel: &Kernel) -> String {
    match kernel {
        Kernel::Loops(parts) if parts.len() > 1 => {
            format!("{} independent loops in one dispatch", parts.len())
        }
        Kernel::Loops(_) => "one loop".to_string(),
        Kernel::Matmul(m) if m.epilogue.is_some() => {
            "a matrix product, with an epilogue that works on each block while it is in cache".to_string()
        }
        Kernel::Matmul(_) => "a matrix product".to_string(),
        Kernel::Library(l) => format!("library kernel {}", l.op.rule().name()),
        Kernel::Scan(s) => format!(
            "a scan: {} kernels, {} times over, with {} bytes of scratch",
            s.body.kernels.len(),
            s.length,
            s.plan.arena_bytes
        ),
    }
}
