//! What the tests of this crate share: compiling for the reference target, the interpreter's and the schedule's results,
//! and a machine that runs a schedule in the memory of a plan.

#![allow(dead_code)]

use onestep_ir::interp::{self, Mode};
use onestep_ir::ops::Matmul;
use onestep_ir::shape::for_each_index;
use onestep_ir::testing::{difference, random_inputs, random_state};
use onestep_ir::{DType, Dense, Graph, OpRule, Shape, Type};
use onestep_passes::pipeline::{Compiled, Options, compile};
use onestep_passes::plan::{Place, Plan, PlanOptions};
use onestep_passes::schedule::execute::{ReferenceTarget, execute};
use onestep_passes::schedule::reference::{Memory, Number, run_loop};
use onestep_passes::schedule::{BufferId, BufferKind, Kernel, ScanKernel, Schedule, View};
use std::collections::BTreeMap;

/// Compiles for the reference target.
pub fn compiled(graph: &Graph, fuse: bool, reuse: bool) -> Compiled {
    let plan = PlanOptions { reuse, ..PlanOptions::default() };
    let options = Options { fuse, plan, ..Options::default() };
    compile(graph, &ReferenceTarget, &options).unwrap_or_else(|e| panic!("{e}\n{graph}"))
}

/// Random inputs and states in the schedule's order, and what the schedule makes of them: outputs, then states.
pub fn reference(graph: &Graph, s: &Schedule, seed: u64) -> (Vec<Dense>, Vec<Dense>, Vec<Dense>) {
    let inputs: Vec<Dense> = random_inputs(graph, seed).iter().map(Dense::from_array).collect();
    let state = random_state(graph, seed);
    let states: Vec<Dense> = s.states.iter().map(|p| Dense::from_array(&state[&p.name])).collect();
    let results = execute(s, &inputs, &states).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    (inputs, states, [results.outputs, results.states].concat())
}

/// Equal to the bit, any NaN being one. A buffer may have another shape of as many elements.
pub fn same(a: &Dense, b: &Dense) -> bool {
    let (a, b) = (a.to_array().unwrap(), b.to_array().unwrap());
    let bits = |x: f64| if x.is_nan() { u64::MAX } else { x.to_bits() };
    a.dtype() == b.dtype() && a.to_f64().into_iter().map(bits).eq(b.to_f64().into_iter().map(bits))
}

/// Holds the fused and the unfused schedule to each other to the bit, both to the interpreter within `tolerance`, and the
/// run in planned memory to the run without.
pub fn check(graph: &Graph, seed: u64, tolerance: f64) -> Compiled {
    let fused = compiled(graph, true, true);
    let unfused = compiled(graph, false, false);
    let (inputs, states, a) = reference(graph, &fused.schedule, seed);
    let (_, _, b) = reference(graph, &unfused.schedule, seed);
    let names: Vec<_> = fused.schedule.states.iter().map(|s| s.name.clone()).collect();
    let before = names.iter().cloned().zip(states.iter().cloned()).collect();
    let want = interp::run(graph, &inputs, &before, Mode::Declared).unwrap();
    let wants = want.outputs.iter().chain(names.iter().map(|n| &want.state[n]));
    let planned = Planned::run(&fused.schedule, &fused.plan, &inputs, &states);
    let at = |i: usize, what: &str| format!("seed {seed}: result {i} {what}\n{graph}\n{}", fused.schedule);
    // The pipeline may add an output of its own at the end.
    let outputs = graph.outputs.len();
    let extra = fused.schedule.outputs.len() - outputs;
    for (i, (x, y)) in a.iter().zip(&b).enumerate() {
        assert!(same(x, y), "{}", at(i, &format!("fused {x:?} unfused {y:?}")));
        assert!(same(x, &planned[i]), "{}", at(i, &format!("{x:?} in planned memory {:?}", planned[i])));
    }
    let ours = a.iter().enumerate().filter(|(i, _)| *i < outputs || *i >= outputs + extra);
    for ((i, x), w) in ours.zip(wants) {
        let diff = difference(x, &Dense { shape: x.shape.clone(), ..w.clone() });
        assert!(diff < tolerance, "{}", at(i, &format!("differs from the interpreter by {diff}")));
    }
    fused
}

/// Memory as a plan lays it out: for each storage, the numbers that begin at each byte. What is overlaid in part is gone.
#[derive(Default)]
pub struct Planned {
    cells: BTreeMap<((u8, usize), usize), (usize, Number)>,
    spans: BTreeMap<BufferId, ((u8, usize), usize, DType)>,
}

impl Planned {
    /// Runs a schedule; gives outputs, then states.
    pub fn run(s: &Schedule, p: &Plan, inputs: &[Dense], states: &[Dense]) -> Vec<Dense> {
        let mut m = Planned::default();
        for (i, b) in s.buffers.iter().enumerate() {
            let (storage, offset) = match p.places[i] {
                Place::Input(n) => ((0, n), 0),
                Place::State(n) => ((1, n), 0),
                Place::Constant => ((2, i), 0),
                Place::Arena(o) => ((3, 0), o),
            };
            m.spans.insert(BufferId(i as u32), (storage, offset, b.dtype));
        }
        for (i, b) in s.buffers.iter().enumerate() {
            let id = BufferId(i as u32);
            match &b.kind {
                BufferKind::Input(n) => m.put(id, &inputs[*n]),
                BufferKind::State(n) => m.put(id, &states[*n]),
                BufferKind::Constant(a) => m.put(id, &Dense::from_array(a)),
                BufferKind::Temp => {}
            }
        }
        for k in &s.kernels {
            match k {
                // Loops of one dispatch run in any order.
                Kernel::Loops(parts) => parts.iter().rev().for_each(|p| run_loop(p, &mut m)),
                Kernel::Matmul(k) => {
                    let (a, b) = (m.view(s, &k.lhs), m.view(s, &k.rhs));
                    let dtype = s.buffer(k.out).dtype;
                    let op = Matmul { transpose_a: false, transpose_b: false, dtype };
                    let (batch, rows, n, _) = k.sizes();
                    let ty = Type::new(dtype, Shape::fixed(&[batch, rows, n]));
                    m.put(k.out, &op.reference(&[&a, &b], &[ty]).unwrap().remove(0));
                    k.epilogue.iter().for_each(|e| run_loop(e, &mut m));
                }
                Kernel::Library(l) => {
                    let operands: Vec<Dense> = l.operands.iter().map(|v| m.view(s, v)).collect();
                    let ty = |v: &View| Type::new(s.buffer(v.buffer).dtype, Shape::fixed(&v.shape));
                    let types: Vec<Type> = l.results.iter().map(ty).collect();
                    let operands: Vec<&Dense> = operands.iter().collect();
                    // A wrong plan may give wrong indices: then nothing is written.
                    let Ok(results) = l.op.rule().reference(&operands, &types) else { continue };
                    l.results.iter().zip(&results).for_each(|(v, r)| m.put_view(v, r));
                }
                Kernel::Scan(k) => m.scan(s, k),
            }
        }
        for (b, i) in &p.commits {
            let value = m.get(s, *b);
            m.put(s.states[*i].buffer, &value);
        }
        let outputs = s.outputs.iter().map(|(_, b)| m.get(s, *b));
        let outputs: Vec<Dense> = outputs.collect();
        // A state's tensor, whatever buffer was written to it last.
        outputs.into_iter().chain(s.states.iter().map(|st| m.get(s, st.buffer))).collect()
    }

    /// A scan: the first values go to where the last ones will be, and each iteration is a run in memory of its own.
    fn scan(&mut self, s: &Schedule, k: &ScanKernel) {
        for (v, b) in k.carries.iter().zip(&k.results) {
            let first = self.view(s, v);
            self.put(*b, &first);
        }
        for at in k.order() {
            let slice = |v: &View| View {
                buffer: v.buffer,
                offset: v.offset + at * v.strides[0],
                shape: v.shape[1..].to_vec(),
                strides: v.strides[1..].to_vec(),
            };
            let slices = k.sequences.iter().map(|v| self.view(s, &slice(v)));
            let inputs: Vec<Dense> = slices.chain(k.constants.iter().map(|v| self.view(s, v))).collect();
            // What an iteration writes of each result: all of a carry, a slice of an output.
            let part = |i: usize| {
                let b = &k.body.buffer(k.body.states[i].buffer);
                let offset = if i < k.carries.len() { 0 } else { at * b.numel() };
                let strides = onestep_ir::row_major(&b.shape);
                View { buffer: k.results[i], offset, shape: b.shape.clone(), strides }
            };
            let states: Vec<Dense> = (0..k.results.len()).map(|i| self.view(s, &part(i))).collect();
            let after = Planned::run(&k.body, &k.plan, &inputs, &states);
            for (i, value) in after.iter().enumerate() {
                self.put_at(k.results[i], part(i).offset, value);
            }
        }
    }

    fn put(&mut self, b: BufferId, value: &Dense) {
        self.put_at(b, 0, value);
    }

    fn put_at(&mut self, b: BufferId, offset: usize, value: &Dense) {
        self.put_view(&View { offset, ..View::whole(b, &value.shape) }, value);
    }

    fn put_view(&mut self, to: &View, value: &Dense) {
        let mut value = value.clone();
        value.settle();
        let mut places = vec![];
        for_each_index(&to.shape, |i| {
            places.push(to.offset + to.strides.iter().zip(i).map(|(s, i)| s * i).sum::<usize>())
        });
        for (i, place) in places.into_iter().enumerate() {
            let number = if value.dtype.is_float() {
                Number::Real(value.reals()[i])
            } else {
                Number::Int(value.ints()[i])
            };
            self.store(to.buffer, place as i64, number);
        }
    }

    fn get(&self, s: &Schedule, b: BufferId) -> Dense {
        let shape = s.buffer(b).shape.clone();
        self.view(s, &View { buffer: b, offset: 0, strides: onestep_ir::row_major(&shape), shape })
    }

    fn view(&self, s: &Schedule, v: &View) -> Dense {
        let dtype = s.buffer(v.buffer).dtype;
        let mut numbers = vec![];
        for_each_index(&v.shape, |i| {
            let at = v.offset + v.strides.iter().zip(i).map(|(s, i)| s * i).sum::<usize>();
            numbers.push(self.load(v.buffer, at as i64));
        });
        if dtype.is_float() {
            Dense::from_reals(dtype, &v.shape, numbers.iter().map(|n| n.real()).collect())
        } else {
            Dense::from_ints(dtype, &v.shape, numbers.iter().map(|n| n.int()).collect())
        }
    }
}

impl Memory for Planned {
    fn load(&self, b: BufferId, place: i64) -> Number {
        let (storage, offset, dtype) = self.spans[&b];
        let at = offset + place as usize * dtype.size();
        match (self.cells.get(&(storage, at)), dtype.is_float()) {
            (Some((size, n @ Number::Real(_))), true) if *size == dtype.size() => *n,
            (Some((size, n @ Number::Int(_))), false) if *size == dtype.size() => *n,
            // Not what it was taken for.
            (_, true) => Number::Real(-12345.0),
            (_, false) => Number::Int(77),
        }
    }

    fn store(&mut self, b: BufferId, place: i64, value: Number) {
        let (storage, offset, dtype) = self.spans[&b];
        let at = offset + place as usize * dtype.size();
        let near: Vec<usize> = self
            .cells
            .range((storage, at.saturating_sub(8))..(storage, at + dtype.size()))
            .filter(|((_, start), (size, _))| start + size > at)
            .map(|((_, start), _)| *start)
            .collect();
        near.into_iter().for_each(|start| {
            self.cells.remove(&(storage, start));
        });
        self.cells.insert((storage, at), (dtype.size(), value));
    }
}
