//! Gradients of scans: against finite differences in `f64`, against those of the unrolled form, twice over, and what
//! happens to carries and constants that have none.

mod support;

use onestep_autodiff::{gradients, vjp};
use onestep_ir::interp::{Mode, run};
use onestep_ir::rewrite::eliminate_dead;
use onestep_ir::{DType, Dense, Graph, GraphBuilder, ScanOptions, Tensor};
use std::collections::BTreeMap;
use support::{agree, draw, outputs, size, slopes};

const TOLERANCE: f64 = 1e-6;

type Step<'s> =
    dyn for<'g> Fn(&[Tensor<'g>], &[Tensor<'g>], &[Tensor<'g>]) -> (Vec<Tensor<'g>>, Vec<Tensor<'g>>) + 's;

/// A scan under test: inputs by shape, of which so many are carries and sequences, and its region.
struct Case<'s> {
    shapes: &'s [&'s [usize]],
    carries: usize,
    sequences: usize,
    reverse: bool,
    step: &'s Step<'s>,
}

/// How the case enters the graph.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Scan,
    Unrolled,
}

impl Case<'_> {
    fn length(&self) -> usize {
        self.shapes[self.carries][0]
    }

    fn results<'g>(&self, g: &'g GraphBuilder, x: &[Tensor<'g>], form: Form) -> Vec<Tensor<'g>> {
        let (carries, rest) = x.split_at(self.carries);
        let (sequences, constants) = rest.split_at(self.sequences);
        if form == Form::Scan {
            let options = ScanOptions { length: None, reverse: self.reverse };
            let s = g.scan(carries, sequences, options, |c, x| (self.step)(c, x, constants));
            return [s.carries, s.outputs].concat();
        }
        let (mut carries, mut all) = (carries.to_vec(), vec![]);
        for i in 0..self.length() {
            let at = if self.reverse { self.length() - 1 - i } else { i };
            let slices: Vec<_> = sequences.iter().map(|s| s.slice(0, at, at + 1).squeeze(0)).collect();
            let (next, given) = (self.step)(&carries, &slices, constants);
            carries = next;
            all.push(given);
        }
        if self.reverse {
            all.reverse();
        }
        let outputs = (0..all[0].len()).map(|k| g.stack(&all.iter().map(|o| o[k]).collect::<Vec<_>>(), 0));
        carries.into_iter().chain(outputs).collect()
    }

    /// Σ wᵢ·resultᵢ over the results (or `only` one), then its gradients for all inputs; or with `order` 2 the same
    /// of the sum of these gradients, each times its weights.
    fn graph(
        &self,
        form: Form,
        order: usize,
        only: Option<usize>,
    ) -> (Graph, Vec<Dense>, Vec<Option<usize>>) {
        let g = GraphBuilder::new("case");
        let mut inputs = vec![];
        let feed = |inputs: &mut Vec<Dense>, shape: &[usize]| {
            let x = g.input(&format!("x{}", inputs.len()), DType::F64, shape);
            let seed = inputs.len() as u64;
            inputs.push(draw(&x.ty().unwrap(), onestep_ir::op::Range::Real(-1.5, 1.5), seed));
            x
        };
        let x: Vec<_> = self.shapes.iter().map(|s| feed(&mut inputs, s)).collect();
        // Where one form sees no path, the other may see zeros: both have the weights.
        let dot = |inputs: &mut Vec<Dense>, ts: Vec<(Option<Tensor<'_>>, Tensor<'_>)>| {
            let mut total = g.scalar(DType::F64, 0.0);
            for (t, like) in ts {
                let w = feed(inputs, &like.shape().sizes().unwrap());
                if let Some(t) = t {
                    total = total + g.tensor((g.tensor(t.value().unwrap()) * w).sum_all().value().unwrap());
                }
            }
            total.value().unwrap()
        };
        let mut results = self.results(&g, &x, form);
        if let Some(i) = only {
            results = vec![results[i]];
        }
        let results = results.into_iter().map(|t| (Some(t), t)).collect();
        let mut loss = g.tensor(dot(&mut inputs, results));
        if order == 2 {
            let first = gradients(&g, loss, &x).unwrap();
            loss = g.tensor(dot(&mut inputs, first.into_iter().zip(x.iter().copied()).collect()));
        }
        let found = gradients(&g, loss, &x).unwrap();
        g.output("loss", loss);
        let mut n = 0;
        let named = found.into_iter().enumerate().map(|(i, d)| {
            g.output(&format!("d{i}"), d?);
            n += 1;
            Some(n)
        });
        let named = named.collect();
        let graph = g.build().unwrap();
        graph.verify().unwrap_or_else(|e| panic!("{e}\n{graph}"));
        (graph, inputs, named)
    }

    fn check(&self, only: Option<usize>) {
        for order in [1, 2] {
            let (graph, inputs, named) = self.graph(Form::Scan, order, only);
            let (flat, _, flat_named) = self.graph(Form::Unrolled, order, only);
            let lean = eliminate_dead(&graph);
            lean.verify().unwrap();
            let found = outputs(&graph, &inputs);
            assert_eq!(found, outputs(&lean, &inputs));
            let unrolled = outputs(&flat, &inputs);
            for (i, (at, flat_at)) in named.iter().zip(&flat_named).enumerate() {
                let zeros = vec![0.0; inputs[i].len()];
                let gradient = at.map_or(&zeros, |at| &found[at]);
                let slope = slopes(&graph, &inputs, i);
                let what = format!("order {order}, input {i}: gradient {gradient:?}, slope {slope:?}");
                assert!(agree(gradient, &slope, TOLERANCE), "{what}");
                assert!(agree(gradient, flat_at.map_or(&zeros, |at| &unrolled[at]), 1e-10), "{what}");
                let scaled: Vec<f64> = gradient.iter().map(|x| x * 1.01).collect();
                let seen = order == 2 || only.is_some() || size(&slope) > 0.0;
                assert!(seen, "nothing depends on it: {what}");
                assert!(size(&slope) == 0.0 || !agree(&scaled, &slope, TOLERANCE), "1% would pass: {what}");
            }
        }
    }
}

/// Two carries that feed each other, two sequences, two constants, two outputs.
fn recurrent<'g>(c: &[Tensor<'g>], x: &[Tensor<'g>], k: &[Tensor<'g>]) -> (Vec<Tensor<'g>>, Vec<Tensor<'g>>) {
    let a = (c[0].expand(0).matmul(k[0]).squeeze(0) + x[0] * c[1]).tanh();
    let b = (c[1] + a.sum_all() * k[1]).sin() + x[1];
    (vec![a, b], vec![a * b, c[1] + x[1]])
}

#[test]
fn recurrences() {
    for length in [1, 3] {
        for reverse in [false, true] {
            let shapes: [&[usize]; 6] = [&[2], &[], &[length, 2], &[length], &[2, 2], &[]];
            let case = Case { shapes: &shapes, carries: 2, sequences: 2, reverse, step: &recurrent };
            for only in [None, Some(0), Some(3)] {
                case.check(only);
            }
        }
    }
}

/// A scan in a scan, with the outer slices as inner sequences, and a call in it.
#[test]
fn nested() {
    fn step<'g>(c: &[Tensor<'g>], x: &[Tensor<'g>], k: &[Tensor<'g>]) -> (Vec<Tensor<'g>>, Vec<Tensor<'g>>) {
        let g = c[0].graph();
        let inner = g.scan(c, x, ScanOptions::reversed(), |d, e| {
            let next = g.call("part", &[d[0], e[0], k[0]], |p| vec![(p[0] * p[2] + p[1]).sin()])[0];
            (vec![next], vec![next * c[0]])
        });
        (inner.carries, vec![inner.outputs[0] * k[0]])
    }
    let case = Case { shapes: &[&[], &[2, 3], &[]], carries: 1, sequences: 1, reverse: false, step: &step };
    case.check(None);
}

/// A carry that hands on its value, one that nothing reads, and a slice that is an output as it is.
#[test]
fn plain_ways() {
    fn step<'g>(c: &[Tensor<'g>], x: &[Tensor<'g>], k: &[Tensor<'g>]) -> (Vec<Tensor<'g>>, Vec<Tensor<'g>>) {
        (vec![c[1], c[0], c[2] * k[0]], vec![x[0], c[0], k[0]])
    }
    let shapes: [&[usize]; 5] = [&[2], &[2], &[2], &[3, 2], &[2]];
    let case = Case { shapes: &shapes, carries: 3, sequences: 1, reverse: false, step: &step };
    for only in [None, Some(0), Some(2), Some(4)] {
        case.check(only);
    }
}

#[test]
fn no_iteration() {
    let g = GraphBuilder::new("empty");
    let (c, x, k) =
        (g.input("c", DType::F64, [2]), g.input("x", DType::F64, [0, 2]), g.input("k", DType::F64, [2]));
    let s = g.scan(&[c], &[x], ScanOptions::default(), |c, x| (vec![c[0] * k + x[0]], vec![c[0]]));
    let found = gradients(&g, s.carries[0].square().sum_all(), &[c, x, k]).unwrap();
    found.iter().enumerate().for_each(|(i, d)| g.output(&i.to_string(), d.unwrap()));
    let dense = |shape: &[usize], v: &[f64]| Dense::from_reals(DType::F64, shape, v.to_vec());
    let inputs = [dense(&[2], &[3.0, -2.0]), dense(&[0, 2], &[]), dense(&[2], &[5.0, 7.0])];
    assert_eq!(outputs(&g.build().unwrap(), &inputs), [vec![6.0, -4.0], vec![], vec![0.0, 0.0]]);
}

/// Integers are carried and saved, and have no cotangent; a constant in `bf16` has its sum rounded once.
#[test]
fn integers_and_narrow_constants() {
    let g = GraphBuilder::new("mixed");
    let (c, n) = (g.input("c", DType::F32, ()), g.input("n", DType::I32, ()));
    let (x, k) = (g.input("x", DType::F32, [4]), g.input("k", DType::BF16, ()));
    let s = g.scan(&[c, n], &[x], ScanOptions::default(), |c, x| {
        let even = c[1].remainder(2.0).equals(0.0);
        let next = even.select(c[0] + x[0] * k.cast(DType::F32), c[0]);
        (vec![next, c[1] + 1.0], vec![])
    });
    let found = gradients(&g, s.carries[0], &[c, x, k]).unwrap();
    found.iter().enumerate().for_each(|(i, d)| g.output(&i.to_string(), d.unwrap()));
    g.output("n", s.carries[1]);
    let graph = g.build().unwrap();
    graph.verify().unwrap();
    let real = |dtype, v: &[f64]| Dense::from_reals(dtype, if v.len() == 1 { &[] } else { &[4] }, v.to_vec());
    let n = Dense::from_ints(DType::I32, &[], vec![6]);
    let x = [1.0, 9.0, 0.0078125, 9.0];
    let inputs = [real(DType::F32, &[0.5]), n, real(DType::F32, &x), real(DType::BF16, &[2.0])];
    let out = run(&graph, &inputs, &BTreeMap::new(), Mode::Declared).unwrap().outputs;
    assert_eq!(out[0].reals(), [1.0]);
    assert_eq!(out[1].reals(), [2.0, 0.0, 2.0, 0.0]);
    assert_eq!(out[2].reals(), [1.0078125]);
    assert_eq!(out[3].ints(), [10]);
}

/// What is saved is what is needed: a sum needs none of its partial sums.
#[test]
fn only_needed_carries_are_saved() {
    let g = GraphBuilder::new("lean");
    let (c, x) = (g.input("c", DType::F64, [2]), g.input("x", DType::F64, [5, 2]));
    let s = g.scan(&[c, c], &[x], ScanOptions::default(), |c, x| {
        (vec![c[0] + x[0] * 3.0, (c[1] * x[0]).sin()], vec![])
    });
    let found = vjp(&g, &[(s.carries[0], c), (s.carries[1], c)], &[x]).unwrap();
    g.output("dx", found[0].unwrap());
    let graph = eliminate_dead(&g.build().unwrap());
    graph.verify().unwrap();
    let scans: Vec<_> = graph.body_nodes().filter(|n| !n.regions.is_empty()).collect();
    // The forward scan gives the second carry of each iteration only, and needs neither the first nor a last value.
    let types = |i: usize| scans[i].results.iter().map(|v| graph.ty(*v).to_string()).collect::<Vec<_>>();
    assert_eq!(types(0), ["f64[2]", "f64[5, 2]"], "{graph}");
    assert!(!types(1).is_empty());
    assert_eq!(scans.len(), 2);
}
