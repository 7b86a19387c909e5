//! `cross_entropy`: the negative log-likelihood of an integer label under the softmax of its row of logits.
//!
//! loss = log Σ eˣ − x_label, with the row's largest logit subtracted first, so that logits near ±1e8 are exact. A
//! label that equals `ignore_index` gives 0. Another label outside the classes is a mistake that the reference names;
//! the decomposition and backends give NaN for its row, and backends raise the flag of bad indices. A label whose
//! logit is −inf gives +inf.

use crate::attrs::{Attr, AttrReader, Attrs};
use crate::op::{OpRule, OpTable, Range, Sample, arity, want_float, want_int, want_shape};
use crate::ops::softmax::{row_scale, shifted};
use crate::{Array, DType, Dense, GraphBuilder, Mistake, Shape, Tensor, Type};

/// Operands `logits` (floats, `[.., C]`) and `labels` (integers, `[..]`); the result is one loss per row, `[..]`, in
/// the logits' dtype, computed in `f32` at least.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CrossEntropy {
    /// The label of rows that do not count. One that the labels' dtype cannot hold ignores nothing.
    pub ignore_index: i64,
}

impl OpRule for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }
    fn attrs(&self) -> Attrs {
        vec![("ignore_index", Attr::Int(self.ignore_index))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [logits, labels] = arity(operands)?;
        want_float(logits)?;
        want_int(labels)?;
        let Some((_, rows)) = logits.shape.0.split_last() else {
            return Err(Mistake::new("the logits are a scalar", "give logits [.., classes]"));
        };
        let rows = Shape(rows.to_vec());
        want_shape("the second operand (labels)", labels, &rows)?;
        Ok(vec![Type::new(logits.dtype, rows)])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (logits, labels) = (inputs[0], inputs[1]);
        let classes = logits.shape.last().copied().unwrap_or(0);
        let loss = |(at, &label): (usize, &i64)| {
            if label == self.ignore_index {
                return Ok(0.0);
            }
            let Some(class) = usize::try_from(label).ok().filter(|&c| c < classes) else {
                return Err(Mistake::new(
                    format!("label {label} (row {at}) is outside 0..{classes}"),
                    format!(
                        "keep labels below the number of classes, or use {} to ignore a row",
                        self.ignore_index
                    ),
                ));
            };
            let row = &logits.reals()[at * classes..][..classes];
            let (shift, sum) = row_scale(row.iter().copied());
            let log = if sum == 0.0 { 0.0 } else { libm::log(sum) };
            Ok(log - (row[class] - shift))
        };
        let losses = labels.ints().iter().enumerate().map(loss).collect::<Result<_, _>>()?;
        Ok(vec![Dense::from_reals(logits.dtype, &results[0].sizes(), losses)])
    }
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [logits, labels] = operands.try_into().ok()?;
        let ty = logits.ty()?;
        let axis = ty.shape.rank().checked_sub(1)?;
        // Wide enough for every label and class: u8 could not count to 256, and unsigned labels have no negative.
        let wide = if matches!(labels.dtype(), DType::I8 | DType::U8 | DType::I32) {
            DType::I32
        } else {
            DType::I64
        };
        let label = labels.cast(wide);
        let (shifted, sum) = shifted(logits.cast(ty.dtype.accumulator()), -1);
        // Not a gather: this way one fused loop computes maximum, sum and choice, and no index can go astray.
        let chosen = g.iota(wide, ty.shape.clone(), axis).equals(label.expand(axis));
        let loss = sum.reshape(labels.shape()).log() - chosen.select(shifted, 0.0).sum(&[-1]);
        let classes = logits.count_over(wide, &[-1]);
        let valid = label.greater_equal(0.0).and(label.less(classes));
        let loss = valid.select(loss, f64::NAN);
        let ignored = match wide {
            DType::I32 => i32::try_from(self.ignore_index).ok().map(Array::scalar),
            _ => Some(Array::scalar(self.ignore_index)),
        };
        let loss = match ignored {
            Some(ignored) => label.equals(g.constant(ignored)).select(0.0, loss),
            None => loss,
        };
        Some(vec![loss.cast(ty.dtype)])
    }
}

impl OpTable for CrossEntropy {
    const NAMES: &'static [&'static str] = &["cross_entropy"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(CrossEntropy { ignore_index: attrs.int("ignore_index")? })
    }
    fn samples() -> Vec<Sample> {
        let op = CrossEntropy { ignore_index: -100 };
        let real = Range::Real(-2.0, 2.0);
        vec![
            Sample::reals(op, &[&[4, 3]]).and(DType::I32, &[4], Range::Int(0, 3)),
            Sample::reals(op, &[&[2, 3, 5]]).and(DType::I64, &[2, 3], Range::Int(0, 5)),
            Sample::reals(op, &[&[5]]).and(DType::U8, &[], Range::Int(0, 5)),
            Sample::reals(op, &[&[0, 3]]).and(DType::U32, &[0], Range::Int(0, 3)),
            // Most labels are ignored.
            Sample::reals(CrossEntropy { ignore_index: -1 }, &[&[6, 2]]).and(
                DType::I32,
                &[6],
                Range::Int(-1, 2),
            ),
            Sample::within(op, &[&[4, 3]], Range::Real(0.99e8, 1e8)).and(DType::I32, &[4], Range::Int(0, 3)),
            Sample::reals(op, &[]).and(DType::BF16, &[4, 3], real).and(DType::I32, &[4], Range::Int(0, 3)),
        ]
    }
}
