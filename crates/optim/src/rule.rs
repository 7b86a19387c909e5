//! What an update rule is. Each rule is one file in `rules/` and one row of the table in `rules/mod.rs`.
//!
//! A rule is a pure function from a parameter, its gradient and its slots to their new values, written with graph
//! operations. What changes its form (whether there is momentum, Nesterov, AMSGrad, maximisation) is fixed when the
//! graph is built; its numbers are state scalars, so that they may change between steps.

use crate::OptimError;
use onestep_ir::{DType, GraphBuilder, Init, Mistake, Tensor};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A number of a rule: the state scalar `opt/<name>`, with its first value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hyper {
    /// Its name.
    pub name: &'static str,
    /// Its first value, rounded to the scalar's dtype.
    pub value: f64,
}

impl Hyper {
    /// A number from its name and first value.
    pub fn new(name: &'static str, value: f64) -> Hyper {
        Hyper { name, value }
    }
}

/// A slot of a rule: for each parameter, the state `opt/<path>/<name>` of the parameter's dtype.
#[derive(Clone, PartialEq, Debug)]
pub struct SlotSpec {
    /// Its name.
    pub name: &'static str,
    /// Its sizes: most often the parameter's.
    pub shape: Vec<usize>,
    /// Its first value. A slot that starts as a tensor of the first step takes it there, by [`RuleContext::starting`].
    pub init: Init,
}

impl SlotSpec {
    /// A slot that starts at zero.
    pub fn zeros(name: &'static str, shape: &[usize]) -> SlotSpec {
        SlotSpec { name, shape: shape.to_vec(), init: Init::ZEROS }
    }
}

/// An update rule.
pub trait UpdateRule: std::fmt::Debug + Send + Sync {
    /// Its name, as the table of rules has it.
    fn name(&self) -> &'static str;

    /// Its numbers. One is named `lr`: the learning rate, which the schedule multiplies.
    fn hyper(&self) -> Vec<Hyper>;

    /// Its slots for a parameter of these sizes. The order is that of the layout.
    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec>;

    /// Scalars that every step moves and all parameters share: the state `opt/<name>`, with the first value.
    fn scalars(&self) -> Vec<Hyper> {
        vec![]
    }

    /// The new values of [`UpdateRule::scalars`], in their order; the old ones are in [`RuleContext::hyper`].
    fn advance<'g>(&self, _ctx: &RuleContext<'g>) -> Vec<Tensor<'g>> {
        vec![]
    }

    /// The rule that updates parameters of these sizes in this one's stead, with numbers of its own
    /// (`opt/<rule>/<number>`); rules of one name are one rule. `None`: this one takes them.
    fn instead(&self, _shape: &[usize]) -> Option<&dyn UpdateRule> {
        None
    }

    /// Refuses numbers out of range and options that exclude each other.
    fn check(&self) -> Result<(), OptimError> {
        Ok(())
    }

    /// The new parameter and the new slots, from the old ones and the gradient `g`.
    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>);
}

/// What a rule sees of the step besides one parameter: the counter and the numbers, as scalars of the parameter's
/// dtype.
#[derive(Debug)]
pub struct RuleContext<'g> {
    graph: &'g GraphBuilder,
    dtype: DType,
    step: Tensor<'g>,
    hyper: Vec<(&'static str, Tensor<'g>)>,
    shared: RefCell<BTreeMap<&'static str, Tensor<'g>>>,
}

impl<'g> RuleContext<'g> {
    /// A context for parameters of `dtype`. `step` is the step's number from 1; the numbers are cast to `dtype`.
    pub fn new(dtype: DType, step: Tensor<'g>, hyper: &[(&'static str, Tensor<'g>)]) -> RuleContext<'g> {
        let hyper = hyper.iter().map(|(name, value)| (*name, value.cast(dtype))).collect();
        RuleContext { graph: step.graph(), dtype, step, hyper, shared: RefCell::default() }
    }

    /// The graph's builder.
    pub fn graph(&self) -> &'g GraphBuilder {
        self.graph
    }

    /// The dtype of the parameters at hand, of their slots and of every scalar given here.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// A number of the rule, or one of its scalars before this step. One that the rule does not declare is a mistake on
    /// the graph's record.
    pub fn hyper(&self, name: &str) -> Tensor<'g> {
        match self.hyper.iter().find(|(n, _)| *n == name) {
            Some((_, value)) => *value,
            None => {
                let what = format!("the rule has no number '{name}'");
                self.graph.mistake("hyper", &[], Mistake::new(what, "list it in the rule's hyper()"))
            }
        }
    }

    /// The learning rate of this step: `opt/lr` times the schedule's multiplier.
    pub fn lr(&self) -> Tensor<'g> {
        self.hyper("lr")
    }

    /// The step's number `t`, from 1.
    pub fn t(&self) -> Tensor<'g> {
        self.once("t", || self.step.cast(self.dtype))
    }

    /// Whether this is the first step: `t = 1`.
    pub fn is_first(&self) -> Tensor<'g> {
        self.once("is_first", || self.step.equals(1.0))
    }

    /// What an update gives when its slots are not those that the rule declares: a mistake on the graph's record.
    pub fn wrong_slots(&self, p: Tensor<'g>) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let what = "the slots are not those that the rule declares";
        (p.mistake("update", what, "give one tensor for each of slots()"), vec![])
    }

    /// A slot that starts as `first` at the first step, whatever it holds before.
    pub fn starting(&self, slot: Tensor<'g>, first: Tensor<'g>) -> Tensor<'g> {
        self.is_first().select(first, slot)
    }

    /// `1 − βᵗ` from the number `c = 1 − β`, with all of its digits: `−expm1(t · log1p(−c))`.
    pub fn bias_correction(&self, c: &'static str) -> Tensor<'g> {
        self.once(c, || -((-self.hyper(c)).log_1p() * self.t()).exp_m1())
    }

    /// A scalar that every parameter shares: computed by `f` for the first and remembered under `key`.
    pub fn once(&self, key: &'static str, f: impl FnOnce() -> Tensor<'g>) -> Tensor<'g> {
        if let Some(known) = self.shared.borrow().get(key) {
            return *known;
        }
        let value = f();
        self.shared.borrow_mut().insert(key, value);
        value
    }
}
