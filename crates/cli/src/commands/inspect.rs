//! `onestep inspect`: what a graph becomes.

use super::args::InspectArgs;
use super::{CommandError, print};
use onestep::ir::bind;
use onestep::{Device, Executable, Graph, Options};
use serde_json::json;

/// Runs the command.
pub fn inspect(args: &InspectArgs) -> Result<(), CommandError> {
    let read = |source| CommandError::Read { path: args.file.clone(), source };
    let text = std::fs::read_to_string(&args.file).map_err(read)?;
    let graph = Graph::parse(&text)?;
    let mut sizes = graph.dims.clone();
    for (name, size) in &args.dims {
        sizes.insert(name.as_str().into(), *size);
    }
    let bound = bind(&graph, &sizes)?;
    let device = Device::cpu_with(1)?;
    let executable = Executable::compile(&bound, &device, &Options::default())?;
    let (report, compiled) = (executable.report(), executable.compiled());
    if args.json {
        let kernels: Vec<_> = report
            .kernels
            .iter()
            .map(|k| json!({ "name": k.name, "kind": k.kind, "note": k.note }))
            .collect();
        let buffers: Vec<_> = report
            .buffers
            .iter()
            .map(|b| {
                let place = format!("{:?}", b.place).to_lowercase();
                json!({ "name": b.name, "bytes": b.bytes, "place": place, "first": b.life.0, "last": b.life.1 })
            })
            .collect();
        let out = json!({
            "name": report.name, "graph": graph.to_string(), "schedule": compiled.schedule.to_string(),
            "kernels": kernels, "buffers": buffers, "arena_bytes": report.arena_bytes,
            "live_bytes": report.live_bytes, "state_bytes": report.state_bytes, "peak_bytes": report.peak_bytes,
            "in_place": report.in_place, "refusals": report.refusals, "aliases": report.aliases,
        });
        print(&format!("{out}\n"))
    } else {
        let plan = onestep::passes::plan::PlanOf(&compiled.schedule, &compiled.plan);
        print(&format!("{graph}\n{}\n{plan}\n{report}\n", compiled.schedule))
    }
}
