//! The printer. It is total: it prints what it can of a graph that is not valid, so that errors can show it.

use super::lex::{is_plain, quote};
use super::literal::{print_array, print_real};
use crate::{Attr, Dim, Graph, Init, Loc, Node, NodeId, Region, Type, ValueId};
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Printer { graph: self, names: HashMap::new(), seen: vec![false; self.nodes.len()] }.graph(f)
    }
}

impl Graph {
    /// For each line of the text form, where the user wrote what made the node that stands there.
    pub fn source_lines(&self) -> Vec<Option<Loc>> {
        let mut out = vec![None; 1 + self.dims.len() + self.inputs.len() + self.states.len()];
        self.region_lines(&self.body, &mut out);
        out.resize(out.len() + self.outputs.len() + self.updates.len() + self.guard.iter().len() + 1, None);
        out
    }

    fn region_lines(&self, region: &Region, out: &mut Vec<Option<Loc>>) {
        for node in region.nodes.iter().map(|n| self.node(*n)) {
            out.push(node.loc);
            for (i, inner) in node.regions.iter().enumerate() {
                self.region_lines(inner, out);
                // The line of `yield`, and the closing brace, on which the next region opens.
                out.extend([node.loc].into_iter().chain((i + 1 < node.regions.len()).then_some(node.loc)));
            }
            if !node.regions.is_empty() {
                out.push(node.loc);
            }
        }
    }
}

struct Printer<'a> {
    graph: &'a Graph,
    /// The number under which each value is printed.
    names: HashMap<ValueId, usize>,
    /// Nodes printed so far: a node that stands in two places is not valid, and is printed once.
    seen: Vec<bool>,
}

impl Printer<'_> {
    fn graph(&mut self, f: &mut Formatter<'_>) -> fmt::Result {
        let g = self.graph;
        writeln!(f, "graph {} {{", quote(&g.name))?;
        for (name, bound) in &g.dims {
            writeln!(f, "  dim {} <= {bound}", word(name))?;
        }
        for port in &g.inputs {
            writeln!(f, "  input {} {}", quote(&port.name), self.param(port.value))?;
        }
        for s in &g.states {
            let param = self.param(s.value);
            writeln!(f, "  state {} {param} {} init={}", quote(&s.name), s.role.name(), init(&s.init))?;
        }
        self.nodes(f, &g.body, 1)?;
        for o in &g.outputs {
            writeln!(f, "  output {} {}", quote(&o.name), self.name(o.value))?;
        }
        for u in &g.updates {
            let state = g.states.get(u.state).map_or("?", |s| &s.name);
            let how = if u.guarded { "guarded" } else { "always" };
            writeln!(f, "  update {} {} {how}", quote(state), self.name(u.value))?;
        }
        if let Some(guard) = g.guard {
            writeln!(f, "  guard {}", self.name(guard))?;
        }
        writeln!(f, "}}")
    }

    /// Gives a value its number.
    fn define(&mut self, v: ValueId) -> String {
        let next = self.names.len();
        self.names.insert(v, next);
        format!("%{next}")
    }

    fn param(&mut self, v: ValueId) -> String {
        format!("{}: {}", self.define(v), self.ty(v))
    }

    fn name(&self, v: ValueId) -> String {
        self.names.get(&v).map_or_else(|| format!("%undefined.{}", v.0), |n| format!("%{n}"))
    }

    fn ty(&self, v: ValueId) -> String {
        self.graph.values.get(v.index()).map_or_else(|| "?".into(), |v| ty(&v.ty))
    }

    fn nodes(&mut self, f: &mut Formatter<'_>, region: &Region, depth: usize) -> fmt::Result {
        for &id in &region.nodes {
            match self.graph.nodes.get(id.index()) {
                Some(node) if !self.seen[id.index()] && depth <= Graph::MAX_NESTING + 1 => {
                    self.node(f, id, node, depth)?;
                }
                _ => writeln!(f, "{:1$}; node {2} is missing, or stands in two places", "", 2 * depth, id.0)?,
            }
        }
        Ok(())
    }

    fn node(&mut self, f: &mut Formatter<'_>, id: NodeId, node: &Node, depth: usize) -> fmt::Result {
        self.seen[id.index()] = true;
        let operands: Vec<String> = node.operands.iter().map(|v| self.name(*v)).collect();
        let results: Vec<String> = node.results.iter().map(|v| self.define(*v)).collect();
        let types: Vec<String> = node.results.iter().map(|v| self.ty(*v)).collect();
        write!(f, "{:1$}", "", 2 * depth)?;
        if !results.is_empty() {
            write!(f, "{} = ", results.join(", "))?;
        }
        let rule = node.op.rule();
        f.write_str(rule.name())?;
        if !operands.is_empty() {
            write!(f, " {}", operands.join(", "))?;
        }
        let attrs: Vec<String> = rule.attrs().iter().map(|(n, a)| format!("{n}={}", attr(a))).collect();
        if !attrs.is_empty() {
            write!(f, " {{{}}}", attrs.join(", "))?;
        }
        if !types.is_empty() {
            write!(f, " : {}", types.join(", "))?;
        }
        for region in &node.regions {
            let params: Vec<String> = region.params.iter().map(|v| self.param(*v)).collect();
            writeln!(f, " region({}) {{", params.join(", "))?;
            self.nodes(f, region, depth + 1)?;
            let results: Vec<String> = region.results.iter().map(|v| self.name(*v)).collect();
            let gap = if results.is_empty() { "" } else { " " };
            writeln!(f, "{:1$}yield{gap}{2}", "", 2 * (depth + 1), results.join(", "))?;
            write!(f, "{:1$}}}", "", 2 * depth)?;
        }
        writeln!(f)
    }
}

/// A word, in quotes where it must be.
fn word(text: &str) -> String {
    let reserved = matches!(text, "true" | "false" | "nan" | "inf");
    if is_plain(text) && !reserved { text.to_string() } else { quote(text) }
}

fn dim(d: &Dim) -> String {
    let coef = (d.coef() != 1 || d.vars().is_empty()).then(|| d.coef().to_string());
    coef.into_iter().chain(d.vars().iter().map(|v| word(v))).collect::<Vec<_>>().join("*")
}

fn list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", "))
}

/// A type as the parser reads it: names of dimensions are quoted where they must be.
pub(super) fn ty(t: &Type) -> String {
    format!("{}{}", t.dtype, list(&t.shape.0, dim))
}

fn attr(a: &Attr) -> String {
    match a {
        Attr::Int(x) => x.to_string(),
        Attr::Ints(xs) => list(xs, i64::to_string),
        Attr::Real(x) => print_real(x.get()),
        Attr::Bool(b) => b.to_string(),
        Attr::Word(w) => word(w),
        Attr::Dims(dims) => list(dims, dim),
        Attr::Array(a) => print_array(a),
    }
}

fn init(init: &Init) -> String {
    let two = |name: &str, a: f64, b: f64| format!("{name}({}, {})", print_real(a), print_real(b));
    match *init {
        Init::Constant(c) => format!("constant({})", print_real(c)),
        Init::Uniform { low, high } => two("uniform", low, high),
        Init::Normal { mean, std } => two("normal", mean, std),
        Init::TruncatedNormal { mean, std, low, high } => {
            let [mean, std, low, high] = [mean, std, low, high].map(print_real);
            format!("truncated_normal({mean}, {std}, {low}, {high})")
        }
        Init::Orthogonal { gain } => format!("orthogonal({})", print_real(gain)),
        Init::Seed => "seed".into(),
    }
}
