//! L-BFGS on an executable: every evaluation of loss and gradient is one dispatch of forward and backward.
//!
//! One step dispatches as often as the method asks, with the same inputs. Parameters and gradients are state; the
//! method's history is on the host, in `f64`, and not part of the state: a run that is loaded begins a new one.

use crate::{CompiledStep, compile_with_backward};
use onestep_ir::{Array, DType, Graph};
use onestep_optim::{LayoutRole, Lbfgs, Params};
use onestep_runtime::{Device, Error, Feeds, Options, State};

/// A program whose parameters L-BFGS minimises the loss over.
#[derive(Debug)]
pub struct LbfgsStep {
    backward: CompiledStep,
    method: Lbfgs,
    parameters: Vec<Parameter>,
}

/// A parameter of the method's vector.
#[derive(Debug)]
struct Parameter {
    path: String,
    dtype: DType,
    shape: Vec<usize>,
}

impl Parameter {
    fn size(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Compiles loss and gradients for L-BFGS: `loss` names an output, `params` a subset of the state.
///
/// ```
/// # use onestep::prelude::*;
/// # use onestep::{Lbfgs, Options, Params, compile_lbfgs};
/// let g = GraphBuilder::new("valley");
/// let (x, y) = (g.parameter("x", &[], Init::Constant(-1.2)), g.parameter("y", &[], Init::ONES));
/// let graph = g.finish((1.0 - x).square() + (y - x.square()).square() * 100.0)?;
///
/// let method = Lbfgs::new(1.0).strong_wolfe(true);
/// let mut step = compile_lbfgs(&graph, "loss", Params::All, method, &Device::cpu()?, &Options::default())?;
/// let mut state = step.init(0)?;
/// for _ in 0..5 {
///     step.run(&mut state, ())?; // up to 25 dispatches each
/// }
/// assert!((state.scalar("x")? - 1.0).abs() < 1e-3);
/// # Ok::<(), Error>(())
/// ```
pub fn compile_lbfgs(
    graph: &Graph,
    loss: &str,
    params: Params,
    method: Lbfgs,
    device: &Device,
    options: &Options,
) -> Result<LbfgsStep, Error> {
    method.check().map_err(|e| Error::Build(Box::new(e)))?;
    let backward = compile_with_backward(graph, loss, params, device, options)?;
    let gradients = backward.layout().iter().filter(|entry| entry.role == LayoutRole::Gradient);
    let parameter = |path: &str, entry: &onestep_optim::LayoutEntry| Parameter {
        path: path.to_string(),
        dtype: entry.dtype,
        shape: entry.shape.clone(),
    };
    let parameters =
        gradients.filter_map(|entry| Some(parameter(entry.name.strip_prefix(GRADIENT)?, entry))).collect();
    Ok(LbfgsStep { backward, method, parameters })
}

/// Where the gradient of a parameter is.
const GRADIENT: &str = "grad/";

impl LbfgsStep {
    /// A state with everything that the program needs at its first value, drawn from `seed`.
    pub fn init(&self, seed: u64) -> Result<State, Error> {
        self.backward.init(seed)
    }

    /// One step of the method, over these inputs. Gives the loss before it. After an error the parameters are somewhere
    /// along the last direction.
    pub fn run(&mut self, state: &mut State, feeds: impl Feeds) -> Result<f64, Error> {
        let mut x = vec![];
        for p in &self.parameters {
            x.extend(state.get(&p.path)?.to_f64());
        }
        let LbfgsStep { backward, method, parameters } = self;
        let loss_name = backward.layout()[0].name.clone();
        let loss = method.step(&mut x, |x, gradient| {
            write(state, parameters, x)?;
            let loss = backward.run(state, &feeds)?.scalar(&loss_name)?;
            let mut rest = gradient;
            for p in parameters.iter() {
                let (here, after) = rest.split_at_mut(p.size());
                here.copy_from_slice(&state.get(&format!("{GRADIENT}{}", p.path))?.to_f64());
                rest = after;
            }
            Ok::<f64, Error>(loss)
        })?;
        write(state, &self.parameters, &x)?;
        Ok(loss)
    }

    /// The method, whose learning rate and tolerances may change between steps.
    pub fn method(&self) -> &Lbfgs {
        &self.method
    }

    /// Goes on with other options, or after [`Lbfgs::reset`] with an empty history.
    pub fn set_method(&mut self, method: Lbfgs) -> Result<(), Error> {
        method.check().map_err(|e| Error::Build(Box::new(e)))?;
        self.method = method;
        Ok(())
    }

    /// The program of loss and gradients.
    pub fn backward(&mut self) -> &mut CompiledStep {
        &mut self.backward
    }
}

/// Writes the method's vector to the parameters, in their dtypes.
fn write(state: &mut State, parameters: &[Parameter], mut x: &[f64]) -> Result<(), Error> {
    for p in parameters {
        let (here, after) = x.split_at(p.size());
        state.set(&p.path, &Array::from_f64(p.dtype, &p.shape, here)?);
        x = after;
    }
    Ok(())
}
