//! The plan: where each buffer of a schedule lives.

use crate::schedule::BufferId;

/// Where a buffer's bytes are during a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// Places for every buffer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// By [`BufferId`].
    pub places: Vec<Place>,
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// State tensors whose new value is computed elsewhere and copied after the last kernel: source, state index.
    pub commits: Vec<(BufferId, usize)>,
}
