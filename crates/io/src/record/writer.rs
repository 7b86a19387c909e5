//! Writing a record, line by line.

use super::reader::RecordReader;
use super::{FORMAT, Line, RecordError, RunLine, StepLine};
use crate::write_atomic_with;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A record that is being written.
#[derive(Debug)]
pub struct RecordWriter {
    path: PathBuf,
    file: File,
    last: Option<u64>,
}

impl RecordWriter {
    /// Begins a record at `path`, where nothing is yet.
    ///
    /// # Errors
    /// [`RecordError::Unwritable`].
    pub fn create(path: impl AsRef<Path>, run: &RunLine) -> Result<RecordWriter, RecordError> {
        Self::open(path.as_ref(), OpenOptions::new().append(true).create_new(true), run, None)
    }

    /// Goes on with the record at `path` after `step`, or begins one if there is none: later steps, which will be taken
    /// again, are removed first.
    ///
    /// # Errors
    /// [`RecordError::Unwritable`]; those of reading it.
    pub fn resume(path: impl AsRef<Path>, run: &RunLine, step: u64) -> Result<RecordWriter, RecordError> {
        let path = path.as_ref();
        let mut last = None;
        if path.exists() {
            let mut reader = RecordReader::open(path)?;
            let mut failed = None;
            let kept = write_atomic_with(path, |file| {
                let mut taken_by = None;
                loop {
                    match reader.next_step() {
                        Ok(Some(recorded)) if recorded.step.step <= step => {
                            if taken_by.as_ref() != Some(&recorded.run) {
                                put(file, &Line::Run((*recorded.run).clone()))?;
                                taken_by = Some(recorded.run);
                            }
                            last = Some(recorded.step.step);
                            put(file, &Line::Step(recorded.step))?;
                        }
                        Ok(_) => return Ok(()),
                        Err(error) => {
                            failed = Some(error);
                            return Err(io::Error::other("the record is damaged"));
                        }
                    }
                }
            });
            let unwritable = |source| RecordError::Unwritable { path: path.into(), source };
            kept.map_err(|source| failed.unwrap_or_else(|| unwritable(source)))?;
        }
        Self::open(path, OpenOptions::new().append(true).create(true), run, last)
    }

    fn open(
        path: &Path,
        options: &OpenOptions,
        run: &RunLine,
        last: Option<u64>,
    ) -> Result<RecordWriter, RecordError> {
        let unwritable = |source| RecordError::Unwritable { path: path.into(), source };
        let file = options.open(path).map_err(unwritable)?;
        let mut writer = RecordWriter { path: path.into(), file, last };
        writer.line(&Line::Run(RunLine { format: FORMAT, ..run.clone() }))?;
        Ok(writer)
    }

    /// Appends a step. When this returns, its line outlives the process.
    ///
    /// # Errors
    /// [`RecordError::Unwritable`].
    pub fn step(&mut self, step: StepLine) -> Result<(), RecordError> {
        self.last = Some(step.step);
        self.line(&Line::Step(step))
    }

    /// The step written last, if there is one.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    fn line(&mut self, line: &Line) -> Result<(), RecordError> {
        put(&mut self.file, line)
            .map_err(|source| RecordError::Unwritable { path: self.path.clone(), source })
    }
}

/// Writes a line at once.
fn put(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    out.write_all(&bytes)
}
