//! A run's folder: `runs/<name>-<UTC timestamp>`, or the one that `--out` names.
//!
//! A folder belongs to one run. A folder that already holds anything is refused, never written over; only
//! [`RunFolder::resume`] continues one. `metrics.jsonl` grows by one whole line a step, handed to the operating
//! system at once, so that a killed run keeps every line; all other files are written beside their place and
//! renamed into it, so that a reader never meets half of one.

mod timestamp;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::records::{EvalRecord, MetricsLine, StepRecord};
pub use timestamp::utc_timestamp;

const METRICS: &str = "metrics.jsonl";

/// Why a run's folder or a file in it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunFolderError {
    /// A folder is needed where a file stands.
    #[error("`{}` is a file, and a run needs a folder: choose another --out", .path.display())]
    NotAFolder {
        /// The file.
        path: PathBuf,
    },
    /// The folder already holds something.
    #[error("`{}` already holds files, and a run never overwrites another: choose another --out", .path.display())]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// The run to resume is not there.
    #[error("`{}` holds no run to resume: it has no {METRICS}", .path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// Something there cannot be read.
    #[error("`{}` cannot be read: {source}", .path.display())]
    Unreadable {
        /// What was read.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Something there cannot be written.
    #[error("`{}` cannot be written: {source}", .path.display())]
    Unwritable {
        /// What was written.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A line of the metrics is not a record.
    #[error("`{}`, line {line}, is not a record of a step: {source}", .path.display())]
    BadLine {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// The folder of one run, with its metrics open for appending. One that nothing was written to disappears again, so that a
/// run that could not begin may be tried again under the same name.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    metrics: File,
    untouched: bool,
    /// Whether it was not there before.
    made: bool,
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if self.untouched {
            // A leftover is only untidy.
            let _ = fs::remove_file(self.path.join(METRICS));
            if self.made {
                let _ = fs::remove_dir(&self.path);
            }
        }
    }
}

impl RunFolder {
    /// Makes the run's folder: `out` if given, else `runs/<name>-<UTC timestamp>` below the current folder.
    pub fn create(name: &str, out: Option<&Path>) -> Result<Self, RunFolderError> {
        match out {
            Some(path) => Self::open_new(path),
            None => Self::create_under(Path::new("runs"), name, SystemTime::now()),
        }
    }

    /// Makes `<root>/<name>-<timestamp>`. Two runs that start in the same second get `-2`, `-3` …
    fn create_under(root: &Path, name: &str, now: SystemTime) -> Result<Self, RunFolderError> {
        let stem = format!("{}-{}", file_name_of(name), utc_timestamp(now));
        let mut path = root.join(&stem);
        for n in 2.. {
            match Self::open_new(&path) {
                Err(RunFolderError::Occupied { .. }) if n < 1000 => path = root.join(format!("{stem}-{n}")),
                result => return result,
            }
        }
        Err(RunFolderError::Occupied { path })
    }

    fn open_new(path: &Path) -> Result<Self, RunFolderError> {
        let made = !path.exists();
        make_folder(path)?;
        let unreadable = |source| RunFolderError::Unreadable { path: path.into(), source };
        if fs::read_dir(path).map_err(unreadable)?.next().is_some() {
            return Err(RunFolderError::Occupied { path: path.into() });
        }
        // `create_new` settles a race between two runs that both found the folder empty.
        let file = path.join(METRICS);
        match OpenOptions::new().append(true).create_new(true).open(&file) {
            Ok(metrics) => Ok(RunFolder { path: path.into(), metrics, untouched: true, made }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Err(RunFolderError::Occupied { path: path.into() })
            }
            Err(source) => Err(RunFolderError::Unwritable { path: file, source }),
        }
    }

    /// Continues the run in `path` after `last_step`. Lines of later steps, which the run will take again, and
    /// a last line cut short by a kill are dropped.
    pub fn resume(path: &Path, last_step: u64) -> Result<Self, RunFolderError> {
        if path.is_file() {
            return Err(RunFolderError::NotAFolder { path: path.into() });
        }
        let file = path.join(METRICS);
        if !file.is_file() {
            return Err(RunFolderError::NoRun { path: path.into() });
        }
        let mut kept = Vec::new();
        for line in read_lines(&file)?.iter().filter(|line| line.step.step <= last_step) {
            push_line(&mut kept, line, &file)?;
        }
        write_atomic(&file, &kept)?;
        match OpenOptions::new().append(true).open(&file) {
            Ok(metrics) => Ok(RunFolder { path: path.into(), metrics, untouched: false, made: false }),
            Err(source) => Err(RunFolderError::Unwritable { path: file, source }),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one line to `metrics.jsonl`. When this returns, the line outlives the process.
    pub fn append(&mut self, line: &MetricsLine) -> Result<(), RunFolderError> {
        let path = self.path.join(METRICS);
        let mut bytes = Vec::with_capacity(192);
        push_line(&mut bytes, line, &path)?;
        self.untouched = false;
        self.metrics.write_all(&bytes).map_err(|source| RunFolderError::Unwritable { path, source })
    }

    /// Writes `bytes` to the file `name` of this folder, whole or not at all.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<PathBuf, RunFolderError> {
        let path = self.path.join(name);
        self.untouched = false;
        write_atomic(&path, bytes)?;
        Ok(path)
    }

    /// Reads back the steps and the evaluations of the run in `path`.
    pub fn read_metrics(path: &Path) -> Result<(Vec<StepRecord>, Vec<EvalRecord>), RunFolderError> {
        let lines = read_lines(&path.join(METRICS))?;
        Ok((
            lines.iter().map(|line| line.step).collect(),
            lines.iter().filter_map(MetricsLine::eval).collect(),
        ))
    }
}

/// Writes `bytes` to `path`, whole or not at all.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), RunFolderError> {
    let unwritable = |source| RunFolderError::Unwritable { path: path.into(), source };
    onestep_io::write_atomic(path, bytes).map_err(unwritable)
}

/// Makes a folder and its parents, and names the file that stands in the way, if one does.
fn make_folder(path: &Path) -> Result<(), RunFolderError> {
    let Err(source) = fs::create_dir_all(path) else { return Ok(()) };
    match path.ancestors().find(|ancestor| ancestor.is_file()) {
        Some(file) => Err(RunFolderError::NotAFolder { path: file.into() }),
        None => Err(RunFolderError::Unwritable { path: path.into(), source }),
    }
}

fn push_line(out: &mut Vec<u8>, line: &MetricsLine, path: &Path) -> Result<(), RunFolderError> {
    serde_json::to_writer(&mut *out, line)
        .map_err(|e| RunFolderError::Unwritable { path: path.into(), source: e.into() })?;
    out.push(b'\n');
    Ok(())
}

/// The whole lines of a metrics file. A tail without a newline was cut short by a kill and is left out.
fn read_lines(path: &Path) -> Result<Vec<MetricsLine>, RunFolderError> {
    let text = fs::read(path).map_err(|source| RunFolderError::Unreadable { path: path.into(), source })?;
    let whole = text.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
    let lines = text[..whole].split(|&b| b == b'\n').enumerate();
    lines
        .filter(|(_, line)| !line.trim_ascii().is_empty())
        .map(|(i, line)| {
            serde_json::from_slice(line).map_err(|source| RunFolderError::BadLine {
                path: path.into(),
                line: i + 1,
                source,
            })
        })
        .collect()
}

/// A run's name made fit for a file name everywhere.
fn file_name_of(name: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let name: String = name.chars().take(80).map(fit).collect();
    let name = name.trim_matches(|c| c == '.' || c == '-');
    if name.is_empty() { "run".into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn line(step: u64) -> MetricsLine {
        MetricsLine::new(StepRecord { step, train_loss: 1.0 / step as f64, ..Default::default() }, None)
    }

    #[test]
    fn the_default_folder_has_the_name_and_the_time_and_never_collides() {
        let root = tempfile::tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let runs = root.path().join("runs");
        let first = RunFolder::create_under(&runs, "char gpt/../x", now).unwrap();
        assert_eq!(first.path().file_name().unwrap(), "char-gpt-..-x-20231114T221320Z");
        let second = RunFolder::create_under(&runs, "char gpt/../x", now).unwrap();
        assert_eq!(second.path().file_name().unwrap(), "char-gpt-..-x-20231114T221320Z-2");
        assert_eq!(file_name_of("../.."), "run");
        assert_eq!(file_name_of("é"), "run");
    }

    #[test]
    fn every_appended_line_is_on_disk_at_once() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("a/b");
        let mut run = RunFolder::create("x", Some(&out)).unwrap();
        run.append(&line(1)).unwrap();
        run.append(&MetricsLine { val_loss: Some(0.5), ..line(2) }).unwrap();
        let (steps, evals) = RunFolder::read_metrics(&out).unwrap();
        assert_eq!(steps.len(), 2);
        assert_eq!(evals, [EvalRecord { step: 2, val_loss: Some(0.5), test_accuracy: None }]);
    }

    #[test]
    fn another_runs_folder_is_refused_and_the_remedy_named() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("model.safetensors"), "x").unwrap();
        let error = RunFolder::create("x", Some(root.path())).unwrap_err();
        assert!(matches!(error, RunFolderError::Occupied { .. }));
        assert!(error.to_string().contains("choose another --out"));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "nothing was written");
    }

    #[test]
    fn an_empty_folder_is_taken() {
        let root = tempfile::tempdir().unwrap();
        assert!(RunFolder::create("x", Some(root.path())).is_ok());
    }

    #[test]
    fn a_run_that_did_not_begin_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("run");
        drop(RunFolder::create("x", Some(&out)).unwrap());
        assert!(!out.exists());
        drop(RunFolder::create("x", Some(root.path())).unwrap());
        assert!(root.path().is_dir(), "it was there before");
        RunFolder::create("x", Some(&out)).unwrap().append(&line(1)).unwrap();
        assert_eq!(RunFolder::read_metrics(&out).unwrap().0.len(), 1);
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "x").unwrap();
        for out in [file.clone(), file.join("below")] {
            match RunFolder::create("x", Some(&out)) {
                Err(RunFolderError::NotAFolder { path }) => assert_eq!(path, file),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(RunFolder::resume(&file, 0), Err(RunFolderError::NotAFolder { .. })));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_unwritable_place_is_an_error() {
        let error = RunFolder::create("x", Some(Path::new("/proc/onestep-run"))).unwrap_err();
        assert!(matches!(error, RunFolderError::Unwritable { .. }), "{error:?}");
    }

    #[test]
    fn resuming_keeps_the_lines_up_to_the_step_and_drops_a_torn_one() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("run");
        let mut run = RunFolder::create("x", Some(&out)).unwrap();
        (1..=5).for_each(|step| run.append(&line(step)).unwrap());
        run.metrics.write_all(br#"{"step":6,"tra"#).unwrap();
        drop(run);
        let mut run = RunFolder::resume(&out, 3).unwrap();
        run.append(&line(4)).unwrap();
        let steps: Vec<u64> = RunFolder::read_metrics(&out).unwrap().0.iter().map(|s| s.step).collect();
        assert_eq!(steps, [1, 2, 3, 4]);
        assert!(matches!(RunFolder::resume(root.path(), 0), Err(RunFolderError::NoRun { .. })));
    }

    #[test]
    fn a_damaged_line_is_named_by_number() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(METRICS), "\n{\"step\":\"one\"}\n").unwrap();
        let error = RunFolder::read_metrics(root.path()).unwrap_err();
        assert!(matches!(error, RunFolderError::BadLine { line: 2, .. }), "{error:?}");
    }
}
