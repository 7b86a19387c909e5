//! Stochastic gradient descent by a closure of the caller's own, over parameters and gradients where they are; and the
//! compiled step beside it, which gives the same numbers.
//!
//! `cargo run --release -p onestep --example own_optimizer`

use onestep::prelude::*;
use onestep::{Options, Params, compile_with_backward};

const RATE: f32 = 0.05;

/// The largest difference between the parameters of the two ways, after some steps.
pub fn run(steps: usize) -> Result<f32, Error> {
    let g = GraphBuilder::new("line");
    let (x, y) = (g.input("x", F32, [8, 3]), g.input("y", F32, [8, 2]));
    let graph = g.finish(nn::linear(&g, "fc2", nn::linear(&g, "fc1", x, 16).tanh(), 2).mse(y))?;
    let device = Device::cpu()?;
    let xs: Vec<f32> = (0..24).map(|i| (i as f32 * 0.7).sin()).collect();
    let ys: Vec<f32> = (0..16).map(|i| (i as f32 * 0.3).cos()).collect();
    let batch = [Array::new(&[8, 3], &xs)?, Array::new(&[8, 2], &ys)?];

    let mut backward = compile_with_backward(&graph, "loss", Params::All, &device, &Options::default())?;
    let mut own = backward.init(5)?;
    let names: Vec<String> = own.names().filter(|n| !n.starts_with("grad/")).map(String::from).collect();
    for _ in 0..steps {
        backward.run(&mut own, &batch)?;
        backward.update_with(
            &mut own,
            &names,
            |_name, _shape, parameter: &mut [f32], gradient: &[f32]| {
                for (p, g) in parameter.iter_mut().zip(gradient) {
                    *p -= RATE * g;
                }
            },
        )?;
    }

    let mut step = TrainingStep::new(graph).optimizer(Sgd::new(RATE as f64)).compile(&device)?;
    let mut compiled = step.init(5)?;
    for _ in 0..steps {
        step.run(&mut compiled, &batch)?;
    }
    let mut most = 0f32;
    for name in &names {
        let pairs = own.as_slice::<f32>(name)?.iter().zip(compiled.as_slice::<f32>(name)?);
        most = pairs.fold(most, |most, (a, b)| most.max((a - b).abs()));
    }
    Ok(most)
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    println!("after 100 steps the two differ by at most {:e}", run(100)?);
    Ok(())
}
