//! Scans: the program of an iteration, and the addresses of its buffers in each.
//!
//! The addresses stand in a table in the scratch: those that move from iteration to iteration (slices and outputs) are
//! written anew before each one, the others once. Carries lie in the buffers of their last values; their first values are
//! copied there unless they are there already.

use crate::error::CpuError;
use crate::kernel::check_view;
use crate::library::gemm::Isa;
use crate::pool::Session;
use crate::program::{CpuProgram, Scratch};
use onestep_passes::plan::Place;
use onestep_passes::schedule::{BufferId, BufferKind, ScanKernel, Schedule, View};

/// The table takes a multiple of this, so that what follows it in the scratch is aligned.
const ALIGN: usize = 128;

/// A compiled scan.
pub(crate) struct Scan {
    name: String,
    /// The slices' numbers in the order of the iterations.
    length: usize,
    reverse: bool,
    body: CpuProgram,
    /// By the body's buffers.
    homes: Vec<Home>,
    /// The buffers of the body that move.
    moving: Vec<usize>,
    /// Where each carry's first value is, where it goes, and its bytes.
    first: Vec<(Home, Home, usize)>,
    /// What the plan of an iteration copies at its end: source, destination, bytes.
    commits: Vec<(usize, usize, usize)>,
    /// The constants of the body, in words that are aligned for every dtype.
    constants: Vec<u64>,
}

/// Where a buffer of the body is: `offset + iteration · step` bytes into something.
#[derive(Clone, Copy)]
struct Home {
    base: Base,
    offset: usize,
    step: usize,
}

#[derive(Clone, Copy)]
enum Base {
    /// A buffer of the schedule around the scan.
    Buffer(BufferId),
    /// The body's constants.
    Constants,
    /// Nowhere: the buffer has no elements.
    Nowhere,
}

impl Scan {
    /// Compiles the body and finds the place of each of its buffers.
    pub fn new(kernel: &ScanKernel, around: &Schedule, isa: Isa) -> Result<Scan, CpuError> {
        for view in kernel.operands() {
            check_view(around, view, "an operand of a scan")?;
        }
        let refused = |why: String| CpuError::Operand { what: "a scan", why };
        let outside = |b: &&BufferId| around.buffers.get(b.index()).is_none();
        if let Some(b) = kernel.results.iter().chain(&kernel.arena).find(outside) {
            return Err(refused(format!("{b} does not exist")));
        }
        if let Some(why) = kernel.fault(around) {
            return Err(refused(why));
        }
        let (schedule, plan) = (&kernel.body, &kernel.plan);
        let body = CpuProgram::with_isa(schedule, isa)?;
        let size = |b: BufferId| around.buffer(b).dtype.size();
        let at = |v: &View, step: usize| {
            let bytes = size(v.buffer);
            Home { base: Base::Buffer(v.buffer), offset: v.offset * bytes, step: step * bytes }
        };
        let sequences = kernel.sequences.iter().map(|v| at(v, v.strides[0]));
        let inputs: Vec<Home> = sequences.chain(kernel.constants.iter().map(|v| at(v, 0))).collect();
        let state = |i: usize| {
            let bytes = schedule.buffer(schedule.states[i].buffer).bytes();
            let step = if i < kernel.carries.len() { 0 } else { bytes };
            Home { base: Base::Buffer(kernel.results[i]), offset: 0, step }
        };
        let (mut homes, mut constants) = (vec![], vec![]);
        for (buffer, place) in schedule.buffers.iter().zip(&plan.places) {
            homes.push(match (*place, &buffer.kind) {
                (Place::Input(n), _) => inputs[n],
                (Place::State(n), _) => state(n),
                (Place::Arena(offset), _) => {
                    let base = kernel.arena.map_or(Base::Nowhere, Base::Buffer);
                    Home { base, offset, step: 0 }
                }
                (Place::Constant, BufferKind::Constant(array)) => {
                    let offset = constants.len() * size_of::<u64>();
                    constants.extend(array.bytes().chunks(size_of::<u64>()).map(|part| {
                        let mut word = [0; size_of::<u64>()];
                        word[..part.len()].copy_from_slice(part);
                        u64::from_ne_bytes(word)
                    }));
                    Home { base: Base::Constants, offset, step: 0 }
                }
                (Place::Constant, _) => return Err(refused("a constant of its body has no value".into())),
            });
        }
        let first = kernel.carries.iter().enumerate();
        let first = first.map(|(i, v)| (at(v, 0), state(i), around.buffer(kernel.results[i]).bytes()));
        let commit = |&(from, i): &(BufferId, usize)| {
            (from.index(), schedule.states[i].buffer.index(), schedule.buffer(from).bytes())
        };
        Ok(Scan {
            name: format!("scan of {} iterations, {} kernels", kernel.length, schedule.kernels.len()),
            length: kernel.length,
            reverse: kernel.reverse,
            moving: (0..homes.len()).filter(|&i| homes[i].step > 0).collect(),
            first: first.collect(),
            commits: plan.commits.iter().map(commit).collect(),
            body,
            homes,
            constants,
        })
    }

    /// A line for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn table_bytes(&self) -> usize {
        (self.homes.len() * size_of::<*mut u8>()).next_multiple_of(ALIGN)
    }

    /// Bytes of scratch for all threads together, and for each.
    pub fn scratch(&self) -> (usize, usize) {
        let (shared, thread) = self.body.scratch();
        (self.table_bytes() + shared, thread)
    }

    /// Runs every iteration. Allocates nothing.
    ///
    /// # Safety
    ///
    /// As for [`CpuProgram::run_steps`], where the scratch has the bytes of [`Scan::scratch`].
    pub unsafe fn run(&self, session: &Session<'_>, buffers: &[*mut u8], scratch: Scratch) {
        let address = |home: &Home, at: usize| {
            let base = match home.base {
                Base::Buffer(b) => buffers[b.index()],
                // Nobody writes a constant: the plan's check refuses it.
                Base::Constants => self.constants.as_ptr().cast::<u8>().cast_mut(),
                Base::Nowhere => scratch.shared,
            };
            base.wrapping_add(home.offset + at * home.step)
        };
        for (from, to, bytes) in &self.first {
            let (from, to) = (address(from, 0), address(to, 0));
            if from != to {
                // SAFETY: both are of that many bytes, by `ScanKernel::fault`; they are apart, since the plan lets them
                // share storage only as a whole.
                unsafe { std::ptr::copy_nonoverlapping(from, to, *bytes) };
            }
        }
        let table = scratch.shared.cast::<*mut u8>();
        for (i, home) in self.homes.iter().enumerate() {
            // SAFETY: the scratch begins with the table, at a multiple of 64.
            unsafe { table.add(i).write(address(home, 0)) };
        }
        let inner = Scratch { shared: scratch.shared.wrapping_add(self.table_bytes()), ..scratch };
        for i in 0..self.length {
            let at = if self.reverse { self.length - 1 - i } else { i };
            for &i in &self.moving {
                // SAFETY: as above.
                unsafe { table.add(i).write(address(&self.homes[i], at)) };
            }
            // SAFETY: every entry was written above, and nothing writes them while the slice lives: the body's own scratch
            // begins behind the table.
            let buffers = unsafe { std::slice::from_raw_parts(table, self.homes.len()) };
            // SAFETY: the addresses are of the sizes that the body's schedule says, by `ScanKernel::fault`, inside live
            // buffers of the caller's; they share storage only as the plan of the body allows, whose check is part of
            // that of the plan around it.
            unsafe { self.body.run_steps(session, buffers, inner, &mut |_| {}) };
            for &(from, to, bytes) in &self.commits {
                // SAFETY: both are of that many bytes, and apart: the plan copies only from elsewhere to a state.
                unsafe { std::ptr::copy_nonoverlapping(buffers[from], buffers[to], bytes) };
            }
        }
    }
}
