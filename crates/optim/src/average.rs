//! Averages of the parameters over the steps: exponential (EMA) and equal (SWA; Izmailov and others, "Averaging weights
//! leads to wider optima and better generalization", UAI 2018).
//!
//! ```text
//! a ← a + w (p − a)        after the step's update; n is the number of steps averaged before, and w = 1 at n = 0
//! EMA                      w = 1 − d                                      (torch.optim.swa_utils)
//! EMA, corrected           w = (1 − d) / (1 − dⁿ⁺¹)                       (as Adam corrects its moments)
//! EMA, warmed up           w = max(1 − d, (1 + n/γ)^−κ)                   (timm's ModelEmaV3)
//! SWA                      w = 1 / (n + 1)
//! ```
//!
//! The averages are the state `ema/<path>` or `swa/<path>`, written with the step or not at all; they begin as zeros and are
//! the parameters after the first step that is averaged. A program that evaluates reads them in place of the parameters
//! once [`averaged`] has made its graph, and shares all other state.
//!
//! Numbers: `opt/average/count` (n), `start`, `every` (`i32`: step `t` is averaged if `t > start` and `every` divides
//! `t − start`), and of an EMA `one_minus_decay`, `gamma`, `power`.

use crate::error::check;
use crate::{OptimError, Trained};
use onestep_ir::{DType, Graph, GraphBuilder, Init, Role, Tensor};

/// How an exponential average begins, when there is little to average.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Warmup {
    /// Like at any other time: the first parameters weigh much for long.
    #[default]
    None,
    /// With the weights that an exponential average from zero has after division by `1 − dⁿ`.
    Corrected,
    /// With the decay `1 − (1 + n/gamma)^−power` until that reaches the decay itself; timm's numbers are 1 and 2/3.
    Power {
        /// Stretches the warm-up.
        gamma: f64,
        /// Its exponent.
        power: f64,
    },
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Ema { decay: f64, warmup: Warmup },
    Swa,
}

/// Averages of the trained parameters over the steps.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Average {
    kind: Kind,
    start: u32,
    every: u32,
}

impl Average {
    /// An exponential average with this decay, such as 0.999: the state `ema/<path>`.
    pub fn ema(decay: f64) -> Average {
        Average { kind: Kind::Ema { decay, warmup: Warmup::None }, start: 0, every: 1 }
    }

    /// The mean of the parameters, all steps weighing the same: the state `swa/<path>`.
    pub fn swa() -> Average {
        Average { kind: Kind::Swa, start: 0, every: 1 }
    }

    /// How an exponential average begins; an equal one needs no warm-up.
    pub fn warmup(self, warmup: Warmup) -> Average {
        match self.kind {
            Kind::Ema { decay, .. } => Average { kind: Kind::Ema { decay, warmup }, ..self },
            Kind::Swa => self,
        }
    }

    /// Averages from the step after `start` on.
    pub fn after(self, start: u32) -> Average {
        Average { start, ..self }
    }

    /// Averages every so many steps.
    pub fn every(self, steps: u32) -> Average {
        Average { every: steps, ..self }
    }

    /// Refuses numbers out of range.
    pub fn check(&self) -> Result<(), OptimError> {
        let counter = |x: f64| x <= i32::MAX as f64;
        check("average", "start", self.start as f64, counter, "the counter is 32 bits: use fewer steps")?;
        let steps = |x: f64| (1.0..=i32::MAX as f64).contains(&x);
        check("average", "every", self.every as f64, steps, "use a number of steps, 1 or above, in 32 bits")?;
        let Kind::Ema { decay, warmup } = self.kind else { return Ok(()) };
        check("average", "decay", decay, |x| (0.0..1.0).contains(&x), "use a number in [0, 1)")?;
        if let Warmup::Power { gamma, power } = warmup {
            let positive = |x: f64| x > 0.0 && x.is_finite();
            check("average", "gamma", gamma, positive, "use a finite number above 0")?;
            check("average", "power", power, positive, "use a finite number above 0")?;
        }
        Ok(())
    }

    /// Declares the state and updates it from the parameters' new values. Gives each average's path and new value.
    pub(crate) fn update<'g>(
        &self,
        g: &'g GraphBuilder,
        trained: &[Trained<'g>],
        parameters: &[Tensor<'g>],
    ) -> Result<Vec<(String, Tensor<'g>)>, OptimError> {
        self.check()?;
        let Some(completed) = g.find_state("opt/step") else { return Ok(vec![]) };
        let wide = trained.iter().any(|t| t.parameter.dtype() == DType::F64);
        let dtype = if wide { DType::F64 } else { DType::F32 };
        let count = number(g, "count", DType::I32, 0.0);
        let start = number(g, "start", DType::I32, self.start as f64);
        let every = number(g, "every", DType::I32, self.every as f64);
        let since = completed + 1.0 - start;
        let due = since.greater(0.0).and(since.remainder(every).equals(0.0));
        // Everything else reads the new count, so that the old one is free to be overwritten.
        let counted = count + 1.0;
        let weight = counted.equals(1.0).select(1.0, self.weight(g, counted.cast(dtype)));
        g.update(count, due.select(counted, count), true);
        let prefix = self.prefix();
        let one = |(t, new): (&Trained<'g>, &Tensor<'g>)| {
            let ty = new.ty().map(|ty| (ty.dtype, ty.shape.sizes().unwrap_or_default()));
            let (dtype, sizes) = ty.unwrap_or((dtype, vec![]));
            let path = format!("{prefix}{}", t.path);
            let old = g.state(&path, Role::Buffer, dtype, &sizes, Init::ZEROS);
            let average = due.select(old + (*new - old) * weight.cast(dtype), old);
            g.update(old, average, true);
            (path, average)
        };
        Ok(trained.iter().zip(parameters).map(one).collect())
    }

    /// The weight `w` of the new parameters, the `m`-th that are averaged (`n + 1` above), after the first.
    fn weight<'g>(&self, g: &'g GraphBuilder, m: Tensor<'g>) -> Tensor<'g> {
        let number = |name, value| number(g, name, m.dtype(), value);
        let Kind::Ema { decay, warmup } = self.kind else { return 1.0 / m };
        // The state holds 1 − d, since 1 − 0.9999 in f32 has lost most of its digits.
        let c = number("one_minus_decay", 1.0 - decay);
        match warmup {
            Warmup::None => c,
            Warmup::Corrected => c / -((-c).log_1p() * m).exp_m1(),
            Warmup::Power { gamma, power } => {
                let (gamma, power) = (number("gamma", gamma), number("power", power));
                c.maximum(((m - 1.0) / gamma + 1.0).pow(-power))
            }
        }
    }

    fn prefix(&self) -> &'static str {
        match self.kind {
            Kind::Ema { .. } => "ema/",
            Kind::Swa => "swa/",
        }
    }
}

fn number<'g>(g: &'g GraphBuilder, name: &str, dtype: DType, value: f64) -> Tensor<'g> {
    g.state(&format!("opt/average/{name}"), Role::Scalar, dtype, &[], Init::Constant(value))
}

/// The graph that reads `ema/<path>` or `swa/<path>` in place of each parameter of which the training step keeps an average.
/// Everything else stays: it runs on the step's own state.
pub fn averaged(graph: &Graph, step: &Graph) -> Result<Graph, OptimError> {
    let average = |path: &str| {
        let names = ["ema/", "swa/"].map(|prefix| format!("{prefix}{path}"));
        names.into_iter().find(|name| step.state(name).is_some())
    };
    let mut out = graph.clone();
    let mut found = false;
    for s in out.states.iter_mut().filter(|s| s.role == Role::Parameter) {
        if let Some(name) = average(&s.name) {
            (s.name, s.role, s.init) = (name.into(), Role::Buffer, Init::ZEROS);
            found = true;
        }
    }
    if found { Ok(out) } else { Err(OptimError::NoAverages) }
}
