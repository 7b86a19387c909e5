//! The one error type of the crate: each variant says what was asked for, what was found, and what would be accepted.

use crate::{CheckpointError, FormatError, IdxError, Position, SampleError};
use std::path::PathBuf;

/// Why a file could not be read or written, or a data set not split or cut into batches.
#[derive(Debug, thiserror::Error)]
pub enum IoError {
    /// The operating system does not let a file be read.
    #[error("`{}` cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },

    /// The operating system does not let a file be written.
    #[error("`{}` cannot be written: {source}", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },

    /// A file, or what was to be written to it, is not in the safetensors format.
    #[error("`{}`: {source}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: FormatError,
    },

    /// A file or folder is no checkpoint to go on from.
    #[error("`{}`: {source}", .path.display())]
    Checkpoint {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        source: CheckpointError,
    },

    /// A file is not an IDX file of the kind asked for.
    #[error("`{}`: {source}", .path.display())]
    Idx {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: IdxError,
    },

    /// Tokens are fewer than one window needs, or than one bigram.
    #[error(
        "the text has {found} bytes, but at least {needed} are needed; shorten the window or give more text"
    )]
    TextTooShort {
        /// Tokens needed at least.
        needed: usize,
        /// Tokens there are.
        found: usize,
    },

    /// A window of no tokens, or windows that all begin at one place.
    #[error("windows of {length} tokens, one every {stride}, are empty or endless; both must be at least 1")]
    EmptyWindow {
        /// Tokens of a window.
        length: usize,
        /// Tokens from one's beginning to the next one's.
        stride: usize,
    },

    /// A file of tokens ends in the middle of one.
    #[error("`{}` has {bytes} bytes, which is no whole number of tokens of {size}; is it cut off, or of another width?", .path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        bytes: u64,
        /// Bytes of a token.
        size: usize,
    },

    /// A token that an `i32` cannot hold.
    #[error("there is a token {token}, above the largest, {}; are the tokens of another width?", i32::MAX)]
    Token {
        /// The token.
        token: u32,
    },

    /// Arrays that are no columns of one table.
    #[error("arrays of shapes {} are no columns of samples; give arrays with one first size", .shapes.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(", "))]
    Columns {
        /// Their shapes.
        shapes: Vec<Vec<usize>>,
    },

    /// A dataset that gives no batch.
    #[error(
        "{samples} samples give no batch of {batch} for each of {ranks} processes; make the batch at least 1 and smaller, or keep or pad the last"
    )]
    NoBatch {
        /// Samples of the dataset.
        samples: usize,
        /// Samples of a batch.
        batch: usize,
        /// Processes that share it.
        ranks: usize,
    },

    /// A share that there is none of.
    #[error("there is no rank {rank} of {ranks}; ranks are counted from 0")]
    Rank {
        /// The share asked for.
        rank: usize,
        /// How many there are.
        ranks: usize,
    },

    /// A smaller last batch would be missing on some of the ranks.
    #[error("{ranks} processes cannot keep a smaller last batch, which some would lack; drop or pad it")]
    KeepShards {
        /// How many processes there are.
        ranks: usize,
    },

    /// A position without a batch.
    #[error(
        "there is no batch {} in an epoch of {batches}; is the position of other data, or of another batch size?",
        .at.batch
    )]
    Position {
        /// The position.
        at: Position,
        /// Batches of an epoch.
        batches: u64,
    },

    /// A field asked for by a number that there is none of.
    #[error("there is no field {field}; a sample has {fields}, counted from 0")]
    NoField {
        /// The number asked for.
        field: usize,
        /// How many there are.
        fields: usize,
    },

    /// An array cannot be made or used so.
    #[error(transparent)]
    Array(#[from] onestep_ir::ArrayError),

    /// A user's dataset failed.
    #[error("sample {index} cannot be read: {source}")]
    Sample {
        /// The sample.
        index: usize,
        /// The dataset's reason.
        source: SampleError,
    },

    /// A user's dataset panicked.
    #[error("the dataset panicked: {message}")]
    Panicked {
        /// Its words.
        message: String,
    },

    /// A loader was asked for more after it had failed.
    #[error("the loader has ended over an earlier error; start a new one")]
    LoaderEnded,

    /// No thread could be started.
    #[error("cannot start a thread to load data: {0}")]
    Thread(#[source] std::io::Error),

    /// A fraction to hold out that is not between 0 and 1.
    #[error("cannot hold out a fraction of {0} for validation; give a number between 0 and 1")]
    Fraction(f64),

    /// Compressed data that does not decompress to text.
    #[error("the digits do not decompress")]
    Decompress(#[source] std::io::Error),

    /// A row of the digits that is not 64 pixels from 0 to 16 and a label from 0 to 9.
    #[error("row {row} of the digits: {reason}")]
    DigitsRow {
        /// The row's number, counted from 1.
        row: usize,
        /// What is wrong with it.
        reason: String,
    },

    /// A digit asked for by a number that there is none of.
    #[error("there is no digit {row}; there are {digits}, counted from 0")]
    NoSuchDigit {
        /// The number asked for.
        row: usize,
        /// How many digits there are.
        digits: usize,
    },
}
