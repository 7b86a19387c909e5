//! Products of 16-bit floats large enough for blocks that stay: every layout, whole tiles and not, rows that
//! are parts of longer ones, and the work on their elements.

use super::{Case, tolerance};
use onestep_ir::ops::Matmul;
use onestep_ir::testing::random_inputs;
use onestep_ir::{Array, DType, GraphBuilder, Tensor};
use std::collections::BTreeMap;

/// What stands behind a product: named, of the product `[m, n]`, a bias of `[n]` in `f32` and a residual like the product.
type Work = (&'static str, for<'g> fn(&'g GraphBuilder, Tensor<'g>, Tensor<'g>, Tensor<'g>));

const WORK: [Work; 5] = [
    ("alone", |g, y, _, _| g.output("y", y)),
    ("with a bias", |g, y, bias, _| g.output("y", y + bias.cast(y.dtype()))),
    ("with a bias and an activation", |g, y, bias, _| {
        let z = y + bias.cast(y.dtype());
        g.output("z", z);
        g.output("activation", z.gelu_tanh());
    }),
    ("times another one with a bias", |g, y, bias, residual| {
        let z = (residual + bias.cast(y.dtype())).cast(DType::F32);
        g.output("dz", (y.cast(DType::F32) * z).cast(y.dtype()));
    }),
    ("kept, and with a residual", |g, y, bias, residual| {
        g.output("y", y);
        g.output("sum", (residual + y).cast(DType::F32).tanh() * bias);
    }),
];

/// Every case: each work with whole tiles and without, and by turns with both layouts; depths that are split.
pub fn all() -> Vec<Case> {
    let sizes = [[1408, 2304, 1152], [1330, 2200, 1160]];
    let mut cases = vec![];
    for (i, work) in WORK.into_iter().enumerate() {
        for (j, size) in sizes.into_iter().enumerate() {
            cases.push((size, DType::BF16, [true, (i + j) % 2 == 0], work));
        }
    }
    for along in [true, false] {
        cases.push((sizes[1], DType::F16, [true, along], WORK[0]));
        // A depth that is split: three blocks for a tile and some for what is left, or one.
        cases.push(([520, 1000, 4104], DType::BF16, [false, along], WORK[0]));
        cases.push(([1160, 1000, 4104], DType::F16, [false, along], WORK[0]));
    }
    // The interpreter takes its time.
    std::thread::scope(|scope| {
        let made: Vec<_> = cases
            .into_iter()
            .map(|(size, dtype, along, work)| scope.spawn(move || case(size, dtype, along, work)))
            .collect();
        made.into_iter().map(|case| case.join().expect("the case is well formed")).collect()
    })
}

/// A product of a part of a larger matrix, and work on its elements; each factor is contiguous `along` the sum or across it.
fn case([m, n, k]: [usize; 3], dtype: DType, along: [bool; 2], (name, work): Work) -> Case {
    let g = GraphBuilder::new("product");
    let x = g.input("x", dtype, if along[0] { [m, k + 16] } else { [k, m + 16] });
    let w = g.input("w", dtype, if along[1] { [n, k] } else { [k, n] });
    let (bias, residual) = (g.input("bias", DType::F32, [n]), g.input("residual", dtype, [m, n]));
    let x = x.slice(1, 8, if along[0] { k } else { m } + 8);
    let op = Matmul { transpose_a: !along[0], transpose_b: along[1], dtype };
    work(&g, g.emit1(op, &[x, w]), bias, residual);
    let graph = g.build().expect("the graph is well formed");
    let mut inputs = random_inputs(&graph, 11);
    for (input, scale) in inputs.iter_mut().zip([1.0, 0.1, 1.0, 1.0]) {
        let numbers: Vec<f64> = input.to_f64().iter().map(|x| x * scale).collect();
        *input = Array::from_f64(input.dtype(), input.shape(), &numbers).expect("sizes agree");
    }
    let layouts = along.map(|along| if along { "along" } else { "across" }).join(" and ");
    let name = format!("product {m}x{n}x{k} {dtype}, {layouts}, {name}");
    Case::new(name, &graph, inputs, BTreeMap::new(), tolerance(&graph)).expect("every op has a kernel")
}
