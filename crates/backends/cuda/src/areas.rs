//! How the one allocation of a binding is divided. Pure, so that a report can say before any device what will be allocated.

use crate::code::{Code, Step};

/// Bytes of the workspace that the vendor's products may use: what NVIDIA recommends for Hopper.
pub(crate) const WORKSPACE: usize = 32 << 20;

/// Every area begins at a multiple of this.
const ALIGNMENT: usize = 256;

/// The areas, in their order, each with its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Areas {
    /// All inputs, one behind the other.
    pub inputs: usize,
    /// The program's constants.
    pub constants: usize,
    /// What the plan laid out.
    pub arena: usize,
    /// What a kernel keeps between its own launches.
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
            inputs: area(code.input_bytes),
            constants: area(code.constants.len()),
            arena: area(code.arena_bytes),
            scratch: area(code.scratch_bytes),
            workspace: if product { WORKSPACE } else { 0 },
        }
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
        assert_eq!(Areas::of(&code), Areas { inputs: 256, arena: 512, ..Areas::default() });
    }
}
