//! `bound.update_with(names, closure)` after `compile_with_backward`: the caller's own optimizer, over memory where it is.

use crate::common::*;
use onestep::prelude::*;
use onestep::{Options, Params, compile_with_backward};

fn compiled() -> CompiledStep {
    compile_with_backward(&regression(), "loss", Params::All, &device(), &Options::default()).unwrap()
}

#[test]
fn the_closure_sees_the_state_itself() {
    let mut backward = compiled();
    let mut state = backward.init(2).unwrap();
    let mut bound = backward.program().executable().unwrap().bind(&state).unwrap();
    bound.run(&mut state, batch(0.5)).unwrap();
    let names = ["fc2.weight", "fc1.bias"];
    let at = |name: &str| state.as_slice::<f32>(name).unwrap().as_ptr() as usize;
    let want: Vec<_> = names.iter().map(|n| (at(n), at(&format!("grad/{n}")))).collect();
    let before: Vec<_> = names.map(|n| (values(&state, n), values(&state, &format!("grad/{n}")))).to_vec();
    let traffic = bound.traffic();
    let mut seen = vec![];
    bound
        .update_with(&mut state, names, |name, shape, p: &mut [f32], g: &[f32]| {
            assert_eq!(p.len(), shape.iter().product::<usize>());
            assert_eq!(p.len(), g.len());
            seen.push((name.to_string(), shape.to_vec(), (p.as_ptr() as usize, g.as_ptr() as usize)));
            p.iter_mut().zip(g).for_each(|(p, g)| *p -= 0.1 * g);
        })
        .unwrap();
    assert_eq!(bound.traffic(), traffic, "nothing was copied");
    let shapes = [vec![2, 5], vec![5]];
    for (i, (name, shape, addresses)) in seen.into_iter().enumerate() {
        assert_eq!((&*name, &shape, addresses), (names[i], &shapes[i], want[i]));
        let stepped: Vec<f32> = before[i].0.iter().zip(&before[i].1).map(|(p, g)| p - 0.1 * g).collect();
        assert_eq!(values(&state, &name), stepped);
    }
    let old = bound.run(&mut state, batch(0.5)).unwrap().loss().unwrap();
    bound.update_with(&mut state, names, |_, _, p: &mut [f32], _: &[f32]| p.fill(9.0)).unwrap();
    assert_ne!(bound.run(&mut state, batch(0.5)).unwrap().loss().unwrap(), old, "the next run reads it");
    assert_eq!(bound.rebinds(), 0);
}

#[test]
fn what_cannot_be_proved_is_refused_before_anything_changes() {
    let mut backward = compiled();
    let mut state = backward.init(2).unwrap();
    let fill = |_: &str, _: &[usize], p: &mut [f32], _: &[f32]| p.fill(0.0);
    assert!(matches!(backward.update_with(&mut state, ["fc1.bias"], fill), Err(Error::NotRun)));
    backward.run(&mut state, batch(0.5)).unwrap();
    let before = values(&state, "fc1.bias");
    let mut refused = |names: &[&str]| backward.update_with(&mut state, names, fill).unwrap_err();
    let error = refused(&["fc1.bias", "fc1.bais"]);
    assert!(matches!(&error, Error::NoGradient { nearest: Some(n), .. } if n == "fc1.bias"), "{error}");
    assert!(matches!(refused(&["fc1.bias", "fc1.bias"]), Error::Repeated { .. }));
    assert!(matches!(refused(&["grad/fc1.bias"]), Error::NoGradient { .. }));
    let doubles = |_: &str, _: &[usize], _: &mut [f64], _: &[f64]| {};
    assert!(matches!(backward.update_with(&mut state, ["fc1.bias"], doubles), Err(Error::StateType { .. })));
    assert_eq!(values(&state, "fc1.bias"), before);

    // Gradients are those of the state that was run, as it still is.
    let mut other = state.try_clone().unwrap();
    assert!(matches!(backward.update_with(&mut other, ["fc1.bias"], fill), Err(Error::NotRun)));
    assert!(backward.run(&mut state, &[waves(&[4, 3], 0.1)]).is_err());
    let bias = values(&state, "fc1.bias");
    state.adopt("fc1.bias", &[5], bias).unwrap();
    assert!(matches!(backward.update_with(&mut state, ["fc1.bias"], fill), Err(Error::NotRun)));
    backward.run(&mut state, batch(0.5)).unwrap();
    backward.update_with(&mut state, ["fc1.bias"], fill).unwrap();
    assert_eq!(values(&state, "fc1.bias"), [0.0; 5]);

    let mut inference = compile(&regression(), &device()).unwrap();
    inference.run(&mut state, batch(0.5)).unwrap();
    let error = inference.update_with(&mut state, ["fc1.bias"], fill).unwrap_err().to_string();
    assert!(error.contains("compile_with_backward"), "{error}");
}
