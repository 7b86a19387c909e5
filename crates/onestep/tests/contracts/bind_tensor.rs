//! `state.bind(name, tensor)`: resident, before or after compilation; another length within a variable's bound binds
//! again and is reported; any other mismatch is an error; conversion only when asked (`bind_as`).

use crate::common::*;
use onestep::Binding;
use onestep::prelude::*;

/// The sum of a table's rows, scaled by an input; the table's length is a variable.
fn table() -> Graph {
    let g = GraphBuilder::new("table");
    let scale = g.input("scale", F32, ());
    let table = g.cache("table", F32, (dim("T").at_most(8), 2));
    g.output("sum", table.sum(&[0]) * scale.broadcast(&onestep::Shape::fixed(&[2])));
    g.update(table, table + 1.0, true);
    g.build().unwrap()
}

fn sum(program: &mut Program, state: &mut State) -> Vec<f64> {
    program.run(state, [Array::scalar(2f32)]).unwrap().array("sum").unwrap().to_f64()
}

#[test]
fn a_bound_tensor_is_resident() {
    // Before there is a program.
    let mut state = State::new();
    assert_eq!(state.bind("table", &floats(&[3, 2], &[1.0; 6])).unwrap(), Binding::Added);
    let mut program = compile(&table(), &device()).unwrap();
    assert_eq!(program.missing(&state), [""; 0]);
    for call in 0..4 {
        assert_eq!(sum(&mut program, &mut state), [6.0 * (1.0 + call as f64); 2], "and updated in place");
    }
    assert_eq!(program.traffic().fed, 16, "the scalar, four times: the table is not uploaded again");

    // After it.
    let address = state.as_slice::<f32>("table").unwrap().as_ptr();
    assert_eq!(state.bind("table", &floats(&[3, 2], &[0.5; 6])).unwrap(), Binding::Written);
    assert_eq!(state.as_slice::<f32>("table").unwrap().as_ptr(), address);
    assert_eq!(sum(&mut program, &mut state), [3.0; 2]);
    assert_eq!((program.compilations().len(), program.rebinds()), (1, 0));
}

#[test]
fn another_length_within_the_bound_is_reported() {
    let mut program = compile(&table(), &device()).unwrap();
    let mut state = program.init(0).unwrap();
    assert_eq!(state.get("table").unwrap().shape(), [8, 2], "as long as it may be, unless told otherwise");
    assert_eq!(sum(&mut program, &mut state), [0.0; 2]);
    let done = state.bind("table", &floats(&[5, 2], &[1.0; 10])).unwrap();
    assert_eq!(done, Binding::Resized { from: vec![8, 2] });
    assert_eq!(sum(&mut program, &mut state), [10.0; 2]);
    let sizes: Vec<usize> = program.compilations().iter().map(|c| c.binding["T"]).collect();
    assert_eq!(sizes, [8, 5]);
    assert_eq!(program.compilations()[1].reason, "sizes not met before");
    // Back to a length met before: bound again, not compiled again.
    state.bind("table", &floats(&[8, 2], &[1.0; 16])).unwrap();
    assert_eq!(sum(&mut program, &mut state), [16.0; 2]);
    assert_eq!((program.compilations().len(), program.rebinds()), (2, 1));
}

#[test]
fn any_other_mismatch_is_an_error() {
    let program = compile(&table(), &device()).unwrap();
    let mut state = program.init(0).unwrap();
    let error = state.bind("table", &floats(&[9, 2], &[0.0; 18])).unwrap_err();
    assert!(matches!(error, Error::StateBound { size: 9, bound: 8, .. }), "{error}");
    for wrong in [floats(&[8, 3], &[0.0; 24]), floats(&[16], &[0.0; 16]), Array::zeros(F64, &[8, 2]).unwrap()]
    {
        let error = state.bind("table", &wrong).unwrap_err();
        assert!(matches!(&error, Error::StateType { name, .. } if name == "table"), "{error}");
    }
    assert_eq!(state.get("table").unwrap().shape(), [8, 2]);

    // Undeclared, the tensor that is there decides.
    let mut state = State::new();
    state.bind("w", &floats(&[2], &[1.0, 2.0])).unwrap();
    assert!(state.bind("w", &floats(&[3], &[0.0; 3])).is_err());
}

#[test]
fn conversion_only_when_asked() {
    let mut program = compile(&table(), &device()).unwrap();
    let mut state = program.init(0).unwrap();
    let ints = Array::new(&[2, 2], &[1i32, 2, 3, 4]).unwrap();
    let error = state.bind("table", &ints).unwrap_err().to_string();
    assert!(error.contains("bind_as"), "{error}");
    assert!(state.bind_as("table", &ints, F64).is_err(), "to the dtype asked for, not to the one that fits");
    state.bind_as("table", &ints, F32).unwrap();
    assert_eq!(sum(&mut program, &mut state), [8.0, 12.0]);
}

#[test]
fn a_table_that_is_not_there_is_named() {
    let mut program = compile(&table(), &device()).unwrap();
    let error = program.run(&mut State::new(), [Array::scalar(1f32)]).unwrap_err();
    assert!(matches!(&error, Error::MissingState { names } if names[0].contains("table")), "{error}");
    assert_eq!(program.compilations().len(), 0, "nothing is compiled for it");
}
