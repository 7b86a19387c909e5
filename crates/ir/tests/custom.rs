//! Ops of the user's own: what holds of the table's ops holds of them, and what they give back is checked.

use onestep_ir::interp::{Mode, run};
use onestep_ir::op::OpRule;
use onestep_ir::ops::{CpuKernel, Custom, CustomOp, CustomOps};
use onestep_ir::testing::{Horner, Peak, custom_samples, graph_of, operand_values};
use onestep_ir::{
    Attr, AttrReader, Attrs, DType, Data, Dense, Dim, Graph, GraphBuilder, GraphError, Mistake, Shape,
    Tensor, Type, bind, dim,
};
use std::collections::{BTreeMap, HashSet};

fn known() -> CustomOps {
    CustomOps::new().with(Horner::new(&[0.0])).with(Peak)
}

#[test]
fn the_text_form_round_trips_where_the_ops_are_known() {
    for sample in custom_samples() {
        let types: Vec<Type> = sample.operands.iter().map(|(ty, _)| ty.clone()).collect();
        let graph = graph_of(&sample.op, &types).unwrap();
        graph.verify().unwrap();
        let text = graph.to_string();
        let again = Graph::parse_with(&text, &known()).unwrap();
        assert_eq!(text, again.to_string());
        assert_eq!(graph.nodes[0].op, again.nodes[0].op);
        let inputs = operand_values(&sample, 1);
        let eval = |g: &Graph| run(g, &inputs, &BTreeMap::new(), Mode::Declared).unwrap().outputs;
        assert_eq!(eval(&graph), eval(&again));

        let error = Graph::parse(&text).unwrap_err().to_string();
        let name = sample.op.rule().name();
        assert!(error.contains(name) && error.contains("Graph::parse_with"), "{error}");
    }
    let near = r#"graph "g" { input "x" %0: f32[2]
        %1 = testing.horned %0 {coefficients=f64[1](2)} }"#;
    let error = Graph::parse_with(near, &known()).unwrap_err().to_string();
    assert!(error.contains("line 2") && error.contains("did you mean 'testing.horner'?"), "{error}");
    let missing = near.replace("horned", "horner").replace("coefficients", "cofficients");
    let error = Graph::parse_with(&missing, &known()).unwrap_err().to_string();
    assert!(error.contains("attribute 'coefficients' is missing"), "{error}");
}

#[test]
fn equal_ops_are_one() {
    let op = |c: f64| Custom::new(Horner::new(&[c]));
    let set: HashSet<Custom> = [op(1.0), op(1.0), op(2.0), Custom::new(Peak)].into_iter().collect();
    assert_eq!(set.len(), 3);
    // Of another type, whatever its name.
    assert_ne!(Custom::new(Odd { name: "testing.peak", ..Odd::new() }), Custom::new(Peak));
}

/// An op with whatever fault a test asks for.
#[derive(Clone, Debug)]
struct Odd {
    name: &'static str,
    size: Option<Dim>,
    reference: fn(&[Type]) -> Vec<Dense>,
    results: usize,
}

impl Odd {
    fn new() -> Odd {
        let reference = |t: &[Type]| vec![Dense::full(t[0].dtype, &t[0].sizes(), 0.0)];
        Odd { name: "odd", size: None, reference, results: 1 }
    }
}

impl CustomOp for Odd {
    fn name(&self) -> &'static str {
        self.name
    }
    fn attrs(&self) -> Attrs {
        self.size.iter().map(|d| ("size", Attr::Dims(vec![d.clone()]))).collect()
    }
    fn read(&self, attrs: &mut AttrReader) -> Result<Custom, Mistake> {
        let size = attrs.maybe("size", AttrReader::dims)?.and_then(|d| d.first().cloned());
        Ok(Custom::new(Odd { size, ..self.clone() }))
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let mut ty = operands[0].clone();
        ty.shape = self.size.clone().map_or(ty.shape, |d| Shape(vec![d]));
        Ok(vec![ty; self.results])
    }
    fn reference(&self, _: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        Ok((self.reference)(results))
    }
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        Some(vec![operands[0].sum_all()])
    }
}

fn built(op: Odd) -> Result<Graph, GraphError> {
    let g = GraphBuilder::new("odd");
    let x = g.input("x", DType::F32, [2]);
    let y = g.emit1(Custom::new(op), &[x]);
    g.output("y", y);
    g.build()
}

#[test]
fn names_that_cannot_be_read_are_refused() {
    let fault = |name| built(Odd { name, ..Odd::new() }).unwrap_err().to_string();
    assert!(fault("add").contains("there is an op 'add' in the table"));
    for name in ["", "two words", "1st", "yield", "output", "region", "a\"b"] {
        assert!(fault(name).contains("cannot be an op's name"), "{name}");
        let ops = CustomOps::new().with(Odd { name, ..Odd::new() });
        assert!(Graph::parse_with("graph \"g\" {}", &ops).is_err(), "{name}");
    }
    assert!(built(Odd { results: 0, ..Odd::new() }).unwrap_err().to_string().contains("gives no result"));
}

#[test]
fn results_of_another_form_are_an_error_that_names_the_op() {
    let wrong: [fn(&[Type]) -> Vec<Dense>; 6] = [
        |_| vec![],
        |_| vec![Dense::full(DType::F32, &[2], 0.0); 2],
        |_| vec![Dense::full(DType::F64, &[2], 0.0)],
        |_| vec![Dense::full(DType::F32, &[3], 0.0)],
        |_| vec![Dense::from_reals(DType::F32, &[2], vec![0.0; 5])],
        |_| vec![Dense { dtype: DType::F32, shape: vec![2], data: Data::Ints(vec![1, 2]) }],
    ];
    for reference in wrong {
        let graph = built(Odd { reference, ..Odd::new() }).unwrap();
        let x = [Dense::full(DType::F32, &[2], 1.0)];
        let error = run(&graph, &x, &BTreeMap::new(), Mode::Declared).unwrap_err();
        let GraphError::Eval { op, loc, mistake } = &error else { panic!("{error}") };
        assert!(op == "odd" && loc.contains("custom.rs"), "{error}");
        assert!(mistake.what.contains("in place of (f32[2])"), "{error}");
    }
    let g = GraphBuilder::new("odd");
    let x = g.input("x", DType::F32, [2]);
    let parts = Custom::new(Odd::new()).decompose(&g, &[x]).unwrap();
    assert!(parts.len() == 1 && parts[0].value().is_none());
    let error = g.build().unwrap_err().to_string();
    assert!(error.contains("odd(f32[2])") && error.contains("gives (f32[]) in place of (f32[2])"), "{error}");
}

#[test]
fn variables_in_attributes_are_bound() {
    let g = GraphBuilder::new("odd");
    let x = g.input("x", DType::F32, [dim("B").at_most(8)]);
    let odd = Odd { size: Some(x.shape().0[0].times(&Dim::fixed(3)).unwrap()), ..Odd::new() };
    g.output("y", g.emit1(Custom::new(odd), &[x]));
    let graph = g.build().unwrap();
    assert!(graph.to_string().contains("odd %0 {size=[3*B]} : f32[3*B]"), "{graph}");
    let bound = bind(&graph, &BTreeMap::from([("B".into(), 2)])).unwrap();
    bound.verify().unwrap();
    assert!(bound.to_string().contains("odd %0 {size=[6]} : f32[6]"), "{bound}");
}

#[test]
fn kernels_fit_their_types() {
    let kernel = CpuKernel::new::<(f32, u8), (i32,)>(3, |_, _, _| {});
    let ty = |d, s: &[usize]| Type::new(d, Shape::fixed(s));
    let operands = [ty(DType::F32, &[2]), ty(DType::Bool, &[1])];
    kernel.check(&operands, &[ty(DType::I32, &[3, 2])]).unwrap();
    kernel.check(&operands, &[ty(DType::I32, &[0])]).unwrap();
    let fault = |o: &[Type], r: &[Type]| kernel.check(o, r).unwrap_err().what;
    assert!(fault(&operands, &[ty(DType::I32, &[4])]).contains("3 parts do not divide"));
    assert!(fault(&operands[..1], &[ty(DType::I32, &[3])]).contains("takes (f32, u8), the op (f32[2])"));
    assert!(fault(&operands, &[ty(DType::F32, &[3])]).contains("writes (i32), the op (f32[3])"));
    let none = CpuKernel::new::<(), (f32,)>(0, |_, (), _| {});
    none.check(&[], &[ty(DType::F32, &[0])]).unwrap();
    assert!(none.check(&[], &[ty(DType::F32, &[1])]).is_err());
}
