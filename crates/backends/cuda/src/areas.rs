//! How the one allocation of a binding is divided. Pure, so that a report can say before any device what will be allocated.

use crate::code::{Code, Step};

/// Bytes of the workspace that the vendor's products may use: what NVIDIA recommends for Hopper.
pub(crate) const WORKSPACE: usize = 32 << 20;

/// Inputs of at most so many bytes, or of so small a part of the arena, have two areas: the next ones are copied while a run reads
/// the last.
const SMALL_INPUTS: usize = 16 << 20;
const SMALL_PART: usize = 16;

/// Every area begins at a multiple of this.
const ALIGNMENT: usize = 256;

/// The areas, in their order, each with its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Areas {
    /// All inputs, one behind the other; twice, unless they are large.
    pub inputs: usize,
    /// The program's constants.
    pub constants: usize,
    /// What the plan laid out.
    pub arena: usize,
    /// What a kernel keeps between its own launches, for each branch.
    pub scratch: usize,
    /// What the vendor's products work in.
    pub workspace: usize,
}

impl Areas {
    /// Those of a program.
    pub fn of(code: &Code) -> Areas {
        let product = code.steps.iter().any(|(_, step)| matches!(step, Step::Product(_)));
        let area = |bytes: usize| bytes.next_multiple_of(ALIGNMENT);
        Areas {
            inputs: Areas::turns(code) * area(code.input_bytes),
            constants: area(code.constants.len()),
            arena: area(code.arena_bytes),
            scratch: code.branches.count.max(1) * Areas::scratch_of_branch(code),
            workspace: if product { WORKSPACE } else { 0 },
        }
    }

    /// How many areas for inputs there are, which runs take in turn.
    pub fn turns(code: &Code) -> usize {
        let small = code.input_bytes <= SMALL_INPUTS.max(code.arena_bytes / SMALL_PART);
        if small && code.input_bytes > 0 { 2 } else { 1 }
    }

    /// Bytes of each of them.
    #[cfg_attr(not(feature = "device"), allow(dead_code))]
    pub(crate) fn inputs_of_turn(code: &Code) -> usize {
        code.input_bytes.next_multiple_of(ALIGNMENT)
    }

    /// Bytes of a branch's part of the scratch.
    pub(crate) fn scratch_of_branch(code: &Code) -> usize {
        code.scratch_bytes.next_multiple_of(ALIGNMENT)
    }

    fn sizes(&self) -> [usize; 5] {
        [self.inputs, self.constants, self.arena, self.scratch, self.workspace]
    }

    /// Bytes of the whole allocation.
    pub fn bytes(&self) -> usize {
        self.sizes().iter().sum()
    }

    /// Where each begins, in the order of the fields.
    #[cfg_attr(not(feature = "device"), allow(dead_code))]
    pub(crate) fn starts(&self) -> [usize; 5] {
        let mut next = 0;
        self.sizes().map(|bytes| {
            next += bytes;
            next - bytes
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_lie_one_behind_the_other() {
        let areas = Areas { inputs: 512, constants: 0, arena: 1024, scratch: 256, workspace: WORKSPACE };
        assert_eq!(areas.starts(), [0, 512, 512, 1536, 1792]);
        assert_eq!(areas.bytes(), 1792 + WORKSPACE);
        let mut code = Code::new(257);
        code.input_bytes = 3;
        assert_eq!(Areas::of(&code), Areas { inputs: 512, arena: 512, ..Areas::default() });
    }

    #[test]
    fn large_inputs_have_one_area() {
        let turns = |input_bytes: usize, arena_bytes: usize| {
            let mut code = Code::new(arena_bytes);
            code.input_bytes = input_bytes;
            (Areas::turns(&code), Areas::of(&code).inputs)
        };
        assert_eq!(turns(0, 0), (1, 0));
        assert_eq!(turns(16 << 20, 0), (2, 32 << 20));
        assert_eq!(turns((16 << 20) + 256, 1 << 20), (1, (16 << 20) + 256));
        assert_eq!(turns(64 << 20, 1 << 30), (2, 128 << 20));
    }
}
