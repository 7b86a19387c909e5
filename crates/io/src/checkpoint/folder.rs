//! A folder of checkpoints, of which the last few are kept.

use super::{Checkpoint, CheckpointError, Manifest, write};
use crate::IoError;
use crate::atomic::{folder_of, sync_folder};
use crate::safetensors::{Tensors, Through, plain};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "step-";
const SUFFIX: &str = ".safetensors";

/// A folder that one run writes checkpoints to.
#[derive(Clone, Debug)]
pub struct CheckpointFolder {
    path: PathBuf,
    keep: usize,
}

impl CheckpointFolder {
    /// The folder at `path`, made if need be, in which the `keep` newest checkpoints stay (at least one). What a killed
    /// process left half-written is removed.
    ///
    /// # Errors
    /// [`IoError::Unwritable`] if it cannot be made or tidied.
    pub fn open(path: impl AsRef<Path>, keep: usize) -> Result<CheckpointFolder, IoError> {
        let path = path.as_ref();
        let unwritable = |source| IoError::Unwritable { path: path.into(), source };
        if !path.is_dir() {
            fs::create_dir_all(path).and_then(|()| sync_folder(folder_of(path))).map_err(unwritable)?;
        }
        for entry in fs::read_dir(path).map_err(unwritable)? {
            let entry = entry.map_err(unwritable)?;
            let name = entry.file_name();
            if name.to_str().is_some_and(is_half_written) {
                remove(&entry.path())?;
            }
        }
        Ok(CheckpointFolder { path: path.into(), keep: keep.max(1) })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a checkpoint, beside its place first, flushed to the disk, and renamed; only then are the oldest removed that
    /// are more than are kept. So there is a whole one at every moment once there has been one.
    ///
    /// # Errors
    /// [`IoError::Unwritable`]; then those that were there are there.
    pub fn save(&self, manifest: &Manifest, tensors: &Tensors) -> Result<PathBuf, IoError> {
        self.save_through(manifest, tensors, &plain)
    }

    pub(super) fn save_through(
        &self,
        manifest: &Manifest,
        tensors: &Tensors,
        through: Through<'_>,
    ) -> Result<PathBuf, IoError> {
        let path = self.path.join(format!("{PREFIX}{:010}{SUFFIX}", manifest.step));
        write(&path, manifest, tensors, through)?;
        for (_, old) in list(&self.path)?.into_iter().rev().filter(|(_, p)| *p != path).skip(self.keep - 1) {
            remove(&old)?;
        }
        Ok(path)
    }
}

/// The newest whole checkpoint of a folder.
#[derive(Debug)]
pub struct Newest {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Its file.
    pub path: PathBuf,
    /// Newer ones that cannot be read, newest first: what a failing disk may leave.
    pub damaged: Vec<IoError>,
}

/// Reads the newest checkpoint of a folder that is whole.
///
/// # Errors
/// [`IoError::Unreadable`]; [`IoError::Checkpoint`] if there is none (or no folder), or none is whole.
pub fn newest_checkpoint(folder: impl AsRef<Path>) -> Result<Newest, IoError> {
    let folder = folder.as_ref();
    let wrong = |source| IoError::Checkpoint { path: folder.into(), source };
    let files = match list(folder) {
        Err(IoError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => vec![],
        files => files?,
    };
    let count = files.len();
    let mut damaged = vec![];
    for (_, path) in files.into_iter().rev() {
        match Checkpoint::load(&path) {
            Ok(checkpoint) => return Ok(Newest { checkpoint, path, damaged }),
            Err(error) => damaged.push(error),
        }
    }
    match damaged.into_iter().next() {
        Some(newest) => Err(wrong(CheckpointError::NoneWhole { count, newest: Box::new(newest) })),
        None => Err(wrong(CheckpointError::None)),
    }
}

/// The checkpoints of a folder by step, oldest first.
fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, IoError> {
    let unreadable = |source| IoError::Unreadable { path: folder.into(), source };
    let mut found = vec![];
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let step = name.to_str().and_then(|n| n.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok());
        found.extend(step.map(|step: u64| (step, entry.path())));
    }
    found.sort();
    Ok(found)
}

/// Whether a file was to become a checkpoint (see [`crate::write_atomic`]).
fn is_half_written(name: &str) -> bool {
    name.starts_with(&format!(".{PREFIX}")) && name.ends_with(".tmp")
}

/// Removes a file that nobody else may have removed meanwhile.
fn remove(path: &Path) -> Result<(), IoError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(IoError::Unwritable { path: path.into(), source: e })
        }
        _ => Ok(()),
    }
}
