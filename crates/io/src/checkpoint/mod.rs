//! Checkpoints: everything that a run needs to go on, bit for bit, as if it had never stopped.
//!
//! A checkpoint is one safetensors file whose metadata holds the [`Manifest`]. One file, because one rename puts it in its
//! place: manifest and tensors come into being together or not at all, and no reader ever sees one with the other of another
//! step. Any tool that reads safetensors reads the tensors. The metadata has two entries: `onestep.checkpoint`, the
//! manifest as JSON, and `onestep.digest`, a [`Digest`] of that text and of every tensor, so that damage is found whatever
//! byte it is in.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! use onestep_io::{CheckpointFolder, Manifest, Position, newest_checkpoint, safetensors::Tensors};
//! use onestep_ir::Array;
//!
//! let manifest = |step, data| Manifest::new("mlp", step, data).setting("seed", 1);
//! let tensors = Tensors::from([("w".to_string(), Array::new(&[2], &[1f32, 2.0])?)]); // state.arrays()
//! let kept = CheckpointFolder::open(folder, 3)?; // the last three
//! kept.save(&manifest(100, Position { epoch: 2, batch: 7 }), &tensors)?;
//!
//! let found = newest_checkpoint(folder)?;
//! found.checkpoint.manifest.check(&manifest(0, Position::default()))?; // refuses another seed
//! assert_eq!(found.checkpoint.manifest.data.batch, 7); // where the loader starts
//! assert_eq!(found.checkpoint.tensors, tensors); // state.restore(&tensors)
//! # Ok(())
//! # }
//! ```

mod error;
mod folder;
mod manifest;

pub use error::CheckpointError;
pub use folder::{CheckpointFolder, Newest, newest_checkpoint};
pub use manifest::{FORMAT, Manifest};

use crate::safetensors::{self, Metadata, Tensors, Through};
use crate::{Digest, IoError};
use serde::Deserialize;
use std::path::Path;

const MANIFEST: &str = "onestep.checkpoint";
const DIGEST: &str = "onestep.digest";

/// A checkpoint that was read.
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint {
    /// What it says of itself.
    pub manifest: Manifest,
    /// The state.
    pub tensors: Tensors,
}

impl Checkpoint {
    /// Reads one, and checks that its contents are those that were written.
    ///
    /// # Errors
    /// [`IoError::Unreadable`], [`IoError::Format`]; [`IoError::Checkpoint`] for a file without a sound manifest, of
    /// another format, or damaged.
    pub fn load(path: impl AsRef<Path>) -> Result<Checkpoint, IoError> {
        let path = path.as_ref();
        let (tensors, metadata) = safetensors::load(path)?;
        let manifest = read_manifest(&tensors, &metadata)
            .map_err(|source| IoError::Checkpoint { path: path.into(), source })?;
        Ok(Checkpoint { manifest, tensors })
    }
}

/// Writes one to `path`, whole or not at all; `through` stands between it and the file, so that tests can have it fail.
fn write(path: &Path, manifest: &Manifest, tensors: &Tensors, through: Through<'_>) -> Result<(), IoError> {
    let wrong = |e| IoError::Checkpoint { path: path.into(), source: CheckpointError::Manifest(e) };
    let text = serde_json::to_string(manifest).map_err(wrong)?;
    let digest = digest(&text, tensors).to_string();
    let metadata = Metadata::from([(MANIFEST.to_string(), text), (DIGEST.to_string(), digest)]);
    let tensors = tensors.iter().map(|(name, array)| (name.as_str(), array));
    safetensors::save_through(path, tensors, &metadata, through)
}

fn digest(manifest: &str, tensors: &Tensors) -> Digest {
    let tensors = tensors.iter().map(|(name, array)| (name.as_str(), Digest::of_array(array)));
    Digest::of_all([(MANIFEST, Digest::of_bytes(manifest.as_bytes()))].into_iter().chain(tensors))
}

fn read_manifest(tensors: &Tensors, metadata: &Metadata) -> Result<Manifest, CheckpointError> {
    /// All that every format has.
    #[derive(Deserialize)]
    struct Any {
        format: u64,
    }
    let text = metadata.get(MANIFEST).ok_or(CheckpointError::NoManifest)?;
    let Any { format } = serde_json::from_str(text)?;
    if format != u64::from(FORMAT) {
        return Err(CheckpointError::Format { found: format });
    }
    let manifest = serde_json::from_str(text)?;
    let written = metadata.get(DIGEST).and_then(|digest| digest.parse().ok());
    match written == Some(digest(text, tensors)) {
        true => Ok(manifest),
        false => Err(CheckpointError::Damaged),
    }
}

#[cfg(test)]
mod tests;
