//! Rotary embedding and its gradient on every runtime, against the interpreter.

use onestep_autodiff::gradients;
use onestep_ir::ops::AttentionLayout;
use onestep_ir::testing::{Rng, difference, epsilon};
use onestep_ir::{
    Array, DType, Dense, GraphBuilder, RotaryOptions, RotaryPairing, RotaryScaling, Shape, Type, op::Range,
};
use onestep_suite::{Interpreter, Runtime, runtimes};

#[test]
fn every_form_on_every_runtime() {
    for (dtype, layout) in [
        (DType::F32, AttentionLayout::Bthd),
        (DType::F32, AttentionLayout::Bhtd),
        (DType::F64, AttentionLayout::Bthd),
        (DType::BF16, AttentionLayout::Bthd),
    ] {
        for pairing in [RotaryPairing::HalfSplit, RotaryPairing::Interleaved] {
            for (dims, scaling) in [(None, None), (Some(8), Some(RotaryScaling::LLAMA_3_1))] {
                let options = RotaryOptions { layout, pairing, dims, scaling, base: 10_000.0 };
                let shape = layout.arrange([2, 3, 5, 20]);
                let g = GraphBuilder::new("rotary");
                let (x, dy) = (g.input("x", dtype, shape), g.input("dy", dtype, shape));
                let y = x.rotary(g.input("positions", DType::I32, [5]), options);
                g.output("y", y);
                g.output("dx", gradients(&g, (y * dy).sum_all(), &[x]).unwrap()[0].unwrap());
                let graph = g.build().unwrap();
                let ty = Type::new(dtype, Shape::fixed(&shape));
                let draw = |seed| Rng::new(seed).dense(&ty, Range::Real(-2.0, 2.0)).to_array().unwrap();
                let positions = Array::new(&[5], &[0, 1, 17, 4095, 131_071]).unwrap();
                let inputs = [draw(1), draw(2), positions];
                let want = Interpreter.run(&graph, &inputs).unwrap();
                for runtime in runtimes::all() {
                    let got = runtime.run(&graph, &inputs).unwrap();
                    for (got, want) in got.iter().zip(&want) {
                        let off = difference(&Dense::from_array(got), &Dense::from_array(want));
                        let most = 8.0 * epsilon(dtype);
                        assert!(off <= most, "{options:?} in {dtype} on {}: {off}", runtime.name());
                    }
                }
            }
        }
    }
}
