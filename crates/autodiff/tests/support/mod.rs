//! Helpers of the gradient tests: drawing operands, building a sample's gradient graph, and finite differences.
#![allow(dead_code)]

use onestep_autodiff::gradients;
use onestep_ir::interp::{Mode, run};
use onestep_ir::op::{Range, Sample};
use onestep_ir::testing::Rng;
use onestep_ir::{DType, Dense, Graph, GraphBuilder, Tensor, Type};
use std::collections::BTreeMap;

/// Values of `ty` from `range`; `seed` tells draws apart.
pub fn draw(ty: &Type, range: Range, seed: u64) -> Dense {
    let x = Rng::new(seed).dense(ty, range);
    match range {
        // Two operands lie on two grids, so that they do not tie.
        Range::Distinct if ty.dtype.is_float() => x.map_reals(|v| v + 0.01 * (seed % 5) as f64),
        _ => x,
    }
}

/// Whether a sample is one of floats that all are `f64`.
pub fn is_f64(sample: &Sample) -> bool {
    let floats: Vec<DType> = sample.operands.iter().map(|o| o.0.dtype).filter(|d| d.is_float()).collect();
    !floats.is_empty() && floats.iter().all(|&d| d == DType::F64)
}

/// A graph whose first output is a scalar and whose further outputs are its gradients.
pub struct Tested {
    pub graph: Graph,
    pub inputs: Vec<Dense>,
    /// Index of each differentiated input and of the output with its gradient (`None`: no dependence).
    pub gradients: Vec<(usize, Option<usize>)>,
}

/// How the op enters the graph.
#[derive(Clone, Copy, PartialEq)]
pub enum As {
    Itself,
    Decomposed,
}

/// Which results the loss depends on: all together, and each alone where there are several.
pub fn choices(sample: &Sample) -> Vec<Option<usize>> {
    let types: Vec<Type> = sample.operands.iter().map(|o| o.0.clone()).collect();
    let n = sample.op.rule().infer(&types).unwrap().len();
    [None].into_iter().chain((0..n).filter(|_| n > 1).map(Some)).collect()
}

/// Σ cᵢ·resultᵢ (over all results, or `only` one) and its gradients for the sample's float operands (`order` 1), or the sum of these gradients, each
/// times random numbers, and the gradients of that, for operands and c (`order` 2). `None` where nothing depends.
pub fn differentiated(sample: &Sample, only: Option<usize>, order: usize, how: As) -> Option<Tested> {
    let g = GraphBuilder::new("sample");
    let mut inputs = vec![];
    let feed = |inputs: &mut Vec<Dense>, ty: &Type, range: Range, seed: usize| {
        inputs.push(draw(ty, range, seed as u64));
        g.input(&format!("x{}", inputs.len()), ty.dtype, ty.shape.clone())
    };
    let operands: Vec<Tensor<'_>> =
        sample.operands.iter().enumerate().map(|(i, (ty, r))| feed(&mut inputs, ty, *r, i)).collect();
    let mut results = match how {
        As::Itself => g.emit(sample.op.clone(), &operands),
        As::Decomposed => sample.op.rule().decompose(&g, &operands)?,
    };
    if let Some(i) = only {
        results = vec![results[i]];
    }
    let mut wrt: Vec<(usize, Tensor<'_>)> =
        operands.into_iter().enumerate().filter(|(_, t)| t.dtype().is_float()).collect();
    // Each tensor times an input of random weights, summed; and these inputs.
    let dot = |inputs: &mut Vec<Dense>, ts: &[Option<Tensor<'_>>], seed: usize| {
        let mut total = g.scalar(DType::F64, 0.0);
        let mut weights = vec![];
        for (i, t) in ts.iter().enumerate() {
            let Some(t) = t.filter(|t| t.dtype().is_float()) else { continue };
            let ty = Type::new(DType::F64, t.shape());
            let w = feed(inputs, &ty, Range::Real(0.5, 1.5), seed + i).value().unwrap();
            weights.push((inputs.len() - 1, w));
            // Without infinite elements, such as the log-sum-exp of a row that sees nothing.
            let t = t.cast(DType::F64);
            let t = t.is_finite().select(t, 0.0);
            let term = (t * g.tensor(w)).sum_all();
            total = total + g.tensor(term.value().unwrap());
        }
        (total.value().unwrap(), weights)
    };
    let results: Vec<_> = results.into_iter().map(Some).collect();
    let (loss, weights) = dot(&mut inputs, &results, 20);
    let mut loss = g.tensor(loss);
    if order == 2 {
        let of: Vec<Tensor<'_>> = wrt.iter().map(|w| w.1).collect();
        let first = gradients(&g, loss, &of).unwrap();
        if first.iter().all(Option::is_none) {
            return None;
        }
        loss = g.tensor(dot(&mut inputs, &first, 40).0);
        wrt.extend(weights.into_iter().map(|(i, v)| (i, g.tensor(v))));
    }
    let of: Vec<Tensor<'_>> = wrt.iter().map(|w| w.1).collect();
    let found = gradients(&g, loss, &of).unwrap_or_else(|e| panic!("{:?}: {e}", sample.op));
    g.output("loss", loss);
    let mut outputs = 1;
    let mut named = vec![];
    for ((i, x), d) in wrt.into_iter().zip(found) {
        if let Some(d) = d {
            assert_eq!(d.ty(), x.ty(), "{:?}: the gradient of operand {i} has another type", sample.op);
            g.output(&format!("d{i}"), d);
            outputs += 1;
        }
        named.push((i, d.map(|_| outputs - 1)));
    }
    Some(Tested { graph: g.build().unwrap(), inputs, gradients: named })
}

/// The outputs in `f64`.
pub fn outputs(graph: &Graph, inputs: &[Dense]) -> Vec<Vec<f64>> {
    let outcome = run(graph, inputs, &BTreeMap::new(), Mode::AllF64).unwrap();
    outcome.outputs.iter().map(|d| d.reals().to_vec()).collect()
}

/// The slope of output 0 along each element of input `i`, from four points: the error is of order h⁴.
pub fn slopes(graph: &Graph, inputs: &[Dense], i: usize) -> Vec<f64> {
    // Only what the first output needs.
    let mut graph = graph.clone();
    graph.outputs.truncate(1);
    prune(&mut graph);
    let mut inputs = inputs.to_vec();
    let x = inputs[i].clone();
    // A power of two, so that it is exact; larger where the elements are, which then have fewer digits behind the point.
    let h = (size(x.reals()).max(1e4) * 1e-8).log2().round().exp2();
    let mut at = |j: usize, by: f64| {
        let mut moved = x.reals().to_vec();
        moved[j] += by;
        inputs[i] = Dense::from_reals(x.dtype, &x.shape, moved);
        outputs(&graph, &inputs)[0][0]
    };
    (0..x.len())
        .map(|j| (8.0 * (at(j, h) - at(j, -h)) - (at(j, 2.0 * h) - at(j, -2.0 * h))) / (12.0 * h))
        .collect()
}

fn prune(graph: &mut Graph) {
    let mut live: std::collections::HashSet<_> = graph.roots().collect();
    let mut kept = vec![];
    for id in graph.body.nodes.iter().rev() {
        let node = graph.node(*id);
        if node.results.iter().any(|v| live.contains(v)) {
            live.extend(&node.operands);
            kept.push(*id);
        }
    }
    kept.reverse();
    graph.body.nodes = kept;
}

/// The largest absolute value.
pub fn size(v: &[f64]) -> f64 {
    v.iter().fold(0.0, |a, b| a.max(b.abs()))
}

/// Whether two gradients agree to `tolerance`, relative to the larger one (to 1 where both are small).
pub fn agree(a: &[f64], b: &[f64], tolerance: f64) -> bool {
    let gap =
        a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, |m, d| if d.is_nan() { d } else { m.max(d) });
    a.len() == b.len() && a.iter().chain(b).all(|x| x.is_finite()) && gap <= tolerance * size(b).max(0.01)
}
