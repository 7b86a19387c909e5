//! The files of `tests/filetests/<pass>/`: a graph, and what a pass makes of it.
//!
//! A file begins with comments that name the pass (`; test: simplify`) and may give options, then holds a graph in the
//! text form, a line `----`, and the expected text:
//!
//! - of a pass from graph to graph: that pass alone, without what it leaves dead;
//! - of `fuse`, `unfused`, `group` and `plan`: the whole pipeline up to there, so that a file can start from composites.
//!
//! Options: `; target: reference` (the default) or `cpu`; `; binding: B=4, T=2`; `; strict` (in place or an error); of
//! `precision` and `store`, `; precision: bf16` (the default), `f16` or `f8`.
//!
//! Whatever a file shows is also run: the pass's result must compute what the graph does (in mixed precision to 5%, with 8 bits to 45%). Passes that promise every bit
//! are held to it, on inputs with negative zeros, infinities and NaN.
//!
//! `ONESTEP_BLESS=1 cargo test -p onestep-passes --test filetests` writes the expectations anew.

use onestep_ir::interp::{self, Mode};
use onestep_ir::rewrite::eliminate_dead;
use onestep_ir::testing::{difference, random_inputs, random_state};
use onestep_ir::{Array, Dense, Graph, bind, inline_calls};
use onestep_passes::pipeline::{Options, compile};
use onestep_passes::plan::PlanOptions;
use onestep_passes::precision::{Precision, precision};
use onestep_passes::schedule::Schedule;
use onestep_passes::schedule::execute::{ReferenceTarget, execute};
use onestep_passes::store::store;
use onestep_passes::{CompileError, Target, cse, decompose, fold, guard, hoist, indices, legalize, simplify};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The line between a graph and what is expected of it.
const BORDER: &str = "----";
/// Graphs with more elements than this are only compiled: their texts are the point.
const RUNNABLE: usize = 100_000;

/// A file, taken apart.
struct Case {
    pass: String,
    target: Box<dyn Target>,
    binding: BTreeMap<Arc<str>, usize>,
    strict: bool,
    precision: Precision,
    /// Everything above the border.
    head: String,
    graph: Graph,
    want: String,
}

impl Case {
    fn read(path: &Path) -> Result<Case, String> {
        let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
        let border = format!("\n{BORDER}\n");
        let (head, want) = text.split_once(&border).unwrap_or((text.trim_end_matches('\n'), ""));
        let mut case = Case {
            pass: String::new(),
            target: Box::new(ReferenceTarget),
            binding: BTreeMap::new(),
            strict: false,
            precision: Precision::Bf16,
            head: head.to_string(),
            graph: Graph::parse(head).map_err(|e| e.to_string())?,
            want: want.to_string(),
        };
        for line in head.lines().map_while(|l| l.strip_prefix(';')).map(str::trim) {
            match line.split_once(": ") {
                Some(("test", pass)) => case.pass = pass.to_string(),
                Some(("precision", name)) => case.precision = name.parse()?,
                Some(("target", "reference")) => {}
                Some(("target", "cpu")) => case.target = Box::new(onestep_cpu::CpuTarget),
                Some(("target", other)) => return Err(format!("there is no target '{other}'")),
                Some(("binding", sizes)) => {
                    for size in sizes.split(", ") {
                        let (name, n) = size.split_once('=').ok_or(format!("'{size}' is not NAME=SIZE"))?;
                        let n = n.parse().map_err(|_| format!("'{n}' is not a size"))?;
                        case.binding.insert(name.into(), n);
                    }
                }
                _ if line == "strict" => case.strict = true,
                _ => {}
            }
        }
        Ok(case)
    }

    /// What the pass makes of the graph, as text; and whether it computes the same.
    fn run(&self) -> Result<String, String> {
        if self.pass != "bind" && !self.graph.is_bound() && self.binding.is_empty() {
            return Err("the graph has dimension variables; give `; binding:`".to_string());
        }
        let bound = if self.pass == "bind" || !self.binding.is_empty() {
            match bind(&self.graph, &self.binding) {
                Ok(g) => g,
                Err(e) => return Ok(format!("error: {e}\n")),
            }
        } else {
            self.graph.clone()
        };
        match self.pass.as_str() {
            "fuse" | "unfused" | "group" | "plan" => self.lowered(&bound),
            _ => match self.rewritten(&bound) {
                Ok(graph) => {
                    let graph = eliminate_dead(&graph);
                    graph.verify().map_err(|e| e.to_string())?;
                    // These compute something else with the same meaning; the others promise the same bits.
                    let exact = !matches!(
                        self.pass.as_str(),
                        "decompose" | "legalize" | "indices" | "precision" | "store"
                    );
                    let tolerance = match (self.pass.as_str(), self.precision) {
                        // A factor is off by a sixteenth, and a product of products by that several times; a scale that is wrong
                        // doubles or halves it at least.
                        ("precision" | "store", Precision::F8) => 0.45,
                        ("precision" | "store", _) => 0.05,
                        _ => 1e-3,
                    };
                    compare(&bound, exact, tolerance, &|inputs, state| {
                        let state = as_declared(&graph, state);
                        let r =
                            interp::run(&graph, inputs, &state, Mode::Declared).map_err(|e| e.to_string())?;
                        Ok((r.outputs, as_declared(&bound, &r.state)))
                    })?;
                    Ok(graph.to_string())
                }
                Err(e) => Ok(format!("error: {e}\n")),
            },
        }
    }

    fn rewritten(&self, g: &Graph) -> Result<Graph, CompileError> {
        let target = &*self.target;
        Ok(match self.pass.as_str() {
            "bind" => g.clone(),
            "inline" => inline_calls(g),
            "indices" => indices::indices(g)?.0,
            "guard" => guard::guard(g)?,
            "decompose" => decompose::decompose(g, target)?,
            "legalize" => legalize::legalize(g, target)?,
            "precision" => precision(g, self.precision)?,
            "store" => store(g, self.precision)?,
            "simplify" => simplify::simplify(g)?,
            "fold" => fold::fold(g)?,
            "cse" => cse::cse(g)?,
            "hoist" => hoist::hoist(g)?,
            "dead" => eliminate_dead(g),
            other => return Err(CompileError::Internal(format!("there is no pass '{other}'"))),
        })
    }

    /// The text of a schedule or plan.
    fn lowered(&self, bound: &Graph) -> Result<String, String> {
        let plan = PlanOptions { strict: self.strict, ..PlanOptions::default() };
        let options = Options { fuse: self.pass != "unfused", plan, dump: true, ..Options::default() };
        let compiled = match compile(bound, &*self.target, &options) {
            Ok(c) => c,
            Err(e) => return Ok(format!("error: {e}\n")),
        };
        compare(bound, false, 1e-3, &|inputs, state| run_schedule(&compiled.schedule, inputs, state))?;
        let dump = if self.pass == "unfused" { "fuse" } else { &self.pass };
        let found = compiled.dumps.into_iter().find(|(name, _)| *name == dump);
        found.map(|(_, text)| text).ok_or(format!("the pipeline has no '{dump}'"))
    }
}

type Tensors = BTreeMap<Arc<str>, Dense>;

/// The tensors in the dtypes in which a graph declares them.
fn as_declared(graph: &Graph, state: &Tensors) -> Tensors {
    let one = |(name, d): (&Arc<str>, &Dense)| {
        let dtype = graph.state(name).map(|s| graph.ty(s.value).dtype).filter(|t| *t != d.dtype);
        let rounded = dtype.map(|dtype| {
            let mut d = Dense::from_reals(dtype, &d.shape, d.reals().to_vec());
            d.settle();
            d
        });
        (name.clone(), rounded.unwrap_or_else(|| d.clone()))
    };
    state.iter().map(one).collect()
}

fn run_schedule(s: &Schedule, inputs: &[Dense], state: &Tensors) -> Result<(Vec<Dense>, Tensors), String> {
    let before: Vec<Dense> = s.states.iter().map(|p| state[&p.name].clone()).collect();
    let r = execute(s, inputs, &before).map_err(|e| e.to_string())?;
    Ok((r.outputs, s.states.iter().map(|p| p.name.clone()).zip(r.states).collect()))
}

/// Holds a way to run a graph to the interpreter's way, on tame numbers; with `exact`, on wild ones too, to the bit.
fn compare(
    graph: &Graph,
    exact: bool,
    tolerance: f64,
    run: &dyn Fn(&[Dense], &Tensors) -> Result<(Vec<Dense>, Tensors), String>,
) -> Result<(), String> {
    if graph.values.iter().any(|v| v.ty.numel() > RUNNABLE) {
        return Ok(());
    }
    for wild in [false, true].into_iter().take(1 + exact as usize) {
        let dress = |a: &Array| if wild { wilder(a) } else { Dense::from_array(a) };
        let inputs: Vec<Dense> = random_inputs(graph, 7).iter().map(dress).collect();
        let state: Tensors = random_state(graph, 7).iter().map(|(k, v)| (k.clone(), dress(v))).collect();
        let Ok(want) = interp::run(graph, &inputs, &state, Mode::Declared) else { continue };
        let (outputs, after) = run(&inputs, &state)?;
        let results = graph.outputs.iter().map(|o| &*o.name).zip(want.outputs.iter().zip(&outputs));
        let states = want.state.iter().map(|(name, w)| (&**name, (w, &after[name])));
        for (name, (w, g)) in results.chain(states) {
            let g = Dense { shape: w.shape.clone(), ..g.clone() };
            let same = if exact { bits(w) == bits(&g) } else { difference(&g, w) < tolerance };
            if !same {
                return Err(format!("'{name}' is {g:?} and ought to be {w:?}"));
            }
        }
    }
    Ok(())
}

/// The same tensor with numbers at the edge of their dtype among the others.
fn wilder(a: &Array) -> Dense {
    let mut d = Dense::from_array(a);
    if a.dtype().is_float() {
        let edges = [-0.0, f64::NAN, 0.0, f64::INFINITY, f64::NEG_INFINITY, 1e-40, 3e38];
        let at = |(i, x): (usize, &f64)| if i % 3 < 2 { edges[(i - i / 3) % edges.len()] } else { *x };
        d = Dense::from_reals(a.dtype(), a.shape(), d.reals().iter().enumerate().map(at).collect());
        d.settle();
    }
    d
}

/// The bits of each element, any NaN being one.
fn bits(d: &Dense) -> Vec<u64> {
    let a = d.to_array().expect("a tensor of the interpreter");
    let real = |x: f64| if x.is_nan() { u64::MAX } else { x.to_bits() };
    if a.dtype().is_float() {
        a.to_f64().into_iter().map(real).collect()
    } else {
        a.to_i64().into_iter().map(|x| x as u64).collect()
    }
}

/// The lines that differ, with a little of what is around them.
fn diff(want: &str, got: &str) -> String {
    let (w, g): (Vec<&str>, Vec<&str>) = (want.lines().collect(), got.lines().collect());
    let head = w.iter().zip(&g).take_while(|(a, b)| a == b).count();
    let rest = w.len().min(g.len()) - head;
    let tail = w.iter().rev().zip(g.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let mut out = String::new();
    let mut list = |sign: &str, lines: &[&str]| {
        lines.iter().for_each(|l| out += &format!("  {sign} {l}\n"));
    };
    list(" ", &w[head.saturating_sub(2)..head]);
    list("-", &w[head..w.len() - tail]);
    list("+", &g[head..g.len() - tail]);
    list(" ", &w[w.len() - tail..(w.len() - tail + 2).min(w.len())]);
    out
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("the folder of filetests");
    for path in entries.map(|e| e.expect("an entry of the folder").path()) {
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "onestep") {
            out.push(path);
        }
    }
    out.sort();
}

#[test]
fn filetests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/filetests");
    let bless = std::env::var_os("ONESTEP_BLESS").is_some();
    let mut paths = vec![];
    files(&root, &mut paths);
    assert!(!paths.is_empty(), "no filetests in {}", root.display());
    let mut faults = String::new();
    for path in &paths {
        let name = path.strip_prefix(&root).unwrap_or(path).display();
        let got = Case::read(path).and_then(|case| case.run().map(|got| (case, got)));
        match got {
            Err(e) => faults += &format!("{name}: {e}\n"),
            Ok((case, got)) if got == case.want => {}
            Ok((case, got)) if bless => {
                std::fs::write(path, format!("{}\n{BORDER}\n{got}", case.head)).expect("a writable file");
            }
            Ok((case, got)) => faults += &format!("{name} (- wanted, + found):\n{}", diff(&case.want, &got)),
        }
        // A file lies in the folder of the pass that it tests.
        if let Ok(case) = Case::read(path)
            && path.parent().and_then(Path::file_name).is_none_or(|f| *f != *case.pass)
        {
            faults += &format!("{name} tests the pass '{}'\n", case.pass);
        }
    }
    assert!(faults.is_empty(), "\n{faults}ONESTEP_BLESS=1 writes the files anew.");
}
