//! Training steps and other programs, from a graph to something that runs.

use onestep_ir::{Graph, GraphBuilder, Tensor, Type, ValueId};
use onestep_optim::{
    Clip, Group, LayoutEntry, OptimError, Params, Schedule, StepOptions, UnusedParameter, UpdateRule,
    training_step, with_backward,
};
use onestep_runtime::{CompileEvent, Device, Error, Feeds, Options, Outputs, Program, Report, State};
use std::sync::Arc;

fn failed(e: OptimError) -> Error {
    Error::Build(Box::new(e))
}

/// A training step under construction: a graph, its loss, an update rule and options.
#[derive(Debug)]
pub struct TrainingStep {
    graph: Graph,
    loss: String,
    metrics: Vec<(String, Option<(ValueId, Type)>)>,
    params: Params,
    rule: Option<Arc<dyn UpdateRule>>,
    step: StepOptions,
    options: Options,
}

impl TrainingStep {
    /// A step on a graph whose loss is the output `loss`.
    pub fn new(graph: Graph) -> TrainingStep {
        TrainingStep {
            graph,
            loss: "loss".to_string(),
            metrics: vec![],
            params: Params::All,
            rule: None,
            step: StepOptions::default(),
            options: Options::default(),
        }
    }

    /// Takes another output as the loss.
    pub fn loss(mut self, output: &str) -> TrainingStep {
        self.loss = output.to_string();
        self
    }

    /// One more output, read like the loss. The tensor is of the builder that made the graph.
    pub fn metric(mut self, name: &str, tensor: Tensor<'_>) -> TrainingStep {
        self.metrics.push((name.to_string(), tensor.value().zip(tensor.ty())));
        self
    }

    /// The update rule.
    pub fn optimizer(mut self, rule: impl UpdateRule + 'static) -> TrainingStep {
        self.rule = Some(Arc::new(rule));
        self
    }

    /// Trains these parameters only, in this order; the others stay as they are.
    pub fn parameters<S: Into<String>>(mut self, paths: impl IntoIterator<Item = S>) -> TrainingStep {
        self.params = Params::Paths(paths.into_iter().map(Into::into).collect());
        self
    }

    /// Clips the gradients by their common norm.
    pub fn clip_global_norm(mut self, max: f64) -> TrainingStep {
        self.step.clip = Some(Clip::GlobalNorm(max));
        self
    }

    /// Clips each gradient element.
    pub fn clip_value(mut self, max: f64) -> TrainingStep {
        self.step.clip = Some(Clip::Value(max));
        self
    }

    /// The course of the learning rate.
    pub fn schedule(mut self, schedule: Schedule) -> TrainingStep {
        self.step.schedule = schedule;
        self
    }

    /// Gives some parameters numbers or a rule of their own, or freezes them. The first group that fits takes a
    /// parameter.
    ///
    /// ```
    /// # use onestep::prelude::*;
    /// # fn step(graph: Graph) -> TrainingStep {
    /// TrainingStep::new(graph)
    ///     .optimizer(AdamW::new(3e-4).weight_decay(0.1))
    ///     .group(Group::new("no_decay", ["*.bias", "*.norm*"]).weight_decay(0.0))
    ///     .group(Group::new("hidden", ["block.*.weight"]).rule(Muon::new(0.02)))
    /// # }
    /// ```
    pub fn group(mut self, group: Group) -> TrainingStep {
        self.step.groups.push(group);
        self
    }

    /// What happens to a parameter that the loss does not depend on.
    pub fn unused(mut self, unused: UnusedParameter) -> TrainingStep {
        self.step.unused = unused;
        self
    }

    /// Options of the compiler.
    pub fn options(mut self, options: Options) -> TrainingStep {
        self.options = options;
        self
    }

    /// The graph with the metrics as outputs.
    fn with_metrics(&self) -> Result<Graph, Error> {
        let g = GraphBuilder::edit(self.graph.clone());
        for (name, value) in &self.metrics {
            // Its type too, since a tensor of another builder may have the number of some value here.
            let known =
                |(v, ty): &&(ValueId, Type)| v.index() < self.graph.values.len() && self.graph.ty(*v) == ty;
            match value.as_ref().filter(known) {
                Some((v, _)) => g.output(name, g.tensor(*v)),
                None => {
                    let what = format!("metric '{name}' is not a value of this graph");
                    let mistake =
                        onestep_ir::Mistake::new(what, "compute it before finish(), without mistakes");
                    g.mistake("metric", &[], mistake);
                }
            }
        }
        Ok(g.build()?)
    }

    /// Compiles the step. With dimension variables, the first call with new sizes compiles.
    pub fn compile(self, device: &Device) -> Result<CompiledStep, Error> {
        let graph = self.with_metrics()?;
        let Some(rule) = self.rule else {
            return Err(failed(OptimError::NoOptimizer));
        };
        compile_training_step(&graph, &self.loss, self.params, rule, &self.step, device, &self.options)
    }
}

/// Compiles a training step from its parts: `loss` names an output, `params` a subset of the state.
///
/// The results are, in order: the loss, the new value of each parameter, the new slots row-major (parameter, slot), then
/// the metrics; [`CompiledStep::layout`] lists them.
pub fn compile_training_step(
    graph: &Graph,
    loss: &str,
    params: Params,
    rule: Arc<dyn UpdateRule>,
    step: &StepOptions,
    device: &Device,
    options: &Options,
) -> Result<CompiledStep, Error> {
    let (loss, step) = (loss.to_string(), step.clone());
    let build =
        move |bound: &Graph| training_step(bound, &loss, params.clone(), &*rule, &step).map_err(failed);
    CompiledStep::new(graph, build, device, options)
}

/// Compiles forward and backward: loss, gradients and metrics. The gradients are state (`grad/<path>`), resident and
/// readable until the next call.
pub fn compile_with_backward(
    graph: &Graph,
    loss: &str,
    params: Params,
    device: &Device,
    options: &Options,
) -> Result<CompiledStep, Error> {
    let loss = loss.to_string();
    let build = move |bound: &Graph| with_backward(bound, &loss, params.clone()).map_err(failed);
    CompiledStep::new(graph, build, device, options)
}

/// Compiles a graph as it is: inference, evaluation, or any other program.
pub fn compile(graph: &Graph, device: &Device) -> Result<Program, Error> {
    Program::new(graph, device, &Options::default())
}

/// A compiled training step (or forward and backward).
#[derive(Debug)]
pub struct CompiledStep {
    program: Program,
    layout: Vec<LayoutEntry>,
}

impl CompiledStep {
    fn new(
        graph: &Graph,
        build: impl Fn(&Graph) -> Result<onestep_optim::StepGraph, Error> + Send + Sync + 'static,
        device: &Device,
        options: &Options,
    ) -> Result<CompiledStep, Error> {
        graph.verify()?;
        let layout = build(&onestep_ir::bind(graph, &graph.dims)?)?.layout;
        let program = Program::with(graph, Arc::new(move |g: &Graph| Ok(build(g)?.graph)), device, options)?;
        Ok(CompiledStep { program, layout })
    }

    /// The results in order: each with its name, role, shape, dtype, and the state that it overwrites. Shapes are those at
    /// the largest sizes of the dimension variables.
    pub fn layout(&self) -> &[LayoutEntry] {
        &self.layout
    }

    /// A state with everything that the step needs at its first value, drawn from `seed`.
    pub fn init(&self, seed: u64) -> Result<State, Error> {
        self.program.init(seed)
    }

    /// The state tensors that the step needs and the state lacks.
    pub fn missing(&self, state: &State) -> Vec<String> {
        self.program.missing(state)
    }

    /// One step: one dispatch.
    pub fn run<'a>(&'a mut self, state: &'a mut State, feeds: impl Feeds) -> Result<Outputs<'a>, Error> {
        self.program.run(state, feeds)
    }

    /// One step that gives these outputs only: see [`Program::run_selected`].
    pub fn run_selected<'a>(
        &'a mut self,
        state: &'a mut State,
        feeds: impl Feeds,
        outputs: &[&str],
    ) -> Result<Outputs<'a>, Error> {
        self.program.run_selected(state, feeds, outputs)
    }

    /// After [`compile_with_backward`] and a run: updates parameters with the caller's own optimizer, a closure over each
    /// one's path, shape, elements and gradient, where they are. See [`onestep_runtime::Bound::update_with`].
    ///
    /// ```
    /// # use onestep::prelude::*;
    /// # use onestep::{Options, Params, compile_with_backward};
    /// let g = GraphBuilder::new("well");
    /// let w = g.parameter("w", &[2], Init::ZEROS);
    /// let graph = g.finish((w - 1.0).square().sum_all())?;
    /// let device = Device::cpu()?;
    /// let mut backward = compile_with_backward(&graph, "loss", Params::All, &device, &Options::default())?;
    /// let mut state = backward.init(0)?;
    /// backward.run(&mut state, ())?;
    /// backward.update_with(&mut state, ["w"], |_name, _shape, w: &mut [f32], gradient: &[f32]| {
    ///     w.iter_mut().zip(gradient).for_each(|(w, g)| *w -= 0.25 * g);
    /// })?;
    /// assert_eq!(state.as_slice::<f32>("w")?, [0.5, 0.5]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn update_with<T: onestep_ir::Element>(
        &mut self,
        state: &mut State,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        update: impl FnMut(&str, &[usize], &mut [T], &[T]),
    ) -> Result<(), Error> {
        self.program.update_with(state, names, update)
    }

    /// Every compilation so far, with its reason.
    pub fn compilations(&self) -> &[CompileEvent] {
        self.program.compilations()
    }

    /// The compile report of the executable used last.
    pub fn report(&self) -> Option<Report> {
        self.program.executable().map(|e| e.report())
    }

    /// The program itself.
    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }
}
