//! What a program takes of its device's memory, known when it is compiled.

use onestep_cuda::Areas;
use onestep_cuda::code::Code;
use onestep_passes::pipeline::Compiled;
use onestep_passes::plan::Plan;
use std::fmt;

/// The bytes that a program takes while it is bound, by what they are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// State tensors: parameters, slots, scalars, caches. Other programs may share them.
    pub state: usize,
    /// Areas that inputs are copied into; on a GPU twice, unless they are large, so that a copy runs beside the step before.
    pub inputs: usize,
    /// Arrays written into the program.
    pub constants: usize,
    /// Everything that the plan gives a place for as long as it lives.
    pub arena: usize,
    /// What kernels keep for themselves while they run: on the CPU of each thread.
    pub scratch: usize,
    /// What a vendor's library works in.
    pub workspace: usize,
    /// Memory of the host, for a device that has its own: inputs on their way there and outputs on their way back.
    pub staging: usize,
}

impl Memory {
    /// On the CPU, whose kernels ask for so much scratch.
    pub(crate) fn on_cpu(plan: &Plan, scratch: usize) -> Memory {
        Memory {
            state: plan.state_bytes,
            inputs: plan.input_bytes,
            constants: plan.constant_bytes,
            arena: plan.arena_bytes,
            scratch,
            ..Memory::default()
        }
    }

    /// On a GPU.
    pub(crate) fn on_gpu(compiled: &Compiled, code: &Code) -> Memory {
        let Areas { inputs, constants, arena, scratch, workspace } = Areas::of(code);
        let schedule = &compiled.schedule;
        let outputs: usize = schedule.outputs.iter().map(|(_, b)| schedule.buffer(*b).bytes()).sum();
        let staging = Areas::turns(code) * code.input_bytes + outputs;
        Memory { state: compiled.plan.state_bytes, inputs, constants, arena, scratch, workspace, staging }
    }

    /// The most bytes that a call needs on the device: all but the staging.
    pub fn peak(&self) -> usize {
        self.state + self.binding()
    }

    /// What a binding allocates on the device: all that is not state.
    pub fn binding(&self) -> usize {
        self.inputs + self.constants + self.arena + self.scratch + self.workspace
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Memory { state, inputs, constants, arena, scratch, workspace, staging } = *self;
        write!(f, "{} bytes at most: state {state}, inputs {inputs}, constants {constants}", self.peak())?;
        write!(f, ", arena {arena}, scratch {scratch}")?;
        if workspace > 0 {
            write!(f, ", workspace {workspace}")?;
        }
        if staging > 0 {
            write!(f, "; {staging} of the host's beside it")?;
        }
        Ok(())
    }
}

/// What a program that does not fit its device's memory could do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// Nothing is known but smaller sizes.
    Smaller,
    /// Computing again: `Recompute::FitIn(budget)` needs so much.
    Recompute {
        /// The budget, in bytes.
        budget: usize,
        /// What the step then needs.
        peak: usize,
    },
    /// Computing again does not suffice: the least that it needs so.
    NotEnough {
        /// In bytes.
        least: usize,
    },
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remedy::Smaller => write!(f, "use smaller sizes, such as a smaller batch"),
            Remedy::Recompute { budget, peak } => {
                write!(f, "`.recompute(Recompute::FitIn({budget}))` would bring it to {}", Binary(*peak))
            }
            Remedy::NotEnough { least } => write!(
                f,
                "computing again whatever helps brings it to {}: use a smaller batch or shorter sequences",
                Binary(*least)
            ),
        }
    }
}

/// Bytes for people, in powers of 1024.
pub(crate) struct Binary(pub usize);

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.iter().find(|(bits, _)| self.0 >> bits > 0) {
            Some((bits, unit)) => write!(f, "{:.1} {unit}", self.0 as f64 / f64::from(1u32 << bits)),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn what_does_not_fit_says_what_would_help() {
        let said = |remedy| {
            let (needed, free) = (9_985_798_963, 6_549_825_126);
            Error::OutOfMemory { device: "cuda", needed, free, remedy }.to_string()
        };
        assert_eq!(
            said(Remedy::Recompute { budget: 6_549_825_126, peak: 5_583_457_484 }),
            "the program needs 9.3 GiB on 'cuda' and 6.1 GiB are free; `.recompute(Recompute::FitIn(6549825126))` would \
             bring it to 5.2 GiB"
        );
        assert!(said(Remedy::Smaller).ends_with("are free; use smaller sizes, such as a smaller batch"));
        let least = said(Remedy::NotEnough { least: 7 << 30 });
        assert!(least.ends_with("brings it to 7.0 GiB: use a smaller batch or shorter sequences"), "{least}");
        assert_eq!(Binary(1023).to_string() + " " + &Binary(1 << 20).to_string(), "1023 bytes 1.0 MiB");
    }
}
