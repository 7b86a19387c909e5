//! Parameters and slots in `bf16`, rounded by chance.

use crate::common::{State, call, first_state, get};
use crate::{linear, step};
use onestep_ir::rewrite::store_states;
use onestep_ir::{DType, Graph, GraphBuilder, Init};
use onestep_optim::{
    Adam, Average, LayoutRole, Params, Sgd, StepOptions, Storage, UpdateRule, stored, training_step,
};

const N: usize = 4096;

/// Loss Σ w over `N` elements that start at 1: each step of SGD takes the rate off every one.
fn slope() -> Graph {
    let g = GraphBuilder::new("slope");
    let w = g.parameter("w", &[N], Init::ONES);
    g.finish(w.sum_all()).unwrap()
}

fn narrow(graph: &Graph, rule: &dyn UpdateRule) -> Graph {
    step(
        graph,
        rule,
        &StepOptions { parameters: Storage::Bf16, slots: Storage::Bf16, ..StepOptions::default() },
    )
}

fn dtypes(state: &State, wanted: &str) -> Vec<DType> {
    state.iter().filter(|(name, _)| name.ends_with(wanted)).map(|(_, a)| a.dtype()).collect()
}

/// 100 steps of 10⁻⁴, each a fortieth of what `bf16` tells apart below 1: rounded to nearest none is ever seen, by chance
/// their sum is, with a standard error of 0.0003 over the elements.
#[test]
fn updates_below_a_rounding_are_not_lost() {
    let chance = narrow(&slope(), &Sgd::new(1e-4));
    let wide = step(&slope(), &Sgd::new(1e-4), &StepOptions::default());
    let nearest = store_states(&wide, &|s| (&*s.name == "w").then_some(DType::BF16), &|_, _, new| {
        new.cast(DType::BF16)
    });
    for (graph, want) in [(chance, 0.99), (nearest.unwrap(), 1.0)] {
        let mut state = first_state(&graph);
        assert_eq!(dtypes(&state, "w"), [DType::BF16]);
        (0..100).for_each(|_| drop(call(&graph, &mut state, &[])));
        let w = get(&state, "w");
        let mean = w.iter().sum::<f64>() / N as f64;
        assert!((mean - want).abs() < 1e-3, "{mean}, not {want}");
    }
}

/// What is rounded at a step depends on seed, step and path, and on nothing else.
#[test]
fn bits_follow_from_seed_step_and_path() {
    let two = || {
        let g = GraphBuilder::new("two");
        let (a, b) = (g.parameter("a", &[N], Init::ONES), g.parameter("b", &[N], Init::ONES));
        g.finish((a + b).sum_all()).unwrap()
    };
    let graph = narrow(&two(), &Sgd::new(1e-3));
    let mut state = first_state(&graph);
    let mut again = state.clone();
    for _ in 0..3 {
        let before = get(&state, "a");
        [&mut state, &mut again].into_iter().for_each(|s| drop(call(&graph, s, &[])));
        assert_eq!(state, again);
        assert_ne!(get(&state, "a"), get(&state, "b"));
        assert_ne!(get(&state, "a"), before);
    }
    let alone = narrow(&slope(), &Sgd::new(1e-3));
    let mut state = first_state(&alone);
    let moved = |state: &mut State| {
        call(&alone, state, &[]);
        get(state, "w").iter().map(|&w| w == 1.0).collect::<Vec<bool>>()
    };
    let first = moved(&mut state);
    let mut elsewhere = first_state(&alone);
    elsewhere.insert("opt/step".into(), onestep_ir::Array::new(&[], &[1i32]).unwrap());
    assert_ne!(moved(&mut elsewhere), first, "another step has other bits");
}

/// A step that the guard refuses, and a call that does not end a step, write back what they have read.
#[test]
fn what_is_not_stepped_keeps_its_bits() {
    let options = StepOptions {
        parameters: Storage::Bf16,
        slots: Storage::Bf16,
        accumulate: Some(2),
        ..StepOptions::default()
    };
    let graph = step(&linear(DType::F32), &Adam::new(0.01), &options);
    let mut state = first_state(&graph);
    let kept = |state: &State| ["w", "opt/w/m", "opt/w/v"].map(|path| state[path].clone());
    for calls in 0..4 {
        let before = kept(&state);
        call(&graph, &mut state, &[&[0.3, f32::NAN, 1.0]]);
        assert_eq!(kept(&state), before);
        call(&graph, &mut state, &[&[0.3, -0.2, 1.0]]);
        assert_eq!(kept(&state) == before, calls % 2 == 0, "call {calls}");
    }
}

#[test]
fn parameters_and_slots_are_chosen_apart() {
    for (parameters, slots) in
        [(Storage::Bf16, Storage::Exact), (Storage::Exact, Storage::Bf16), (Storage::Bf16, Storage::Bf16)]
    {
        let options =
            StepOptions { parameters, slots, average: Some(Average::ema(0.9)), ..StepOptions::default() };
        let built =
            training_step(&linear(DType::F32), "loss", Params::All, &Adam::new(0.1), &options).unwrap();
        let dtype = |storage| if storage == Storage::Bf16 { DType::BF16 } else { DType::F32 };
        for entry in &built.layout {
            let want = match entry.role {
                LayoutRole::Parameter => dtype(parameters),
                LayoutRole::Slot => dtype(slots),
                _ => DType::F32,
            };
            assert_eq!(entry.dtype, want, "{}", entry.name);
            if let Some(state) = &entry.overwrites {
                let port = built.graph.state(state).unwrap();
                assert_eq!(built.graph.ty(port.value).dtype, want, "{state}");
            }
        }
    }
    // What is f64 stays.
    let graph = narrow(&linear(DType::F64), &Adam::new(0.1));
    assert!(graph.states.iter().all(|s| graph.ty(s.value).dtype != DType::BF16));
}

/// A program that evaluates reads what the step has written.
#[test]
fn another_program_reads_it() {
    let forward = slope();
    let graph = narrow(&forward, &Sgd::new(0.25));
    let evaluate = stored(&forward, &graph).unwrap();
    assert_eq!(evaluate.ty(evaluate.states[0].value).dtype, DType::BF16);
    let mut state = first_state(&graph);
    call(&graph, &mut state, &[]);
    assert_eq!(call(&evaluate, &mut state, &[])[0].to_f64(), [0.75 * N as f64]);
}
