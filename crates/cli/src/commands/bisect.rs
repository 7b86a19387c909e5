//! `onestep bisect`: the first step, tensor and op at which two recorded runs part.

use super::args::BisectArgs;
use super::train::RECORD;
use super::{CommandError, print};
use onestep::io::record::{Comparison, Inside, Parting, RunLine, compare};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the command: code 0 for equal runs, 1 for runs that part.
pub fn bisect(args: &BisectArgs) -> Result<ExitCode, CommandError> {
    let (text, json, code) = match compare(record_of(&args.a), record_of(&args.b))? {
        Comparison::Identical { steps, last } => (
            format!("identical: {steps} steps, to step {last}, have equal states bit for bit\n"),
            json!({"identical": true, "steps": steps, "last": last}),
            ExitCode::SUCCESS,
        ),
        Comparison::Parted(parting) => (text(&parting), as_json(&parting), ExitCode::FAILURE),
    };
    print(&if args.json { format!("{json}\n") } else { text })?;
    Ok(code)
}

/// The record of a run's folder, or the file itself.
fn record_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(RECORD) } else { path.to_path_buf() }
}

fn text(p: &Parting) -> String {
    let mut t = match p.equal {
        Some(equal) => format!("the runs part at step {}; after step {equal} they are equal\n", p.step),
        None => format!("the runs differ from the beginning, step {}\n", p.step),
    };
    // Writing to a string cannot fail.
    for (name, run) in ["a", "b"].iter().zip(&p.runs) {
        let RunLine { onestep, device, threads, .. } = &**run;
        let _ = writeln!(t, "  {name}: onestep {onestep}, device {device}, threads {threads}");
    }
    for (name, [a, b]) in settings(p) {
        let _ = writeln!(t, "  {name} is {a} in a, {b} in b");
    }
    if p.runs[0].graph != p.runs[1].graph {
        t += "  their graphs are different\n";
    }
    if !p.inputs.is_empty() {
        let _ =
            writeln!(t, "inputs: {} of step {} differ, so the data is to blame", p.inputs.join(", "), p.step);
    }
    if let Some(first) = p.tensors.first() {
        let _ = write!(t, "tensor: {} {}", first.name, first.ty);
        let _ = match &first.update {
            _ if p.step == 0 => writeln!(t, ", its first value"),
            Some(op) => writeln!(t, ", computed by {op}"),
            None => writeln!(t, ", which no op computes: it was set from outside"),
        };
        if let more @ 1.. = p.tensors.len() - 1 {
            let _ = writeln!(t, "  and {more} more");
        }
    }
    let _ = match &p.inside {
        Inside::Op(value) => {
            writeln!(t, "op: {} {}, the first in the step whose result differs", value.origin, value.ty)
        }
        Inside::Equal => writeln!(
            t,
            "op: none differs when they run one by one; fusion, the memory plan or something outside the step is to blame"
        ),
        Inside::OtherGraph => {
            writeln!(t, "op: the graphs have other values, so that these cannot be compared")
        }
        Inside::NotRecorded if p.step == 0 || !p.inputs.is_empty() => Ok(()),
        Inside::NotRecorded => writeln!(
            t,
            "to see inside the step, make both runs again, or resume them from before it, with --record-values {}",
            p.step
        ),
    };
    t
}

/// The settings that differ.
fn settings(p: &Parting) -> Vec<(String, [String; 2])> {
    let names: std::collections::BTreeSet<&String> =
        p.runs.iter().flat_map(|run| run.settings.keys()).collect();
    let of =
        |name: &String| [0, 1].map(|i| p.runs[i].settings.get(name).map_or("not set", |v| v).to_string());
    let pairs = names.into_iter().map(|name| (name.clone(), of(name)));
    pairs.filter(|(_, [a, b])| a != b).collect()
}

fn as_json(p: &Parting) -> Value {
    let first = p.tensors.first();
    let (inside, op) = match &p.inside {
        Inside::Op(value) => ("op", Some(value)),
        Inside::Equal => ("equal", None),
        Inside::NotRecorded => ("not recorded", None),
        Inside::OtherGraph => ("other graph", None),
    };
    json!({
        "identical": false,
        "step": p.step,
        "equal_step": p.equal,
        "runs": p.runs.each_ref().map(|r| json!({"onestep": r.onestep, "device": r.device, "threads": r.threads})),
        "inputs": p.inputs,
        "tensor": first.map(|t| &t.name),
        "tensor_op": first.and_then(|t| t.update.as_ref()),
        "tensors": p.tensors.iter().map(|t| &t.name).collect::<Vec<_>>(),
        "inside": inside,
        "first_op": op,
    })
}
