//! `onestep inspect`: what a graph becomes, as text, as JSON, as a page, or as the answer to a question.

use super::args::{InspectArgs, Target};
use super::{CommandError, facts, print};
use crate::viewer::Program;
use onestep::ir::bind;
use onestep::{Device, Executable, Graph, Memory, Options, Precision, precision};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Runs the command.
pub fn inspect(args: &InspectArgs) -> Result<(), CommandError> {
    let read = |source| CommandError::Read { path: args.file.clone(), source };
    let text = std::fs::read_to_string(&args.file).map_err(read)?;
    let graph = precision(&Graph::parse(&text)?, args.precision)?;
    let mut sizes = graph.dims.clone();
    for (name, size) in &args.dims {
        sizes.insert(name.as_str().into(), *size);
    }
    let bound = bind(&graph, &sizes)?;
    let device = match args.device {
        Target::Cpu => Device::cpu_with(1)?,
        Target::Cuda => Device::cuda_offline(),
    };
    let dump = args.json || args.html.is_some() || args.pass.is_some();
    let allow_tf32 = args.precision == Precision::Tf32;
    let options = Options { dump, allow_tf32, ..Options::default() };
    let executable = Executable::compile(&bound, &device, &options)?;
    let (report, compiled) = (executable.report(), executable.compiled());
    let mut out = String::new();
    for what in &args.explain {
        out += &executable.explain(what)?;
    }
    if let Some(wanted) = &args.pass {
        let found = compiled.dumps.iter().find(|(name, _)| name == wanted);
        let (_, text) = found.ok_or_else(|| CommandError::NoPass {
            name: wanted.clone(),
            passes: compiled.dumps.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        })?;
        out += text;
    }
    if let Some(folder) = &args.text {
        out += &write_texts(&executable, folder)?;
    }
    if let Some(path) = &args.html {
        facts::program(&executable, Some(&text))?.write(path)?;
        if !args.json {
            out += &format!("{}\n", path.display());
        }
    }
    if args.json {
        let mut all = json!({
            "name": report.name, "graph": graph.to_string(), "schedule": compiled.schedule.to_string(),
            "device": device.name(), "memory": memory(&report.memory), "live_bytes": report.live_bytes,
            "arena_bytes": report.memory.arena, "state_bytes": report.memory.state,
            "peak_bytes": report.memory.peak(),
            "in_place": report.in_place, "refusals": report.refusals, "shared": report.aliases,
        });
        if let Some(all) = all.as_object_mut() {
            all.extend(twin(&facts::program(&executable, Some(&text))?));
        }
        out += &format!("{all}\n");
    }
    if args.short {
        out += &report.to_string();
    }
    if out.is_empty() {
        let plan = onestep::passes::plan::PlanOf(&compiled.schedule, &compiled.plan);
        out = format!("{graph}\n{}\n{plan}\n{report}\n", compiled.schedule);
    }
    print(&out)
}

/// Writes the text of every kernel into a folder, and says so.
fn write_texts(executable: &Executable, folder: &Path) -> Result<String, CommandError> {
    let mut count = 0;
    for (name, source) in executable.texts() {
        let path = folder.join(format!("{name}.cu"));
        let write = |source| CommandError::Write { path: path.clone(), source };
        std::fs::create_dir_all(folder).map_err(write)?;
        std::fs::write(&path, source).map_err(write)?;
        count += 1;
    }
    if count == 0 {
        let why = "this program has no texts: --text is for --device cuda";
        return Err(CommandError::Usage(why.to_string()));
    }
    Ok(format!("{}: {count} texts\n", folder.display()))
}

/// What a program takes of its device's memory.
pub fn memory(m: &Memory) -> Value {
    json!({
        "peak": m.peak(), "state": m.state, "inputs": m.inputs, "constants": m.constants, "arena": m.arena,
        "scratch": m.scratch, "workspace": m.workspace, "staging": m.staging,
    })
}

/// The viewer's facts: passes by name, each with its text and the source of each line.
fn twin(program: &Program) -> Map<String, Value> {
    let mut map = match serde_json::to_value(program) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let texts: Map<String, Value> =
        program.passes.iter().map(|p| (p.name.to_string(), json!(p.text))).collect();
    let lines: Map<String, Value> = program
        .passes
        .iter()
        .filter(|p| !p.lines.is_empty())
        .map(|p| (p.name.to_string(), json!(p.lines)))
        .collect();
    map.insert("order".to_string(), json!(program.passes.iter().map(|p| p.name).collect::<Vec<_>>()));
    map.insert("passes".to_string(), texts.into());
    map.insert("lines".to_string(), lines.into());
    map
}
