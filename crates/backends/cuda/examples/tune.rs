//! Measures the products of a graph file on the first CUDA device and records the fastest algorithm of each; programs that are
//! compiled afterwards use it, as they do with `ONESTEP_TUNE=1` in the environment.
//!
//! ```text
//! cargo run --release -p onestep-cuda --features device --example tune -- step.onestep
//! ```

use onestep_cuda::CudaTarget;
use onestep_cuda::code::Product;
use onestep_cuda::device::CudaDevice;
use onestep_cuda::lower::lower;
use onestep_ir::Graph;
use onestep_passes::pipeline::{Options, compile};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: tune GRAPH")?;
    let graph = Graph::parse(&std::fs::read_to_string(&file)?)?;
    let device = CudaDevice::open(0)?;
    let compiled = compile(&graph, device.target(), &Options::default())?;
    let code = lower(&compiled.schedule, &compiled.plan, &CudaTarget::HOPPER, &|_| true)?;
    // Places differ from layer to layer, and so do not count.
    let shape = |p: &Product| (p.sizes, p.dtype, p.result, p.lhs.1, p.rhs.1, p.aligned);
    let (mut before, mut after) = (0.0, 0.0);
    for tuned in device.tune(code.products())? {
        let p = &tuned.product;
        let times = code.products().filter(|other| shape(other) == shape(p)).count() as f32;
        let [batch, rows, columns, depth] = p.sizes;
        let rate = |ms: f32| (2 * batch * rows * columns * depth) as f64 / f64::from(ms) * 1e-9;
        println!(
            "{times:>3} x {batch}x{rows}x{columns}x{depth} {} -> {}: {:.4} ms ({:.0} TFLOP/s), of {} candidates {:.4} ms ({:.0} TFLOP/s), {:.2}",
            p.dtype,
            p.result,
            tuned.before,
            rate(tuned.before),
            tuned.candidates,
            tuned.after,
            rate(tuned.after),
            tuned.before / tuned.after,
        );
        before += times * tuned.before;
        after += times * tuned.after;
    }
    println!("all products: {before:.3} ms by the library's choice, {after:.3} ms by the recorded ones");
    Ok(())
}
