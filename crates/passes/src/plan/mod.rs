//! Pass `plan`: where each buffer of a schedule lives.
//!
//! In-place is what is proved here: a state's new value takes the state's own storage only if every read of the old value
//! is ordered before the write ([`alias`]); otherwise it is computed in the arena and copied after the last kernel, and
//! the plan names it. Buffers of the arena share storage when one dies where the other is born, element for element; the
//! rest is packed by [`pack`]. [`check`] verifies the result independently.

pub mod alias;
pub mod check;
pub mod pack;

use crate::CompileError;
use crate::schedule::{BufferId, BufferKind, Kernel, ScanKernel, Schedule};
use std::fmt;

/// Where a buffer's bytes are during a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// In the area where input `n` is fed.
    Input(usize),
    /// In state tensor `n` itself.
    State(usize),
    /// With the program's constants.
    Constant,
    /// In the arena, at this byte offset.
    Arena(usize),
}

/// When a buffer's value is needed, in kernels: from its first writer to its last reader. Outputs, and values that are copied
/// into state at the end, live until one past the last kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Life {
    /// The first kernel that writes it.
    pub first: usize,
    /// The last kernel that reads it, or writes the rest of it.
    pub last: usize,
}

/// Options of the pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanOptions {
    /// Let buffers share storage. Without it every buffer has its own: for tests.
    pub reuse: bool,
    /// The same where all buffers of the arena together have at most so many bytes.
    pub spare: usize,
    /// A state that cannot be updated in place is an error.
    pub strict: bool,
    /// Alignment in bytes.
    pub alignment: usize,
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions { reuse: true, spare: 0, strict: false, alignment: 64 }
    }
}

/// Places for every buffer, and what they cost.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Plan {
    /// By [`BufferId`].
    pub places: Vec<Place>,
    /// By [`BufferId`].
    pub lives: Vec<Life>,
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// The most bytes of the arena's buffers that are live at once.
    pub live_bytes: usize,
    /// Bytes of all state tensors.
    pub state_bytes: usize,
    /// Bytes of the fed inputs.
    pub input_bytes: usize,
    /// Bytes of the constants, those of scans' bodies included.
    pub constant_bytes: usize,
    /// State tensors whose new value is computed elsewhere and copied after the last kernel: source, state index.
    pub commits: Vec<(BufferId, usize)>,
    /// Buffers that take another's storage: the later one, the earlier one.
    pub aliases: Vec<(BufferId, BufferId)>,
    /// States that are not updated in place: state index, reason.
    pub refusals: Vec<(usize, String)>,
}

impl Plan {
    /// The most bytes that a call needs in all: state, inputs, constants and arena.
    pub fn peak_bytes(&self) -> usize {
        self.state_bytes + self.input_bytes + self.constant_bytes + self.arena_bytes
    }
}

/// Runs the pass, and then the independent check.
pub fn plan(schedule: &Schedule, options: &PlanOptions) -> Result<Plan, CompileError> {
    for b in &schedule.buffers {
        let bytes = b.shape.iter().try_fold(b.dtype.size() as u128, |n, &d| n.checked_mul(d as u128));
        let bytes = bytes.unwrap_or(u128::MAX);
        if bytes > (isize::MAX / 4) as u128 {
            return Err(CompileError::TooLarge { name: b.name.clone(), bytes });
        }
    }
    let mut p = Plan { lives: lives(schedule), ..Plan::default() };
    let mut places: Vec<Option<Place>> = vec![];
    for b in &schedule.buffers {
        places.push(match b.kind {
            BufferKind::Input(i) => {
                p.input_bytes += b.bytes();
                Some(Place::Input(i))
            }
            BufferKind::State(i) => {
                p.state_bytes += b.bytes();
                Some(Place::State(i))
            }
            BufferKind::Constant(_) => {
                p.constant_bytes += b.bytes();
                Some(Place::Constant)
            }
            BufferKind::Temp => None,
        });
    }
    for s in scans(schedule) {
        p.constant_bytes += s.1.plan.constant_bytes;
    }
    let end = schedule.kernels.len();
    let uses = Uses::new(schedule);
    for (i, s) in schedule.states.iter().enumerate() {
        let Some(update) = s.update else { continue };
        match in_place(schedule, &uses, &places, i, update) {
            Ok(()) => places[update.index()] = Some(Place::State(i)),
            Err(why) => {
                if options.strict {
                    return Err(CompileError::NotInPlace { state: s.name.to_string(), why });
                }
                p.refusals.push((i, why));
                p.commits.push((update, i));
                p.lives[update.index()].last = end;
            }
        }
    }
    // Buffers of the arena: groups that share storage.
    let mut groups = pack::Groups::new(schedule.buffers.len());
    let apart =
        groups.items(schedule, &places, &p.lives, options.alignment).iter().map(|i| i.bytes).sum::<usize>();
    let reuse = options.reuse && apart > options.spare;
    if reuse {
        let alone = |at: &usize| schedule.beside(*at).len() == 1;
        for (at, k) in schedule.kernels.iter().enumerate().filter(|(at, _)| alone(at)) {
            let born = |b: &BufferId| places[b.index()].is_none() && p.lives[b.index()].first == at;
            for b in k.writes().into_iter().filter(born) {
                let candidate = alias::candidates(k, b).into_iter().find(|a| {
                    places[a.index()].is_none()
                        && matches!(schedule.buffer(*a).kind, BufferKind::Temp)
                        && schedule.buffer(*a).bytes() == schedule.buffer(b).bytes()
                        && groups.last(*a, &p.lives) <= at
                        && groups.free_at(*a, b, &p.lives, at)
                });
                if let Some(a) = candidate {
                    groups.join(a, b);
                    p.aliases.push((b, a));
                }
            }
        }
    }
    let items = groups.items(schedule, &places, &p.lives, options.alignment);
    p.live_bytes = pack::most_live(&items, end + 1);
    let offsets = if reuse { pack::pack(&items, p.live_bytes) } else { pack::apart(&items) };
    p.arena_bytes = items.iter().zip(&offsets).map(|(i, o)| o + i.bytes).max().unwrap_or(0);
    for (item, offset) in items.iter().zip(&offsets) {
        for b in &item.buffers {
            places[b.index()] = Some(Place::Arena(*offset));
        }
    }
    p.places = places.into_iter().map(|x| x.unwrap_or(Place::Arena(0))).collect();
    check::check(schedule, &p).map_err(CompileError::Unsound)?;
    Ok(p)
}

/// The scans of a schedule, each with the number of its kernel.
fn scans(schedule: &Schedule) -> impl Iterator<Item = (usize, &ScanKernel)> {
    schedule.kernels.iter().enumerate().filter_map(|(at, k)| match k {
        Kernel::Scan(s) => Some((at, &**s)),
        _ => None,
    })
}

/// The life of every buffer.
pub fn lives(schedule: &Schedule) -> Vec<Life> {
    let mut lives = vec![Life::default(); schedule.buffers.len()];
    let mut written = vec![false; schedule.buffers.len()];
    for (at, k) in schedule.kernels.iter().enumerate() {
        for b in k.writes() {
            let first = std::mem::replace(&mut written[b.index()], true).then(|| lives[b.index()].first);
            lives[b.index()] = Life { first: first.unwrap_or(at), last: at };
        }
    }
    for (at, k) in schedule.kernels.iter().enumerate() {
        for b in k.reads() {
            let life = &mut lives[b.index()];
            life.last = life.last.max(at);
        }
    }
    for (_, b) in &schedule.outputs {
        lives[b.index()].last = schedule.kernels.len();
    }
    // What kernels that run together need, all of them need from the first to the last.
    for group in &schedule.together {
        for b in schedule.kernels[group.clone()].iter().flat_map(|k| [k.reads(), k.writes()].concat()) {
            let life = &mut lives[b.index()];
            if group.contains(&life.first) {
                life.first = group.start;
            }
            life.last = life.last.max(group.end - 1);
        }
    }
    lives
}

/// The first kernel that writes each buffer, and those that read it.
struct Uses {
    writer: Vec<Option<usize>>,
    readers: Vec<Vec<usize>>,
}

impl Uses {
    fn new(schedule: &Schedule) -> Uses {
        let n = schedule.buffers.len();
        let mut uses = Uses { writer: vec![None; n], readers: vec![vec![]; n] };
        for (at, k) in schedule.kernels.iter().enumerate() {
            k.writes().iter().for_each(|b| _ = uses.writer[b.index()].get_or_insert(at));
            k.reads().iter().for_each(|b| uses.readers[b.index()].push(at));
        }
        uses
    }
}

/// Whether the new value of state `i` may be written over the old one; else why not.
fn in_place(
    schedule: &Schedule,
    uses: &Uses,
    places: &[Option<Place>],
    i: usize,
    update: BufferId,
) -> Result<(), String> {
    let old = schedule.states[i].buffer;
    if places[update.index()].is_some() {
        return Err("its new value is stored elsewhere already".to_string());
    }
    let Some(writer) = uses.writer[update.index()] else {
        return Err("no kernel computes its new value".to_string());
    };
    let group = schedule.beside(writer);
    for &at in uses.readers[old.index()].iter().filter(|&&at| at >= group.start) {
        if group.len() > 1 && group.contains(&at) {
            return Err(format!(
                "kernel k{at} reads the old value while kernel k{writer} computes the new one"
            ));
        }
        if at > writer {
            return Err(format!(
                "kernel k{at} reads the old value after kernel k{writer} has computed the new one"
            ));
        }
        let k = &schedule.kernels[at];
        if let Some(how) = alias::obstacle(k, old, update) {
            return Err(format!("kernel k{at} reads the old value {how}"));
        }
    }
    Ok(())
}

impl Plan {
    /// One line for each buffer: name, bytes, life, place.
    pub fn lines(&self, schedule: &Schedule) -> Vec<String> {
        let line = |i: usize| {
            let (b, life) = (&schedule.buffers[i], self.lives[i]);
            let place = match self.places[i] {
                Place::Input(n) => format!("input {n}"),
                Place::State(n) => format!("state \"{}\"", schedule.states[n].name),
                Place::Constant => "constant".to_string(),
                Place::Arena(offset) => format!("arena {offset}"),
            };
            let alias = self.aliases.iter().find(|(b, _)| b.index() == i);
            let alias = alias.map(|(_, a)| format!(" in place of {a}")).unwrap_or_default();
            format!(
                "b{i} {:>10} bytes  k{}..k{}  {place}{alias}  \"{}\"",
                b.bytes(),
                life.first,
                life.last,
                b.name
            )
        };
        (0..schedule.buffers.len()).map(line).collect()
    }
}

/// A plan with the schedule that it is of, for printing.
pub struct PlanOf<'a>(pub &'a Schedule, pub &'a Plan);

impl fmt::Display for PlanOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanOf(schedule, p) = self;
        writeln!(f, "plan \"{}\" {{", schedule.name)?;
        for line in p.lines(schedule) {
            writeln!(f, "  {line}")?;
        }
        for (b, s) in &p.commits {
            writeln!(f, "  copy {b} to state \"{}\"", schedule.states[*s].name)?;
        }
        for (s, why) in &p.refusals {
            writeln!(f, "  state \"{}\" is not updated in place: {why}", schedule.states[*s].name)?;
        }
        writeln!(f, "  arena {} bytes, at most {} live at once", p.arena_bytes, p.live_bytes)?;
        for (at, s) in scans(schedule) {
            writeln!(f, "  k{at}, in each of {} iterations:", s.length)?;
            PlanOf(&s.body, &s.plan).to_string().lines().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        f.write_str("}\n")
    }
}
