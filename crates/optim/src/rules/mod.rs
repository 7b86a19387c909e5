//! The update rules, one file each, and the table that lists them.
//!
//! The formulas are those that PyTorch documents (`torch.optim`, 2.x). Throughout, `p` is the parameter, `g` its
//! gradient (negated first under `maximize`), `t` the step from 1, `η` the learning rate and `λ` the weight decay.

mod adam;
mod adamw;
mod sgd;

pub use adam::Adam;
pub use adamw::AdamW;
pub use sgd::Sgd;

use crate::UpdateRule;

/// One row of the table of rules.
#[derive(Clone, Copy, Debug)]
pub struct RuleRow {
    /// The rule's name.
    pub name: &'static str,
    /// The rule with this learning rate and every other option at its default.
    pub with_lr: fn(f64) -> Box<dyn UpdateRule>,
}

/// Every rule.
pub const RULES: &[RuleRow] = &[
    RuleRow { name: "sgd", with_lr: |lr| Box::new(Sgd::new(lr)) },
    RuleRow { name: "adam", with_lr: |lr| Box::new(Adam::new(lr)) },
    RuleRow { name: "adamw", with_lr: |lr| Box::new(AdamW::new(lr)) },
];
