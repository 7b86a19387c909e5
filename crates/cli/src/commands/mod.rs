//! The commands of the program: each a function from its arguments to a result.

pub mod args;
pub mod bench;
pub mod bisect;
pub mod doctor;
pub mod facts;
pub mod inspect;
pub mod models;
pub mod profile;
pub mod train;

use crate::run_folder::RunFolderError;
use args::{Cli, Command, MachineArgs};
use onestep::{Device, Error};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use thiserror::Error as ThisError;

/// Why a command failed.
#[derive(Debug, ThisError)]
pub enum CommandError {
    /// Compiling or running failed.
    #[error(transparent)]
    Onestep(#[from] Error),
    /// The run folder failed.
    #[error(transparent)]
    Folder(#[from] RunFolderError),
    /// Reading data failed.
    #[error(transparent)]
    Data(#[from] onestep::io::IoError),
    /// Options that do not belong together, or lack something.
    #[error("{0}")]
    Usage(String),
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no such pass.
    #[error("there is no pass '{name}'; the passes are {passes}")]
    NoPass {
        /// The name asked for.
        name: String,
        /// The passes there are.
        passes: String,
    },
    /// A record of a run failed.
    #[error(transparent)]
    Record(#[from] onestep::io::record::RecordError),
    /// Ctrl-C could not be caught.
    #[error(transparent)]
    Interrupt(#[from] crate::interrupt::InterruptError),
    /// Writing to standard output failed.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
    /// The loss is not a number any more.
    #[error(
        "the loss became {loss} at step {step}: the run was stopped, and the last finite state is kept; try a lower --lr"
    )]
    Diverged {
        /// The step.
        step: u64,
        /// The loss.
        loss: f64,
    },
}

impl From<onestep::ir::GraphError> for CommandError {
    fn from(e: onestep::ir::GraphError) -> Self {
        CommandError::Onestep(e.into())
    }
}

impl From<onestep::ir::ArrayError> for CommandError {
    fn from(e: onestep::ir::ArrayError) -> Self {
        CommandError::Onestep(e.into())
    }
}

impl CommandError {
    /// The program's exit code: 2 for records that cannot be compared, as `bisect` says of two that differ by 1; else 1.
    pub fn code(&self) -> ExitCode {
        match self {
            CommandError::Record(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Runs the command, and gives the program's exit code.
pub fn run(cli: Cli) -> Result<ExitCode, CommandError> {
    let done = match cli.command {
        Command::Train(args) => train::train(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Bisect(args) => return bisect::bisect(&args),
        Command::Doctor => doctor::doctor(),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Writes to standard output. A reader that went away, as `| head` does, has had enough: that is no error.
fn print(text: &str) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

fn device(args: &MachineArgs) -> Result<Device, Error> {
    Device::named(&args.device, args.threads.map(|n| n as usize))
}

/// The `q`-quantile of numbers, by the nearest rank; NaN without numbers.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    if v.is_empty() { f64::NAN } else { v[((v.len() - 1) as f64 * q).round() as usize] }
}
