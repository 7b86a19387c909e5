//! The one error type of the crate: each variant says what was asked for, what was found, and what would be accepted.

use crate::{FormatError, IdxError};
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

    /// A file is not an IDX file of the kind asked for.
    #[error("`{}`: {source}", .path.display())]
    Idx {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: IdxError,
    },

    /// An image asked for by a number that there is none of.
    #[error("there is no image {row}; there are {images}, counted from 0")]
    NoSuchImage {
        /// The number asked for.
        row: usize,
        /// How many images there are.
        images: usize,
    },

    /// A text has fewer bytes than one window, or than one bigram.
    #[error(
        "the text has {found} bytes, but at least {needed} are needed; shorten the window or give more text"
    )]
    TextTooShort {
        /// Bytes needed at least.
        needed: usize,
        /// Bytes the text has.
        found: usize,
    },

    /// A batch of no rows, or of rows of length zero.
    #[error("a batch of {batch} rows of length {length} is empty; both must be at least 1")]
    EmptyBatch {
        /// Rows asked for.
        batch: usize,
        /// Length of each row asked for.
        length: usize,
    },

    /// A batch of more than `i32::MAX` elements.
    #[error("a batch of {batch} rows of length {length} has more than {} elements", i32::MAX)]
    BatchTooLarge {
        /// Rows asked for.
        batch: usize,
        /// Length of each row asked for.
        length: usize,
    },

    /// Buffers given for a batch that have another length than `batch * length`.
    #[error("the {which} buffer has {found} elements, but the batch has {needed}")]
    BufferLength {
        /// `"inputs"` or `"targets"`.
        which: &'static str,
        /// Elements of the batch.
        needed: usize,
        /// Elements of the buffer.
        found: usize,
    },

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
