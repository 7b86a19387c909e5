//! From what the compiler made to the plain records of the report and the viewer.

use super::CommandError;
use crate::report::{BufferView, KernelView, PlanView};
use crate::viewer::{Buffer, Kernel, Pass, Program, Source, StateRow, Value};
use onestep::ir::{Def, Graph, Loc, ValueId};
use onestep::passes::explain::Explain;
use onestep::passes::fuse::{Reason, Role};
use onestep::passes::pipeline::Compiled;
use onestep::passes::plan::Place;
use onestep::passes::schedule::{BufferId, BufferKind, Schedule};
use onestep::{Executable, Report};
use std::collections::HashMap;

/// The facts of a program that was compiled with its dumps; `text` is the text that the graph was read from, if it was.
pub fn program(executable: &Executable, text: Option<&str>) -> Result<Program, CommandError> {
    let (compiled, report) = (executable.compiled(), executable.report());
    let provenance = executable.provenance()?;
    let explain = Explain::new(compiled, &provenance);
    let schedule = &compiled.schedule;
    let mut sources = Sources::new(text);
    let passes = compiled.dumps.iter().enumerate().map(|(i, (name, text))| {
        let lines = compiled.sources.get(i).map(|locs| locs.iter().map(|l| sources.place(*l)).collect());
        Pass { name, text: text.clone(), lines: lines.unwrap_or_default() }
    });
    let passes = passes.collect();
    let numbers = |all: Vec<BufferId>| all.into_iter().map(BufferId::index).collect();
    let kernels = schedule.kernels.iter().zip(&report.kernels).enumerate().map(|(i, (k, r))| {
        let cost = k.cost(schedule);
        Kernel {
            name: r.name.clone(),
            kind: r.kind.to_string(),
            note: r.note.clone(),
            body: k.to_string(),
            flops: cost.flops,
            read_bytes: cost.read,
            written_bytes: cost.written,
            reads: numbers(k.reads()),
            writes: numbers(k.writes()),
            values: explain.members(i).into_iter().map(ValueId::index).collect(),
        }
    });
    let g = &provenance.graph;
    let values = (0..g.values.len()).map(|i| {
        let waits = &provenance.waits[i];
        let node = g.def(ValueId(i as u32));
        Value {
            role: role(provenance.roles[i]),
            op: node.map_or_else(|| port(g, i), |n| n.op.rule().name().to_string()),
            kernel: provenance.kernels[i],
            buffer: provenance.buffers[i].map(BufferId::index),
            source: sources.place(node.and_then(|n| n.loc)),
            waits: waits.iter().map(|w| (w.reader.index(), number(w.reason))).collect(),
        }
    });
    let values: Vec<Value> = values.collect();
    let mut holds = vec![None; schedule.buffers.len()];
    for (v, b) in provenance.buffers.iter().enumerate() {
        if let Some(place) = b.and_then(|b| holds.get_mut(b.index())) {
            *place = Some(v);
        }
    }
    Ok(Program {
        name: schedule.name.clone(),
        passes,
        kernels: kernels.collect(),
        buffers: buffers(compiled, &holds),
        values,
        reasons: Reason::ALL.iter().map(|r| r.text()).collect(),
        states: states(compiled),
        aliases: compiled.plan.aliases.iter().map(|(b, a)| (b.index(), a.index())).collect(),
        sources: sources.list,
        plan: plan_view(report),
    })
}

fn number(reason: Reason) -> usize {
    Reason::ALL.iter().position(|r| *r == reason).unwrap_or(0)
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Given => "given",
        Role::Constant => "constant",
        Role::Inlined => "inlined",
        Role::View => "view",
        Role::Fused => "fused",
        Role::Recomputed => "recomputed",
        Role::Stored => "stored",
    }
}

/// The name of an input or state.
fn port(g: &Graph, i: usize) -> String {
    let is = |v: ValueId| v.index() == i && matches!(g.values[i].def, Def::Param);
    let input = g.inputs.iter().find(|p| is(p.value)).map(|p| format!("input {}", p.name));
    let state = || g.states.iter().find(|s| is(s.value)).map(|s| format!("state {}", s.name));
    input.or_else(state).unwrap_or_default()
}

fn buffers(compiled: &Compiled, holds: &[Option<usize>]) -> Vec<Buffer> {
    let (s, p) = (&compiled.schedule, &compiled.plan);
    let buffer = |i: usize| {
        let (b, life) = (&s.buffers[i], p.lives[i]);
        let (place, at) = match p.places[i] {
            Place::Input(n) => ("input", n),
            Place::State(n) => ("state", n),
            Place::Constant => ("constant", 0),
            Place::Arena(offset) => ("arena", offset),
        };
        Buffer {
            name: b.name.clone(),
            ty: format!("{}{:?}", b.dtype, b.shape),
            bytes: b.bytes() as u64,
            place,
            at: at as u64,
            first: life.first,
            last: life.last,
            value: holds[i],
        }
    };
    (0..s.buffers.len()).map(buffer).collect()
}

fn states(compiled: &Compiled) -> Vec<StateRow> {
    let (s, p): (&Schedule, _) = (&compiled.schedule, &compiled.plan);
    let mut writer = HashMap::new();
    for (k, kernel) in s.kernels.iter().enumerate() {
        writer.extend(kernel.writes().into_iter().map(|b| (b, k)));
    }
    let row = |i: usize| {
        let (state, b) = (&s.states[i], s.buffer(s.states[i].buffer));
        let refusal = p.refusals.iter().find(|(n, _)| *n == i).map(|(_, why)| why.clone());
        StateRow {
            name: state.name.to_string(),
            role: state.role.name(),
            ty: format!("{}{:?}", b.dtype, b.shape),
            bytes: b.bytes() as u64,
            update: match (&state.update, &refusal) {
                (None, _) => "kept",
                (Some(_), None) => "in place",
                (Some(_), Some(_)) => "copied",
            },
            why: refusal.unwrap_or_default(),
            kernel: state.update.and_then(|b| writer.get(&b)).copied(),
        }
    };
    (0..s.states.len()).map(row).collect()
}

/// The places in the user's source, each once, with what stands there where the file can be read.
struct Sources<'t> {
    list: Vec<Source>,
    known: HashMap<Loc, usize>,
    /// The text of the graph.
    text: Option<Vec<&'t str>>,
    files: HashMap<&'static str, Option<Vec<String>>>,
}

impl<'t> Sources<'t> {
    fn new(text: Option<&'t str>) -> Sources<'t> {
        let text = text.map(|t| t.lines().collect());
        Sources { list: vec![Source::default()], known: HashMap::new(), text, files: HashMap::new() }
    }

    fn place(&mut self, loc: Option<Loc>) -> usize {
        let Some(loc) = loc else { return 0 };
        if let Some(&at) = self.known.get(&loc) {
            return at;
        }
        let text = self.line(loc).unwrap_or_default().trim().to_string();
        let text = match text.char_indices().nth(200) {
            Some((cut, _)) => format!("{} …", &text[..cut]),
            None => text,
        };
        let place = match loc {
            Loc::Text(line) => format!("line {line}"),
            Loc::Code(_) => loc.to_string(),
        };
        self.list.push(Source { place, text });
        self.known.insert(loc, self.list.len() - 1);
        self.list.len() - 1
    }

    fn line(&mut self, loc: Loc) -> Option<String> {
        let at = loc.line().checked_sub(1)? as usize;
        let Some(file) = loc.file() else { return self.text.as_ref()?.get(at).map(|l| l.to_string()) };
        let read = |file: &str| {
            let text = std::fs::read_to_string(file).ok()?;
            Some(text.lines().map(str::to_string).collect())
        };
        self.files.entry(file).or_insert_with(|| read(file)).as_ref()?.get(at).cloned()
    }
}

/// The memory plan of a report.
pub fn plan_view(r: Report) -> PlanView {
    let buffers = r.buffers.iter().filter_map(|b| match b.place {
        Place::Arena(offset) => Some(BufferView {
            name: b.name.clone(),
            bytes: b.bytes as u64,
            offset: offset as u64,
            first: b.life.0,
            last: b.life.1,
        }),
        _ => None,
    });
    let kernels = r.kernels.iter().map(|k| KernelView {
        name: k.name.clone(),
        kind: k.kind.to_string(),
        note: k.note.clone(),
    });
    PlanView {
        arena_bytes: r.arena_bytes as u64,
        peak_bytes: r.live_bytes as u64,
        state_bytes: r.state_bytes as u64,
        buffers: buffers.collect(),
        kernels: kernels.collect(),
        aliases: r.in_place.clone(),
        refusals: r.refusals.clone(),
    }
}

/// The arena's bytes that are live at each kernel of a schedule.
pub fn live_bytes(compiled: &Compiled) -> Vec<u64> {
    let (s, p) = (&compiled.schedule, &compiled.plan);
    let mut live = vec![0u64; s.kernels.len()];
    for (i, b) in s.buffers.iter().enumerate() {
        let counts = matches!(b.kind, BufferKind::Temp) && matches!(p.places[i], Place::Arena(_));
        let end = (p.lives[i].last + 1).min(live.len());
        for bytes in live[p.lives[i].first.min(end)..end].iter_mut().filter(|_| counts) {
            *bytes = bytes.saturating_add(b.bytes() as u64);
        }
    }
    // Where a buffer takes the place of another, the two are one at that kernel.
    for (later, _) in p.aliases.iter().filter(|(b, _)| matches!(p.places[b.index()], Place::Arena(_))) {
        if let Some(bytes) = live.get_mut(p.lives[later.index()].first) {
            *bytes = bytes.saturating_sub(s.buffer(*later).bytes() as u64);
        }
    }
    live
}
