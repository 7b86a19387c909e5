//! Data that enters and leaves a program: tensors in [`safetensors`] files, the two data sets that ship inside the crate,
//! those of [`idx`] files, and their batches.
//!
//! Stands outside the compiler: nothing here knows of graphs or devices. A batch is plain row-major `Vec`s of the dtype
//! that a program declares for its input, ready to be fed.

mod atomic;
pub mod digits;
mod error;
pub mod idx;
mod images;
mod random;
pub mod safetensors;
pub mod text;

pub use atomic::{write_atomic, write_atomic_with};
pub use digits::{Digits, DigitsSplit, digits};
pub use error::IoError;
pub use idx::{IdxArray, IdxError, idx_folder, read_idx};
pub use images::LabelledImages;
pub use random::SplitMix64;
pub use safetensors::FormatError;
pub use text::{BigramModel, Split, TextBatch, TextBatches, TextWindows, shakespeare, split};
