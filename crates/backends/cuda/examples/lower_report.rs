//! What a graph file becomes on a GPU, without one: its kernels, launches and memory.
//!
//! ```text
//! cargo run --release -p onestep-cuda --example lower_report -- step.onestep [--schedule] [--text FOLDER]
//! ```
//!
//! `--schedule` prints the schedule too; `--text` writes every distinct kernel as CUDA C into a folder.

use onestep_cuda::CudaTarget;
use onestep_cuda::code::Step;
use onestep_cuda::lower::lower;
use onestep_ir::Graph;
use onestep_passes::pipeline::{Options, compile};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let file = words.next().ok_or("usage: lower_report GRAPH [--schedule] [--text FOLDER]")?;
    let rest: Vec<String> = words.collect();
    let graph = Graph::parse(&std::fs::read_to_string(&file)?)?;
    let start = Instant::now();
    let compiled = compile(&graph, &CudaTarget, &Options::default())?;
    let passes = start.elapsed();
    if rest.iter().any(|w| w == "--schedule") {
        println!("{}", compiled.schedule);
    }
    let code = lower(&compiled.schedule, &compiled.plan, &|_| true)?;
    let lowered = start.elapsed() - passes;
    for (n, label) in code.labels.iter().enumerate() {
        let launches = code.steps.iter().filter(|(of, _)| *of == n);
        let what: Vec<String> = launches
            .map(|(_, step)| match step {
                Step::Launch { kernel, grid, .. } => {
                    let k = &code.kernels[*kernel];
                    format!("{} {grid}x{}", k.name, k.threads)
                }
                Step::Product(p) => format!("product of {}", p.dtype),
                Step::Copy { bytes, .. } => format!("copy of {bytes} bytes"),
            })
            .collect();
        println!("k{n}: {label}: {}", what.join(", "));
    }
    let text: usize = code.kernels.iter().map(|k| k.source.len()).sum();
    println!(
        "{} kernels, {} launches of {} texts ({text} bytes); arena {} bytes, scratch {}, constants {}",
        compiled.schedule.kernels.len(),
        code.steps.len(),
        code.kernels.len(),
        code.arena_bytes,
        code.scratch_bytes,
        code.constants.len(),
    );
    println!("passes {:.2} s, lowering {:.2} s", passes.as_secs_f64(), lowered.as_secs_f64());
    if let Some(at) = rest.iter().position(|w| w == "--text") {
        let folder = rest.get(at + 1).ok_or("--text takes a folder")?;
        std::fs::create_dir_all(folder)?;
        for k in &code.kernels {
            std::fs::write(format!("{folder}/{}.cu", k.name), &k.source)?;
        }
    }
    Ok(())
}
