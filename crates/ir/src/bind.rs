//! Binding: each dimension variable is replaced by a size, in every type and every attribute. Differentiation and
//! everything after it see only numbers.

use crate::op::RegionType;
use crate::{Dim, Graph, GraphError, Shape, Type, nearest};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The graph with `sizes` for its dimension variables: one for each, at most its bound.
pub fn bind(graph: &Graph, sizes: &BTreeMap<Arc<str>, usize>) -> Result<Graph, GraphError> {
    for name in sizes.keys() {
        if !graph.dims.contains_key(name) {
            let hint = match nearest(name, graph.dims.keys().map(|d| &**d)) {
                Some(near) => format!("; did you mean '{near}'?"),
                None => String::new(),
            };
            return Err(wrong(name, format!("the graph has no such dimension{hint}")));
        }
    }
    for (name, &bound) in &graph.dims {
        match sizes.get(name) {
            None => return Err(wrong(name, format!("no size was given; give one of at most {bound}"))),
            Some(&size) => check_bound(name, size, bound)?,
        }
    }
    let mut out = graph.clone();
    out.dims.clear();
    for value in &mut out.values {
        value.ty = bind_type(&value.ty, sizes)?;
    }
    for node in &mut out.nodes {
        node.op = node.op.map_dims(|d| d.bind(sizes)).ok_or_else(|| too_large(node.op.rule().name()))?;
    }
    infer_again(&out)?;
    Ok(out)
}

fn wrong(name: &str, message: String) -> GraphError {
    GraphError::Dim { name: name.to_string(), message }
}

fn too_large(what: &str) -> GraphError {
    wrong(what, "at these sizes it has more elements than memory can address; use smaller ones".into())
}

fn check_bound(name: &str, size: usize, bound: usize) -> Result<(), GraphError> {
    if size <= bound {
        return Ok(());
    }
    Err(wrong(name, format!("size {size} is above its bound {bound}; raise the bound or use a smaller size")))
}

fn bind_type(ty: &Type, sizes: &BTreeMap<Arc<str>, usize>) -> Result<Type, GraphError> {
    let dims: Option<Vec<Dim>> = ty.shape.0.iter().map(|d| d.bind(sizes)).collect();
    let bound = dims.map(|dims| Type::new(ty.dtype, Shape(dims)));
    bound.filter(Type::is_addressable).ok_or_else(|| too_large(&ty.to_string()))
}

/// Checks that each op still takes its operands at these sizes, and gives what was inferred before.
fn infer_again(graph: &Graph) -> Result<(), GraphError> {
    for node in &graph.nodes {
        let types = |vs: &[crate::ValueId]| vs.iter().map(|v| graph.ty(*v).clone()).collect::<Vec<Type>>();
        let regions: Vec<RegionType> = node.regions.iter().map(|r| graph.region_type(r)).collect();
        let rule = node.op.rule();
        let fault = match rule.infer_regions(&types(&node.operands), &regions) {
            Ok(got) if got == types(&node.results) => continue,
            Ok(_) => "its result types depend on the sizes in another way than inferred".to_string(),
            Err(mistake) => mistake.to_string(),
        };
        let place = node.loc.map(|l| format!(" at {l}")).unwrap_or_default();
        return Err(GraphError::Invalid(vec![format!(
            "{}{place}, at the sizes given: {fault}",
            rule.name()
        )]));
    }
    Ok(())
}

impl Type {
    /// Whether a dense tensor of this type, with every variable at 1, fits the address space. Sizes of 0 count as 1, so
    /// that the sizes may be multiplied in any order.
    pub fn is_addressable(&self) -> bool {
        let mut factors = self.shape.0.iter().map(|d| d.coef().max(1));
        let bytes = factors.try_fold(self.dtype.size(), usize::checked_mul);
        bytes.is_some_and(|b| b <= isize::MAX as usize)
    }
}

impl Graph {
    /// The size of each dimension variable, read off the inputs' shapes (in the graph's order). A dimension that is
    /// one variable gives its size; every other one is checked.
    pub fn binding_from_inputs(
        &self,
        shapes: &[Vec<usize>],
    ) -> Result<BTreeMap<Arc<str>, usize>, GraphError> {
        self.binding_with_state(shapes, |_| None)
    }

    /// The same, where a dimension may also be read off a state tensor, whose sizes `state` gives by its path.
    pub fn binding_with_state(
        &self,
        shapes: &[Vec<usize>],
        state: impl Fn(&str) -> Option<Vec<usize>>,
    ) -> Result<BTreeMap<Arc<str>, usize>, GraphError> {
        if let Some(port) = self.inputs.get(shapes.len()) {
            let ty = Box::new(self.ty(port.value).clone());
            return Err(GraphError::MissingInput { name: port.name.to_string(), ty, nearest: None });
        }
        if shapes.len() > self.inputs.len() {
            let names: Vec<&str> = self.inputs.iter().map(|p| &*p.name).collect();
            let (got, want) = (shapes.len(), names.len());
            let message = format!("{got} shapes were given for {want} input(s) ({})", names.join(", "));
            return Err(GraphError::Invalid(vec![message]));
        }
        let mut binding: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let mut giver: BTreeMap<&str, String> = BTreeMap::new();
        let fault = |port: &crate::Port, got: &[usize], message: String| GraphError::InputShape {
            name: port.name.to_string(),
            want: Box::new(self.ty(port.value).clone()),
            got: got.to_vec(),
            message,
        };
        for port in self.states.iter().filter(|s| self.ty(s.value).shape.sizes().is_none()) {
            let want = &self.ty(port.value).shape;
            let Some(shape) = state(&port.name).filter(|s| s.len() == want.rank()) else { continue };
            for (dim, size) in want.0.iter().zip(shape) {
                let ([var], 1) = (dim.vars(), dim.coef()) else { continue };
                let other = *binding.entry(var.clone()).or_insert(size);
                let first = giver.entry(var).or_insert_with(|| format!("state '{}'", port.name));
                if other != size {
                    let message = format!("it is {size} in state '{}' but {other} in {first}", port.name);
                    return Err(wrong(var, message));
                }
                if let Some(&bound) = self.dims.get(var) {
                    check_bound(var, size, bound)?;
                }
            }
        }
        for (port, shape) in self.inputs.iter().zip(shapes) {
            let want = &self.ty(port.value).shape;
            if want.rank() != shape.len() {
                let message = format!("it needs {} dimension(s), not {}", want.rank(), shape.len());
                return Err(fault(port, shape, message));
            }
            for (dim, &size) in want.0.iter().zip(shape) {
                let ([var], 1) = (dim.vars(), dim.coef()) else { continue };
                let other = *binding.entry(var.clone()).or_insert(size);
                let first = giver.entry(var).or_insert_with(|| format!("input '{}'", port.name));
                if other != size {
                    let message = format!("{var} is {size} here but {other} in {first}");
                    return Err(fault(port, shape, message));
                }
                if let Some(&bound) = self.dims.get(var) {
                    check_bound(var, size, bound)?;
                }
            }
        }
        for (port, shape) in self.inputs.iter().zip(shapes) {
            for (dim, &size) in self.ty(port.value).shape.0.iter().zip(shape) {
                if let Some(var) = dim.vars().iter().find(|v| !binding.contains_key(*v)) {
                    return Err(unread(var));
                }
                let want = dim.bind(&binding).and_then(|d| d.size());
                if want != Some(size) {
                    let value = |v: &Arc<str>| format!("{v} is {} in {}", binding[v], giver[&**v]);
                    let because: Vec<String> = dim.vars().iter().map(value).collect();
                    let because = if because.is_empty() {
                        String::new()
                    } else {
                        format!(", as {}", because.join(" and "))
                    };
                    let want = want.map_or("larger than any size".to_string(), |n| n.to_string());
                    return Err(fault(port, shape, format!("{dim} must be {want}{because}; it is {size}")));
                }
            }
        }
        match self.dims.keys().find(|v| !binding.contains_key(*v)) {
            Some(var) => Err(unread(var)),
            None => Ok(binding),
        }
    }
}

fn unread(var: &str) -> GraphError {
    wrong(
        var,
        "no input or cache has it as a whole dimension, so its size cannot be read off; bind it by name"
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, GraphBuilder, dim};

    fn sample() -> Graph {
        let g = GraphBuilder::new("bind");
        let x = g.input("x", DType::F32, (dim("B").at_most(8), dim("T").at_most(4)));
        let y = g.input("y", DType::F32, [dim("B")]);
        let bt = Dim::var("B").times(&Dim::var("T")).unwrap();
        let flat = g.input("flat", DType::F32, [bt.clone()]);
        let sum = x.reshape(Shape(vec![bt])) + flat;
        let called = g.call("part", &[y], |p| {
            let ramp = g.iota(DType::F32, [dim("B")], 0);
            vec![p[0] + ramp * 2.0]
        });
        g.output("sum", sum);
        g.output("called", called[0]);
        g.build().unwrap()
    }

    fn sizes(pairs: &[(&str, usize)]) -> BTreeMap<Arc<str>, usize> {
        pairs.iter().map(|&(n, s)| (n.into(), s)).collect()
    }

    #[test]
    fn every_type_and_attribute_is_bound() {
        let bound = bind(&sample(), &sizes(&[("B", 3), ("T", 2)])).unwrap();
        assert!(bound.is_bound() && bound.dims.is_empty());
        assert_eq!(bound.ty(bound.output("sum").unwrap().value).to_string(), "f32[6]");
        assert_eq!(bound.ty(bound.output("called").unwrap().value).to_string(), "f32[3]");
        let inputs: Vec<crate::Array> = bound
            .inputs
            .iter()
            .map(|p| crate::Array::zeros(DType::F32, &bound.ty(p.value).sizes()).unwrap())
            .collect();
        let out = crate::interp::run_arrays(&bound, &inputs, &mut BTreeMap::new()).unwrap();
        assert_eq!(out[1].as_slice::<f32>().unwrap(), [0.0, 2.0, 4.0]);
    }

    #[test]
    fn bindings_are_checked() {
        let text = |pairs: &[(&str, usize)]| bind(&sample(), &sizes(pairs)).unwrap_err().to_string();
        assert!(text(&[("B", 3)]).contains("'T': no size was given"));
        assert!(text(&[("B", 9), ("T", 2)]).contains("size 9 is above its bound 8"));
        assert!(text(&[("b", 3), ("T", 2)]).contains("did you mean 'B'?"));
    }

    #[test]
    fn sizes_are_read_off_the_inputs() {
        let graph = sample();
        let from = |x: [usize; 2], y: usize, flat: usize| {
            graph.binding_from_inputs(&[x.to_vec(), vec![y], vec![flat]]).map_err(|e| e.to_string())
        };
        assert_eq!(from([3, 2], 3, 6), Ok(sizes(&[("B", 3), ("T", 2)])));
        let error = from([3, 2], 5, 6).unwrap_err();
        assert!(error.contains("input 'y'") && error.contains("B is 5 here but 3 in input 'x'"), "{error}");
        let error = from([3, 2], 3, 7).unwrap_err();
        assert!(
            error.contains("B*T must be 6, as B is 3 in input 'x' and T is 2 in input 'x'; it is 7"),
            "{error}"
        );
        assert!(from([9, 2], 9, 18).unwrap_err().contains("above its bound 8"));
        assert!(graph.binding_from_inputs(&[vec![3, 2]]).unwrap_err().to_string().contains("'y'"));
        assert!(graph.binding_from_inputs(&[vec![3, 2], vec![3, 1], vec![6]]).is_err());
        assert!(graph.binding_from_inputs(&vec![vec![3]; 4]).is_err());
    }
}
