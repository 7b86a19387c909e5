//! Parameter groups: parameters chosen by the pattern of their paths, with numbers, a schedule or a rule of their own, or
//! frozen. All groups are in one executable.
//!
//! A group has state for what it sets, `opt/<group>/lr` or `opt/<group>/weight_decay`, and shares every other number with
//! the step: a change of `opt/lr` reaches all groups that have no rate of their own. A group with a rule of its own has
//! all of that rule's numbers.
//!
//! The first group with a pattern that fits takes a parameter; what none takes is updated by the step's own rule and
//! numbers. A pattern that takes nothing is an error.

use crate::{OptimError, Schedule, UpdateRule};
use onestep_ir::nearest;
use std::sync::Arc;

/// Some of the parameters.
///
/// ```
/// use onestep_optim::{Group, Muon};
///
/// let groups = [
///     Group::new("no_decay", ["*.bias", "*.norm*"]).weight_decay(0.0),
///     Group::new("hidden", ["block.*.weight"]).rule(Muon::new(0.02)),
///     Group::new("embedding", ["embed*"]).frozen(),
/// ];
/// assert_eq!(groups[0].name(), "no_decay");
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) name: String,
    pub(crate) patterns: Vec<String>,
    pub(crate) rule: Option<Arc<dyn UpdateRule>>,
    pub(crate) numbers: Vec<(String, f64)>,
    pub(crate) lr_scale: Option<f64>,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) frozen: bool,
}

impl Group {
    /// The parameters whose paths fit one of the patterns, in which `*` stands for any run of characters, dots too.
    pub fn new<S: Into<String>>(name: &str, patterns: impl IntoIterator<Item = S>) -> Group {
        Group {
            name: name.to_string(),
            patterns: patterns.into_iter().map(Into::into).collect(),
            rule: None,
            numbers: vec![],
            lr_scale: None,
            schedule: None,
            frozen: false,
        }
    }

    /// Its name, which is part of its state's paths.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Another rule, with all of its numbers in `opt/<group>/…`.
    pub fn rule(self, rule: impl UpdateRule + 'static) -> Group {
        Group { rule: Some(Arc::new(rule)), ..self }
    }

    /// A number of the rule: the state `opt/<group>/<number>`.
    pub fn set(mut self, number: &str, value: f64) -> Group {
        self.numbers.push((number.to_string(), value));
        self
    }

    /// A learning rate of its own.
    pub fn lr(self, lr: f64) -> Group {
        self.set("lr", lr)
    }

    /// Multiplies the learning rate, its own or the one that it shares, by the state `opt/<group>/lr_scale`.
    pub fn lr_scale(self, scale: f64) -> Group {
        Group { lr_scale: Some(scale), ..self }
    }

    /// A weight decay of its own.
    pub fn weight_decay(self, weight_decay: f64) -> Group {
        self.set("weight_decay", weight_decay)
    }

    /// A schedule of its own, with its numbers in `opt/<group>/schedule/…`.
    pub fn schedule(self, schedule: Schedule) -> Group {
        Group { schedule: Some(schedule), ..self }
    }

    /// Keeps its parameters as they are: they have no gradient and no slots.
    pub fn frozen(self) -> Group {
        Group { frozen: true, ..self }
    }

    /// Refuses what is wrong whatever the parameters are.
    pub(crate) fn check(&self) -> Result<(), OptimError> {
        let group = || self.name.clone();
        if self.name.is_empty() || self.name.contains('/') {
            return Err(OptimError::GroupName { group: group() });
        }
        if self.patterns.is_empty() {
            return Err(OptimError::GroupWithoutPattern { group: group() });
        }
        let numbers = self.numbers.iter().cloned().chain(self.lr_scale.map(|x| ("lr_scale".to_string(), x)));
        for (number, value) in numbers {
            let signed = !matches!(&*number, "lr" | "lr_scale" | "weight_decay");
            if !value.is_finite() || value < 0.0 && !signed {
                return Err(OptimError::GroupNumber { group: group(), number, value });
            }
        }
        self.rule.as_ref().map_or(Ok(()), |rule| rule.check())?;
        self.schedule.as_ref().map_or(Ok(()), Schedule::check)
    }
}

/// The index of each path's group, `None` where no group takes it.
pub(crate) fn assign(groups: &[Group], paths: &[&str]) -> Result<Vec<Option<usize>>, OptimError> {
    let mut taken = vec![None; paths.len()];
    for (i, group) in groups.iter().enumerate() {
        group.check()?;
        if groups[..i].iter().any(|g| g.name == group.name) {
            return Err(OptimError::RepeatedGroup { group: group.name.clone() });
        }
        let free: Vec<usize> = (0..paths.len()).filter(|&at| taken[at].is_none()).collect();
        for pattern in &group.patterns {
            let mut fitting = free.iter().filter(|&&at| fits(pattern, paths[at])).peekable();
            if fitting.peek().is_none() {
                let owner = paths.iter().position(|p| fits(pattern, p)).and_then(|at| taken[at]);
                return Err(OptimError::PatternTakesNothing {
                    group: group.name.clone(),
                    pattern: pattern.clone(),
                    earlier: owner.map(|g: usize| groups[g].name.clone()),
                    nearest: nearest(pattern, paths.iter().copied()),
                });
            }
            fitting.for_each(|&at| taken[at] = Some(i));
        }
    }
    Ok(taken)
}

/// Whether `path` has the form of `pattern`: its parts between the stars, in order, the first and last at the ends.
fn fits(pattern: &str, path: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == path };
    let Some(mut path) = path.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        match path.find(part) {
            Some(at) => path = &path[at + part.len()..],
            None => return false,
        }
    }
    path.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, path, want) in [
            ("w", "w", true),
            ("w", "ww", false),
            ("*", "", true),
            ("*.bias", "block.3.attn.bias", true),
            ("*.bias", "bias", false),
            ("*.bias", "x.bias.y", false),
            ("block.*.norm*", "block.3.norm1.weight", true),
            ("block.*.norm*", "block.norm", false),
            ("a*b*b", "ab", false),
            ("a*b*b", "abb", true),
            ("ab*ba", "aba", false),
            ("**", "x", true),
        ] {
            assert_eq!(fits(pattern, path), want, "{pattern} on {path}");
        }
    }

    #[test]
    fn the_first_group_takes_a_parameter() {
        let groups = [Group::new("a", ["*.bias", "fc1.*"]), Group::new("b", ["fc2.*"])];
        let paths = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "out"];
        let of = assign(&groups, &paths).unwrap();
        assert_eq!(of, [Some(0), Some(0), Some(1), Some(0), None]);
    }
}
