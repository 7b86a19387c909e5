//! Populations: one step for several members, each with its own parameters, slots, learning rate and random numbers, in
//! one dispatch, on one batch or a batch for each.
//!
//! The step of one member is mapped over all of them ([`vmap`](onestep_autodiff::vmap)): every state gets a leading axis of
//! members, inputs are shared unless chosen, and each output has one value for each member. A member goes as it would alone: also when
//! its own commit guard refuses a step that the others make.

use crate::recompute::Recompute;
use crate::step::{CompiledStep, TrainingStep};
use onestep_autodiff::{Names, Over, vmap};
use onestep_ir::{Array, Graph, GraphBuilder, Port, Shape, StatePort, Type, bind};
use onestep_optim::{LayoutEntry, StepGraph};
use onestep_runtime::{Device, Error, Feeds, Outputs, Report, State};
use thiserror::Error as ThisError;

/// What can be wrong with a population.
#[derive(Clone, PartialEq, Eq, Debug, ThisError)]
pub enum PopulationError {
    /// One value for each member is needed.
    #[error("{what}: {got} for a population of {members}; give one for each member")]
    Count {
        /// Of what.
        what: String,
        /// How many were given.
        got: usize,
        /// The number of members.
        members: usize,
    },
    /// There is no such member.
    #[error("there is no member {member} in a population of {members}; they count from 0")]
    NoMember {
        /// The number asked for.
        member: usize,
        /// The number of members.
        members: usize,
    },
    /// A cache whose sizes are variables.
    #[error("state '{name}' has a variable size, which members cannot share; give it fixed sizes")]
    Elastic {
        /// Its path.
        name: String,
    },
    /// [`Recompute::FitIn`] cuts the step of one.
    #[error(
        "a population is not made to fit in so many bytes; mark checkpoints in the graph, or train fewer members"
    )]
    Recompute,
}

impl From<PopulationError> for Error {
    fn from(e: PopulationError) -> Error {
        Error::Build(Box::new(e))
    }
}

/// A training step of several members under construction.
#[derive(Debug)]
pub struct Population {
    step: TrainingStep,
    members: usize,
    own: Names,
}

impl TrainingStep {
    /// The same step for `members` members at once, on one batch unless [`Population::own_inputs`] says otherwise; each
    /// starts from its own seed, and may have its own learning rate or other scalars.
    ///
    /// ```
    /// use onestep::prelude::*;
    ///
    /// let g = GraphBuilder::new("line");
    /// let (x, y) = (g.input("x", F32, [4]), g.input("y", F32, [4]));
    /// let w = g.parameter("w", &[1], Init::Normal { mean: 0.0, std: 1.0 });
    /// let graph = g.finish((x * w - y).square().mean())?;
    ///
    /// let mut population = TrainingStep::new(graph).optimizer(Sgd::new(0.1)).population(3).compile(&Device::cpu()?)?;
    /// let mut state = population.init([1, 2, 3])?; // a seed for each member
    /// population.set(&mut state, "opt/lr", &[0.01, 0.1, 0.2])?;
    /// let (xs, ys) = (Array::new(&[4], &[1f32, 2., 3., 4.])?, Array::new(&[4], &[2f32, 4., 6., 8.])?);
    /// for _ in 0..20 {
    ///     let out = population.run(&mut state, [&xs, &ys])?; // one dispatch
    ///     assert_eq!(out.array("loss")?.shape(), [3]);
    /// }
    /// let second = population.member(&state, 1)?; // the state of a single run
    /// assert!((second.get("w")?.to_f64()[0] - 2.0).abs() < 0.01);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn population(self, members: usize) -> Population {
        Population { step: self, members, own: Names::None }
    }
}

impl Population {
    /// Feeds each member its own values of these inputs, which get the leading axis: a batch for each, say. The others stay
    /// shared.
    pub fn own_inputs(mut self, names: impl Into<Names>) -> Population {
        self.own = names.into();
        self
    }

    /// Compiles the step. With dimension variables, the first call with new sizes compiles.
    pub fn compile(self, device: &Device) -> Result<CompiledPopulation, Error> {
        let Population { step, members, own } = self;
        let (graph, build, recompute, options) = step.parts()?;
        if recompute != Recompute::Marked {
            return Err(PopulationError::Recompute.into());
        }
        graph.verify()?;
        let open = |s: &&StatePort| graph.ty(s.value).shape.sizes().is_none();
        if let Some(cache) = graph.states.iter().find(open) {
            return Err(PopulationError::Elastic { name: cache.name.to_string() }.into());
        }
        let single = build(&bind(&graph, &graph.dims)?)?.graph;
        let interface = interface(&graph, members, &own)?;
        let mapped = move |bound: &Graph| {
            let sizes = |p: &Port| {
                let sizes = bound.ty(p.value).shape.sizes().unwrap_or_default();
                sizes[own.has(&p.name) as usize..].to_vec()
            };
            let shapes: Vec<Vec<usize>> = bound.inputs.iter().map(sizes).collect();
            let StepGraph { graph, layout } = build(&bind(&graph, &graph.binding_from_inputs(&shapes)?)?)?;
            let over = Over { inputs: own.clone(), states: Names::All };
            let graph = vmap(&graph, members, &over).map_err(|e| Error::Build(Box::new(e)))?;
            let wide = |e: LayoutEntry| LayoutEntry { shape: [&[members], &e.shape[..]].concat(), ..e };
            Ok(StepGraph { graph, layout: layout.into_iter().map(wide).collect() })
        };
        let step = CompiledStep::new(&interface, mapped, recompute, device, &options)?;
        Ok(CompiledPopulation { step, single, members })
    }
}

/// What the program takes: the graph's dimensions, inputs and states, without a node. A member's own inputs have the axis.
fn interface(graph: &Graph, members: usize, own: &Names) -> Result<Graph, Error> {
    let empty = Graph { name: graph.name.clone(), dims: graph.dims.clone(), ..Graph::default() };
    let g = GraphBuilder::edit(empty);
    for p in &graph.inputs {
        let Type { dtype, shape } = graph.ty(p.value).clone();
        let front = own.has(&p.name).then(|| members.into());
        g.input(&p.name, dtype, Shape(front.into_iter().chain(shape.0).collect()));
    }
    for s in &graph.states {
        let ty = graph.ty(s.value);
        g.state(&s.name, s.role, ty.dtype, &ty.shape.sizes().unwrap_or_default(), s.init);
    }
    Ok(g.build()?)
}

/// A compiled step of several members.
#[derive(Debug)]
pub struct CompiledPopulation {
    step: CompiledStep,
    /// The step of one member.
    single: Graph,
    members: usize,
}

impl CompiledPopulation {
    /// The number of members.
    pub fn members(&self) -> usize {
        self.members
    }

    /// A state with everything that the step needs: member `k` at the first values that a single run draws from seed `k` of
    /// the list, which has one for each member.
    pub fn init(&self, seeds: impl AsRef<[u64]>) -> Result<State, Error> {
        let seeds = seeds.as_ref();
        self.count("seeds", seeds.len())?;
        let mut state = State::new();
        for port in &self.single.states {
            let ty = self.single.ty(port.value);
            let sizes = ty.shape.sizes().unwrap_or_default();
            let mut bytes = vec![];
            for &seed in seeds {
                bytes.extend_from_slice(port.init.array(ty.dtype, &sizes, seed, &port.name)?.bytes());
            }
            let shape = [&[self.members], &sizes[..]].concat();
            state.set(&port.name, &Array::from_bytes(ty.dtype, &shape, &bytes)?);
        }
        Ok(state)
    }

    /// Sets a scalar that each member has for itself, such as `opt/lr`. Never compiles anything again.
    pub fn set(&self, state: &mut State, name: &str, values: &[f64]) -> Result<(), Error> {
        self.count(&format!("values of '{name}'"), values.len())?;
        let old = state.get(name)?;
        state.set(name, &Array::from_f64(old.dtype(), old.shape(), values)?);
        Ok(())
    }

    /// One step of every member: one dispatch. Every output has a leading axis of members: `out.array("loss")` holds a loss
    /// for each.
    pub fn run<'a>(&'a mut self, state: &'a mut State, feeds: impl Feeds) -> Result<Outputs<'a>, Error> {
        self.step.run(state, feeds)
    }

    /// A copy of one member's state, from 0, as a single run has it: to evaluate, save, or go on with alone.
    pub fn member(&self, state: &State, member: usize) -> Result<State, Error> {
        if member >= self.members {
            return Err(PopulationError::NoMember { member, members: self.members }.into());
        }
        let mut single = State::new();
        for port in &self.single.states {
            let all = state.get(&port.name)?;
            let sizes = all.shape().get(1..).unwrap_or_default();
            let bytes = all.bytes().len() / self.members;
            let own = &all.bytes()[member * bytes..][..bytes];
            single.set(&port.name, &Array::from_bytes(all.dtype(), sizes, own)?);
        }
        Ok(single)
    }

    /// The step of one member as a graph: its states are those that [`CompiledPopulation::member`] gives.
    pub fn single(&self) -> &Graph {
        &self.single
    }

    /// The results in order: see [`CompiledStep::layout`]; each has the leading axis of members.
    pub fn layout(&self) -> &[LayoutEntry] {
        self.step.layout()
    }

    /// The compile report of the executable used last.
    pub fn report(&self) -> Option<Report> {
        self.step.report()
    }

    /// The compiled step itself, whose state has the axis of members.
    pub fn step(&mut self) -> &mut CompiledStep {
        &mut self.step
    }

    fn count(&self, what: &str, got: usize) -> Result<(), Error> {
        if got == self.members {
            return Ok(());
        }
        Err(PopulationError::Count { what: what.to_string(), got, members: self.members }.into())
    }
}
