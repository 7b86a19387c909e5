//! A deep network in less memory: blocks marked as checkpoints, and a step that the compiler makes fit in a budget. The
//! numbers stay the same, bit for bit.
//!
//! `cargo run --release -p onestep --example recompute`

use onestep::Recompute;
use onestep::prelude::*;

const WIDTH: usize = 64;
const BATCH: usize = 256;

fn network(blocks: usize, checkpoints: bool) -> Result<Graph, Error> {
    let g = GraphBuilder::new("deep");
    let mut x = g.input("x", F32, [BATCH, WIDTH]);
    for i in 0..blocks {
        let name = format!("block.{i}");
        let block = || {
            let hidden = nn::linear(&g, &format!("{name}.up"), x, 4 * WIDTH).gelu();
            x + nn::linear(&g, &format!("{name}.down"), hidden, WIDTH)
        };
        x = if checkpoints { g.checkpoint(&name, block) } else { block() };
    }
    Ok(g.finish(x.square().mean_all())?)
}

/// The losses of a few steps and the peak of the plan, in bytes.
fn train(step: TrainingStep) -> Result<(Vec<f64>, usize), Error> {
    let mut step = step.optimizer(AdamW::new(1e-3)).compile(&Device::cpu()?)?;
    let mut state = step.init(1)?;
    let x: Vec<f32> = (0..BATCH * WIDTH).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = Array::new(&[BATCH, WIDTH], &x)?;
    let losses = (0..3).map(|_| step.run(&mut state, [&x])?.loss()).collect::<Result<_, Error>>()?;
    Ok((losses, step.report().map_or(0, |r| r.memory.peak())))
}

/// The peaks without recomputation, with every block a checkpoint, and made to fit in between.
pub fn run(blocks: usize) -> Result<[usize; 3], Error> {
    let (losses, plain) = train(TrainingStep::new(network(blocks, false)?))?;
    let (same, marked) = train(TrainingStep::new(network(blocks, true)?))?;
    let budget = (plain + marked) / 2;
    let (again, fitted) =
        train(TrainingStep::new(network(blocks, false)?).recompute(Recompute::FitIn(budget)))?;
    assert_eq!(losses, same);
    assert_eq!(losses, again);
    Ok([plain, marked, fitted])
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    let [plain, marked, fitted] = run(12)?.map(|bytes| bytes as f64 / 1e6);
    println!(
        "{plain:.1} MB as it is; {marked:.1} MB with every block a checkpoint; {fitted:.1} MB made to fit in between"
    );
    Ok(())
}
