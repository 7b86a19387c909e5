//! The `onestep` program: its [`commands`], and what surrounds a run: the folder that keeps it, the progress shown while it
//! runs, the answer to Ctrl-C, the report written at its end, the viewer of a program and the trace of a step.
//!
//! Only the commands know the compiler. They hand plain records to the rest, so that every piece is tested alone.

pub mod commands;
pub mod interrupt;
pub mod progress;
pub mod records;
pub mod report;
pub mod run_folder;
pub mod trace;
pub mod viewer;
