//! Data that enters and leaves a program: the two data sets that ship inside the crate, and their batches.
//!
//! Stands outside the compiler: nothing here knows of graphs or devices. A batch is plain row-major `Vec`s of the dtype
//! that a program declares for its input, ready to be fed.

pub mod digits;
mod error;
mod random;
pub mod text;

pub use digits::{Digits, DigitsSplit, digits};
pub use error::IoError;
pub use random::SplitMix64;
pub use text::{BigramModel, Split, TextBatch, TextBatches, TextWindows, shakespeare, split};
