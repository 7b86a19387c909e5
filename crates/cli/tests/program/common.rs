//! Starting the program, and reading what it said.

use std::path::Path;
use std::process::{Command, Output};

/// What a run of the program left behind.
pub struct Said {
    /// The exit code.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// Asserts that nothing panicked, whatever else went wrong.
    #[track_caller]
    pub fn of(output: Output) -> Said {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) };
        assert!(!said.err.contains("panicked"), "{}", said.err);
        assert!(said.code.is_some(), "it was killed: {:?}\n{}", output.status, said.err);
        said
    }

    /// Asserts success, and gives the last line of standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, Some(0), "{}", self.err);
        serde_json::from_str(self.out.lines().last().unwrap()).unwrap()
    }

    /// Asserts that it failed with one clear message, which has these words, and wrote nothing to standard output.
    #[track_caller]
    pub fn refused(&self, words: &[&str]) {
        assert!(matches!(self.code, Some(1 | 2)), "code {:?}\n{}\n{}", self.code, self.out, self.err);
        assert!(words.iter().all(|w| self.err.contains(w)), "{:?} does not say all of {words:?}", self.err);
        assert_eq!(self.out, "");
    }
}

/// The program, in a folder of its own.
pub fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onestep"));
    command.current_dir(folder).env_remove("ONESTEP_DUMP").env("RUST_BACKTRACE", "0");
    command
}

/// Runs it with these arguments, separated by spaces.
#[track_caller]
pub fn run(folder: &Path, arguments: &str) -> Said {
    Said::of(program(folder).args(arguments.split_whitespace()).output().unwrap())
}

/// Copies a folder with everything in it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, to) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(std::fs::copy(path, to).unwrap()),
        }
    }
}

/// The names in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
