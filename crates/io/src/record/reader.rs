//! Reading a record, a line at a time and without trust.

use super::{FORMAT, Line, RecordError, RunLine, StepLine};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A record that is being read.
#[derive(Debug)]
pub struct RecordReader {
    path: PathBuf,
    lines: BufReader<File>,
    /// Lines read.
    line: usize,
    run: Arc<RunLine>,
    /// The step read last.
    last: Option<u64>,
}

/// A step, and the run that took it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedStep {
    /// The run.
    pub run: Arc<RunLine>,
    /// The step.
    pub step: StepLine,
}

impl RecordReader {
    /// Opens the record at `path`.
    ///
    /// # Errors
    /// [`RecordError::Unreadable`]; [`RecordError::Empty`]; [`RecordError::Line`] and [`RecordError::Format`] for a file that
    /// does not begin with a run of this format.
    pub fn open(path: impl AsRef<Path>) -> Result<RecordReader, RecordError> {
        let path = path.as_ref();
        let unreadable = |source| RecordError::Unreadable { path: path.into(), source };
        let file = File::open(path).map_err(unreadable)?;
        if file.metadata().map_err(unreadable)?.is_dir() {
            return Err(unreadable(io::ErrorKind::IsADirectory.into()));
        }
        let nothing = Arc::new(RunLine {
            format: FORMAT,
            onestep: String::new(),
            program: String::new(),
            device: String::new(),
            threads: 0,
            settings: Default::default(),
            graph: crate::Digest::of_bytes(b""),
            inputs: vec![],
            tensors: vec![],
        });
        let mut reader = RecordReader {
            path: path.into(),
            lines: BufReader::new(file),
            line: 0,
            run: nothing,
            last: None,
        };
        match reader.next_line()? {
            Some(Line::Run(run)) => reader.run = Arc::new(run),
            Some(Line::Step(_)) => return Err(reader.wrong("a step stands before the run that took it")),
            None => return Err(RecordError::Empty { path: path.into() }),
        }
        Ok(reader)
    }

    /// The run of the steps that come next.
    pub fn run(&self) -> &Arc<RunLine> {
        &self.run
    }

    /// The next step; none at the end. A last line without its end is left out.
    ///
    /// # Errors
    /// [`RecordError::Unreadable`]; [`RecordError::Line`] for what is no line, digests that are not one for each tensor and
    /// input, and steps that do not ascend; [`RecordError::Format`].
    pub fn next_step(&mut self) -> Result<Option<RecordedStep>, RecordError> {
        loop {
            let step = match self.next_line()? {
                None => return Ok(None),
                Some(Line::Run(run)) => {
                    self.run = Arc::new(run);
                    continue;
                }
                Some(Line::Step(step)) => step,
            };
            let inputs = if step.inputs.is_empty() { 0 } else { self.run.inputs.len() };
            for (what, want, got) in [
                ("state tensors", self.run.tensors.len(), step.state.len()),
                ("inputs", inputs, step.inputs.len()),
            ] {
                if want != got {
                    return Err(self.wrong(format!("it has {got} digests for {want} {what}")));
                }
            }
            if let Some(last) = self.last.filter(|last| *last >= step.step) {
                return Err(self.wrong(format!("step {} follows step {last}", step.step)));
            }
            self.last = Some(step.step);
            return Ok(Some(RecordedStep { run: self.run.clone(), step }));
        }
    }

    fn next_line(&mut self) -> Result<Option<Line>, RecordError> {
        /// What every format's lines for a run have.
        #[derive(Deserialize)]
        struct Any {
            format: Option<u64>,
        }
        let mut text = vec![];
        self.lines
            .read_until(b'\n', &mut text)
            .map_err(|source| RecordError::Unreadable { path: self.path.clone(), source })?;
        self.line += 1;
        if text.pop() != Some(b'\n') {
            return Ok(None);
        }
        let Any { format } = serde_json::from_slice(&text).map_err(|e| self.wrong(e))?;
        if let Some(found) = format.filter(|found| *found != u64::from(FORMAT)) {
            return Err(RecordError::Format { path: self.path.clone(), found });
        }
        serde_json::from_slice(&text).map(Some).map_err(|e| self.wrong(e))
    }

    fn wrong(&self, what: impl ToString) -> RecordError {
        RecordError::Line { path: self.path.clone(), line: self.line, what: what.to_string() }
    }
}
