//! What can be wrong with a checkpoint.

use super::manifest::FORMAT;

/// Why a file is no checkpoint to go on from.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file of tensors without a manifest.
    #[error("it has tensors but no manifest, so it is no checkpoint; load it as a model instead")]
    NoManifest,

    /// The manifest is not as this version writes it.
    #[error("its manifest cannot be read: {0}")]
    Manifest(#[from] serde_json::Error),

    /// The manifest is of another format.
    #[error(
        "it has format {found}, and this version reads {FORMAT}; use the version of Onestep that wrote it"
    )]
    Format {
        /// The format found.
        found: u64,
    },

    /// Its contents are not those that were written.
    #[error("its contents are not those that were written; the file is damaged")]
    Damaged,

    /// It is of another program.
    #[error("it is of the program '{there}', and this is '{here}'")]
    Program {
        /// The checkpoint's.
        there: String,
        /// This run's.
        here: String,
    },

    /// A setting differs, so that the run would not go on as it began.
    #[error(
        "it was made with {name} {there}, but here {name} is {here}; give it as it was, or begin a new run"
    )]
    Setting {
        /// The setting.
        name: String,
        /// The checkpoint's value.
        there: String,
        /// This run's.
        here: String,
    },

    /// The settings agree, and yet the program is another.
    #[error("it is of another graph with the same settings; has the model or the update rule changed since?")]
    Graph,

    /// The folder has no checkpoint.
    #[error("it holds no checkpoint; those have names like step-0000000100.safetensors")]
    None,

    /// The folder has checkpoints, none of them whole.
    #[error("none of its {count} checkpoints can be read; the newest: {newest}")]
    NoneWhole {
        /// How many there are.
        count: usize,
        /// What is wrong with the newest.
        newest: Box<crate::IoError>,
    },
}
