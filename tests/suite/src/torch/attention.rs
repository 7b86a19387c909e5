//! Scaled dot-product attention.

use super::Entry;
use super::call::{Call, KEYWORD, Trouble};
use super::helpers::{fixed, one, sizes};
use onestep_ir::ops::{Attention, AttentionLayout};
use onestep_ir::{AttentionOptions, Tensor};

pub const TABLE: &[Entry] = &[
    ("nn.functional.scaled_dot_product_attention", |c| {
        let [q, k, v] = operands(c)?;
        let options = AttentionOptions {
            causal: c.flag(5, "is_causal", false)?,
            scale: c.maybe_number(6, "scale")?,
            ..AttentionOptions::default()
        };
        let y = q.attention(k, v, c.maybe(3, "attn_mask")?, options);
        let x = sizes(c.x()?);
        let size = *sizes(v).last().unwrap_or(&1);
        one(y.reshape(fixed(&[&x[..x.len() - 1], &[size]].concat())))
    }),
    ("torch.ops.aten._scaled_dot_product_flash_attention_for_cpu", |c| {
        let [q, k, v] = operands(c)?;
        let (sq, sk) = (sizes(q), sizes(k));
        let scale = c.number_or(KEYWORD, "scale", 1.0 / (sq[3] as f64).sqrt())?;
        let causal = c.flag(4, "is_causal", false)?;
        let op = Attention { causal, ..Attention::new(AttentionLayout::Bhtd, scale) };
        let mut operands = vec![q, k, v];
        if let Some(mask) = c.maybe(KEYWORD, "attn_mask")? {
            let mask = mask.broadcast(&fixed(&[1, 1, sq[2], sk[2]]));
            operands.push(mask);
        }
        Ok(c.g.emit(op, &operands))
    }),
];

/// Queries, keys and values with the leading axes that are missing.
fn operands<'g>(c: &Call<'_, 'g>) -> Result<[Tensor<'g>; 3], Trouble> {
    let four = |t: Tensor<'g>| {
        let of = sizes(t);
        t.reshape(fixed(&[vec![1; 4 - of.len()], of].concat()))
    };
    Ok([four(c.x()?), four(c.tensor(1, "key")?), four(c.tensor(2, "value")?)])
}
