//! How long the passes take for training steps of a GPT, in all and one by one.
//!
//! `cargo run --release -p onestep-passes --example compile_time`

#[allow(dead_code)]
#[path = "../tests/common/models.rs"]
mod models;

use onestep_passes::pipeline::{Options, compile};
use std::time::Instant;

fn main() {
    for layers in [1, 4, 12] {
        let start = Instant::now();
        let graph = models::gpt(layers, 8, 256, 768, 12, 50_304);
        println!("{layers} layers: {} nodes, built in {:.0?}", graph.nodes.len(), start.elapsed());
        let start = Instant::now();
        let c = compile(&graph, &onestep_cpu::CpuTarget, &Options::default()).expect("the model compiles");
        let (kernels, arena) =
            (c.schedule.kernels.len(), c.plan.arena_bytes as f64 / c.plan.live_bytes as f64);
        println!(
            "  compiled in {:.0?}: {kernels} dispatches, arena {arena:.3} of the bound",
            start.elapsed()
        );
        println!("  {} states are copied", c.plan.commits.len());
        for (name, time) in c.times {
            println!("    {name:<12} {time:.1?}");
        }
    }
}
