//! L-BFGS (`torch.optim.LBFGS`; Liu and Nocedal, "On the Limited Memory BFGS Method for Large Scale Optimization",
//! Mathematical Programming 1989): a quasi-Newton method that evaluates loss and gradient as often as it needs to.
//!
//! It is no update rule, since one step of it has no fixed number of evaluations: it runs on the host, in f64, over all
//! parameters as one vector `x`, and calls a closure for the loss and the gradient. Its history lives here, not in state.
//!
//! ```text
//! d = −H g, where H is the inverse Hessian that the last pairs s = xₖ₊₁ − xₖ, y = gₖ₊₁ − gₖ make of (s·y / y·y) I
//! x ← x + t d, with t the learning rate, or found by a line search for the strong Wolfe conditions
//! ```

mod line_search;

use crate::error::{check, check_non_negative};
use crate::{OptimError, rules::setters};
use line_search::{Point, strong_wolfe};
use std::cell::Cell;
use std::collections::VecDeque;

/// A limited-memory BFGS method with its history.
///
/// ```
/// use onestep_optim::Lbfgs;
///
/// let mut method = Lbfgs::new(1.0).strong_wolfe(true);
/// let mut x = vec![-1.2, 1.0];
/// let loss = method.step(&mut x, |x, gradient| {
///     let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
///     gradient.copy_from_slice(&[-2.0 * a - 400.0 * x[0] * b, 200.0 * b]);
///     Ok::<f64, ()>(a * a + 100.0 * b * b)
/// });
/// assert!(loss.is_ok_and(|loss| (loss - 24.2).abs() < 1e-12)); // the loss before the step
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Lbfgs {
    lr: f64,
    iterations: usize,
    evaluations: Option<usize>,
    tolerance_gradient: f64,
    tolerance_change: f64,
    history: usize,
    strong_wolfe: bool,
    maximize: bool,
    memory: Memory,
}

/// What is kept between steps.
#[derive(Clone, PartialEq, Debug, Default)]
struct Memory {
    iterations: usize,
    evaluations: usize,
    direction: Vec<f64>,
    t: f64,
    gradient: Vec<f64>,
    pairs: VecDeque<Pair>,
    /// `s·y / y·y` of the last pair.
    scale: f64,
}

/// The differences of parameters and of gradients over one iteration.
#[derive(Clone, PartialEq, Debug)]
struct Pair {
    s: Vec<f64>,
    y: Vec<f64>,
    /// `1 / s·y`.
    rho: f64,
}

impl Lbfgs {
    /// The method with this learning rate (1 is Newton's own), without a line search.
    pub fn new(lr: f64) -> Lbfgs {
        Lbfgs {
            lr,
            iterations: 20,
            evaluations: None,
            tolerance_gradient: 1e-7,
            tolerance_change: 1e-9,
            history: 100,
            strong_wolfe: false,
            maximize: false,
            memory: Memory::default(),
        }
    }

    setters! {
        /// The learning rate: the length of a step in units of its direction, or what the line search tries first. It may
        /// change between steps.
        lr: f64,
        /// How many iterations a step has at most; 20 unless given.
        iterations: usize,
        /// A step ends where no element of the gradient is larger; 1e-7 unless given.
        tolerance_gradient: f64,
        /// A step ends where loss and parameters change by less; 1e-9 unless given.
        tolerance_change: f64,
        /// How many pairs are remembered; 100 unless given.
        history: usize,
        /// Looks along each direction for a point that meets the strong Wolfe conditions.
        strong_wolfe: bool,
        /// Ascends instead of descending.
        maximize: bool,
    }

    /// How many evaluations a step has at most; 5/4 of the iterations unless given.
    pub fn evaluations(self, evaluations: usize) -> Lbfgs {
        Lbfgs { evaluations: Some(evaluations), ..self }
    }

    /// Refuses numbers out of range.
    pub fn check(&self) -> Result<(), OptimError> {
        let numbers = [("lr", self.lr), ("tolerance_gradient", self.tolerance_gradient)];
        let counts = [("iterations", self.iterations), ("history", self.history)];
        let evaluations = ("evaluations", self.evaluations.unwrap_or(1));
        numbers.iter().try_for_each(|(name, x)| check_non_negative("lbfgs", name, *x))?;
        check_non_negative("lbfgs", "tolerance_change", self.tolerance_change)?;
        counts
            .iter()
            .chain([&evaluations])
            .try_for_each(|(name, n)| check("lbfgs", name, *n as f64, |n| n >= 1.0, "use 1 or more"))
    }

    /// How often the closure was called in all steps so far.
    pub fn evaluated(&self) -> usize {
        self.memory.evaluations
    }

    /// Forgets the history.
    pub fn reset(&mut self) {
        self.memory = Memory::default();
    }

    /// One step: several iterations, each with one evaluation or a line search of several. `evaluate` writes the gradient
    /// at its first argument into its second and gives the loss. Gives the loss before the step. A change of the length of
    /// `x` begins anew. Where loss or gradient is not finite, `x` does not go.
    pub fn step<E>(
        &mut self,
        x: &mut [f64],
        mut evaluate: impl FnMut(&[f64], &mut [f64]) -> Result<f64, E>,
    ) -> Result<f64, E> {
        if self.memory.gradient.len() != x.len() {
            self.reset();
        }
        let sign = if self.maximize { -1.0 } else { 1.0 };
        let (mut first, calls) = (f64::NAN, Cell::new(0));
        let mut at = |x: &[f64]| -> Result<(f64, Vec<f64>), E> {
            let mut g = vec![0.0; x.len()];
            let loss = evaluate(x, &mut g)?;
            if calls.replace(calls.get() + 1) == 0 {
                first = loss;
            }
            g.iter_mut().for_each(|g| *g *= sign);
            let finite = loss.is_finite() && g.iter().all(|g| g.is_finite());
            Ok((if finite { sign * loss } else { f64::INFINITY }, g))
        };
        let outcome = self.iterate(x, &mut at, &calls);
        self.memory.evaluations += calls.get();
        outcome.map(|()| first)
    }

    fn iterate<E>(
        &mut self,
        x: &mut [f64],
        at: &mut dyn FnMut(&[f64]) -> Result<(f64, Vec<f64>), E>,
        calls: &Cell<usize>,
    ) -> Result<(), E> {
        let most = self.evaluations.unwrap_or(self.iterations * 5 / 4).max(1);
        let (mut f, mut g) = at(x)?;
        if f.is_infinite() || largest(&g) <= self.tolerance_gradient {
            return Ok(());
        }
        for iteration in 1..=self.iterations {
            let begins = self.memory.iterations == 0;
            self.memory.iterations += 1;
            let d = self.memory.direct(&g, self.history);
            let before = f;
            let t = if begins {
                (1.0 / g.iter().map(|g| g.abs()).sum::<f64>()).min(1.0) * self.lr
            } else {
                self.lr
            };
            self.memory.t = t;
            let slope = dot(&g, &d);
            if slope > -self.tolerance_change {
                break;
            }

            let moved = |t: f64| -> Vec<f64> { x.iter().zip(&d).map(|(x, d)| x + t * d).collect() };
            if self.strong_wolfe {
                let mut along = |t: f64| {
                    let (f, g) = at(&moved(t))?;
                    Ok(Point { t, f, slope: dot(&g, &d), g })
                };
                let start = Point { t: 0.0, f, slope, g };
                let limit = most - calls.get().min(most);
                let found = strong_wolfe(&mut along, &start, t, largest(&d), self.tolerance_change, limit)?;
                (self.memory.t, f, g) = (found.t, found.f, found.g);
                x.copy_from_slice(&moved(found.t));
            } else {
                let there = moved(t);
                if iteration < self.iterations {
                    let (value, gradient) = at(&there)?;
                    if value.is_infinite() {
                        break;
                    }
                    (f, g) = (value, gradient);
                }
                x.copy_from_slice(&there);
            }
            let small = largest(&d) * self.memory.t.abs() <= self.tolerance_change
                || (f - before).abs() < self.tolerance_change;
            if calls.get() >= most || largest(&g) <= self.tolerance_gradient || small {
                break;
            }
        }
        Ok(())
    }
}

impl Memory {
    /// The direction at a point with gradient `g`, after the pair of the last iteration was remembered.
    fn direct(&mut self, g: &[f64], history: usize) -> Vec<f64> {
        if self.direction.is_empty() {
            self.scale = 1.0;
        } else {
            let y: Vec<f64> = g.iter().zip(&self.gradient).map(|(new, old)| new - old).collect();
            let s: Vec<f64> = self.direction.iter().map(|d| d * self.t).collect();
            let ys = dot(&y, &s);
            if ys > 1e-10 {
                while self.pairs.len() >= history.max(1) {
                    self.pairs.pop_front();
                }
                self.scale = ys / dot(&y, &y);
                self.pairs.push_back(Pair { s, y, rho: 1.0 / ys });
            }
        }
        let mut d: Vec<f64> = g.iter().map(|g| -g).collect();
        let mut alphas = vec![];
        for pair in self.pairs.iter().rev() {
            let alpha = dot(&pair.s, &d) * pair.rho;
            add(&mut d, -alpha, &pair.y);
            alphas.push(alpha);
        }
        d.iter_mut().for_each(|d| *d *= self.scale);
        for (pair, alpha) in self.pairs.iter().zip(alphas.iter().rev()) {
            let beta = dot(&pair.y, &d) * pair.rho;
            add(&mut d, alpha - beta, &pair.s);
        }
        self.gradient = g.to_vec();
        self.direction = d.clone();
        d
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `a ← a + t b`.
fn add(a: &mut [f64], t: f64, b: &[f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += t * b);
}

/// The largest absolute value.
fn largest(a: &[f64]) -> f64 {
    a.iter().fold(0.0, |most, x| most.max(x.abs()))
}
