//! Training steps and other programs, from a graph to something that runs.

use crate::recompute::{self, Recompute};
use onestep_ir::{Def, Graph, GraphBuilder, Tensor, Type, ValueId, bind};
use onestep_optim::{
    Average, Clip, Group, LayoutEntry, LossScale, OptimError, Params, Schedule, StepGraph, StepOptions,
    Storage, UnusedParameter, UpdateRule, averaged, micro_batches, stored, training_step, with_backward,
};
use onestep_passes::precision::{Precision, precision};
use onestep_passes::user::Stage;
use onestep_runtime::{CompileEvent, Device, Error, Feeds, Options, Outputs, Program, Report, State};
use std::sync::{Arc, OnceLock};

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
    precision: Precision,
    micro_batches: Option<usize>,
    step: StepOptions,
    recompute: Recompute,
    options: Options,
}

/// The output that weighs micro-batches.
const WEIGHT: &str = "weight";

impl TrainingStep {
    /// A step on a graph whose loss is the output `loss`.
    pub fn new(graph: Graph) -> TrainingStep {
        TrainingStep {
            graph,
            loss: "loss".to_string(),
            metrics: vec![],
            params: Params::All,
            rule: None,
            precision: Precision::F32,
            micro_batches: None,
            step: StepOptions::default(),
            recompute: Recompute::default(),
            options: Options::default(),
        }
    }

    /// Takes another output as the loss.
    pub fn loss(mut self, output: &str) -> TrainingStep {
        self.loss = output.to_string();
        self
    }

    /// One more output, read like the loss. The tensor is of the builder that made the graph. Over micro-batches a float
    /// scalar is a mean, weighted like the loss, and anything else is that of the last one.
    pub fn metric(mut self, name: &str, tensor: Tensor<'_>) -> TrainingStep {
        self.metrics.push((name.to_string(), tensor.value().zip(tensor.ty())));
        self
    }

    /// One more output, a scalar, that adds up over micro-batches.
    pub fn metric_sum(mut self, name: &str, tensor: Tensor<'_>) -> TrainingStep {
        self.step.combine.sums.push(name.to_string());
        self.metric(name, tensor)
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

    /// What the backward pass computes again to save memory.
    pub fn recompute(mut self, recompute: Recompute) -> TrainingStep {
        self.recompute = recompute;
        self
    }

    /// Runs products (matrix products, convolutions, attention) in a 16-bit float, forward and backward, with parameters,
    /// slots, sums and losses in `f32`: [`onestep_passes::precision`]. [`Precision::F16`] brings dynamic loss scaling with
    /// it, unless [`TrainingStep::loss_scale`] says otherwise. [`Precision::Tf32`] leaves the graph as it is and lets the
    /// compiler take products of `f32` in TF32: [`Options::allow_tf32`].
    pub fn precision(mut self, precision: Precision) -> TrainingStep {
        self.precision = precision;
        self
    }

    /// Scales the loss and divides the gradients again, so that small ones do not vanish in `f16`. Adds the outputs
    /// `loss_scale`, the scale of the call, and `skipped`: 1 for a call that was refused because a gradient overflowed.
    pub fn loss_scale(mut self, numbers: LossScale) -> TrainingStep {
        self.step.loss_scale = Some(numbers);
        self
    }

    /// Keeps the trained parameters in this dtype between steps. In [`Storage::Bf16`] they take half the memory and have no
    /// `f32` masters: the update is computed in `f32` and rounded by chance, so that small ones are not lost. With
    /// [`Precision::Bf16`] the products read them as they are. Other programs on the same state read them by
    /// [`CompiledStep::stored`].
    pub fn parameters_in(mut self, storage: Storage) -> TrainingStep {
        self.step.parameters = storage;
        self
    }

    /// Keeps the update rule's slots in this dtype between steps: see [`TrainingStep::parameters_in`].
    pub fn slots_in(mut self, storage: Storage) -> TrainingStep {
        self.step.slots = storage;
        self
    }

    /// Takes a step every `calls` calls, on the mean of their gradients. The loss, and each metric that is a float scalar,
    /// is the mean over the calls of the step so far.
    pub fn accumulate(mut self, calls: u32) -> TrainingStep {
        self.step.accumulate = Some(calls);
        self
    }

    /// Gives each input a leading axis of this many micro-batches, over which one call goes in order. Every one is part of
    /// the graph, so that the call holds the activations of all; [`TrainingStep::accumulate`] holds those of one.
    pub fn micro_batches(mut self, count: usize) -> TrainingStep {
        self.micro_batches = Some(count);
        self
    }

    /// Weighs micro-batches, of one call or of several, by this scalar, such as the number of tokens that the loss is the
    /// mean of; without it all weigh the same. Adds the output `weight`.
    pub fn weighted_by(mut self, weight: Tensor<'_>) -> TrainingStep {
        self.step.combine.weight = Some(WEIGHT.to_string());
        self.metric(WEIGHT, weight)
    }

    /// Keeps an exponential average of each trained parameter, such as with decay 0.999: the state `ema/<path>`.
    pub fn ema(self, decay: f64) -> TrainingStep {
        self.average(Average::ema(decay))
    }

    /// Keeps averages of the trained parameters: see [`CompiledStep::averaged`].
    pub fn average(mut self, average: Average) -> TrainingStep {
        self.step.average = Some(average);
        self
    }

    /// Options of the compiler, in place of those so far, passes among them.
    pub fn options(mut self, options: Options) -> TrainingStep {
        self.options = options;
        self
    }

    /// Runs a pass of the caller's own when the step is compiled, on the graph of the whole step (forward, backward and
    /// update) as it is after `after`; it keeps the interface. Passes of one place run in the order in which they are given.
    ///
    /// ```
    /// # use onestep::prelude::*;
    /// use onestep::extend::{Stage, rewrite};
    /// # fn step(graph: Graph) -> TrainingStep {
    /// TrainingStep::new(graph)
    ///     .optimizer(Sgd::new(0.1))
    ///     .pass("nothing", Stage::Cse, |g| rewrite(g, &mut |_builder, _node, _operands| None))
    /// # }
    /// ```
    pub fn pass<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        mut self,
        name: &'static str,
        after: Stage,
        run: impl Fn(&Graph) -> Result<Graph, E> + Send + Sync + 'static,
    ) -> TrainingStep {
        self.options = self.options.pass(name, after, run);
        self
    }

    /// The graph with the metrics as outputs.
    fn with_metrics(&self) -> Result<Graph, Error> {
        let g = GraphBuilder::edit(self.graph.clone());
        for (name, value) in &self.metrics {
            // Its type too, since a tensor of another builder may have the number of some value here.
            let known =
                |(v, ty): &&(ValueId, Type)| v.index() < self.graph.values.len() && self.graph.ty(*v) == ty;
            let outside = |v: ValueId| match self.graph.values[v.index()].def {
                Def::Node(node, _) => self.graph.body.nodes.contains(&node),
                Def::Param => self.graph.body.params.contains(&v),
            };
            let (what, help) = match value.as_ref().filter(known) {
                Some((v, _)) if outside(*v) => {
                    g.output(name, g.tensor(*v));
                    continue;
                }
                Some(_) => ("stays inside a checkpoint", "name it with output() before finish()"),
                None => ("is not a value of this graph", "compute it before finish(), without mistakes"),
            };
            g.mistake("metric", &[], onestep_ir::Mistake::new(format!("metric '{name}' {what}"), help));
        }
        Ok(g.build()?)
    }

    /// The whole step as a graph, at the largest sizes of its dimensions, before any backend: forward, backward and update. Its
    /// text is what `onestep inspect` reads.
    pub fn graph(self) -> Result<Graph, Error> {
        let (graph, build, _, _) = self.parts()?;
        Ok(build(&bind(&graph, &graph.dims)?)?.graph)
    }

    /// Compiles the step. With dimension variables, the first call with new sizes compiles.
    pub fn compile(self, device: &Device) -> Result<CompiledStep, Error> {
        let (graph, build, recompute, options) = self.parts()?;
        CompiledStep::new(&graph, build, recompute, device, &options)
    }

    /// The graph with the metrics, what makes a step of it once it is bound, what is computed again, and the compiler's options.
    pub(crate) fn parts(mut self) -> Result<(Graph, impl BuildStep, Recompute, Options), Error> {
        let mut graph = precision(&self.with_metrics()?, self.precision)?;
        if let Some(count) = self.micro_batches {
            graph = micro_batches(&graph, count, &self.step.combine).map_err(failed)?;
        }
        if self.precision == Precision::F16 {
            self.step.loss_scale.get_or_insert_default();
        }
        self.options.allow_tf32 |= self.precision == Precision::Tf32;
        let rule = self.rule.ok_or_else(|| failed(OptimError::NoOptimizer))?;
        Ok((graph, builder(&self.loss, self.params, rule, &self.step), self.recompute, self.options))
    }
}

/// Makes a step of a bound graph.
pub(crate) trait BuildStep: Fn(&Graph) -> Result<StepGraph, Error> + Send + Sync + 'static {}
impl<F: Fn(&Graph) -> Result<StepGraph, Error> + Send + Sync + 'static> BuildStep for F {}

fn builder(
    loss: &str,
    params: Params,
    rule: Arc<dyn UpdateRule>,
    step: &StepOptions,
) -> impl BuildStep + use<> {
    let (loss, step) = (loss.to_string(), step.clone());
    move |bound: &Graph| training_step(bound, &loss, params.clone(), &*rule, &step).map_err(failed)
}

/// Compiles a training step from its parts: `loss` names an output, `params` a subset of the state.
///
/// The results are, in order: the loss, the new value of each parameter, the new slots row-major (parameter, slot), the
/// averages of the parameters if they are kept, then the metrics; [`CompiledStep::layout`] lists them.
pub fn compile_training_step(
    graph: &Graph,
    loss: &str,
    params: Params,
    rule: Arc<dyn UpdateRule>,
    step: &StepOptions,
    device: &Device,
    options: &Options,
) -> Result<CompiledStep, Error> {
    CompiledStep::new(graph, builder(loss, params, rule, step), Recompute::Marked, device, options)
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
    CompiledStep::new(graph, build, Recompute::Marked, device, options)
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
    pub(crate) fn new(
        graph: &Graph,
        build: impl BuildStep,
        recompute: Recompute,
        device: &Device,
        options: &Options,
    ) -> Result<CompiledStep, Error> {
        // That of the step at the largest sizes, which a program makes first.
        let layout = Arc::new(OnceLock::new());
        let (first, on, with) = (layout.clone(), device.clone(), options.clone());
        let build = Arc::new(build);
        let again = build.clone();
        let step = move |bound: &Graph| {
            let StepGraph { graph, layout } = recompute::step(bound, recompute, &*again, &on, &with)?;
            first.get_or_init(|| layout);
            Ok(graph)
        };
        let mut program = Program::with(graph, Arc::new(step), device, options)?;
        let (on, with) = (device.clone(), options.clone());
        program.on_short_memory(Box::new(move |bound, bytes| {
            recompute::remedy(bound, bytes, &*build, &on, &with)
        }));
        Ok(CompiledStep { program, layout: layout.get().cloned().unwrap_or_default() })
    }

    /// The results in order: each with its name, role, shape, dtype, and the state that it overwrites. Shapes are those at
    /// the largest sizes of the dimension variables.
    pub fn layout(&self) -> &[LayoutEntry] {
        &self.layout
    }

    /// The graph of another program, such as one that evaluates, with the averages that this step keeps in place of the
    /// parameters. It runs on the same state.
    ///
    /// ```
    /// # use onestep::prelude::*;
    /// let g = GraphBuilder::new("well");
    /// let w = g.parameter("w", &[1], Init::ZEROS);
    /// let graph = g.finish((w - 1.0).square().sum_all())?;
    /// let device = Device::cpu()?;
    /// let mut step = TrainingStep::new(graph.clone()).optimizer(Sgd::new(0.1)).ema(0.5).compile(&device)?;
    /// let mut evaluate = compile(&step.averaged(&graph)?, &device)?;
    /// let mut state = step.init(0)?;
    /// for _ in 0..2 {
    ///     step.run(&mut state, ())?;
    /// }
    /// assert!((state.scalar("ema/w")? - (0.2 + 0.36) / 2.0).abs() < 1e-6);
    /// assert!((evaluate.run(&mut state, ())?.loss()? - 0.72 * 0.72).abs() < 1e-6);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn averaged(&self, graph: &Graph) -> Result<Graph, Error> {
        averaged(graph, self.program.interface()).map_err(failed)
    }

    /// The graph of another program, such as one that evaluates, that reads each state in the dtype in which this step keeps
    /// it ([`TrainingStep::parameters_in`]). It runs on the same state.
    ///
    /// ```
    /// # use onestep::prelude::*;
    /// let g = GraphBuilder::new("well");
    /// let w = g.parameter("w", &[1], Init::ZEROS);
    /// let graph = g.finish((w - 1.0).square().sum_all())?;
    /// let device = Device::cpu()?;
    /// let step = TrainingStep::new(graph.clone()).optimizer(Sgd::new(0.25)).parameters_in(Storage::Bf16);
    /// let mut step = step.compile(&device)?;
    /// let mut evaluate = compile(&step.stored(&graph)?, &device)?;
    /// let mut state = step.init(0)?;
    /// step.run(&mut state, ())?;
    /// assert_eq!(state.get("w")?.dtype(), BF16);
    /// assert_eq!(evaluate.run(&mut state, ())?.loss()?, 0.25);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn stored(&self, graph: &Graph) -> Result<Graph, Error> {
        stored(graph, self.program.interface()).map_err(failed)
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

    /// The program alone.
    pub fn into_program(self) -> Program {
        self.program
    }
}
