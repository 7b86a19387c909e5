//! The `onestep` program.

use clap::Parser;
use onestep_cli::commands::{args::Cli, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("onestep: {e}");
            ExitCode::FAILURE
        }
    }
}
