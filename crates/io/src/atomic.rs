//! Writing a file whole or not at all: to a temporary file in the same folder, flushed to the disk, renamed over
//! its place, and the folder flushed after it. A crash at any moment leaves the old file or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes `bytes` to `path`, whole or not at all. A symbolic link at `path` is replaced, not followed.
///
/// # Errors
/// The operating system's; then `path` is as it was, and nothing stands beside it.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_atomic_with(path, |file| file.write_all(bytes))
}

/// The same with what `write` writes, so that a large file need not be in memory at once.
///
/// # Errors
/// The operating system's, or `write`'s.
pub fn write_atomic_with(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary_beside(path)?;
    write_and_rename(&temporary, path, write).inspect_err(|_| {
        // The first error is the one to report; a leftover is only untidy.
        let _ = fs::remove_file(&temporary);
    })
}

fn write_and_rename(
    temporary: &Path,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(temporary)?;
    let mut buffered = BufWriter::with_capacity(1 << 20, file);
    write(&mut buffered)?;
    let file = buffered.into_inner().map_err(|error| error.into_error())?;
    file.sync_all()?;
    drop(file);
    fs::rename(temporary, path)?;
    // The rename itself is durable only once the folder is.
    sync_folder(folder_of(path))
}

/// Makes the entries of a folder outlive a loss of power, where the system lets folders be flushed.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// A name that no other thread or process uses.
fn temporary_beside(path: &Path) -> io::Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "the path names no file");
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or_else(no_name)?);
    name.push(format!(".{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    Ok(folder_of(path).join(name))
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_writes_and_replaces_and_leaves_nothing_beside() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.bin");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("folder");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("kept"), "x").unwrap();
        assert!(write_atomic(&folder, b"new").is_err());
        assert!(folder.join("kept").is_file());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        assert!(write_atomic(&root.path().join("no/such/folder"), b"x").is_err());
        assert!(write_atomic(Path::new("/"), b"x").is_err());
    }

    #[test]
    fn a_writer_that_fails_half_way_leaves_the_old_file() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.bin");
        write_atomic(&path, b"old").unwrap();
        let error = write_atomic_with(&path, |file| {
            file.write_all(&[1; 5000])?;
            Err(io::Error::other("no more"))
        });
        assert_eq!(error.unwrap_err().to_string(), "no more");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
