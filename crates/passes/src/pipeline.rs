//! The order of the passes: from a bound graph to a schedule and its plan.

use crate::indices::Site;
use crate::plan::{Plan, PlanOptions};
use crate::schedule::Schedule;
use crate::user::{Stage, UserPass};
use crate::{
    CompileError, Target, cse, decompose, fold, fuse, group, guard, hoist, indices, legalize, plan, simplify,
};
use onestep_ir::inline_calls;
use onestep_ir::rewrite::eliminate_dead;
use onestep_ir::{Graph, Loc};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Options of the pipeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Group nodes into kernels. Without it every node is a kernel of its own: for tests, and to see what fusion buys.
    pub fuse: bool,
    /// Options of the plan.
    pub plan: PlanOptions,
    /// Products of `f32` may take their factors rounded to TF32, with sums in `f32`, where the device has such products: see
    /// [`Schedule::allow_tf32`].
    pub allow_tf32: bool,
    /// Keep the text after each pass.
    pub dump: bool,
    /// Passes of the user's own; those of one stage in this order.
    pub passes: Vec<UserPass>,
}

impl Options {
    /// With a pass of the user's own: see [`UserPass::new`].
    pub fn pass<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        mut self,
        name: &'static str,
        after: Stage,
        run: impl Fn(&Graph) -> Result<Graph, E> + Send + Sync + 'static,
    ) -> Options {
        self.passes.push(UserPass::new(name, after, run));
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Options { fuse: true, plan: PlanOptions::default(), allow_tf32: false, dump: false, passes: vec![] }
    }
}

/// What the pipeline gives.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The graph before fusion.
    pub graph: Graph,
    /// The kernels.
    pub schedule: Schedule,
    /// Where their buffers live.
    pub plan: Plan,
    /// Where indices are checked, by the number that the output [`indices::OUTPUT`] gives, from 1.
    pub sites: Vec<Site>,
    /// With [`Options::dump`]: the text after each pass, by its name.
    pub dumps: Vec<(&'static str, String)>,
    /// With [`Options::dump`]: for each graph in `dumps`, in order, where the user wrote what each line of it says. The
    /// schedule and the plan, which come after the graphs, have none.
    pub sources: Vec<Vec<Option<Loc>>>,
    /// How long each pass took, by its name, in order.
    pub times: Vec<(&'static str, Duration)>,
}

/// A pass from graph to graph.
type GraphPass<'a> = (&'static str, &'a dyn Fn(&Graph) -> Result<Graph, CompileError>);

/// Runs all passes on a bound graph.
pub fn compile(graph: &Graph, target: &dyn Target, options: &Options) -> Result<Compiled, CompileError> {
    graph.verify()?;
    let sites = RefCell::new(vec![]);
    let checks = |g: &Graph| {
        let (g, found) = indices::indices(g)?;
        sites.replace(found);
        Ok(g)
    };
    let passes: [GraphPass<'_>; 14] = [
        ("input", &|g| Ok(g.clone())),
        ("inline", &|g| Ok(inline_calls(g))),
        ("indices", &checks),
        ("guard", &|g| Ok(guard::guard(g)?)),
        ("decompose", &|g| Ok(decompose::decompose(g, target)?)),
        ("legalize", &|g| Ok(legalize::legalize(g, target)?)),
        ("simplify", &|g| Ok(simplify::simplify(g)?)),
        ("fold", &|g| Ok(fold::fold(g)?)),
        ("simplify-2", &|g| Ok(simplify::simplify(g)?)),
        ("cse", &|g| Ok(cse::cse(g)?)),
        ("dead", &|g| Ok(eliminate_dead(g))),
        ("hoist", &|g| Ok(hoist::hoist(g)?)),
        ("simplify-3", &|g| Ok(simplify::simplify(g)?)),
        ("dead-2", &|g| Ok(eliminate_dead(g))),
    ];
    let (mut dumps, mut times) = (vec![], vec![]);
    let mut start = Instant::now();
    let mut keep = |name, text: &dyn Fn() -> String| {
        let now = Instant::now();
        times.push((name, now - std::mem::replace(&mut start, now)));
        if options.dump {
            dumps.push((name, text()));
        }
    };
    let (mut g, mut sources) = (graph.clone(), vec![]);
    let mut leave = |name: &'static str, g: &Graph| {
        keep(name, &|| g.to_string());
        if options.dump {
            sources.push(g.source_lines());
        }
    };
    for (name, pass) in passes {
        g = pass(&g)?;
        leave(name, &g);
        for own in options.passes.iter().filter(|own| own.after().pass() == name) {
            g = own.apply(&g)?;
            leave(own.name(), &g);
        }
    }
    let sites = sites.into_inner();
    let plan_options = PlanOptions {
        alignment: target.alignment(),
        spare: options.plan.spare.max(target.spare_bytes()),
        ..options.plan
    };
    let lower = if options.fuse { fuse::fuse } else { fuse::unfused };
    let mut schedule = lower(&g, target, &plan_options)?;
    schedule.allow_tf32 = options.allow_tf32;
    keep("fuse", &|| schedule.to_string());
    if options.fuse {
        schedule = group::group(&schedule);
        schedule.together = group::together(&schedule, target);
        keep("group", &|| schedule.to_string());
    }
    let plan = plan::plan(&schedule, &plan_options).map_err(|e| with_line(e, &g))?;
    keep("plan", &|| plan::PlanOf(&schedule, &plan).to_string());
    Ok(Compiled { graph: g, schedule, plan, sites, dumps, sources, times })
}

/// The error with the user's line of the value that it names, if there is one. A buffer is named `%12 mul`.
fn with_line(error: CompileError, graph: &Graph) -> CompileError {
    let CompileError::TooLarge { name, bytes } = error else { return error };
    let number = name.strip_prefix('%').and_then(|n| n.split(' ').next()?.parse::<usize>().ok());
    let def = number.and_then(|n| graph.values.get(n)).map(|v| v.def);
    let loc = match def {
        Some(onestep_ir::Def::Node(node, _)) => graph.node(node).loc,
        _ => None,
    };
    let name = loc.map_or_else(|| name.clone(), |loc| format!("{name} at {loc}"));
    CompileError::TooLarge { name, bytes }
}
