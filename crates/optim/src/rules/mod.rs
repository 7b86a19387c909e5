//! The update rules, one file each, and the table that lists them.
//!
//! The formulas are those that PyTorch documents (`torch.optim`, 2.x), and for rules that it lacks those of the papers.
//! Throughout, `p` is the parameter, `g` its gradient (negated first under `maximize`), `t` the step from 1, `η` the
//! learning rate and `λ` the weight decay.
//!
//! A number near 1 is kept as its distance from 1: `1 − 0.999` in f32 has lost half its digits.

mod adadelta;
mod adafactor;
mod adagrad;
mod adam;
mod adamax;
mod adamw;
mod asgd;
mod lamb;
mod lion;
mod muon;
mod nadam;
mod newton_schulz;
mod radam;
mod rmsprop;
mod rprop;
mod sgd;
mod sparse_adam;

pub use adadelta::Adadelta;
pub use adafactor::Adafactor;
pub use adagrad::Adagrad;
pub use adam::{Adam, AdamWith};
pub use adamax::Adamax;
pub use adamw::AdamW;
pub use asgd::Asgd;
pub use lamb::Lamb;
pub use lion::Lion;
pub use muon::{Muon, MuonRate};
pub use nadam::Nadam;
pub use radam::Radam;
pub use rmsprop::RmsProp;
pub use rprop::Rprop;
pub use sgd::Sgd;
pub use sparse_adam::SparseAdam;

use crate::error::{check, check_non_negative};
use crate::{OptimError, UpdateRule};

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
    RuleRow { name: "rmsprop", with_lr: |lr| Box::new(RmsProp::new(lr)) },
    RuleRow { name: "adagrad", with_lr: |lr| Box::new(Adagrad::new(lr)) },
    RuleRow { name: "adadelta", with_lr: |lr| Box::new(Adadelta::new(lr)) },
    RuleRow { name: "adamax", with_lr: |lr| Box::new(Adamax::new(lr)) },
    RuleRow { name: "nadam", with_lr: |lr| Box::new(Nadam::new(lr)) },
    RuleRow { name: "radam", with_lr: |lr| Box::new(Radam::new(lr)) },
    RuleRow { name: "rprop", with_lr: |lr| Box::new(Rprop::new(lr)) },
    RuleRow { name: "asgd", with_lr: |lr| Box::new(Asgd::new(lr)) },
    RuleRow { name: "sparse_adam", with_lr: |lr| Box::new(SparseAdam::new(lr)) },
    RuleRow { name: "adafactor", with_lr: |lr| Box::new(Adafactor::new(lr)) },
    RuleRow { name: "lamb", with_lr: |lr| Box::new(Lamb::new(lr)) },
    RuleRow { name: "lion", with_lr: |lr| Box::new(Lion::new(lr)) },
    RuleRow { name: "muon", with_lr: |lr| Box::new(Muon::new(lr)) },
];

/// Builder methods that set a field each, or with parentheses several.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $ty:ty),+ $(,)?) => {$(
        $(#[$doc])*
        pub fn $name(self, $name: $ty) -> Self { Self { $name, ..self } }
    )+};
    ($(#[$doc:meta])* $name:ident($($field:ident),+)) => {
        $(#[$doc])*
        pub fn $name(self, $($field: f64),+) -> Self { Self { $($field,)+ ..self } }
    };
}
pub(crate) use setters;

/// Refuses numbers, given by name, that are negative or not finite.
fn check_all(rule: &'static str, numbers: &[(&'static str, f64)]) -> Result<(), OptimError> {
    numbers.iter().try_for_each(|(name, value)| check_non_negative(rule, name, *value))
}

/// Refuses decay rates, given by name, outside `[0, 1)`.
fn check_rates(rule: &'static str, rates: &[(&'static str, f64)]) -> Result<(), OptimError> {
    let unit = |x: f64| (0.0..1.0).contains(&x);
    rates.iter().try_for_each(|(name, value)| check(rule, name, *value, unit, "use a number in [0, 1)"))
}
