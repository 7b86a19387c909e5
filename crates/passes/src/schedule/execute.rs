//! Runs a whole schedule with the scalar evaluator and the ops' own references: the oracle for fusion. It keeps every
//! buffer apart, so it says nothing of a plan.

use super::reference::run_loop;
use super::{BufferKind, Kernel, ScanKernel, Schedule, View};
use onestep_ir::ops::Matmul;
use onestep_ir::shape::for_each_index;
use onestep_ir::{DType, Dense, Mistake, OpRule, Shape, Type};
use std::collections::BTreeMap;

/// What a call gives: the outputs, and each state after it, in the schedule's order.
pub struct Results {
    /// Outputs.
    pub outputs: Vec<Dense>,
    /// States.
    pub states: Vec<Dense>,
}

/// Runs a schedule on inputs and states in its order.
///
/// # Panics
///
/// If the tensors do not fit the schedule: it is for tests.
pub fn execute(s: &Schedule, inputs: &[Dense], states: &[Dense]) -> Result<Results, Mistake> {
    let mut memory = BTreeMap::new();
    for (i, b) in s.buffers.iter().enumerate() {
        let tensor = match &b.kind {
            BufferKind::Input(n) => inputs[*n].clone(),
            BufferKind::State(n) => states[*n].clone(),
            BufferKind::Constant(a) => Dense::from_array(a),
            BufferKind::Temp => Dense::full(b.dtype, &b.shape, 0.0),
        };
        memory.insert(super::BufferId(i as u32), tensor);
    }
    for k in &s.kernels {
        match k {
            Kernel::Loops(parts) => parts.iter().for_each(|p| run_loop(p, &mut memory)),
            Kernel::Matmul(m) => {
                let (a, b) = (gathered(&memory, &m.lhs), gathered(&memory, &m.rhs));
                let dtype = s.buffer(m.out).dtype;
                let op = Matmul { transpose_a: false, transpose_b: false, dtype };
                let (batch, rows, n, _) = m.sizes();
                let ty = Type::new(dtype, Shape::fixed(&[batch, rows, n]));
                let result = op.reference(&[&a, &b], &[ty])?.remove(0);
                keep(&mut memory, m.out, result);
                if let Some(e) = &m.epilogue {
                    run_loop(e, &mut memory);
                }
            }
            Kernel::Library(l) => {
                let operands: Vec<Dense> = l.operands.iter().map(|v| gathered(&memory, v)).collect();
                let types: Vec<Type> = l
                    .results
                    .iter()
                    .map(|v| Type::new(s.buffer(v.buffer).dtype, Shape::fixed(&v.shape)))
                    .collect();
                let results = l.op.rule().reference(&operands.iter().collect::<Vec<_>>(), &types)?;
                for (v, mut r) in l.results.iter().zip(results) {
                    r.settle();
                    let to = memory.get_mut(&v.buffer).expect("every buffer is in memory");
                    to.place(&elements(v), &r);
                }
            }
            Kernel::Scan(k) => {
                let operands: Vec<Dense> = k.operands().map(|v| gathered(&memory, v)).collect();
                for (b, r) in k.results.iter().zip(scan(k, s, &operands)?) {
                    keep(&mut memory, *b, r);
                }
            }
        }
    }
    let outputs = s.outputs.iter().map(|(_, b)| memory[b].clone()).collect();
    let states = s.states.iter().map(|st| memory[&st.update.unwrap_or(st.buffer)].clone()).collect();
    Ok(Results { outputs, states })
}

/// The results of a scan, an iteration after the other: an iteration is a run of the body.
fn scan(k: &ScanKernel, around: &Schedule, operands: &[Dense]) -> Result<Vec<Dense>, Mistake> {
    let (carries, rest) = operands.split_at(k.carries.len());
    let (sequences, constants) = rest.split_at(k.sequences.len());
    let stack = |b: &super::BufferId| Dense::full(around.buffer(*b).dtype, &around.buffer(*b).shape, 0.0);
    let mut results: Vec<Dense> = carries.to_vec();
    results.extend(k.results[carries.len()..].iter().map(stack));
    for at in k.order() {
        let slice = |d: &Dense| {
            let n: usize = d.shape[1..].iter().product();
            d.pick(&d.shape[1..], &(at * n..(at + 1) * n).collect::<Vec<_>>())
        };
        let inputs: Vec<Dense> = sequences.iter().map(slice).chain(constants.iter().cloned()).collect();
        // The old value of an output is never read.
        let states: Vec<Dense> = k
            .body
            .states
            .iter()
            .enumerate()
            .map(|(i, s)| {
                let b = k.body.buffer(s.buffer);
                if i < carries.len() {
                    Dense { shape: b.shape.clone(), ..results[i].clone() }
                } else {
                    Dense::full(b.dtype, &b.shape, 0.0)
                }
            })
            .collect();
        for (i, state) in execute(&k.body, &inputs, &states)?.states.into_iter().enumerate() {
            if i < carries.len() {
                results[i] = state;
            } else {
                let places: Vec<usize> = (at * state.len()..(at + 1) * state.len()).collect();
                results[i].place(&places, &state);
            }
        }
    }
    Ok(results)
}

fn keep(memory: &mut BTreeMap<super::BufferId, Dense>, b: super::BufferId, mut value: Dense) {
    value.settle();
    let shape = memory[&b].shape.clone();
    memory.insert(b, Dense { shape, ..value });
}

/// A view's elements, densely.
fn gathered(memory: &BTreeMap<super::BufferId, Dense>, v: &View) -> Dense {
    memory[&v.buffer].pick(&v.shape, &elements(v))
}

/// A view's elements, as places in its buffer.
fn elements(v: &View) -> Vec<usize> {
    let mut places = vec![];
    for_each_index(&v.shape, |i| {
        places.push(v.offset + v.strides.iter().zip(i).map(|(s, i)| s * i).sum::<usize>())
    });
    places
}

/// A target for tests: every primitive and every library op, arithmetic in all dtypes but the 16-bit floats.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceTarget;

impl crate::Target for ReferenceTarget {
    fn name(&self) -> &'static str {
        "reference"
    }
    fn accepts(&self, op: &onestep_ir::Op, _: &[Type]) -> bool {
        use onestep_ir::Op::*;
        matches!(
            op,
            Matmul(_)
                | Gather(_)
                | ScatterAdd(_)
                | GatherAlong(_)
                | ScatterAddAlong(_)
                | DynamicSlice(_)
                | DynamicUpdateSlice(_)
                | ArgReduce(_)
                | Cumulative(_)
                | Sort(_)
                | Scan(_)
        )
    }
    fn takes_strided(&self, op: &onestep_ir::Op, _: usize) -> bool {
        matches!(op, onestep_ir::Op::Matmul(_))
    }
    fn gives_strided(&self, _: &onestep_ir::Op, _: usize) -> bool {
        true
    }
    fn computes_in(&self, dtype: DType) -> bool {
        !matches!(dtype, DType::F16 | DType::BF16)
    }
    /// Wherever it may, so that tests see it.
    fn recomputes(&self, _: usize, _: usize, _: usize, _: usize) -> bool {
        true
    }
    fn takes_epilogue(&self, _: &super::MatmulKernel, _: &super::LoopKernel) -> bool {
        true
    }
}
