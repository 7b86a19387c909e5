//! `compile_training_step(graph, loss, params, optimizer, options)`, and the order of its results.

use crate::common::*;
use onestep::optim::StepOptions;
use onestep::prelude::*;
use onestep::{LayoutRole, Options, Params, UpdateRule, compile_training_step};
use std::sync::Arc;

fn compiled(graph: &Graph, loss: &str, params: Params) -> Result<CompiledStep, Error> {
    let rule: Arc<dyn UpdateRule> = Arc::new(AdamW::new(0.01));
    compile_training_step(graph, loss, params, rule, &StepOptions::default(), &device(), &Options::default())
}

#[test]
fn the_results_are_loss_parameters_slots_row_major_metrics() {
    let params = ["fc2.weight", "fc1.bias"];
    let mut step = compiled(&regression(), "loss", Params::from(params)).unwrap();
    let want: [(&str, LayoutRole, &[usize], Option<&str>); 8] = [
        ("loss", LayoutRole::Loss, &[], None),
        ("fc2.weight", LayoutRole::Parameter, &[2, 5], Some("fc2.weight")),
        ("fc1.bias", LayoutRole::Parameter, &[5], Some("fc1.bias")),
        ("opt/fc2.weight/m", LayoutRole::Slot, &[2, 5], Some("opt/fc2.weight/m")),
        ("opt/fc2.weight/v", LayoutRole::Slot, &[2, 5], Some("opt/fc2.weight/v")),
        ("opt/fc1.bias/m", LayoutRole::Slot, &[5], Some("opt/fc1.bias/m")),
        ("opt/fc1.bias/v", LayoutRole::Slot, &[5], Some("opt/fc1.bias/v")),
        ("largest", LayoutRole::Metric, &[], None),
    ];
    let layout = step.layout();
    assert_eq!(layout.len(), want.len(), "{layout:?}");
    for (entry, (name, role, shape, overwrites)) in layout.iter().zip(want) {
        assert_eq!((&*entry.name, entry.role, &entry.shape[..]), (name, role, shape));
        assert_eq!(entry.overwrites.as_deref(), overwrites);
        assert_eq!(entry.dtype, F32);
    }

    // What overwrites nothing is an output; everything else is state of that type, and the call changes it.
    let mut state = step.init(1).unwrap();
    let before = state.try_clone().unwrap();
    let layout = step.layout().to_vec();
    let out = step.run(&mut state, batch(0.7)).unwrap();
    let outputs: Vec<&str> = layout.iter().filter(|e| e.overwrites.is_none()).map(|e| &*e.name).collect();
    assert_eq!(out.names().collect::<Vec<_>>(), outputs);
    for path in layout.iter().filter_map(|e| e.overwrites.as_deref()) {
        assert_ne!(values(&state, path), values(&before, path), "{path}");
    }
    for frozen in ["fc1.weight", "fc2.bias"] {
        assert_eq!(values(&state, frozen), values(&before, frozen), "{frozen} was not chosen");
    }
}

#[test]
fn any_output_may_be_the_loss() {
    let mut step = compiled(&regression(), "largest", Params::All).unwrap();
    assert_eq!(step.layout()[0].name, "largest");
    let mut state = step.init(1).unwrap();
    let mut largest = || step.run(&mut state, batch(0.7)).unwrap().scalar("largest").unwrap();
    let first = largest();
    assert!((0..20).map(|_| largest()).last().unwrap() < first);
}

#[test]
fn a_loss_that_is_no_scalar_says_how_to_reduce_it() {
    let g = GraphBuilder::new("rows");
    let w = g.parameter("w", &[3], Init::ONES);
    g.output("loss", w.square());
    let error = compiled(&g.build().unwrap(), "loss", Params::All).unwrap_err().to_string();
    assert!(error.contains("loss") && error.contains("f32[3]") && error.contains("mean"), "{error}");
}

#[test]
fn parts_that_do_not_exist_are_named() {
    let graph = regression();
    let error = compiled(&graph, "los", Params::All).unwrap_err().to_string();
    assert!(error.contains("'los'") && error.contains("did you mean 'loss'?"), "{error}");
    let error = compiled(&graph, "loss", Params::from(["fc1.wieght"])).unwrap_err().to_string();
    assert!(error.contains("did you mean 'fc1.weight'?"), "{error}");
    let twice = Params::from(["fc1.bias", "fc1.bias"]);
    assert!(compiled(&graph, "loss", twice).unwrap_err().to_string().contains("fc1.bias"));
    assert!(compiled(&graph, "loss", Params::Paths(vec![])).is_err());
}
