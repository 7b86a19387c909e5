//! Ops of the user's own through every transformation: the gradient that they give, or their decomposition, or an error
//! that names the op. `finite_differences.rs` holds their samples to the slope.

use onestep_autodiff::{AutodiffError, Over, gradients, jvp, vmap};
use onestep_ir::interp::{Mode, run};
use onestep_ir::ops::{Backward, Custom, CustomOp};
use onestep_ir::testing::{Horner, Peak};
use onestep_ir::{AttrReader, DType, Dense, Graph, GraphBuilder, Mistake, Tensor, Type};
use std::collections::BTreeMap;

fn outputs(graph: &Graph, inputs: &[Dense]) -> Vec<Vec<f64>> {
    let outcome = run(graph, inputs, &BTreeMap::new(), Mode::Declared).unwrap();
    outcome.outputs.iter().map(|d| d.reals().to_vec()).collect()
}

fn reals(shape: &[usize], values: &[f64]) -> Dense {
    Dense::from_reals(DType::F64, shape, values.to_vec())
}

/// 1 + 2x + 3x² in each transformation.
fn polynomial() -> Custom {
    Custom::new(Horner::new(&[1.0, 2.0, 3.0]))
}

#[test]
fn forward_mode_and_mapping_take_the_decomposition() {
    let g = GraphBuilder::new("forward");
    let (x, t) = (g.input("x", DType::F64, [2]), g.input("t", DType::F64, [2]));
    let y = g.emit1(polynomial(), &[x]);
    g.output("dy", jvp(&g, &[y], &[(x, t)]).unwrap()[0].unwrap());
    let found = outputs(&g.build().unwrap(), &[reals(&[2], &[1.0, -1.0]), reals(&[2], &[1.0, 10.0])]);
    assert_eq!(found, [[8.0, -40.0]]);

    let g = GraphBuilder::new("member");
    let x = g.input("x", DType::F64, [2]);
    g.output("y", g.emit1(polynomial(), &[x]));
    let over = Over { inputs: ["x"].into(), ..Over::default() };
    let mapped = vmap(&g.build().unwrap(), 2, &over).unwrap();
    assert_eq!(outputs(&mapped, &[reals(&[2, 2], &[0.0, 1.0, -1.0, 2.0])]), [[1.0, 6.0, 2.0, 17.0]]);
}

#[test]
fn without_a_decomposition_an_error_names_the_op() {
    let g = GraphBuilder::new("peak");
    let (x, t) = (g.input("x", DType::F64, [2, 3]), g.input("t", DType::F64, [2, 3]));
    let y = g.emit(Custom::new(Peak), &[x])[0];
    let error = jvp(&g, &[y], &[(x, t)]).unwrap_err();
    assert!(matches!(&error, AutodiffError::NoTangent { op, .. } if op == "testing.peak"), "{error}");
    g.output("y", y);
    let over = Over { inputs: ["x"].into(), ..Over::default() };
    let error = vmap(&g.build().unwrap(), 2, &over).unwrap_err().to_string();
    assert!(error.contains("'testing.peak'") && error.contains("custom.rs"), "{error}");
}

/// The square of each element, with whatever gradient a test asks for.
#[derive(Debug)]
struct Square(Option<Fault>);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Count,
    Shape,
    DType,
}

impl CustomOp for Square {
    fn name(&self) -> &'static str {
        "test.square"
    }
    fn read(&self, _: &mut AttrReader) -> Result<Custom, Mistake> {
        Ok(Custom::new(Square(self.0)))
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        Ok(vec![operands[0].clone()])
    }
    fn reference(&self, operands: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        Ok(vec![operands[0].map_reals(|x| x * x)])
    }
    fn gradient<'g>(&self, at: &Backward<'_, 'g>) -> Option<Vec<Option<Tensor<'g>>>> {
        let dy = at.cotangent(0);
        Some(match self.0? {
            Fault::Count => vec![],
            Fault::Shape => vec![Some(dy.sum_all())],
            Fault::DType => vec![Some(dy.cast(DType::F16))],
        })
    }
}

#[test]
fn a_gradient_of_another_form_is_an_error_that_names_op_and_line() {
    let error = |fault| {
        let g = GraphBuilder::new("square");
        let x = g.input("x", DType::F32, [2]);
        let y = g.emit1(Custom::new(Square(fault)), &[x]);
        gradients(&g, y.sum_all(), &[x]).unwrap_err()
    };
    for (fault, says) in [
        (Fault::Count, "gives 0 cotangents of 1 operands"),
        (Fault::Shape, "gives f32[] as the cotangent of operand 0, which is f32[2]"),
        (Fault::DType, "gives f16[2] as the cotangent"),
    ] {
        let error = error(Some(fault));
        let AutodiffError::WrongGradient { op, loc, .. } = &error else { panic!("{error}") };
        assert!(op == "test.square" && loc.contains("custom.rs"), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    let error = error(None);
    let AutodiffError::NoGradient { op, reason, parameter, .. } = &error else { panic!("{error}") };
    assert_eq!((&op[..], &parameter[..]), ("test.square", "input 'x'"));
    assert!(reason.contains("neither a gradient nor a decomposition"), "{error}");
}
