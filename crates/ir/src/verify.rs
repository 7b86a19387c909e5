//! The verifier. A valid graph is one that the builder could have made; every pass may rely on it. It checks that
//!
//! * every value is defined exactly once, as a parameter of a region or as a result of a node;
//! * every node stands in exactly one region, and regions nest at most [`Graph::MAX_NESTING`] deep;
//! * nodes and values refer to each other: result `i` of node `n` is a value that says so, and so with parameters;
//! * operands, and the results of a region, are defined in the same region, before their use: no nested region reads
//!   a value from outside;
//! * attributes are valid: the op's text form reads back to the op;
//! * an op has as many regions as its rule says, and their boundaries fit its operands;
//! * the types of a node's results are those that its rule infers, and no tensor is larger than memory can address;
//! * inputs and states are exactly the parameters of the body, each once, and the body has no results;
//! * states have fixed sizes, but for those of buffers (caches);
//! * outputs, updates and the guard use values of the body; the guard is a `bool` scalar;
//! * each update names a state, has its type, and is the only one of that state;
//! * names of inputs, of states and of outputs are unique and well formed, as are those of dimensions;
//! * every dimension variable, in types and attributes, is declared, and its bound is at least 1.
//!
//! It is total: whatever a `Graph` holds, it gives a list of faults and never panics.

use crate::graph::is_well_formed;
use crate::op::{RegionType, infer};
use crate::{
    Attr, AttrReader, DType, Def, Dim, Graph, GraphError, NodeId, Op, Region, Role, Shape, Type, ValueId,
};
use std::collections::HashSet;

/// The most faults that are listed.
const LISTED: usize = 50;

impl Graph {
    /// Checks that the graph is valid; the error lists what is not.
    pub fn verify(&self) -> Result<(), GraphError> {
        let mut v = Verifier {
            graph: self,
            faults: vec![],
            defined: vec![false; self.values.len()],
            placed: vec![false; self.nodes.len()],
        };
        v.dims();
        let body = v.region(&self.body, 0);
        v.leftovers();
        v.interface(&body);
        if v.faults.is_empty() { Ok(()) } else { Err(GraphError::Invalid(v.faults)) }
    }
}

struct Verifier<'a> {
    graph: &'a Graph,
    faults: Vec<String>,
    /// Whether a definition of each value has been met.
    defined: Vec<bool>,
    /// Whether each node has been met in a region.
    placed: Vec<bool>,
}

fn list(types: &[Type]) -> String {
    types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ")
}

impl<'a> Verifier<'a> {
    fn fault(&mut self, text: String) {
        if self.faults.len() < LISTED {
            self.faults.push(text);
        }
    }

    fn ty(&self, v: ValueId) -> Option<&'a Type> {
        self.graph.values.get(v.index()).map(|v| &v.ty)
    }

    fn types(&self, values: &[ValueId]) -> Option<Vec<Type>> {
        values.iter().map(|v| self.ty(*v).cloned()).collect()
    }

    fn dims(&mut self) {
        for (name, &bound) in &self.graph.dims {
            if bound == 0 {
                self.fault(format!("dimension '{name}' has bound 0; give one of at least 1"));
            }
            if !is_well_formed(name) {
                self.fault(format!("dimension name {name:?} is not well formed"));
            }
        }
        for (i, value) in self.graph.values.iter().enumerate() {
            self.declared(&value.ty.shape.0, &format!("%{i}"));
            if !value.ty.is_addressable() {
                self.fault(format!("%{i} is {}, more than memory can address", value.ty));
            }
        }
    }

    fn declared(&mut self, dims: &[Dim], user: &str) {
        for var in dims.iter().flat_map(|d| d.vars()) {
            if !self.graph.dims.contains_key(var) {
                self.fault(format!("{user} has dimension '{var}', which is not declared"));
            }
        }
    }

    /// Notes the definition of a value, and checks that the value agrees.
    fn define(&mut self, v: ValueId, def: Def, scope: &mut HashSet<ValueId>) {
        match self.graph.values.get(v.index()) {
            None => self.fault(format!("%{} does not exist", v.0)),
            Some(_) if self.defined[v.index()] => self.fault(format!("%{} is defined twice", v.0)),
            Some(value) => {
                self.defined[v.index()] = true;
                scope.insert(v);
                if value.def != def {
                    self.fault(format!("%{} says that it is {:?}, but it is {def:?}", v.0, value.def));
                }
            }
        }
    }

    fn used(&mut self, v: ValueId, user: &str, scope: &HashSet<ValueId>) {
        if !scope.contains(&v) {
            self.fault(format!("{user} uses %{}, which is not defined before it in its region", v.0));
        }
    }

    /// Checks a region, and gives the values that it defines.
    fn region(&mut self, region: &Region, depth: usize) -> HashSet<ValueId> {
        let mut scope = HashSet::new();
        for &v in &region.params {
            self.define(v, Def::Param, &mut scope);
        }
        if depth > Graph::MAX_NESTING {
            self.fault(format!("regions nest more than {} deep", Graph::MAX_NESTING));
            return scope;
        }
        for &id in &region.nodes {
            match self.placed.get_mut(id.index()) {
                None => self.fault(format!("node {} does not exist", id.0)),
                Some(true) => self.fault(format!("node {} stands in two places", id.0)),
                Some(placed) => {
                    *placed = true;
                    self.node(id, depth, &mut scope);
                }
            }
        }
        for &v in &region.results {
            self.used(v, "a region's result", &scope);
        }
        scope
    }

    fn node(&mut self, id: NodeId, depth: usize, scope: &mut HashSet<ValueId>) {
        let node = self.graph.node(id);
        let rule = node.op.rule();
        let who = format!("node {} ({})", id.0, rule.name());
        for &v in &node.operands {
            self.used(v, &who, scope);
        }
        for region in &node.regions {
            self.region(region, depth + 1);
        }
        self.attributes(&node.op, &who);
        if node.regions.len() != rule.region_count() {
            self.fault(format!(
                "{who} has {} region(s) instead of {}",
                node.regions.len(),
                rule.region_count()
            ));
        } else {
            self.results(id, &who);
        }
        for (i, &v) in (0..).zip(&node.results) {
            self.define(v, Def::Node(id, i), scope);
        }
    }

    fn attributes(&mut self, op: &Op, who: &str) {
        let attrs = op.rule().attrs();
        for (_, attr) in &attrs {
            if let Attr::Dims(dims) = attr {
                self.declared(dims, who);
            }
        }
        let mut reader = AttrReader::new(attrs.into_iter().map(|(n, a)| (n.to_string(), a)).collect());
        match op.reread(&mut reader).and_then(|op| reader.done().map(|()| op)) {
            Ok(read) if read == *op => {}
            Ok(read) => self.fault(format!("{who}: its attributes read back as {read:?}")),
            Err(mistake) => self.fault(format!("{who}: {mistake}")),
        }
    }

    /// Compares the types of the results with the inferred ones, unless a type is missing (which is on the list).
    fn results(&mut self, id: NodeId, who: &str) {
        let node = self.graph.node(id);
        let boundary = |r: &Region| {
            Some(RegionType { params: self.types(&r.params)?, results: self.types(&r.results)? })
        };
        let regions: Option<Vec<RegionType>> = node.regions.iter().map(boundary).collect();
        let (Some(operands), Some(results), Some(regions)) =
            (self.types(&node.operands), self.types(&node.results), regions)
        else {
            return;
        };
        match infer(&node.op, &operands, &regions) {
            Err(mistake) => self.fault(format!("{who} of ({}): {mistake}", list(&operands))),
            Ok(inferred) if inferred != results => {
                self.fault(format!(
                    "{who} has results ({}) instead of ({})",
                    list(&results),
                    list(&inferred)
                ));
            }
            Ok(_) => {}
        }
    }

    fn leftovers(&mut self) {
        for i in 0..self.placed.len() {
            if !self.placed[i] {
                self.fault(format!("node {i} stands in no region"));
            }
        }
        for i in 0..self.defined.len() {
            if !self.defined[i] {
                self.fault(format!("%{i} is defined nowhere"));
            }
        }
    }

    fn names<'n>(&mut self, kind: &str, names: impl Iterator<Item = &'n str>) {
        let mut seen = HashSet::new();
        for name in names {
            if !is_well_formed(name) {
                self.fault(format!("{kind} name {name:?} is not well formed"));
            }
            if !seen.insert(name) {
                self.fault(format!("there are two {kind}s '{name}'"));
            }
        }
    }

    fn interface(&mut self, body: &HashSet<ValueId>) {
        let g = self.graph;
        self.names("input", g.inputs.iter().map(|p| &*p.name));
        self.names("state", g.states.iter().map(|s| &*s.name));
        self.names("output", g.outputs.iter().map(|o| &*o.name));
        if !g.body.results.is_empty() {
            self.fault("the body has results; it gives outputs and updates instead".into());
        }
        let mut ports: Vec<ValueId> =
            g.inputs.iter().map(|p| p.value).chain(g.states.iter().map(|s| s.value)).collect();
        let mut params = g.body.params.clone();
        ports.sort_unstable();
        params.sort_unstable();
        if ports != params {
            self.fault("the inputs and states are not the parameters of the body, each once".into());
        }
        for s in &g.states {
            if s.role != Role::Buffer && self.ty(s.value).is_some_and(|t| t.shape.sizes().is_none()) {
                self.fault(format!("state '{}' has a dimension variable", s.name));
            }
        }
        for o in &g.outputs {
            self.used(o.value, &format!("output '{}'", o.name), body);
        }
        let mut updated = HashSet::new();
        for u in &g.updates {
            let Some(state) = g.states.get(u.state) else {
                self.fault(format!("an update is of state {}, which does not exist", u.state));
                continue;
            };
            let who = format!("the update of '{}'", state.name);
            self.used(u.value, &who, body);
            if !updated.insert(u.state) {
                self.fault(format!("state '{}' is updated twice", state.name));
            }
            if let (Some(want), Some(got)) = (self.ty(state.value), self.ty(u.value))
                && want != got
            {
                self.fault(format!("{who} is {got} instead of {want}"));
            }
        }
        if let Some(guard) = g.guard {
            self.used(guard, "the guard", body);
            if let Some(ty) = self.ty(guard)
                && *ty != Type::new(DType::Bool, Shape::scalar())
            {
                self.fault(format!("the guard is {ty} instead of bool[]"));
            }
        }
    }
}
