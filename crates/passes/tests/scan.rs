//! Scans through the pipeline: a scan is its unrolled form to the bit (its gradient, to rounding), its body is compiled once whatever its length, and
//! its memory is the stacked results and a scratch that does not grow.

mod common;

use common::{check, compiled, reference, same};
use onestep_autodiff::gradients;
use onestep_ir::testing::difference;
use onestep_ir::{DType, Graph, GraphBuilder, Init, Op, Role, ScanOptions, Tensor};
use onestep_passes::plan::check::check as check_plan;
use onestep_passes::schedule::{Kernel, ScanKernel, Schedule};

/// A small recurrent network with its loss's gradients, as a scan or unrolled.
fn network(length: usize, reverse: bool, unrolled: bool, backward: bool) -> Graph {
    let g = GraphBuilder::new("network");
    let x = g.input("x", DType::F32, [length, 3, 4]);
    let (w, u) = (g.parameter("w", &[4, 8], Init::ZEROS), g.parameter("u", &[4, 8], Init::ZEROS));
    let first = g.input("h", DType::F32, [3, 4]);
    let step = |h: Tensor<'_>, x: Tensor<'_>| {
        let gates = g.tensor(x.value().unwrap()).matmul(w) + g.tensor(h.value().unwrap()).matmul(u);
        let parts = gates.split(-1, &[4, 4]);
        let next = parts[0].sigmoid() * parts[1].tanh() + g.tensor(h.value().unwrap()) * 0.5;
        (next, next.square().softmax(-1))
    };
    let (last, outputs) = if unrolled {
        let (mut h, mut outputs) = (first, vec![]);
        for i in 0..length {
            let at = if reverse { length - 1 - i } else { i };
            let (next, output) = step(h, x.slice(0, at, at + 1).squeeze(0));
            h = next;
            outputs.push(output);
        }
        if reverse {
            outputs.reverse();
        }
        (h, g.stack(&outputs, 0))
    } else {
        let options = ScanOptions { length: None, reverse };
        let done = g.scan(&[first], &[x], options, |c, x| {
            let (next, output) = step(c[0], x[0]);
            (vec![next], vec![output])
        });
        (done.carries[0], done.outputs[0])
    };
    g.output("last", last);
    g.output("outputs", outputs);
    if backward {
        let loss = last.sum_all() + outputs.square().sum_all();
        let wrt = [w, u, first, x];
        for (i, d) in gradients(&g, loss, &wrt).unwrap().into_iter().enumerate() {
            g.output(&format!("d{i}"), d.unwrap());
        }
    }
    g.build().unwrap()
}

fn scans(s: &Schedule) -> Vec<&ScanKernel> {
    let kernels = s.kernels.iter();
    kernels.filter_map(|k| if let Kernel::Scan(s) = k { Some(&**s) } else { None }).collect()
}

#[test]
fn a_scan_is_its_unrolled_form_to_the_bit() {
    for (reverse, length) in [(false, 1), (false, 4), (true, 3)] {
        let (scan, flat) = (network(length, reverse, false, true), network(length, reverse, true, true));
        check(&scan, 7, 1e-4);
        let run = |graph: &Graph| reference(graph, &compiled(graph, true, true).schedule, 7).2;
        let names: Vec<&str> = scan.outputs.iter().map(|o| &*o.name).collect();
        for (name, (a, b)) in names.iter().zip(run(&scan).iter().zip(run(&flat))) {
            // Cotangents are summed in another order: those that come through a carry are one sum before they meet others.
            // A buffer may have another shape of as many elements.
            let b = onestep_ir::Dense { shape: a.shape.clone(), ..b };
            let fine = if name.starts_with('d') { difference(a, &b) < 1e-6 } else { same(a, &b) };
            assert!(fine, "{name}: {a:?}\n{b:?}");
        }
    }
}

#[test]
fn the_body_is_compiled_once() {
    let all: Vec<_> =
        [2, 50, 1000].map(|length| compiled(&network(length, false, false, true), true, true)).into();
    let count =
        |c: &onestep_passes::pipeline::Compiled| (c.schedule.kernels.len(), c.schedule.kernel_count());
    assert_eq!(count(&all[0]), count(&all[2]), "{}", all[0].schedule);
    assert_eq!(all[0].graph.nodes.len(), all[2].graph.nodes.len());
    let scratch = |c: &onestep_passes::pipeline::Compiled| -> usize {
        scans(&c.schedule).iter().map(|s| s.plan.arena_bytes).sum()
    };
    assert_eq!(scratch(&all[0]), scratch(&all[2]));
    assert!(scratch(&all[0]) > 0);
    // What is kept of an iteration: the carry that it found and its output; and the cotangents of outputs and inputs.
    let grows = (all[2].plan.arena_bytes - all[1].plan.arena_bytes) as f64 / 950.0;
    let stacked = (3 * 4 * 4) as f64;
    assert!(grows >= 2.0 * stacked && grows <= 4.2 * stacked, "{grows}");
}

/// A carry of the body is updated in place, outputs go straight into their slices, and the last value may take the place
/// of the first.
#[test]
fn nothing_is_copied_that_need_not_be() {
    let g = GraphBuilder::new("in place");
    let x = g.input("x", DType::F32, [6, 32]);
    let h = g.state("h", Role::Buffer, DType::F32, &[32], Init::ZEROS);
    let done = g.scan(&[h], &[x], ScanOptions::default(), |c, x| {
        let next = (c[0] * 0.5 + x[0]).tanh();
        (vec![next], vec![next * x[0]])
    });
    g.update(h, done.carries[0], false);
    g.output("y", done.outputs[0]);
    let graph = g.build().unwrap();
    let c = check(&graph, 3, 1e-5);
    assert!(c.plan.commits.is_empty() && c.plan.refusals.is_empty(), "{:?}", c.plan.refusals);
    let scans = scans(&c.schedule);
    assert_eq!((scans.len(), c.schedule.kernels.len()), (1, 1), "{}", c.schedule);
    assert!(scans[0].plan.commits.is_empty(), "{}", c.schedule);
    assert_eq!(scans[0].body.kernels.len(), 1);
    assert_eq!(scans[0].arena, None);
}

/// Carries that swap are computed aside.
#[test]
fn what_must_be_copied_is() {
    let g = GraphBuilder::new("swap");
    let (a, b) = (g.input("a", DType::F32, [4]), g.input("b", DType::F32, [4]));
    let done =
        g.scan(&[a, b, a], &[], ScanOptions::times(3), |c, _| (vec![c[1], c[0], c[0] + c[1]], vec![c[2]]));
    done.carries.iter().chain(&done.outputs).enumerate().for_each(|(i, t)| g.output(&i.to_string(), *t));
    let c = check(&g.build().unwrap(), 3, 1e-6);
    assert!(!scans(&c.schedule)[0].plan.commits.is_empty());
}

#[test]
fn lengths_of_zero_and_sequences_that_are_views() {
    let g = GraphBuilder::new("views");
    let (x, k) = (g.input("x", DType::F32, [5, 2, 3]), g.input("k", DType::F32, [3]));
    let first = g.full(DType::F32, [3], 0.25);
    let step = |c: &[Tensor<'_>], x: &[Tensor<'_>]| {
        let next = g.tensor((c[0] + x[0] * x[1]).tanh().value().unwrap());
        (vec![next], vec![next - k])
    };
    // Every second row, the rows of one column, one row again and again, the rows of a transpose, none.
    let pairs = [
        (x.slice(0, 0, 4).slice_step(0, 0, 4, 2).at(1, 0), x.at(1, 1).slice(0, 3, 5)),
        (x.at(1, 0), x.at(1, 1)),
        (k.broadcast(&onestep_ir::Shape::fixed(&[4, 3])), x.at(1, 1).slice(0, 1, 5)),
        (x.at(2, 0).transpose(&[1, 0]).slice(1, 0, 3), x.at(0, 0)),
        (x.at(1, 0).slice(0, 2, 2), x.at(1, 1).slice(0, 4, 4)),
    ];
    for (i, (a, b)) in pairs.into_iter().enumerate() {
        let done = g.scan(&[first], &[a, b], ScanOptions::default(), |c, x| step(c, x));
        g.output(&format!("last{i}"), done.carries[0]);
        g.output(&format!("all{i}"), done.outputs[0]);
    }
    let graph = g.build().unwrap();
    let c = check(&graph, 11, 1e-5);
    assert_eq!(scans(&c.schedule).len(), 5);
}

/// A scan in a scan, with constants that pass through, a constant table and a reduction.
#[test]
fn scans_nest() {
    let g = GraphBuilder::new("nested");
    let (x, w) = (g.input("x", DType::F32, [3, 4, 2]), g.parameter("w", &[2, 2], Init::ZEROS));
    let table = g.constant(onestep_ir::Array::new(&[2], &[0.5f32, -0.25]).unwrap());
    let zero = g.full(DType::F32, [2], 0.0);
    let done = g.scan(&[zero], &[x], ScanOptions::default(), |c, rows| {
        let inner = g.scan(c, rows, ScanOptions::reversed(), |d, e| {
            let next = (d[0].expand(0).matmul(w).squeeze(0) + e[0] * table).tanh();
            (vec![next], vec![next.sum_all()])
        });
        (inner.carries, vec![inner.outputs[0].softmax(-1)])
    });
    let loss = done.outputs[0].square().sum_all() + done.carries[0].sum_all();
    g.output("loss", loss);
    g.output("dw", gradients(&g, loss, &[w]).unwrap()[0].unwrap());
    check(&g.build().unwrap(), 5, 1e-4);
}

/// The checker, which shares no code with the planner, sees an iteration's plan too.
#[test]
fn a_wrong_plan_of_an_iteration_is_found() {
    let c = compiled(&network(3, false, false, false), true, true);
    check_plan(&c.schedule, &c.plan).unwrap();
    let at = c.schedule.kernels.iter().position(|k| matches!(k, Kernel::Scan(_))).unwrap();
    let broken = |change: &dyn Fn(&mut ScanKernel)| {
        let mut s = c.schedule.clone();
        let Kernel::Scan(scan) = &mut s.kernels[at] else { unreachable!() };
        change(scan);
        check_plan(&s, &c.plan).expect_err("it is broken")
    };
    let text = broken(&|s| {
        s.plan.places.iter_mut().for_each(|p| {
            if let onestep_passes::plan::Place::Arena(at) = p {
                *at = 0;
            }
        })
    });
    assert!(text.starts_with(&format!("k{at}: ")), "{text}");
    assert!(broken(&|s| s.arena = None).contains("does not fit the scratch"));
    assert!(broken(&|s| s.length += 1).contains("another size"));
    assert!(broken(&|s| s.results.truncate(1)).contains("other inputs and states"));
}

/// An index that is bad in one iteration only is found there, and named.
#[test]
fn indices_are_tested_in_every_iteration() {
    let g = GraphBuilder::new("indices");
    let (table, ids) = (g.parameter("table", &[5, 2], Init::ONES), g.input("ids", DType::I32, [4]));
    let zero = g.full(DType::F32, [2], 0.0);
    let done = g.scan(&[zero], &[ids], ScanOptions::default(), |c, id| {
        let row = table.gather(0, id[0]);
        (vec![c[0] + row], vec![])
    });
    g.output("sum", done.carries[0]);
    g.update(table, table * 0.5, true);
    let graph = g.build().unwrap();
    let c = compiled(&graph, true, true);
    assert_eq!(c.sites.len(), 1);
    assert_eq!((&*c.sites[0].op, c.sites[0].bound), ("gather", 5));
    let table = onestep_ir::Dense::full(DType::F32, &[5, 2], 1.0);
    for (bad, ids) in [(0, [0, 4, 1, 2]), (1, [0, 1, 7, 2])] {
        let ids = onestep_ir::Dense::from_ints(DType::I32, &[4], ids.to_vec());
        // The reference refuses a bad index where it is used, so that only the test itself is run.
        let mut checks = c.graph.clone();
        checks.outputs.retain(|o| &*o.name == onestep_passes::indices::OUTPUT);
        checks.updates.clear();
        let checks = onestep_ir::rewrite::eliminate_dead(&checks);
        assert!(checks.nodes.iter().all(|n| !matches!(n.op, Op::Gather(_))));
        let state = [("table".into(), table.clone())].into();
        let out = onestep_ir::interp::run(&checks, &[ids], &state, Default::default()).unwrap();
        assert_eq!(out.outputs[0].ints(), [bad]);
    }
}
