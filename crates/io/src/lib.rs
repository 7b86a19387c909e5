//! Data that enters and leaves a program: tensors in [`safetensors`] files, [`checkpoint`]s of runs, the two data sets that
//! ship inside the crate, those of [`idx`] files, and the [`loader`] that feeds their batches.
//!
//! Stands outside the compiler: nothing here knows of graphs or devices. A batch is arrays of the dtypes that a program
//! declares for its inputs, ready to be fed.

mod atomic;
pub mod checkpoint;
pub mod digits;
mod error;
mod hash;
pub mod idx;
mod images;
pub mod loader;
mod random;
pub mod record;
pub mod safetensors;
pub mod text;

pub use atomic::{write_atomic, write_atomic_with};
pub use checkpoint::{Checkpoint, CheckpointError, CheckpointFolder, Manifest, Newest, newest_checkpoint};
pub use digits::{Digits, DigitsSplit, digits};
pub use error::IoError;
pub use hash::{Digest, NoDigest};
pub use idx::{IdxArray, IdxError, idx_folder, read_idx};
pub use images::LabelledImages;
pub use loader::{
    Batches, Columns, Dataset, Field, FromFn, Last, Loader, Position, Row, SampleError, TokenWidth,
    TokenWindows, Tokens, from_fn,
};
pub use random::SplitMix64;
pub use safetensors::FormatError;
pub use text::{BigramModel, Split, shakespeare, split};
