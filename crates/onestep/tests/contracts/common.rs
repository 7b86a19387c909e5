//! What the contracts share.

use onestep::prelude::*;

/// The device under test.
pub fn device() -> Device {
    Device::cpu_with(2).unwrap()
}

/// An `f32` array.
pub fn floats(shape: &[usize], values: &[f32]) -> Array {
    Array::new(shape, values).unwrap()
}

/// Some numbers in ±1.
pub fn waves(shape: &[usize], pitch: f32) -> Array {
    let n: usize = shape.iter().product();
    floats(shape, &(0..n).map(|i| (i as f32 * pitch).sin()).collect::<Vec<_>>())
}

/// A state tensor's elements.
pub fn values(state: &State, path: &str) -> Vec<f32> {
    state.as_slice::<f32>(path).unwrap().to_vec()
}

/// Two layers over `x`, `[4, 3]`, with targets `y`, `[4, 2]`: the mean squared error, and the largest prediction as
/// another output.
pub fn regression() -> Graph {
    let g = GraphBuilder::new("regression");
    let (x, y) = (g.input("x", F32, [4, 3]), g.input("y", F32, [4, 2]));
    let prediction = nn::linear(&g, "fc2", nn::linear(&g, "fc1", x, 5).tanh(), 2);
    g.output("largest", prediction.max(&[0, 1]));
    g.finish(prediction.mse(y)).unwrap()
}

/// Inputs for [`regression`].
pub fn batch(pitch: f32) -> [Array; 2] {
    [waves(&[4, 3], pitch), waves(&[4, 2], 2.0 * pitch)]
}
