//! Dropout with counted random bits: which elements fall out depends on the run's seed, the layer's path and the number
//! of the call, all of them state. So the same run gives the same masks on every device, a resumed run goes on with
//! those that an uninterrupted one would have had, and a second layer changes none of the first's.

use onestep_ir::{DType, GraphBuilder, Init, Role, Tensor};

/// Path of the key: `u32[2]`, the run's seed.
const KEY: &str = "rng/key";
/// Path of the counter: `u32[]`, the calls so far.
const COUNTER: &str = "rng/counter";

/// Zeros each element with probability `p` and divides the others by `1 − p`, so that the mean stays (Srivastava and
/// others, "Dropout", 2014). With `p = 0`, as in a graph that evaluates, `x` itself: nothing is drawn or declared.
///
/// `x` has any shape and float dtype, and the result has its type. It has no parameter. A scope's first dropout declares
/// the state `rng/key` and `rng/counter` with the role of random numbers; the counter grows by 1 with every call whose
/// updates are committed. It is not the optimizer's `opt/step`, so that a graph without an optimizer has dropout too.
/// Two dropouts of one graph need two names, below the current scope: the name tells their numbers apart.
#[track_caller]
pub fn dropout<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, p: f64) -> Tensor<'g> {
    if p == 0.0 || x.value().is_none() {
        return x;
    }
    let (key, counter) = random_state(g);
    x.dropout(p, g.random_bits(name, key, counter, x.shape()))
}

/// Key and counter, declared on first use.
#[track_caller]
fn random_state(g: &GraphBuilder) -> (Tensor<'_>, Tensor<'_>) {
    if let (Some(key), Some(counter)) = (g.find_state(&g.path(KEY)), g.find_state(&g.path(COUNTER))) {
        return (key, counter);
    }
    let key = g.state(KEY, Role::Rng, DType::U32, &[2], Init::Seed);
    let counter = g.state(COUNTER, Role::Rng, DType::U32, &[], Init::ZEROS);
    // Once a call, also where the layer is part of a region that runs several times.
    g.in_body(|| g.update(counter, counter + 1.0, true));
    (key, counter)
}
