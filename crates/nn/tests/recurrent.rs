//! Recurrent networks against PyTorch: the same parameters, inputs, first states and lengths give the same outputs, last
//! states and gradients. The recording's format is described in `tests/data/make_torch_recurrent.py`.

mod common;

use common::{assert_close, mistakes, shapes};
use onestep_autodiff::gradients;
use onestep_io::safetensors::{Tensors, from_bytes};
use onestep_ir::interp::{Mode, run};
use onestep_ir::{DType, Dense, GraphBuilder, Tensor, dim};
use onestep_nn::{Cell, Recurrent, RecurrentState};
use std::io::Read;

const HIDDEN: usize = 4;

/// The tensors of one network, without its name.
fn recorded(network: &str) -> Tensors {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/torch-recurrent.safetensors.zst");
    let mut packed = std::fs::File::open(path).unwrap();
    let mut bytes = vec![];
    ruzstd::decoding::StreamingDecoder::new(&mut packed).unwrap().read_to_end(&mut bytes).unwrap();
    let (tensors, _) = from_bytes(&bytes).unwrap();
    let own = |(name, array): (String, _)| {
        Some((name.strip_prefix(network)?.strip_prefix('/')?.to_string(), array))
    };
    tensors.into_iter().filter_map(own).collect()
}

fn agrees(name: &str, network: Recurrent) {
    let recorded = recorded(name);
    let g = GraphBuilder::new(name);
    let mut feeds = vec![];
    let mut feed = |what: &str| {
        let array = recorded.get(what)?;
        feeds.push(Dense::from_array(array));
        Some(g.input(what, array.dtype(), array.shape()))
    };
    let x = feed("input/x").unwrap();
    let (hidden, cell, lengths) = (feed("input/hidden").unwrap(), feed("input/cell"), feed("input/lengths"));
    let first = RecurrentState { hidden, cell };
    let result = network.build_with(&g, "net", x, lengths, Some(first));
    let outputs = [Some(("output", result.output)), Some(("hidden", result.state.hidden))];
    let outputs = outputs.into_iter().chain([result.state.cell.map(|c| ("cell", c))]).flatten();
    let mut loss = g.scalar(DType::F64, 0.0);
    for (what, t) in outputs {
        g.output(&format!("output/{what}"), t);
        loss = loss + (t * feed(&format!("weight/{what}")).unwrap()).sum_all();
    }

    let graph = g.build().unwrap();
    let mut own: Vec<String> =
        shapes(&graph).into_iter().map(|(path, _)| path["net.".len()..].to_string()).collect();
    own.sort();
    let paths: Vec<&str> = recorded.keys().filter_map(|n| n.strip_prefix("parameter/")).collect();
    assert_eq!(own, paths, "{name}: a checkpoint would not load");
    let parameters: Vec<(String, Tensor<'_>)> =
        graph.states.iter().map(|s| (s.name["net.".len()..].to_string(), g.tensor(s.value))).collect();
    let inputs = [("x", Some(x)), ("hidden", Some(hidden)), ("cell", cell)];
    let inputs = inputs.into_iter().filter_map(|(n, t)| Some((n.to_string(), t?)));
    let (names, wrt): (Vec<String>, Vec<Tensor<'_>>) = parameters.into_iter().chain(inputs).unzip();
    for (name, d) in names.iter().zip(gradients(&g, loss, &wrt).unwrap()) {
        g.output(&format!("gradient/{name}"), d.unwrap());
    }

    let graph = g.build().unwrap();
    graph.verify().unwrap();
    let state = graph.states.iter().map(|s| {
        let array = &recorded[&format!("parameter/{}", &s.name["net.".len()..])];
        assert_eq!(graph.ty(s.value).sizes(), array.shape(), "{name}: {}", s.name);
        (s.name.clone(), Dense::from_array(array))
    });
    let outcome = run(&graph, &feeds, &state.collect(), Mode::AllF64).unwrap();
    let mut compared = 0;
    for (port, got) in graph.outputs.iter().zip(&outcome.outputs) {
        let want = &recorded[&*port.name];
        assert_eq!(got.shape, want.shape(), "{name}: {}", port.name);
        assert!(want.to_f64().iter().any(|x| *x != 0.0), "{name}: {} tests nothing", port.name);
        assert_close(got.reals(), &want.to_f64(), 1e-12, &format!("{name}: {}", port.name));
        compared += 1;
    }
    let all = recorded.keys().filter(|k| k.starts_with("output/") || k.starts_with("gradient/"));
    assert_eq!(compared, all.count());
}

#[test]
fn they_are_pytorchs() {
    let deep = |cell| Recurrent { layers: 2, bidirectional: true, ..Recurrent::new(cell, HIDDEN) };
    agrees("rnn_tanh", Recurrent::new(Cell::Tanh, HIDDEN));
    agrees("rnn_relu", Recurrent { layers: 2, ..Recurrent::new(Cell::Relu, HIDDEN) });
    agrees("lstm", Recurrent::lstm(HIDDEN));
    agrees("lstm_lengths", deep(Cell::Lstm));
    agrees("gru", Recurrent { bias: false, ..Recurrent::gru(HIDDEN) });
    agrees("gru_lengths", deep(Cell::Gru));
}

#[test]
fn sizes_may_vary_and_dtypes_stay() {
    let g = GraphBuilder::new("variable");
    let x = g.input("x", DType::BF16, (dim("B").at_most(8), dim("T").at_most(9), 3));
    let lengths = g.input("lengths", DType::I32, [dim("B")]);
    let network = Recurrent { layers: 2, bidirectional: true, dropout: 0.5, ..Recurrent::lstm(HIDDEN) };
    let done = network.build_with(&g, "lstm", x, Some(lengths), None);
    assert_eq!(done.output.ty().unwrap().to_string(), "bf16[B, T, 8]");
    assert_eq!(done.state.hidden.ty().unwrap().to_string(), "bf16[4, B, 4]");
    g.output("y", done.output);
    let graph = g.build().unwrap();
    graph.verify().unwrap();
    assert!(graph.state("rng/key").is_some(), "dropout between the layers");
    assert_eq!(graph.ty(graph.state("lstm.weight_ih_l1_reverse").unwrap().value).to_string(), "f32[16, 8]");
}

#[test]
fn impossible_networks_are_named() {
    let fault = |build: &dyn for<'g> Fn(&'g GraphBuilder, Tensor<'g>)| {
        let g = GraphBuilder::new("mistakes");
        build(&g, g.input("x", DType::F32, [2, 5, 3]));
        mistakes(g.build())
    };
    let lstm = Recurrent::lstm(HIDDEN);
    let state = |g: &'_ GraphBuilder| g.input("h", DType::F32, [2, 2, 4]).value().unwrap();
    for (want, text) in [
        (
            "has not three axes",
            fault(&|g, x| {
                lstm.build(g, "lstm", x.reshape([10, 3]));
            }),
        ),
        (
            "has 0 layers",
            fault(&|g, x| {
                Recurrent { layers: 0, ..lstm }.build(g, "lstm", x);
            }),
        ),
        (
            "give integers of shape [2]",
            fault(&|g, x| {
                lstm.build_with(g, "lstm", x, Some(x), None);
            }),
        ),
        (
            "instead of f32[1, 2, 4]",
            fault(&|g, x| {
                let hidden = g.tensor(state(g));
                lstm.build_with(g, "lstm", x, None, Some(RecurrentState { hidden, cell: None }));
            }),
        ),
        (
            "give cells to an LSTM",
            fault(&|g, x| {
                let hidden = g.tensor(state(g)).slice(0, 0, 1);
                lstm.build_with(g, "lstm", x, None, Some(RecurrentState { hidden, cell: None }));
            }),
        ),
    ] {
        assert!(text.contains(want), "{text}");
    }
}
