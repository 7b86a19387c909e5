//! What surrounds a run of the `onestep` program: the folder that keeps it, the progress shown while it runs,
//! the answer to Ctrl-C, and the report written at its end.
//!
//! Nothing here knows the compiler. The commands hand over plain records, so that every piece is tested alone.

pub mod interrupt;
pub mod progress;
pub mod records;
pub mod report;
pub mod run_folder;
