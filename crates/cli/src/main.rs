//! The `onestep` program.

fn main() {}
