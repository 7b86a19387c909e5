//! An optimizer of the caller's own: a closure over each parameter and its gradient, where they are.
//!
//! The program is one that leaves its gradients resident as state `grad/<path>`. Every tensor of a state has storage of
//! its own, so that a parameter and its gradient are two exclusive borrows of two buffers; the types come from the
//! program, and the bound state was checked against them. Nothing is copied.

use crate::Error;
use crate::bound::Bound;
use crate::state::{State, Tensor};
use onestep_ir::{Element, Role, nearest};
use std::collections::BTreeMap;

/// Where the gradient of a parameter is.
const PREFIX: &str = "grad/";

/// A parameter with its gradient.
struct Pair<'a> {
    name: String,
    parameter: &'a mut Tensor,
    gradient: &'a Tensor,
}

impl Bound {
    /// Calls `update` with the path, shape, elements and gradient of each named parameter, in this order, after a run. The
    /// closure changes the parameter in place. Every name is checked before the first call.
    ///
    /// Errors: no completed run on this state, a parameter without a gradient, a repeated name, or another element type
    /// than `T`.
    pub fn update_with<T: Element>(
        &mut self,
        state: &mut State,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        mut update: impl FnMut(&str, &[usize], &mut [T], &[T]),
    ) -> Result<(), Error> {
        if !self.has_run_on(state)? {
            return Err(Error::NotRun);
        }
        let mut pairs = self.pairs::<T>(state, names)?;
        // All of them before the first is changed.
        for Pair { parameter, gradient, .. } in &pairs {
            parameter.buffer.settle()?;
            gradient.buffer.settle()?;
        }
        for Pair { name, parameter, gradient } in &mut pairs {
            let gradient = gradient.buffer.elements()?;
            update(name, &parameter.shape, parameter.buffer.elements_mut()?, gradient);
        }
        Ok(())
    }

    /// The named parameters with their gradients, all checked.
    fn pairs<'a, T: Element>(
        &self,
        state: &'a mut State,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Vec<Pair<'a>>, Error> {
        let graph = self.executable().graph();
        let gradients = || graph.states.iter().filter(|s| s.role == Role::Gradient);
        let paths = || gradients().filter_map(|s| s.name.strip_prefix(PREFIX));
        let mut free: BTreeMap<&str, &'a mut Tensor> = state.tensors_mut().collect();
        let mut pairs = vec![];
        for name in names {
            let name = name.as_ref();
            let gradient = format!("{PREFIX}{name}");
            if !gradients().any(|s| *s.name == *gradient) {
                return Err(Error::NoGradient { name: name.to_string(), nearest: nearest(name, paths()) });
            }
            // Taken out of the map, they are nobody else's.
            let (Some(parameter), Some(gradient)) = (free.remove(name), free.remove(&*gradient)) else {
                return Err(Error::Repeated { name: name.to_string() });
            };
            for t in [&*parameter, &*gradient] {
                if t.dtype != T::DTYPE || t.shape != parameter.shape {
                    let want = format!("{}{:?}", T::DTYPE, parameter.shape);
                    return Err(Error::StateType { name: name.to_string(), want, got: t.describe() });
                }
            }
            pairs.push(Pair { name: name.to_string(), parameter, gradient });
        }
        Ok(pairs)
    }
}
