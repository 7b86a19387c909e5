//! Parts of a step: parameters that share a rule and its numbers. A part is made when the first of its parameters comes.

use crate::{Hyper, OptimError, RuleContext, Schedule, StepOptions, UpdateRule};
use onestep_ir::{DType, GraphBuilder, Init, Mistake, Role, Tensor, nearest};
use std::collections::BTreeMap;

/// A rule with the context of its parameters, of either dtype.
pub(crate) struct Part<'a, 'g> {
    pub rule: &'a dyn UpdateRule,
    contexts: [RuleContext<'g>; 2],
    scalars: Vec<Tensor<'g>>,
    wide: bool,
}

impl<'g> Part<'_, 'g> {
    /// The context for parameters of `dtype`.
    pub fn context(&self, dtype: DType) -> &RuleContext<'g> {
        &self.contexts[(dtype == DType::F64) as usize]
    }
}

/// The parts of a step, and the numbers that they share.
pub(crate) struct Parts<'a, 'g> {
    g: &'g GraphBuilder,
    rule: &'a dyn UpdateRule,
    options: &'a StepOptions,
    /// The dtype of every scalar.
    dtype: DType,
    t: Tensor<'g>,
    /// By owner, a group or the step, and path. Two owners of one path are a mistake on the graph's record.
    numbers: BTreeMap<(Option<usize>, String), Tensor<'g>>,
    parts: BTreeMap<(Option<usize>, &'static str), Part<'a, 'g>>,
    /// The numbers that groups set and some rule of theirs has.
    known: Vec<(usize, &'static str)>,
}

impl<'a, 'g> Parts<'a, 'g> {
    pub fn new(
        g: &'g GraphBuilder,
        rule: &'a dyn UpdateRule,
        options: &'a StepOptions,
        dtype: DType,
        t: Tensor<'g>,
    ) -> Parts<'a, 'g> {
        let (numbers, parts) = (BTreeMap::new(), BTreeMap::new());
        Parts { g, rule, options, dtype, t, numbers, parts, known: vec![] }
    }

    /// The part of a parameter of these sizes in this group.
    pub fn of(&mut self, group: Option<usize>, shape: &[usize]) -> &Part<'a, 'g> {
        let options = self.options;
        let own = group.and_then(|at| options.groups[at].rule.as_deref());
        let first = own.unwrap_or(self.rule);
        let instead = first.instead(shape);
        let rule = instead.unwrap_or(first);
        let key = (group, rule.name());
        if !self.parts.contains_key(&key) {
            let below = instead.map(|rule| format!("/{}", rule.name())).unwrap_or_default();
            let part = self.part(group, own.is_some(), rule, &below);
            self.parts.insert(key, part);
        }
        &self.parts[&key]
    }

    /// A rule's numbers as they are at this step. `below` is what the rule's own numbers have in their paths.
    fn part(
        &mut self,
        group: Option<usize>,
        own: bool,
        rule: &'a dyn UpdateRule,
        below: &str,
    ) -> Part<'a, 'g> {
        let options = self.options;
        let set = group.map(|at| &options.groups[at]);
        let prefix = set.map_or("opt".to_string(), |group| format!("opt/{}", group.name));
        let home = if own { &*prefix } else { "opt" };
        let mut hyper = vec![];
        for h in rule.hyper() {
            let given = set.and_then(|g| g.numbers.iter().rev().find(|(name, _)| name == h.name));
            let tensor = match given {
                Some((_, value)) => self.number(group, format!("{prefix}/{}", h.name), *value),
                None => self.number(group.filter(|_| own), format!("{home}{below}/{}", h.name), h.value),
            };
            self.known.extend(group.map(|at| (at, h.name)));
            hyper.push((h.name, tensor));
        }
        self.schedule(group, &prefix, &mut hyper);

        let declare = |s: Hyper| (s.name, self.number(group, format!("{prefix}{below}/{}", s.name), s.value));
        let scalars: Vec<_> = rule.scalars().into_iter().map(declare).collect();
        hyper.extend(&scalars);
        Part {
            rule,
            contexts: [DType::F32, DType::F64].map(|dtype| RuleContext::new(dtype, self.t, &hyper)),
            scalars: scalars.into_iter().map(|(_, tensor)| tensor).collect(),
            wide: self.dtype == DType::F64,
        }
    }

    /// Multiplies the learning rate by the group's scale and by the schedule, the group's or the step's.
    fn schedule(&mut self, group: Option<usize>, prefix: &str, hyper: &mut [(&'static str, Tensor<'g>)]) {
        let options = self.options;
        let set = group.map(|at| &options.groups[at]);
        let scale = set.and_then(|g| g.lr_scale);
        let scale = scale.map(|scale| self.number(group, format!("{prefix}/lr_scale"), scale));
        let multiplier = match set.and_then(|g| g.schedule.as_ref()) {
            Some(schedule) => self.multiplier(group, format!("{prefix}/schedule"), schedule),
            None => self.multiplier(None, "opt/schedule".to_string(), &options.schedule),
        };
        for factor in scale.into_iter().chain(multiplier) {
            match hyper.iter_mut().find(|(name, _)| *name == "lr") {
                Some((_, lr)) => *lr = *lr * factor,
                None => {
                    let m = Mistake::new(
                        "the rule has no 'lr' to multiply",
                        "use a constant schedule with this rule",
                    );
                    self.g.mistake("schedule", &[factor], m);
                }
            }
        }
    }

    /// The state scalar at this path, declared when it is asked for first.
    fn number(&mut self, owner: Option<usize>, path: String, value: f64) -> Tensor<'g> {
        let (g, dtype) = (self.g, self.dtype);
        let declare =
            |(_, path): &(_, String)| g.state(path, Role::Scalar, dtype, &[], Init::Constant(value));
        *self.numbers.entry((owner, path)).or_insert_with_key(declare)
    }

    /// The multiplier of a schedule whose numbers are at this path; `None` for a constant one.
    fn multiplier(&mut self, owner: Option<usize>, path: String, schedule: &Schedule) -> Option<Tensor<'g>> {
        let key = (owner, path);
        if let Some(known) = self.numbers.get(&key) {
            return Some(*known);
        }
        let multiplier = schedule.build(self.g, &key.1, self.t, self.dtype)?;
        self.numbers.insert(key, multiplier);
        Some(multiplier)
    }

    /// Moves the rules' scalars, once all parameters are updated. A number that a group sets and no rule of its
    /// parameters has is an error.
    pub fn finish(self) -> Result<(), OptimError> {
        for part in self.parts.values() {
            let new = part.rule.advance(&part.contexts[part.wide as usize]);
            if new.len() != part.scalars.len() {
                let (want, got) = (part.scalars.len(), new.len());
                return Err(OptimError::ScalarCount { rule: part.rule.name(), want, got });
            }
            part.scalars.iter().zip(new).for_each(|(old, new)| self.g.update(*old, new, true));
        }
        let groups = self.options.groups.iter().enumerate().filter(|(_, group)| !group.frozen);
        for (at, group) in groups {
            let known = || self.known.iter().filter(|(group, _)| *group == at).map(|(_, name)| *name);
            let unknown = group.numbers.iter().find(|(name, _)| !known().any(|k| k == name));
            if let Some((number, _)) = unknown {
                return Err(OptimError::UnknownNumber {
                    group: group.name.clone(),
                    number: number.clone(),
                    nearest: nearest(number, known()),
                });
            }
        }
        Ok(())
    }
}
