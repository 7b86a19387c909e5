//! Parameters and slots that are `bf16` between steps, without an `f32` master copy: half the memory.
//!
//! The step reads them as `f32`, computes in `f32` as it always does, and rounds what it writes by chance, up or down so that
//! the mean is the number itself. Rounding to nearest would lose every update below half a step of `bf16`, an eighth to a
//! quarter of a percent of the number, however often it comes (Zamirai and others, "Revisiting BFloat16 training", 2020).
//!
//! The bits of a tensor come from its path, the run's seed and the number of the step: state, so that a run that is taken up
//! again goes on with the same bits. A tensor that is not written, as at a step that the guard refuses, keeps its bits; and
//! what is written back as it was read is not changed by the rounding.
//!
//! | path | what |
//! |---|---|
//! | `opt/rounding/key` | `u32[2]`: the run's seed |

use crate::OptimError;
use onestep_ir::random::stream_id;
use onestep_ir::rewrite::store_states;
use onestep_ir::{Array, DType, Graph, GraphBuilder, Init, Role, StatePort, Tensor};
use std::collections::HashSet;
use std::str::FromStr;

/// The dtype in which a tensor is kept between steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Storage {
    /// That in which it is computed.
    #[default]
    Exact,
    /// `bf16` for `f32`, rounded by chance.
    Bf16,
}

impl Storage {
    /// Its name, which it is read from too.
    pub fn name(self) -> &'static str {
        match self {
            Storage::Exact => "exact",
            Storage::Bf16 => "bf16",
        }
    }
}

impl FromStr for Storage {
    type Err = String;
    fn from_str(name: &str) -> Result<Storage, String> {
        let found = [Storage::Exact, Storage::Bf16].into_iter().find(|s| s.name() == name);
        found.ok_or_else(|| format!("there is no storage '{name}'; use exact or bf16"))
    }
}

/// The path of the key.
const KEY: &str = "opt/rounding/key";

/// The step with the states at these paths in `bf16`, as far as they are `f32`.
pub(crate) fn store(graph: &Graph, paths: &HashSet<&str>) -> Result<Graph, OptimError> {
    let narrow = |s: &StatePort| paths.contains(&*s.name) && graph.ty(s.value).dtype == DType::F32;
    if !graph.states.iter().any(narrow) {
        return Ok(graph.clone());
    }
    let g = GraphBuilder::edit(graph.clone());
    g.state(KEY, Role::Rng, DType::U32, &[2], Init::Seed);
    Ok(store_states(&g.build()?, &|s| narrow(s).then_some(DType::BF16), &|g, s, new| {
        new.round_stochastic(bits(g, &s.name, new))
    })?)
}

/// The random bits for what is written to the state at `path`. The path is in the key, which is data, and not in the stream,
/// so that equal updates of many parameters are one kernel.
fn bits<'g>(g: &'g GraphBuilder, path: &str, new: Tensor<'g>) -> Tensor<'g> {
    let id = stream_id(path);
    let words = Array::new(&[2], &[id as u32, (id >> 32) as u32]);
    match (g.find_state(KEY), g.find_state("opt/step"), words) {
        (Some(key), Some(step), Ok(words)) => {
            let key = key.xor(g.constant(words));
            g.random_bits("opt/rounding", key, step.cast(DType::U32), new.shape())
        }
        _ => new.mistake("round_stochastic", "the step has no key or no counter", "declare both"),
    }
}

/// The graph of another program that runs on the state of a training step: it reads each state in the dtype in which that step
/// keeps it. Everything else stays.
pub fn stored(graph: &Graph, step: &Graph) -> Result<Graph, OptimError> {
    let kept = |s: &StatePort| step.state(&s.name).map(|kept| step.ty(kept.value).dtype);
    Ok(store_states(graph, &kept, &|_, s, new| new.cast(kept(s).unwrap_or(new.dtype())))?)
}
