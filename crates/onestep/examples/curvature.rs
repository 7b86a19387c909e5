//! The largest curvature of a network's loss: power iteration on Hessian-vector products, each one dispatch.
//!
//! `cargo run --release -p onestep --example curvature`

use onestep::hvp;
use onestep::ir::testing::Rng;
use onestep::prelude::*;

/// The 2-norm of several tensors as one vector.
fn length<'g>(all: &[Tensor<'g>]) -> Option<Tensor<'g>> {
    Some(all.iter().map(|t| t.square().sum_all()).reduce(|a, b| a + b)?.sqrt())
}

/// The largest eigenvalue of the Hessian by absolute value, after so many products, and the last change of it.
pub fn run(products: usize) -> Result<[f64; 2], Box<dyn std::error::Error>> {
    let g = GraphBuilder::new("curvature");
    let (x, y) = (g.input("x", F32, [64, 2]), g.input("y", I32, [64]));
    let logits = nn::linear(&g, "fc2", nn::linear(&g, "fc1", x, 8).tanh(), 2);
    let loss = logits.cross_entropy(y);
    let paths = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"];
    let weights: Vec<Tensor<'_>> = paths.iter().filter_map(|p| g.find_state(p)).collect();
    // The direction is state: each product, scaled to length 1, is the next direction.
    let directions: Vec<Tensor<'_>> = paths
        .iter()
        .zip(&weights)
        .map(|(p, w)| {
            let shape = w.shape().sizes().unwrap_or_default();
            g.state(
                &format!("direction/{p}"),
                Role::Buffer,
                F32,
                &shape,
                Init::Normal { mean: 0.0, std: 1.0 },
            )
        })
        .collect();
    let at: Vec<_> = weights.into_iter().zip(directions.iter().copied()).collect();
    let found: Vec<Tensor<'_>> = hvp(&g, loss, &at)?.into_iter().flatten().collect();
    let (Some(before), Some(after)) = (length(&directions), length(&found)) else {
        return Err("nothing to differentiate".into());
    };
    for (direction, product) in directions.iter().zip(&found) {
        g.update(*direction, *product / after, false);
    }
    g.output("curvature", after / before);

    let mut program = compile(&g.build()?, &Device::cpu()?)?;
    let mut state = program.init(1)?;
    let mut rng = Rng::new(5);
    let points: Vec<f32> = (0..128).map(|_| rng.real(-1.0, 1.0) as f32).collect();
    let labels: Vec<i32> = points.chunks(2).map(|p| (p[0] * p[1] > 0.0) as i32).collect();
    let feeds = [Array::new(&[64, 2], &points)?, Array::new(&[64], &labels)?];
    let mut values = [0.0, f64::INFINITY];
    for _ in 0..products {
        let curvature = program.run(&mut state, &feeds)?.scalar("curvature")?;
        values = [curvature, (curvature - values[0]).abs()];
    }
    Ok(values)
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [curvature, change] = run(50)?;
    println!("largest curvature {curvature:.4} (last change {change:.1e})");
    Ok(())
}
