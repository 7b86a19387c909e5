//! The `onestep` program.

use clap::Parser;
use onestep_cli::commands::{args::Cli, run};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(e) => {
            // Where nobody listens, the exit code still tells.
            let _ = writeln!(std::io::stderr(), "onestep: {e}");
            e.code()
        }
    }
}
