//! CTC losses and their gradients as PyTorch gives them, on every runtime: repeated labels, no label, targets that just fit
//! and that do not, short inputs. The recording's format is described in `tests/data/make_torch_blocks.py`.

use onestep_autodiff::gradients;
use onestep_ir::{Array, CtcOptions, CtcReduction, DType, Graph, GraphBuilder};
use onestep_suite::runtimes;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::io::Read;

/// The tensors of one case, without its name.
fn recorded(case: &str) -> BTreeMap<String, Array> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/torch-blocks.safetensors.zst");
    let mut packed = std::fs::File::open(path).unwrap();
    let mut bytes = vec![];
    ruzstd::decoding::StreamingDecoder::new(&mut packed).unwrap().read_to_end(&mut bytes).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let own = file.iter().filter_map(|(name, view)| {
        let name = name.strip_prefix(case)?.strip_prefix('/')?.to_string();
        let array = match view.dtype() {
            Dtype::F64 => {
                let values = view.data().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap()));
                Array::new(view.shape(), &values.collect::<Vec<_>>())
            }
            Dtype::I32 => {
                let values = view.data().chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap()));
                Array::new(view.shape(), &values.collect::<Vec<_>>())
            }
            other => panic!("{name} is {other:?}"),
        };
        Some((name, array.unwrap()))
    });
    own.collect()
}

/// The reductions, and the gradient of the mean with `zero_infinity` by the logits.
fn graph(case: &BTreeMap<String, Array>, dtype: DType, blank: usize) -> Graph {
    let g = GraphBuilder::new("ctc");
    let logits = g.input("logits", dtype, case["logits"].shape());
    let int = |name: &str| g.input(name, DType::I32, case[name].shape());
    let (targets, inputs, labels) = (int("targets"), int("input_lengths"), int("target_lengths"));
    let log_probs = logits.log_softmax(-1);
    let loss = |reduction, zero_infinity| {
        log_probs.ctc_loss(targets, inputs, labels, CtcOptions { blank, reduction, zero_infinity })
    };
    g.output("none", loss(CtcReduction::None, false));
    g.output("sum", loss(CtcReduction::Sum, false));
    g.output("mean", loss(CtcReduction::Mean, false));
    let zero = loss(CtcReduction::Mean, true);
    g.output("zero", zero);
    g.output("gradient", gradients(&g, zero, &[logits]).unwrap()[0].unwrap());
    g.build().unwrap()
}

#[test]
fn losses_and_gradients_are_pytorchs() {
    for (name, blank) in [("ctc", 0), ("ctc-last", 7)] {
        let case = recorded(name);
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-6)] {
            let graph = graph(&case, dtype, blank);
            let logits = &case["logits"];
            let logits = Array::from_f64(dtype, logits.shape(), &logits.to_f64()).unwrap();
            let mut inputs = vec![logits];
            inputs.extend(["targets", "input_lengths", "target_lengths"].map(|name| case[name].clone()));
            for runtime in runtimes::all() {
                let outputs = runtime.run(&graph, &inputs).unwrap();
                for (port, got) in graph.outputs.iter().zip(outputs) {
                    let want = &case[&*port.name];
                    assert_eq!((got.dtype(), got.shape()), (dtype, want.shape()), "{}", port.name);
                    for (i, (a, b)) in got.to_f64().into_iter().zip(want.to_f64()).enumerate() {
                        let near = a == b || (a - b).abs() <= tolerance * b.abs().max(1.0);
                        let what = format!("{name} in {dtype} on {}: {} {i}", runtime.name(), port.name);
                        assert!(near, "{what} is {a}, not {b}");
                    }
                }
            }
        }
    }
    // The cases are what they are said to be.
    let none = recorded("ctc")["none"].to_f64();
    assert_eq!(
        none.iter().map(|x| x.is_infinite()).collect::<Vec<_>>(),
        [false, false, false, false, true, false]
    );
}
