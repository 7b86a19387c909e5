//! Named dimensions through every shape rule: inferring and then binding the variables gives what binding and then
//! inferring does, for single variables, multiples and products.

use onestep_ir::op::Sample;
use onestep_ir::{Dim, Op, Shape, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Binding = BTreeMap<Arc<str>, usize>;

/// The ops that need every size of their operands as a number: the key of random bits has two words.
const NUMBERS: [&str; 1] = ["random_bits"];

/// The ops that need a certain number of elements along an axis: a variable one is taken on trust, and binding it to less is
/// the mistake.
const AT_LEAST: [&str; 5] = ["dynamic_slice", "dynamic_update_slice", "argmax", "argmin", "ctc_loss"];

/// The types that the op infers once everything is bound; `None` where it is one of [`AT_LEAST`] and does not fit.
fn direct(op: &Op, types: &[Type], what: &str) -> Option<Vec<Type>> {
    match op.rule().infer(types) {
        Ok(inferred) => Some(inferred),
        Err(mistake) => {
            assert!(AT_LEAST.contains(&op.rule().name()), "{what}: {mistake:?}");
            None
        }
    }
}

fn binding(pairs: &[(&str, usize)]) -> Binding {
    pairs.iter().map(|&(name, n)| (name.into(), n)).collect()
}

fn product(names: &[&str], coef: usize) -> Dim {
    names.iter().fold(Dim::fixed(coef), |d, n| d.times(&Dim::var(n)).unwrap())
}

/// The sample's op and operand types with every size that `choose` picks, in shapes and attributes, replaced.
fn replaced(sample: &Sample, choose: impl Fn(&Dim) -> Option<Dim>) -> Option<(Op, Vec<Type>)> {
    let swap = |d: &Dim| choose(d).unwrap_or_else(|| d.clone());
    let ty = |ty: &Type| Type::new(ty.dtype, Shape(ty.shape.0.iter().map(swap).collect()));
    let op = sample.op.map_dims(|d| Some(swap(d)))?;
    Some((op, sample.operands.iter().map(|(t, _)| ty(t)).collect()))
}

fn bound(types: &[Type], sizes: &Binding) -> Option<Vec<Type>> {
    let shape = |s: &Shape| s.0.iter().map(|d| d.bind(sizes)).collect::<Option<Vec<_>>>().map(Shape);
    types.iter().map(|t| Some(Type::new(t.dtype, shape(&t.shape)?))).collect()
}

/// The sizes, other than 1, of a sample's operands.
fn sizes(sample: &Sample) -> BTreeSet<usize> {
    let all = sample.operands.iter().flat_map(|(t, _)| t.shape.0.iter().filter_map(Dim::size));
    all.filter(|&n| n != 1).collect()
}

/// What a size is replaced by, and the values that the variables then take.
fn replacements() -> Vec<(Dim, Vec<Binding>)> {
    let one = [0, 1, 2, 3, 7].map(|n| binding(&[("B", n)])).to_vec();
    let two = [(0, 3), (1, 1), (2, 3), (4, 0), (5, 2)].map(|(b, t)| binding(&[("B", b), ("T", t)])).to_vec();
    vec![
        (product(&["B"], 1), one.clone()),
        (product(&["B"], 2), one.clone()),
        (product(&["B", "B"], 1), one),
        (product(&["B", "T"], 1), two.clone()),
        (product(&["B", "T"], 3), two),
    ]
}

#[test]
fn binding_commutes_with_inference() {
    let mut free: BTreeSet<&str> = BTreeSet::new();
    let mut compared = 0;
    for sample in Op::samples() {
        for n in sizes(&sample) {
            for (dim, bindings) in replacements() {
                let here = |d: &Dim| (d.size() == Some(n)).then(|| dim.clone());
                let Some((op, types)) = replaced(&sample, here) else { continue };
                // A rule that needs the number says so.
                let Ok(inferred) = op.rule().infer(&types) else { continue };
                for sizes in &bindings {
                    let what = format!("{op:?} of {types:?} at {sizes:?}");
                    let now = bound(&types, sizes).unwrap();
                    let op = op.map_dims(|d| d.bind(sizes)).unwrap_or_else(|| panic!("{what}"));
                    let Some(direct) = direct(&op, &now, &what) else { continue };
                    assert_eq!(bound(&inferred, sizes).unwrap(), direct, "{what}");
                    compared += 1;
                }
                free.insert(sample.op.rule().name());
            }
        }
    }
    assert!(compared > 2000, "{compared}");
    // Every op with operands that have axes has some that may be variable.
    let with_axes = |s: &Sample| s.operands.iter().any(|(t, _)| t.shape.rank() > 0);
    let all: BTreeSet<&str> =
        Op::samples().iter().filter(|s| with_axes(s)).map(|s| s.op.rule().name()).collect();
    let never: Vec<&str> = all.difference(&free).copied().collect();
    assert_eq!(never, NUMBERS, "need every size as a number");
}

/// One axis of one operand alone: an answer or a mistake, and where it is an answer, it commutes too.
#[test]
fn a_single_variable_axis_is_answered_or_refused() {
    let dim = product(&["B", "T"], 1);
    let mut refused = 0;
    for sample in Op::samples() {
        for operand in 0..sample.operands.len() {
            for axis in 0..sample.operands[operand].0.shape.rank() {
                let mut types: Vec<Type> = sample.operands.iter().map(|(t, _)| t.clone()).collect();
                types[operand].shape.0[axis] = dim.clone();
                match sample.op.rule().infer(&types) {
                    Err(mistake) => {
                        let text = format!("{mistake:?}");
                        assert!(text.len() > 20, "{:?} of {types:?}: {text}", sample.op);
                        refused += 1;
                    }
                    Ok(inferred) => {
                        for sizes in [binding(&[("B", 2), ("T", 3)]), binding(&[("B", 0), ("T", 1)])] {
                            let now = bound(&types, &sizes).unwrap();
                            let what = format!("{:?} of {types:?}", sample.op);
                            let Some(direct) = direct(&sample.op, &now, &what) else { continue };
                            assert_eq!(bound(&inferred, &sizes).unwrap(), direct, "{what}");
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 50, "{refused}");
}
