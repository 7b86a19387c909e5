//! The reference interpreter: the definition of what a graph computes, and the oracle that every backend is
//! compared with.
//!
//! Each op is computed in `f64` (or `i64`) by its own reference; then its result is rounded to the op's declared dtype,
//! or, in [`Mode::AllF64`], floats are left as they are.

mod dense;

pub use dense::{Data, Dense};

use crate::{Array, Graph, GraphError, Mistake, Node, Region, ValueId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Whether floats are rounded to their declared dtypes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Each op's result is rounded to its declared dtype.
    #[default]
    Declared,
    /// Floats keep `f64` precision whatever they declare.
    AllF64,
}

/// What a call gives: outputs in order, and the state after it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The outputs, in the graph's order.
    pub outputs: Vec<Dense>,
    /// Every state tensor after the call.
    pub state: BTreeMap<Arc<str>, Dense>,
}

/// Runs a bound graph once. `inputs` are in the graph's order; `state` holds at least the graph's states.
pub fn run(
    graph: &Graph,
    inputs: &[Dense],
    state: &BTreeMap<Arc<str>, Dense>,
    mode: Mode,
) -> Result<Outcome, GraphError> {
    let mut env: HashMap<ValueId, Dense> = HashMap::new();
    for (i, port) in graph.inputs.iter().enumerate() {
        let given = inputs.get(i).ok_or_else(|| GraphError::MissingInput {
            name: port.name.to_string(),
            ty: Box::new(graph.ty(port.value).clone()),
            nearest: None,
        })?;
        feed(graph, &port.name, port.value, given, &mut env)?;
    }
    for port in &graph.states {
        let given = state.get(&port.name).ok_or_else(|| GraphError::MissingState {
            name: port.name.to_string(),
            ty: Box::new(graph.ty(port.value).clone()),
        })?;
        feed(graph, &port.name, port.value, given, &mut env)?;
    }
    eval_region(graph, &graph.body, &mut env, mode, &mut |_, _| {})?;
    let outputs = graph.outputs.iter().map(|o| env[&o.value].clone()).collect();
    let mut after = state.clone();
    let commit = graph.guard.is_none_or(|g| env[&g].ints()[0] != 0);
    for u in &graph.updates {
        if commit || !u.guarded {
            after.insert(graph.states[u.state].name.clone(), env[&u.value].clone());
        }
    }
    Ok(Outcome { outputs, state: after })
}

/// Runs a graph on host arrays, rounding to declared dtypes: inputs and state by name, outputs by name.
pub fn run_arrays(
    graph: &Graph,
    inputs: &[Array],
    state: &mut BTreeMap<Arc<str>, Array>,
) -> Result<Vec<Array>, GraphError> {
    let dense: Vec<Dense> = inputs.iter().map(Dense::from_array).collect();
    let before = state.iter().map(|(k, v)| (k.clone(), Dense::from_array(v))).collect();
    let outcome = run(graph, &dense, &before, Mode::Declared)?;
    let array = |d: &Dense| d.to_array().expect("a computed tensor fits its own shape");
    for (name, d) in &outcome.state {
        state.insert(name.clone(), array(d));
    }
    Ok(outcome.outputs.iter().map(array).collect())
}

/// Evaluates the nodes of the outermost region and shows each value to `watch`; for diagnosis.
pub fn trace(
    graph: &Graph,
    inputs: &[Dense],
    state: &BTreeMap<Arc<str>, Dense>,
    mode: Mode,
    watch: &mut dyn FnMut(ValueId, &Dense),
) -> Result<(), GraphError> {
    let mut env = HashMap::new();
    for (port, given) in graph.inputs.iter().zip(inputs) {
        feed(graph, &port.name, port.value, given, &mut env)?;
    }
    for port in &graph.states {
        if let Some(given) = state.get(&port.name) {
            feed(graph, &port.name, port.value, given, &mut env)?;
        }
    }
    eval_region(graph, &graph.body, &mut env, mode, watch)
}

fn feed(
    graph: &Graph,
    name: &str,
    value: ValueId,
    given: &Dense,
    env: &mut HashMap<ValueId, Dense>,
) -> Result<(), GraphError> {
    let want = graph.ty(value);
    if want.dtype != given.dtype || want.shape.sizes().as_deref() != Some(&given.shape) {
        return Err(GraphError::Feed {
            name: name.to_string(),
            want: Box::new(want.clone()),
            got_dtype: given.dtype,
            got_shape: given.shape.clone(),
        });
    }
    env.insert(value, given.clone());
    Ok(())
}

fn eval_region(
    graph: &Graph,
    region: &Region,
    env: &mut HashMap<ValueId, Dense>,
    mode: Mode,
    watch: &mut dyn FnMut(ValueId, &Dense),
) -> Result<(), GraphError> {
    for id in &region.nodes {
        let node = graph.node(*id);
        let results = eval_node(graph, node, env, mode)?;
        for (&v, mut d) in node.results.iter().zip(results) {
            if mode == Mode::Declared || !d.dtype.is_float() {
                d.settle();
            }
            watch(v, &d);
            env.insert(v, d);
        }
    }
    Ok(())
}

fn eval_node(
    graph: &Graph,
    node: &Node,
    env: &HashMap<ValueId, Dense>,
    mode: Mode,
) -> Result<Vec<Dense>, GraphError> {
    let operands: Vec<&Dense> = node.operands.iter().map(|v| &env[v]).collect();
    let types: Vec<_> = node.results.iter().map(|v| graph.ty(*v).clone()).collect();
    let mut eval = |i: usize, args: Vec<Dense>| -> Result<Vec<Dense>, Mistake> {
        let region = &node.regions[i];
        let mut inner: HashMap<ValueId, Dense> = region.params.iter().copied().zip(args).collect();
        eval_region(graph, region, &mut inner, mode, &mut |_, _| {})
            .map_err(|e| Mistake::new(e.to_string(), ""))?;
        Ok(region.results.iter().map(|v| inner[v].clone()).collect())
    };
    node.op.rule().reference_regions(&operands, &types, &mut eval).map_err(|mistake| GraphError::Eval {
        op: node.op.rule().name().to_string(),
        loc: node.loc.map(|l| l.to_string()).unwrap_or_else(|| "the graph's text".into()),
        mistake,
    })
}
