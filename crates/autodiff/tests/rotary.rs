//! The gradient of the rotary embedding, a composition, against finite differences in `f64`.

mod support;

use onestep_autodiff::gradients;
use onestep_ir::op::Range;
use onestep_ir::ops::AttentionLayout;
use onestep_ir::testing::Rng;
use onestep_ir::{DType, Dense, GraphBuilder, RotaryOptions, RotaryPairing, Shape, Type};
use support::{agree, outputs, slopes};

#[test]
fn the_gradient_is_the_slope() {
    for layout in [AttentionLayout::Bthd, AttentionLayout::Bhtd] {
        for pairing in [RotaryPairing::HalfSplit, RotaryPairing::Interleaved] {
            for dims in [None, Some(4)] {
                let options = RotaryOptions { layout, pairing, dims, base: 100.0, scaling: None };
                let shape = layout.arrange([2, 2, 3, 6]);
                let g = GraphBuilder::new("rotary");
                let (x, w) = (g.input("x", DType::F64, shape), g.input("w", DType::F64, shape));
                let positions = g.input("positions", DType::I32, [2, 3]);
                // Not linear in x, so that the gradient is not the weights' alone.
                let loss = (x.rotary(positions, options).sin() * w).sum_all();
                g.output("loss", loss);
                g.output("dx", gradients(&g, loss, &[x]).unwrap()[0].unwrap());
                let graph = g.build().unwrap();
                let ty = Type::new(DType::F64, Shape::fixed(&shape));
                let draw = |seed| Rng::new(seed).dense(&ty, Range::Real(-1.0, 1.0));
                let positions = Dense::from_ints(DType::I32, &[2, 3], vec![0, 1, 2, 40, 41, 1_000_000]);
                let inputs = [draw(1), draw(2), positions];
                let (gradient, slope) = (&outputs(&graph, &inputs)[1], slopes(&graph, &inputs, 0));
                assert!(agree(gradient, &slope, 1e-6), "{options:?}:\n{gradient:?}\n{slope:?}");
                let wrong: Vec<f64> = gradient.iter().map(|d| d * 1.01).collect();
                assert!(!agree(&wrong, &slope, 1e-6), "a wrong gradient would pass");
            }
        }
    }
}
