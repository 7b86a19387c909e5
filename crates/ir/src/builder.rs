//! Builds graphs. A mistake poisons the handle that the call returns, and everything computed from it;
//! [`GraphBuilder::build`] then returns every mistake at once, each with the caller's source line.

use crate::op::{RegionType, infer};
use crate::{
    Array, BuildError, DType, Def, Dim, DimSpec, Graph, GraphError, Init, IntoShape, Loc, Mistake, Node,
    NodeId, Op, Port, Region, Role, Shape, StatePort, Tensor, Type, Update, ValueId,
};
use std::cell::RefCell;
use std::ops::Range;

mod checkpoint;
mod regions;
mod scan;

use regions::Open;
pub use scan::{ScanOptions, Scanned};

/// A graph under construction. Handles ([`Tensor`]) borrow it, so that they are `Copy` and read like numbers.
#[derive(Debug)]
pub struct GraphBuilder {
    inner: RefCell<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    graph: Graph,
    errors: Vec<BuildError>,
    scope: Vec<String>,
    /// Nested regions under construction, innermost last.
    regions: Vec<Open>,
    /// How many nested regions have been begun.
    begun: usize,
    /// When set, new nodes get this line instead of their caller's.
    loc: Option<Option<Loc>>,
    /// The checkpoints, inner ones before those around them: name and the nodes built in it.
    checkpoints: Vec<(String, Range<usize>)>,
}

impl Inner {
    fn fail(&mut self, op: &str, operands: Vec<Type>, mistake: Mistake, loc: Loc) {
        self.errors.push(BuildError { op: op.to_string(), operands, mistake, loc });
    }

    fn region(&mut self) -> &mut Region {
        match self.regions.last_mut() {
            Some(open) => &mut open.region,
            None => &mut self.graph.body,
        }
    }
}

/// The types, unless a tensor of one is larger than memory can address.
fn addressable(types: Vec<Type>) -> Result<Vec<Type>, Mistake> {
    match types.iter().find(|t| !t.is_addressable()) {
        None => Ok(types),
        Some(t) => {
            Err(Mistake::new(format!("{t} has more elements than memory can address"), "use smaller sizes"))
        }
    }
}

impl GraphBuilder {
    /// An empty graph.
    pub fn new(name: &str) -> GraphBuilder {
        GraphBuilder::edit(Graph { name: name.to_string(), ..Graph::default() })
    }

    /// Goes on building an existing graph: its values are reached with [`GraphBuilder::tensor`].
    pub fn edit(graph: Graph) -> GraphBuilder {
        GraphBuilder { inner: RefCell::new(Inner { graph, ..Inner::default() }) }
    }

    /// The handle of a value of the graph that is being edited.
    pub fn tensor(&self, value: ValueId) -> Tensor<'_> {
        Tensor { g: self, value: Some(value) }
    }

    /// Runs `f` on the graph as it stands.
    pub fn with_graph<R>(&self, f: impl FnOnce(&Graph) -> R) -> R {
        f(&self.inner.borrow().graph)
    }

    /// Every mistake so far.
    pub fn errors(&self) -> Vec<BuildError> {
        self.inner.borrow().errors.clone()
    }

    /// A poisoned handle: what follows from a mistake already on record.
    pub(crate) fn poison(&self) -> Tensor<'_> {
        Tensor { g: self, value: None }
    }

    /// Records a mistake and gives the poisoned handle.
    #[track_caller]
    pub fn mistake(&self, op: &str, operands: &[Tensor<'_>], mistake: Mistake) -> Tensor<'_> {
        let types = operands.iter().filter_map(|t| t.ty()).collect();
        self.inner.borrow_mut().fail(op, types, mistake, Loc::caller());
        Tensor { g: self, value: None }
    }

    #[track_caller]
    pub(crate) fn shape(&self, what: &str, shape: impl IntoShape) -> Option<Shape> {
        let mut inner = self.inner.borrow_mut();
        let mut dims = vec![];
        for spec in shape.into_dims() {
            match spec {
                DimSpec::Dim(d) => dims.push(d),
                DimSpec::Var(v) => {
                    let known = inner.graph.dims.get(&v.name).copied();
                    match (known, v.bound) {
                        (None, None) => {
                            let help = format!("write dim(\"{}\").at_most(N) at its first use", v.name);
                            let m = Mistake::new(format!("dimension '{}' has no bound", v.name), help);
                            inner.fail(what, vec![], m, Loc::caller());
                            return None;
                        }
                        (Some(a), Some(b)) if a != b => {
                            let m = Mistake::new(
                                format!("dimension '{}' is bounded by {a} and by {b}", v.name),
                                "give one bound",
                            );
                            inner.fail(what, vec![], m, Loc::caller());
                            return None;
                        }
                        (None, Some(b)) if b == 0 || !crate::graph::is_well_formed(&v.name) => {
                            let fault = format!("dimension {:?} has bound {b}", v.name);
                            let help =
                                "give a bound of at least 1, and a name without quotes or control characters";
                            inner.fail(what, vec![], Mistake::new(fault, help), Loc::caller());
                            return None;
                        }
                        (None, Some(b)) => {
                            inner.graph.dims.insert(v.name.clone(), b);
                        }
                        _ => {}
                    }
                    dims.push(Dim::var(&v.name));
                }
            }
        }
        for d in &dims {
            for v in d.vars() {
                if !inner.graph.dims.contains_key(v) {
                    let m = Mistake::new(
                        format!("dimension '{v}' is unknown"),
                        format!("declare it with dim(\"{v}\").at_most(N)"),
                    );
                    inner.fail(what, vec![], m, Loc::caller());
                    return None;
                }
            }
        }
        Some(Shape(dims))
    }

    fn name_is_free(&self, kind: &str, name: &str, loc: Loc) -> bool {
        let mut inner = self.inner.borrow_mut();
        let g = &inner.graph;
        let taken = match kind {
            "input" => g.inputs.iter().any(|p| &*p.name == name),
            "state" => g.states.iter().any(|p| &*p.name == name),
            _ => g.outputs.iter().any(|p| &*p.name == name),
        };
        let reserved = !crate::graph::is_well_formed(name);
        let mistake = if taken {
            Mistake::new(format!("{kind} '{name}' exists already"), "choose another name")
        } else if reserved {
            Mistake::new(
                format!("{kind} name {name:?} is empty or has a quote, backslash or control character"),
                "choose another name",
            )
        } else {
            return true;
        };
        inner.fail(kind, vec![], mistake, loc);
        false
    }

    fn interface_type(&self, kind: &str, ty: Type, loc: Loc) -> Option<Type> {
        match addressable(vec![ty]) {
            Ok(mut types) => types.pop(),
            Err(mistake) => {
                self.inner.borrow_mut().fail(kind, vec![], mistake, loc);
                None
            }
        }
    }

    /// An input, fed at each call.
    #[track_caller]
    pub fn input(&self, name: &str, dtype: DType, shape: impl IntoShape) -> Tensor<'_> {
        let loc = Loc::caller();
        let Some(shape) = self.shape("input", shape) else { return Tensor { g: self, value: None } };
        if !self.name_is_free("input", name, loc) {
            return Tensor { g: self, value: None };
        }
        let Some(ty) = self.interface_type("input", Type::new(dtype, shape), loc) else {
            return self.poison();
        };
        let mut inner = self.inner.borrow_mut();
        let value = inner.graph.add_value(ty, Def::Param);
        inner.graph.body.params.push(value);
        inner.graph.inputs.push(Port { name: name.into(), value });
        Tensor { g: self, value: Some(value) }
    }

    /// A state tensor at the current path joined with `name`. Its shape has no variable.
    #[track_caller]
    pub fn state(&self, name: &str, role: Role, dtype: DType, shape: &[usize], init: Init) -> Tensor<'_> {
        self.declare_state(name, role, Type::new(dtype, Shape::fixed(shape)), init)
    }

    #[track_caller]
    fn declare_state(&self, name: &str, role: Role, ty: Type, init: Init) -> Tensor<'_> {
        let loc = Loc::caller();
        let path = self.path(name);
        if !self.name_is_free("state", &path, loc) {
            return Tensor { g: self, value: None };
        }
        let stacked = role == Role::Parameter;
        let ty = if stacked { self.inner.borrow().repeated(ty) } else { ty };
        let Some(ty) = self.interface_type("state", ty, loc) else { return self.poison() };
        let mut inner = self.inner.borrow_mut();
        let value = inner.graph.add_value(ty, Def::Param);
        inner.graph.body.params.push(value);
        inner.graph.states.push(StatePort { name: path.into(), value, role, init });
        let value = if stacked { inner.slice(value) } else { value };
        Tensor { g: self, value: Some(value) }
    }

    /// A cache at the current path joined with `name`: state of zeros with the role of a buffer, whose dimensions may be
    /// variables. A program takes their sizes from the tensor that the state holds at the call.
    #[track_caller]
    pub fn cache(&self, name: &str, dtype: DType, shape: impl IntoShape) -> Tensor<'_> {
        match self.shape("state", shape) {
            Some(shape) => self.declare_state(name, Role::Buffer, Type::new(dtype, shape), Init::ZEROS),
            None => self.poison(),
        }
    }

    /// An `f32` parameter at the current path joined with `name`.
    #[track_caller]
    pub fn parameter(&self, name: &str, shape: &[usize], init: Init) -> Tensor<'_> {
        self.state(name, Role::Parameter, DType::F32, shape, init)
    }

    /// The handle of the state at a full path, if there is one.
    pub fn find_state(&self, path: &str) -> Option<Tensor<'_>> {
        let value = self.inner.borrow().graph.state(path)?.value;
        Some(self.tensor(value))
    }

    /// A constant.
    #[track_caller]
    pub fn constant(&self, array: Array) -> Tensor<'_> {
        self.emit1(crate::ops::Constant::dense(array), &[])
    }

    /// A scalar constant of `dtype`.
    #[track_caller]
    pub fn scalar(&self, dtype: DType, value: f64) -> Tensor<'_> {
        self.full(dtype, (), value)
    }

    /// A tensor whose every element is `value`.
    #[track_caller]
    pub fn full(&self, dtype: DType, shape: impl IntoShape, value: f64) -> Tensor<'_> {
        match self.shape("constant", shape) {
            Some(shape) => self.emit1(crate::ops::Constant::splat(dtype, value, shape), &[]),
            None => Tensor { g: self, value: None },
        }
    }

    /// A tensor that counts 0, 1, 2 … along `axis`.
    #[track_caller]
    pub fn iota(&self, dtype: DType, shape: impl IntoShape, axis: usize) -> Tensor<'_> {
        match self.shape("iota", shape) {
            Some(shape) => self.emit1(crate::ops::Iota { dtype, dims: shape.0, axis }, &[]),
            None => Tensor { g: self, value: None },
        }
    }

    /// Names an output.
    #[track_caller]
    pub fn output(&self, name: &str, tensor: Tensor<'_>) {
        if let Some(value) = self.check_body("output", &[tensor]).map(|v| v[0])
            && self.name_is_free("output", name, Loc::caller())
        {
            self.inner.borrow_mut().graph.outputs.push(Port { name: name.into(), value });
        }
    }

    /// Names an output, replacing the one that had the name.
    #[track_caller]
    pub fn set_output(&self, name: &str, tensor: Tensor<'_>) {
        self.inner.borrow_mut().graph.outputs.retain(|o| &*o.name != name);
        self.output(name, tensor);
    }

    /// `state <- value` at the end of each call; the guard precedes it when `guarded`. `state` is the handle of a
    /// state tensor, and has one update at most.
    #[track_caller]
    pub fn update(&self, state: Tensor<'_>, value: Tensor<'_>, guarded: bool) {
        let Some(ids) = self.check_body("update", &[state, value]) else { return };
        let loc = Loc::caller();
        let mut inner = self.inner.borrow_mut();
        let g = &inner.graph;
        let types = vec![g.ty(ids[0]).clone(), g.ty(ids[1]).clone()];
        let mistake = match g.states.iter().position(|s| s.value == ids[0]) {
            None => Mistake::new(
                "the first operand is not a state",
                "pass the handle that parameter() or state() gave",
            ),
            Some(s) if types[0] != types[1] => Mistake::new(
                format!("state '{}' is {} but the new value is {}", g.states[s].name, types[0], types[1]),
                "reshape or cast the new value",
            ),
            Some(s) if g.updates.iter().any(|u| u.state == s) => Mistake::new(
                format!("state '{}' is updated twice", g.states[s].name),
                "combine the two updates",
            ),
            Some(state) => {
                inner.graph.updates.push(Update { state, value: ids[1], guarded });
                return;
            }
        };
        inner.fail("update", types, mistake, loc);
    }

    /// Sets the commit guard: a `bool` scalar that precedes every guarded update.
    #[track_caller]
    pub fn set_guard(&self, guard: Tensor<'_>) {
        let Some(ids) = self.check_body("guard", &[guard]) else { return };
        let mut inner = self.inner.borrow_mut();
        let ty = inner.graph.ty(ids[0]).clone();
        if ty == Type::new(DType::Bool, Shape::scalar()) {
            inner.graph.guard = Some(ids[0]);
        } else {
            let m = Mistake::new(format!("the guard is {ty}"), "reduce it to a bool scalar");
            inner.fail("guard", vec![ty], m, Loc::caller());
        }
    }

    /// The current path joined with `name` by a dot.
    pub fn path(&self, name: &str) -> String {
        let inner = self.inner.borrow();
        inner
            .scope
            .iter()
            .map(String::as_str)
            .chain([name])
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join(".")
    }

    /// Runs `f` with `name` added to the path of state created in it.
    pub fn scope<R>(&self, name: &str, f: impl FnOnce() -> R) -> R {
        self.inner.borrow_mut().scope.push(name.to_string());
        let out = f();
        self.inner.borrow_mut().scope.pop();
        out
    }

    /// Runs `f`; nodes that it adds carry `loc` as their source line. Passes use it to keep the user's line.
    pub fn at<R>(&self, loc: Option<Loc>, f: impl FnOnce() -> R) -> R {
        let before = self.inner.borrow_mut().loc.replace(loc);
        let out = f();
        self.inner.borrow_mut().loc = before;
        out
    }

    /// The operands' values, or `None` when one is poisoned (its mistake is on record) or of another graph (recorded
    /// now).
    #[track_caller]
    fn check(&self, op: &str, operands: &[Tensor<'_>]) -> Option<Vec<ValueId>> {
        if operands.iter().any(|t| !std::ptr::eq(t.g, self)) {
            let m = Mistake::new(
                "an operand belongs to another graph",
                "build all of one graph with one builder",
            );
            self.inner.borrow_mut().fail(op, vec![], m, Loc::caller());
            return None;
        }
        operands.iter().map(|t| t.value).collect()
    }

    /// Applies an op and gives its first result.
    #[track_caller]
    pub fn emit1(&self, op: impl Into<Op>, operands: &[Tensor<'_>]) -> Tensor<'_> {
        self.emit(op, operands).into_iter().next().unwrap_or(Tensor { g: self, value: None })
    }

    /// Applies an op and gives its results (a single poisoned handle when it is a mistake).
    #[track_caller]
    pub fn emit(&self, op: impl Into<Op>, operands: &[Tensor<'_>]) -> Vec<Tensor<'_>> {
        self.emit_regions(op.into(), operands, vec![])
    }

    /// Applies an op with its nested regions, each made with [`GraphBuilder::open_region`].
    #[track_caller]
    pub(crate) fn emit_regions(
        &self,
        op: Op,
        operands: &[Tensor<'_>],
        regions: Vec<Region>,
    ) -> Vec<Tensor<'_>> {
        let poisoned = vec![Tensor { g: self, value: None }];
        let rule = op.rule();
        let Some(ids) = self.check(rule.name(), operands) else { return poisoned };
        let mut inner = self.inner.borrow_mut();
        let types: Vec<Type> = ids.iter().map(|v| inner.graph.ty(*v).clone()).collect();
        let region_types: Vec<RegionType> = regions.iter().map(|r| inner.graph.region_type(r)).collect();
        let inferred = match rule.region_count() {
            n if n == regions.len() => infer(&op, &types, &region_types).and_then(addressable),
            n => Err(Mistake::new(format!("has {n} region(s), got {}", regions.len()), "give it that many")),
        };
        match inferred {
            Err(mistake) => {
                inner.fail(rule.name(), types, mistake, Loc::caller());
                poisoned
            }
            Ok(results) => {
                let loc = inner.loc.unwrap_or(Some(Loc::caller()));
                let node = NodeId(inner.graph.nodes.len() as u32);
                let results: Vec<ValueId> = results
                    .into_iter()
                    .enumerate()
                    .map(|(i, ty)| inner.graph.add_value(ty, Def::Node(node, i as u32)))
                    .collect();
                inner.graph.nodes.push(Node { op, operands: ids, results: results.clone(), regions, loc });
                inner.region().nodes.push(node);
                results.into_iter().map(|v| self.tensor(v)).collect()
            }
        }
    }

    /// The finished graph, or every mistake at once.
    pub fn build(&self) -> Result<Graph, GraphError> {
        let inner = self.inner.borrow();
        if !inner.errors.is_empty() {
            return Err(GraphError::Build(inner.errors.clone()));
        }
        checkpoint::outlined(&inner.graph, &inner.checkpoints)
    }

    /// The finished graph with `loss` as its first output, named `loss`; or every mistake at once.
    #[track_caller]
    pub fn finish(&self, loss: Tensor<'_>) -> Result<Graph, GraphError> {
        self.output("loss", loss);
        let mut graph = self.build()?;
        graph.outputs.sort_by_key(|o| &*o.name != "loss");
        Ok(graph)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim;
    use crate::ops::BinaryKind;

    #[test]
    fn what_the_verifier_would_refuse_is_a_mistake() {
        let fault = |build: &dyn Fn(&GraphBuilder)| {
            let g = GraphBuilder::new("mistakes");
            build(&g);
            g.build().expect_err("a mistake").to_string()
        };
        let large = "more elements than memory can address";
        assert!(fault(&|g| drop(g.input("x", DType::F32, [1 << 40, 1 << 40]).shape())).contains(large));
        assert!(fault(&|g| drop(g.parameter("w", &[1 << 40, 1 << 40], Init::ZEROS).shape())).contains(large));
        assert!(fault(&|g| drop(g.full(DType::F32, [1 << 40, 1 << 40], 0.0).shape())).contains(large));
        assert!(
            fault(&|g| drop(g.input("x", DType::F32, [dim("B").at_most(0)]).shape())).contains("has bound 0")
        );
        assert!(
            fault(&|g| drop(g.input("x", DType::F32, [dim("").at_most(3)]).shape())).contains("name without")
        );
        let text = fault(&|g| {
            let x = g.input("x", DType::F32, [3]);
            g.emit_with_region(BinaryKind::Add, &[x, x], &[], |_| vec![]);
        });
        assert!(text.contains("has 0 region(s), got 1"), "{text}");
    }
}
