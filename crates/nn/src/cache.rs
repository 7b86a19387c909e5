//! Keys and values of what came before, as state: what a model that continues a text shares with every other.
//!
//! | state | shape | |
//! |---|---|---|
//! | `cache/length` | `i32[]` | tokens so far; 0 begins a new text |
//! | `block.<i>.attn.cache.{k,v}` | `[context, key heads, head size]` | their keys and values |

use crate::attention::LAYOUT;
use onestep_ir::ops::AttentionAlign;
use onestep_ir::{AttentionOptions, DType, GraphBuilder, Init, Role, Tensor};

/// Path of the number of tokens so far.
const LENGTH: &str = "cache/length";

/// The cache of a call that reads `time` tokens.
pub(crate) struct Cache<'g> {
    g: &'g GraphBuilder,
    /// Tokens before this call.
    pub length: Tensor<'g>,
    /// Tokens of this call.
    pub time: usize,
    context: usize,
}

impl<'g> Cache<'g> {
    /// The cache for the integer `tokens`, `[time]`, of a model; or the poisoned handle of a mistake.
    #[track_caller]
    pub fn new(
        g: &'g GraphBuilder,
        model: &str,
        tokens: Tensor<'g>,
        context: usize,
    ) -> Result<Cache<'g>, Tensor<'g>> {
        if tokens.value().is_none() {
            return Err(tokens);
        }
        let shape = tokens.shape();
        let time = match shape.sizes().as_deref() {
            Some(&[time]) if 0 < time && time <= context => time,
            _ => {
                let what = format!("the tokens have shape {shape}");
                return Err(tokens.mistake(model, what, format!("give them as [time], of 1 to {context}")));
            }
        };
        let length = g.state(LENGTH, Role::Scalar, DType::I32, &[], Init::ZEROS);
        Ok(Cache { g, length, time, context })
    }

    /// The positions of this call's tokens, `[time]`.
    #[track_caller]
    pub fn positions(&self) -> Tensor<'g> {
        self.g.iota(DType::I32, [self.time], 0) + self.length
    }

    /// What mixes the positions of the block at `name`: keys and values join those before, and each query sees the keys up
    /// to its own.
    #[track_caller]
    pub fn mix(&self, name: &str, q: Tensor<'g>, k: Tensor<'g>, v: Tensor<'g>) -> Tensor<'g> {
        let (k, v) =
            (self.grown(&format!("{name}.attn.cache.k"), k), self.grown(&format!("{name}.attn.cache.v"), v));
        let align = AttentionAlign::BottomRight;
        let options = AttentionOptions { layout: LAYOUT, causal: true, align, ..AttentionOptions::default() };
        let there = (self.length + self.time as f64).expand(0);
        q.attention_with(k, v, None, Some(there), options)
    }

    /// The cache at `path` with these rows behind its length.
    #[track_caller]
    fn grown(&self, path: &str, rows: Tensor<'g>) -> Tensor<'g> {
        let Some([_, _, heads, size]) = rows.shape().sizes().and_then(|s| <[usize; 4]>::try_from(s).ok())
        else {
            return rows.poison();
        };
        let cache = self.g.state(path, Role::Buffer, rows.dtype(), &[self.context, heads, size], Init::ZEROS);
        let grown = cache.dynamic_update_slice(0, rows.squeeze(0), self.length);
        // Not guarded: a range that does not fit is not written, and other rows are written again.
        self.g.update(cache, grown, false);
        grown.expand(0)
    }

    /// Counts this call's tokens.
    #[track_caller]
    pub fn advance(self) {
        self.g.update(self.length, self.length + self.time as f64, true);
    }
}

/// Refuses sequences that may be longer than a model's context, and tokens that are no `[batch, time]`; whether they fit.
#[track_caller]
pub(crate) fn fits<'g>(g: &'g GraphBuilder, model: &str, tokens: Tensor<'g>, context: usize) -> bool {
    if tokens.value().is_none() {
        return false;
    }
    let shape = tokens.shape();
    let [_, time] = &shape.0[..] else {
        let what = format!("the tokens have shape {shape}");
        tokens.mistake(model, what, "give them as [batch, time]");
        return false;
    };
    let bound = g.with_graph(|graph| {
        time.vars().iter().try_fold(time.coef(), |n, var| n.checked_mul(*graph.dims.get(var)?))
    });
    if bound.is_none_or(|longest| longest > context) {
        let longest = bound.map_or("too many".to_string(), |n| n.to_string());
        let what = format!("sequences may have {longest} positions, and the model has {context}");
        tokens.mistake(model, what, "shorten the sequences, or give the model a longer context");
        return false;
    }
    true
}

/// The embeddings of a sequence's positions, `[time, width]`, from a learned table `pos.weight`, `[context, width]`.
#[track_caller]
pub(crate) fn learned_positions<'g>(
    g: &'g GraphBuilder,
    tokens: Tensor<'g>,
    context: usize,
    width: usize,
    init: Init,
) -> Tensor<'g> {
    let table = g.parameter("pos.weight", &[context, width], init);
    let Some(time) = tokens.shape().0.get(1).cloned() else { return tokens.poison() };
    match time.size() {
        Some(n) if n == context => table,
        Some(n) => table.slice(0, 0, n),
        None => table.gather(0, g.iota(DType::I32, vec![time], 0)),
    }
}
