//! The records of a run: one a step, one an evaluation. They are the lines of `metrics.jsonl` and the input of
//! the report.
//!
//! JSON has no NaN and no infinity. A figure that is not finite is written as `null` and read back as NaN.

use serde::{Deserialize, Deserializer, Serialize};

/// What one training step measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The step's number; the first is 1.
    pub step: u64,
    /// The loss on the step's own batch.
    #[serde(deserialize_with = "null_is_nan")]
    pub train_loss: f64,
    /// The learning rate used.
    #[serde(deserialize_with = "null_is_nan")]
    pub lr: f64,
    /// Wall-clock milliseconds of the step.
    #[serde(deserialize_with = "null_is_nan")]
    pub step_ms: f64,
    /// Tokens, images or rows a second.
    #[serde(deserialize_with = "null_is_nan")]
    pub items_per_second: f64,
}

/// What one evaluation measured, after the step that it names.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EvalRecord {
    /// The last step before the evaluation.
    pub step: u64,
    /// The mean loss on held-out data.
    pub val_loss: Option<f64>,
    /// The share of held-out items answered rightly, from 0 to 1.
    pub test_accuracy: Option<f64>,
}

/// One line of `metrics.jsonl`: a step, with the evaluation's figures where one followed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricsLine {
    /// The step.
    #[serde(flatten)]
    pub step: StepRecord,
    /// The mean loss on held-out data.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub val_loss: Option<f64>,
    /// The share of held-out items answered rightly, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub test_accuracy: Option<f64>,
}

impl MetricsLine {
    /// A step's line, with the figures of the evaluation that followed it, if one did.
    pub fn new(step: StepRecord, eval: Option<EvalRecord>) -> Self {
        let eval = eval.unwrap_or_default();
        MetricsLine { step, val_loss: eval.val_loss, test_accuracy: eval.test_accuracy }
    }

    /// The evaluation on this line, if it has one.
    pub fn eval(&self) -> Option<EvalRecord> {
        let (val_loss, test_accuracy) = (self.val_loss, self.test_accuracy);
        let any = val_loss.is_some() || test_accuracy.is_some();
        any.then_some(EvalRecord { step: self.step.step, val_loss, test_accuracy })
    }
}

fn null_is_nan<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(d)?.unwrap_or(f64::NAN))
}

fn present<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    null_is_nan(d).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_round_trips() {
        let step = StepRecord { step: 3, train_loss: 2.5, lr: 3e-4, step_ms: 12.0, items_per_second: 1000.0 };
        let line =
            MetricsLine::new(step, Some(EvalRecord { step: 3, val_loss: Some(2.4), test_accuracy: None }));
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(
            text,
            r#"{"step":3,"train_loss":2.5,"lr":0.0003,"step_ms":12.0,"items_per_second":1000.0,"val_loss":2.4}"#
        );
        assert_eq!(serde_json::from_str::<MetricsLine>(&text).unwrap(), line);
    }

    #[test]
    fn figures_that_are_not_finite_become_null_and_come_back_as_nan() {
        let step = StepRecord {
            step: 1,
            train_loss: f64::NAN,
            items_per_second: f64::INFINITY,
            ..Default::default()
        };
        let eval = EvalRecord { step: 1, val_loss: Some(f64::NAN), test_accuracy: None };
        let text = serde_json::to_string(&MetricsLine::new(step, Some(eval))).unwrap();
        assert!(text.contains(r#""train_loss":null"#), "{text}");
        let back: MetricsLine = serde_json::from_str(&text).unwrap();
        assert!(back.step.train_loss.is_nan() && back.step.items_per_second.is_nan());
        assert!(back.eval().unwrap().val_loss.unwrap().is_nan());
    }
}
