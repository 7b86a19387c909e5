//! Tensors in `safetensors` files: eight bytes with the header's length, a JSON header that gives every tensor's dtype,
//! shape and place, and the tensors' bytes.
//!
//! The format is Hugging Face's, <https://github.com/huggingface/safetensors>; their crate says whether shapes and
//! places agree. Around it stands what that crate leaves open: every error names its tensor, a name that stands twice is
//! refused, equal tensors give equal files byte for byte, and both directions go through the file piece by piece, so
//! that a checkpoint is never in memory twice.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use onestep_io::safetensors::{self, Metadata};
//! use onestep_ir::Array;
//!
//! let weight = Array::new(&[2, 2], &[1f32, 2.0, 3.0, 4.0])?;
//! let path = std::env::temp_dir().join(format!("model-{}.safetensors", std::process::id()));
//! safetensors::save(&path, [("fc1.weight", &weight)], &Metadata::from([("format".into(), "pt".into())]))?;
//! let (tensors, metadata) = safetensors::load(&path)?;
//! assert_eq!((&tensors["fc1.weight"], &*metadata["format"]), (&weight, "pt"));
//! # std::fs::remove_file(&path)?;
//! # Ok(())
//! # }
//! ```

mod error;
mod header;

pub use error::FormatError;

use crate::{IoError, write_atomic_with};
use header::Header;
use onestep_ir::Array;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Text by key: what a file says of itself.
pub type Metadata = BTreeMap<String, String>;

/// Tensors by name.
pub type Tensors = BTreeMap<String, Array>;

/// Writes tensors to the file `path`, whole or not at all (see [`crate::write_atomic`]). The order in which they are
/// given does not matter: the widest dtype comes first, so that every tensor is aligned, and then the order of names.
///
/// # Errors
/// [`IoError::Unwritable`]; [`IoError::Format`] for two tensors of one name, a name that the format keeps for itself,
/// and names and metadata that together exceed the format's 100 MB.
pub fn save<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (&'a str, &'a Array)>,
    metadata: &Metadata,
) -> Result<(), IoError> {
    save_through(path.as_ref(), tensors, metadata, &plain)
}

/// What stands between the writer and the file.
pub(crate) type Through<'a> = &'a dyn for<'w> Fn(&'w mut dyn Write) -> Box<dyn Write + 'w>;

/// Nothing.
pub(crate) fn plain<'w>(file: &'w mut dyn Write) -> Box<dyn Write + 'w> {
    Box::new(file)
}

/// The same with something between, so that a test can have any byte fail.
pub(crate) fn save_through<'a>(
    path: &Path,
    tensors: impl IntoIterator<Item = (&'a str, &'a Array)>,
    metadata: &Metadata,
    through: Through<'_>,
) -> Result<(), IoError> {
    let wrong = |source| IoError::Format { path: path.into(), source };
    let (head, tensors) = header::compose(tensors, metadata).map_err(wrong)?;
    write_atomic_with(path, |file| write(&mut *through(file), &head, &tensors))
        .map_err(|source| IoError::Unwritable { path: path.into(), source })
}

/// The same as bytes in memory.
///
/// # Errors
/// As those of [`save`] that do not come from the operating system.
pub fn to_bytes<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Array)>,
    metadata: &Metadata,
) -> Result<Vec<u8>, FormatError> {
    let (head, tensors) = header::compose(tensors, metadata)?;
    let mut bytes = vec![];
    write(&mut bytes, &head, &tensors).map_err(FormatError::Read)?;
    Ok(bytes)
}

fn write(file: &mut dyn Write, head: &[u8], tensors: &[(&str, &Array)]) -> io::Result<()> {
    file.write_all(&(head.len() as u64).to_le_bytes())?;
    file.write_all(head)?;
    tensors.iter().try_for_each(|(_, array)| file.write_all(array.bytes()))
}

/// Reads every tensor of the file `path`, and its metadata. A truth value other than 0 and 1 becomes 1.
///
/// # Errors
/// [`IoError::Unreadable`]; [`IoError::Format`] for a file that is not whole and sound in every part, or that holds a
/// tensor of a dtype that Onestep does not have. A file's claims are checked against its size before memory is taken:
/// no more is used than a small multiple of that.
pub fn load(path: impl AsRef<Path>) -> Result<(Tensors, Metadata), IoError> {
    let path = path.as_ref();
    let unreadable = |source| IoError::Unreadable { path: path.into(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if about.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    read(&mut file, about.len()).map_err(|error| match error {
        FormatError::Read(source) => unreadable(source),
        source => IoError::Format { path: path.into(), source },
    })
}

/// Reads the same from bytes in memory.
///
/// # Errors
/// As those of [`load`] that do not come from the operating system.
pub fn from_bytes(mut bytes: &[u8]) -> Result<(Tensors, Metadata), FormatError> {
    let length = bytes.len() as u64;
    read(&mut bytes, length)
}

/// Reads a file of `length` bytes.
fn read(source: &mut dyn Read, length: u64) -> Result<(Tensors, Metadata), FormatError> {
    let Some(left) = length.checked_sub(8) else { return Err(FormatError::TooShort { bytes: length }) };
    let mut claimed = [0; 8];
    source.read_exact(&mut claimed).map_err(FormatError::Read)?;
    let claimed = u64::from_le_bytes(claimed);
    if claimed > header::LARGEST {
        return Err(FormatError::HeaderTooLarge { bytes: claimed });
    }
    let Some(data) = left.checked_sub(claimed) else {
        return Err(FormatError::HeaderLength { claimed, left });
    };
    let Header { entries, metadata } = header::parse(&take(source, claimed as usize)?, data)?;
    let mut tensors = Tensors::new();
    for entry in entries {
        // The entries follow one another without a gap.
        let bytes = take(source, entry.bytes)?;
        let array = Array::from_bytes(entry.dtype, &entry.shape, &bytes)
            .map_err(|source| FormatError::Array { name: entry.name.clone(), source })?;
        tensors.insert(entry.name, array);
    }
    Ok((tensors, metadata))
}

/// The next `length` bytes, which are known to be there unless the file shrinks meanwhile.
fn take(source: &mut dyn Read, length: usize) -> Result<Vec<u8>, FormatError> {
    let failed = |kind: io::ErrorKind| FormatError::Read(kind.into());
    let mut bytes = vec![];
    bytes.try_reserve_exact(length).map_err(|_| failed(io::ErrorKind::OutOfMemory))?;
    source.take(length as u64).read_to_end(&mut bytes).map_err(FormatError::Read)?;
    if bytes.len() < length { Err(failed(io::ErrorKind::UnexpectedEof)) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
