//! Writes `docs/torch-operators.md` anew: `cargo run -p onestep-suite --example torch_table`.

use onestep_suite::samples::Samples;
use onestep_suite::{Interpreter, report, table};

fn main() -> Result<(), String> {
    let report = report::run(&Interpreter, &Samples::read()?);
    print!("{report}");
    let path = table::path();
    std::fs::create_dir_all(path.parent().ok_or("the page has no folder")?).map_err(|e| e.to_string())?;
    std::fs::write(&path, table::page(&report)).map_err(|e| format!("{}: {e}", path.display()))
}
