//! An update rule of one's own, AdaBelief (Zhuang et al., "AdaBelief optimizer", NeurIPS 2020, algorithm 2): steps are long
//! where gradients are as expected, and short where they are not. It is compiled into the step like any other rule, and here
//! its numbers are compared with the formula by hand.
//!
//! ```text
//! m ← β1 m + (1 − β1) g
//! s ← β2 s + (1 − β2) (g − m)² + ε
//! p ← p − η (m / (1 − β1ᵗ)) / (√(s / (1 − β2ᵗ)) + ε)
//! ```
//!
//! `cargo run --release -p onestep --example own_rule`

use onestep::extend::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep::prelude::*;

/// AdaBelief. Numbers: `lr`, `one_minus_beta1`, `one_minus_beta2`, `eps`. Slots: `m`, `s`.
#[derive(Clone, Copy, Debug)]
struct AdaBelief {
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
}

impl UpdateRule for AdaBelief {
    fn name(&self) -> &'static str {
        "adabelief"
    }

    /// State scalars, so that changing one compiles nothing. A rate near 1 is kept as its distance from 1.
    fn hyper(&self) -> Vec<Hyper> {
        vec![
            Hyper::new("lr", self.lr),
            Hyper::new("one_minus_beta1", 1.0 - self.beta1),
            Hyper::new("one_minus_beta2", 1.0 - self.beta2),
            Hyper::new("eps", self.eps),
        ]
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        vec![SlotSpec::zeros("m", shape), SlotSpec::zeros("s", shape)]
    }

    fn check(&self) -> Result<(), OptimError> {
        let rates = [("beta1", self.beta1), ("beta2", self.beta2)];
        match rates.into_iter().find(|(_, rate)| !(0.0..1.0).contains(rate)) {
            None => Ok(()),
            Some((name, value)) => {
                Err(OptimError::Hyper { owner: "adabelief", name, value, want: "use a number in [0, 1)" })
            }
        }
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [m, s] = *slots else { return ctx.wrong_slots(p) };
        let m = m + (g - m) * ctx.hyper("one_minus_beta1");
        let s = s + ((g - m).square() - s) * ctx.hyper("one_minus_beta2") + ctx.hyper("eps");
        let (mean, belief) =
            (m / ctx.bias_correction("one_minus_beta1"), s / ctx.bias_correction("one_minus_beta2"));
        (p - mean / (belief.sqrt() + ctx.hyper("eps")) * ctx.lr(), vec![m, s])
    }
}

/// The largest relative difference of a parameter from the formula by hand, after some steps on Σ (w − target)².
pub fn run(steps: usize) -> Result<f64, Error> {
    let target = [3.0, -1.0, 0.5];
    let g = GraphBuilder::new("well");
    let w = g.parameter("w", &[3], Init::ZEROS);
    let targets = g.input("target", F32, [3]);
    let rule = AdaBelief { lr: 0.05, beta1: 0.9, beta2: 0.999, eps: 1e-8 };
    let mut step = TrainingStep::new(g.finish((w - targets).square().sum_all())?)
        .optimizer(rule)
        .compile(&Device::cpu()?)?;
    let mut state = step.init(0)?;
    let batch = [Array::from_f64(F32, &[3], &target)?];

    let ([mut p, mut m, mut s], mut most) = ([[0.0f64; 3]; 3], 0.0f64);
    for t in 1..=steps as i32 {
        step.run(&mut state, &batch)?;
        let (c1, c2) = (1.0 - rule.beta1.powi(t), 1.0 - rule.beta2.powi(t));
        for i in 0..3 {
            let g = 2.0 * (p[i] - target[i]);
            m[i] = rule.beta1 * m[i] + (1.0 - rule.beta1) * g;
            s[i] = rule.beta2 * s[i] + (1.0 - rule.beta2) * (g - m[i]).powi(2) + rule.eps;
            p[i] -= rule.lr * (m[i] / c1) / ((s[i] / c2).sqrt() + rule.eps);
        }
        for (compiled, by_hand) in state.as_slice::<f32>("w")?.iter().zip(p) {
            most = most.max((*compiled as f64 - by_hand).abs() / by_hand.abs().max(1.0));
        }
    }
    Ok(most)
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    println!("in 100 steps the compiled rule is never further from its formula than {:.1e}", run(100)?);
    Ok(())
}
