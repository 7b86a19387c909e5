//! Trains a classifier on points of three clusters, evaluates it, saves its state, and goes on in a new one.
//!
//! `cargo run --release -p onestep --example mlp`

use onestep::ir::testing::Rng;
use onestep::prelude::*;

/// Sizes of the example.
pub struct Sizes {
    /// Points of a step.
    pub batch: usize,
    /// Steps.
    pub steps: usize,
}

/// Points around three centres, and which centre it was.
fn points(rng: &mut Rng, n: usize) -> Result<[Array; 2], Error> {
    const CENTRES: [[f64; 2]; 3] = [[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]];
    let labels: Vec<i32> = (0..n).map(|_| rng.int(0, 2) as i32).collect();
    let place = |l: &i32| CENTRES[*l as usize].map(|c| (c + rng.real(-0.5, 0.5)) as f32);
    let points: Vec<f32> = labels.iter().flat_map(place).collect();
    Ok([Array::new(&[n, 2], &points)?, Array::new(&[n], &labels)?])
}

/// The accuracy after training, and of the saved model loaded again.
pub fn run(sizes: &Sizes, file: &std::path::Path) -> Result<[f64; 2], Error> {
    let g = GraphBuilder::new("mlp");
    let x = g.input("x", F32, (dim("B").at_most(512), 2));
    let y = g.input("y", I32, (dim("B"),));
    let logits = nn::linear(&g, "fc2", nn::linear(&g, "fc1", x, 32).relu(), 3);
    g.output("accuracy", logits.argmax(-1).equals(y).mean());
    let graph = g.finish(logits.cross_entropy(y))?;

    let device = Device::cpu()?;
    let mut step = TrainingStep::new(graph.clone()).optimizer(AdamW::new(1e-2)).compile(&device)?;
    let mut evaluate = compile(&graph, &device)?;
    let mut state = step.init(1)?;
    let mut rng = Rng::new(7);
    for i in 0..sizes.steps {
        let batch = points(&mut rng, sizes.batch)?;
        let loss = step.run(&mut state, &batch)?.loss()?;
        if i % 50 == 0 {
            println!("step {i:>4}  loss {loss:.4}");
        }
    }
    let test = points(&mut rng, 512)?;
    let trained = evaluate.run(&mut state, &test)?.scalar("accuracy")?;
    state.save(file)?;

    let mut loaded = State::new();
    loaded.load(file)?;
    let again = evaluate.run(&mut loaded, &test)?.scalar("accuracy")?;
    Ok([trained, again])
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    let file = std::env::temp_dir().join(format!("onestep-mlp-{}.safetensors", std::process::id()));
    let [trained, again] = run(&Sizes { batch: 64, steps: 300 }, &file)?;
    println!("accuracy {trained:.3}; loaded from {}: {again:.3}", file.display());
    Ok(())
}
