//! Records of runs: after every step a digest of each state tensor, so that two runs that should be equal can be compared
//! afterwards, and the place found where they part.
//!
//! A record is a file of lines, each a JSON object. The first, `{"line":"run",…}`, is a [`RunLine`]: program, version,
//! device, threads, settings, and the state tensors with the op that computes each one's update. Each other,
//! `{"line":"step",…}`, is a [`StepLine`]: the digests of the step's inputs and of the state after it, in the order of the
//! run's line; the first has the state that the run begins with, and no inputs. A run that is taken up again writes another line for the run,
//! which holds for the steps after it. Lines are handed to the system whole, one write each: a killed run leaves at most a
//! last line without its end, which readers leave out.
//!
//! [`compare`] reads two records side by side, a line of each at a time.

mod compare;
mod reader;
mod writer;

pub use compare::{Comparison, Inside, Parting, compare};
pub use reader::{RecordReader, RecordedStep};
pub use writer::RecordWriter;

use crate::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The version of the format that this build writes.
pub const FORMAT: u32 = 1;

/// Where a record's steps were computed, and what of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunLine {
    /// The format's version.
    pub format: u32,
    /// The version of Onestep.
    pub onestep: String,
    /// The program's name.
    pub program: String,
    /// The device's name.
    pub device: String,
    /// Its threads.
    pub threads: usize,
    /// What decides the result besides the program: seed, data, options.
    pub settings: BTreeMap<String, String>,
    /// A digest of the graph's text.
    pub graph: Digest,
    /// The names of the inputs.
    pub inputs: Vec<String>,
    /// The state tensors.
    pub tensors: Vec<RecordedTensor>,
}

/// A state tensor of a recorded run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordedTensor {
    /// Its path.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: String,
    /// The op that computes its new value; none for state that the program only reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Origin>,
}

/// An op of a program's graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// Its result in the graph's text, such as `%12`.
    pub value: String,
    /// Its name.
    pub op: String,
    /// The line of source that built it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.value, self.op)?;
        self.at.iter().try_for_each(|at| write!(f, " at {at}"))
    }
}

/// A step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StepLine {
    /// Steps taken, this one included; 0 for the state before the first.
    pub step: u64,
    /// The digests of its inputs; none for the state that a run begins with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Digest>,
    /// The digests of the state after it.
    pub state: Vec<Digest>,
    /// What every op of the step computed, in the graph's order, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<RecordedValue>,
}

/// A value of a step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordedValue {
    /// The op that computed it.
    #[serde(flatten)]
    pub origin: Origin,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: String,
    /// Its digest.
    pub digest: Digest,
}

/// A line of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
enum Line {
    Run(RunLine),
    Step(StepLine),
}

/// Why a record cannot be written, read, or compared with another.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The operating system does not let it be read.
    #[error("`{}` cannot be read: {source}", .path.display())]
    Unreadable {
        /// The record.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },

    /// The operating system does not let it be written.
    #[error("`{}` cannot be written: {source}", .path.display())]
    Unwritable {
        /// The record.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },

    /// A line that is none of a record's.
    #[error("`{}`, line {line}, is no line of a record: {what}", .path.display())]
    Line {
        /// The record.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },

    /// A record of another format.
    #[error("`{}` has format {found}, and this version reads {FORMAT}; use the version of Onestep that wrote it", .path.display())]
    Format {
        /// The record.
        path: PathBuf,
        /// The format found.
        found: u64,
    },

    /// A record without a line for its run.
    #[error("`{}` is empty; a record begins with a line for its run", .path.display())]
    Empty {
        /// The record.
        path: PathBuf,
    },

    /// Records of different programs.
    #[error("the records are of different programs, '{a}' and '{b}'")]
    Program {
        /// The first's.
        a: String,
        /// The second's.
        b: String,
    },

    /// Records of programs of one name with different state or inputs.
    #[error("the records are of different programs: {what}")]
    Interface {
        /// What only one of them has, or has otherwise.
        what: String,
    },

    /// Records that have no step in common.
    #[error("the records have no step in common; the first has {a}, the second {b}")]
    NoCommonStep {
        /// The first's steps.
        a: String,
        /// The second's.
        b: String,
    },
}

#[cfg(test)]
mod tests;
