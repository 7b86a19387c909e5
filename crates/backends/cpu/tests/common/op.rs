//! A kernel of one op, beside the op's reference.

use super::{Case, dense};
use onestep_ir::{Array, Dense, Op, Type};
use onestep_passes::schedule::{Kernel, LibraryKernel, View};

/// A schedule of one op over dense operands. The results are its last buffers.
pub fn case(op: &Op, operands: &[Array]) -> (Case, Vec<Type>) {
    let views = operands.iter().map(|a| (a.clone(), None)).collect::<Vec<_>>();
    case_of_views(op, &views)
}

/// The same; an operand may be a view (of strides) of another tensor.
pub fn case_of_views(op: &Op, operands: &[(Array, Option<(Vec<usize>, Vec<usize>)>)]) -> (Case, Vec<Type>) {
    let mut case = Case::default();
    let mut views = vec![];
    let mut types = vec![];
    for (array, view) in operands {
        let buffer = case.input(array.clone());
        let view = match view {
            None => dense(buffer, array.shape()),
            Some((shape, strides)) => {
                View { buffer, offset: 0, shape: shape.clone(), strides: strides.clone() }
            }
        };
        types.push(Type::new(array.dtype(), onestep_ir::Shape::fixed(&view.shape)));
        views.push(view);
    }
    let results = op.rule().infer(&types).unwrap();
    let outs = results.iter().map(|t| dense(case.temp(t.dtype, &t.sizes()), &t.sizes())).collect();
    case.push(Kernel::Library(LibraryKernel { op: op.clone(), operands: views, results: outs }));
    (case, results)
}

pub fn reference(op: &Op, operands: &[Array], results: &[Type]) -> Vec<Dense> {
    let dense: Vec<Dense> = operands.iter().map(Dense::from_array).collect();
    op.rule().reference(&dense.iter().collect::<Vec<_>>(), results).unwrap()
}

/// Holds a kernel to the reference: floats within `tolerance` of their size or of 1, NaN for NaN.
pub fn check(op: &Op, operands: &[Array], tolerance: f64) {
    let (case, results) = case(op, operands);
    let got = case.run();
    let got = &got[got.len() - results.len()..];
    for (g, w) in got.iter().zip(reference(op, operands, &results)) {
        let w = w.to_array().unwrap();
        if !g.dtype().is_float() {
            assert_eq!(g.to_i64(), w.to_i64(), "{op:?}");
            continue;
        }
        for (i, (a, b)) in g.to_f64().iter().zip(w.to_f64()).enumerate() {
            let near = (a - b).abs() <= tolerance * b.abs().max(1.0);
            assert!(near || *a == b || (a.is_nan() && b.is_nan()), "{op:?} element {i}: {a} for {b}");
        }
    }
}
