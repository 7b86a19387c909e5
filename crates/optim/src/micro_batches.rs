//! Micro-batches within one call: every input gets a leading axis, which is walked in order; the loss is the weighted mean.
//!
//! A graph becomes a graph, before differentiation: the forward pass stands in it once for each micro-batch, on the same
//! parameters. State that the graph updates (running statistics, random counters) goes from one micro-batch to the next
//! as it would from call to call, and a micro-batch that the graph's own guard refuses refuses the whole call.

use crate::combine::{Kind, mean};
use crate::error::check;
use crate::{Combine, OptimError};
use onestep_ir::rewrite::splice;
use onestep_ir::{DType, Def, Dim, Graph, GraphBuilder, Port, Region, StatePort, Tensor, ValueId};
use std::collections::HashMap;

/// The graph over `count` micro-batches: each input of shape `[..]` becomes `[count, ..]`, and the outputs are combined. The
/// dimensions need not be bound.
pub fn micro_batches(graph: &Graph, count: usize, combine: &Combine) -> Result<Graph, OptimError> {
    let fits = |x: f64| (1.0..=4096.0).contains(&x);
    check("micro-batches", "count", count as f64, fits, "the graph is repeated: use 1 to 4096")?;
    combine.check(graph)?;
    let (interface, map) = interface(graph, count);
    let g = GraphBuilder::edit(interface);
    let mut given: HashMap<ValueId, Tensor<'_>> =
        map.into_iter().map(|(v, new)| (v, g.tensor(new))).collect();
    let states: Vec<Tensor<'_>> = graph.states.iter().map(|s| given[&s.value]).collect();
    let region = body(graph);
    let mut guard = None::<Tensor<'_>>;
    let mut sums: Vec<Option<Tensor<'_>>> = vec![None; graph.outputs.len()];
    let mut total = None::<Tensor<'_>>;
    let wide = graph.outputs.iter().any(|o| graph.ty(o.value).dtype == DType::F64);
    let dtype = if wide { DType::F64 } else { DType::F32 };
    for i in 0..count {
        let of = |v: &ValueId| match graph.inputs.iter().any(|p| p.value == *v) {
            true => given[v].at(0, i),
            false => given[v],
        };
        let args: Vec<Tensor<'_>> = region.params.iter().map(of).collect();
        let results = splice(&g, graph, &region, &args, &mut |_, _, _| None);
        let (outputs, rest) = results.split_at(graph.outputs.len());
        let (updates, own) = rest.split_at(graph.updates.len());
        for (u, new) in graph.updates.iter().zip(updates) {
            given.insert(graph.states[u.state].value, *new);
        }
        guard = own.iter().copied().chain(guard).reduce(|a, b| a.and(b));
        let find = |name: &str| {
            let at = graph.outputs.iter().position(|o| &*o.name == name)?;
            outputs.get(at).copied()
        };
        let weight = combine.weight(&g, dtype, find);
        total = Some(total.map_or(weight.amount, |t| t + weight.amount));
        for ((port, &value), sum) in graph.outputs.iter().zip(outputs).zip(&mut sums) {
            let ty = graph.ty(port.value);
            let part = value.cast(Combine::sum_dtype(ty.dtype));
            *sum = Some(match (combine.kind(&port.name, ty), *sum) {
                (Kind::Last, _) => value,
                (Kind::Sum, before) => before.map_or(part, |s| s + part),
                (Kind::Mean, before) => before.map_or(weight.of(part), |s| s + weight.of(part)),
            });
        }
    }
    for (port, sum) in graph.outputs.iter().zip(sums) {
        let (Some(sum), Some(total)) = (sum, total) else { continue };
        let ty = graph.ty(port.value);
        let value = if combine.kind(&port.name, ty) == Kind::Mean { mean(sum, total) } else { sum };
        g.output(&port.name, value.cast(ty.dtype));
    }
    for u in &graph.updates {
        g.update(states[u.state], given[&graph.states[u.state].value], u.guarded);
    }
    if let Some(guard) = guard {
        g.set_guard(guard);
    }
    Ok(g.build()?)
}

/// A graph without nodes that has the dimensions, the states, and the inputs with the leading axis; and the new value of
/// each parameter of the graph's body.
fn interface(graph: &Graph, count: usize) -> (Graph, HashMap<ValueId, ValueId>) {
    let mut out = Graph { name: graph.name.clone(), dims: graph.dims.clone(), ..Graph::default() };
    let mut map = HashMap::new();
    for &v in &graph.body.params {
        let mut ty = graph.ty(v).clone();
        if graph.inputs.iter().any(|p| p.value == v) {
            ty.shape.0.insert(0, Dim::fixed(count));
        }
        let new = out.add_value(ty, Def::Param);
        out.body.params.push(new);
        map.insert(v, new);
    }
    out.inputs = graph.inputs.iter().map(|p| Port { name: p.name.clone(), value: map[&p.value] }).collect();
    out.states = graph.states.iter().map(|s| StatePort { value: map[&s.value], ..s.clone() }).collect();
    (out, map)
}

/// The graph's body as a region whose results are the outputs, the updates and the guard.
fn body(graph: &Graph) -> Region {
    Region {
        params: graph.body.params.clone(),
        nodes: graph.body.nodes.clone(),
        results: graph.roots().collect(),
    }
}
