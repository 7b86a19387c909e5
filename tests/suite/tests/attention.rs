//! Attention with every option on every runtime: against PyTorch's recorded answers (described at the head of
//! `tests/data/make_torch_attention.py`), and, for options drawn at random, the gradient op against the differentiated
//! decomposition.

use onestep_ir::op::{OpRule, Range};
use onestep_ir::ops::{Attention, AttentionAlign, AttentionLayout};
use onestep_ir::testing::Rng;
use onestep_ir::{Array, AttentionOptions, DType, Graph, GraphBuilder, Real, Shape, Tensor, Type};
use onestep_suite::Runtime;
use onestep_suite::runtimes::{Interpreter, all};
use onestep_suite::spread::each;
use safetensors::SafeTensors;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::io::Read;

/// A recorded case: its tensors by name, and its options.
struct Case {
    name: String,
    tensors: BTreeMap<String, Array>,
    options: AttentionOptions,
}

fn recorded() -> Vec<Case> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/torch-attention.safetensors.zst");
    let mut packed = std::fs::File::open(path).unwrap();
    let mut bytes = vec![];
    ruzstd::decoding::StreamingDecoder::new(&mut packed).unwrap().read_to_end(&mut bytes).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let cases: Json = serde_json::from_str(&metadata.metadata().as_ref().unwrap()["cases"]).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let array = |t: &safetensors::tensor::TensorView<'_>| {
        let dtype = match t.dtype() {
            safetensors::Dtype::F64 => DType::F64,
            safetensors::Dtype::I32 => DType::I32,
            _ => DType::Bool,
        };
        Array::from_bytes(dtype, t.shape(), t.data()).unwrap()
    };
    let one = |(name, options): (&String, &Json)| {
        let all = file.tensors();
        let own = all.iter().filter_map(|(n, t)| Some((n.strip_prefix(name)?.strip_prefix('/')?, t)));
        let tensors = own.map(|(n, t)| (n.to_string(), array(t))).collect();
        Case { name: name.clone(), tensors, options: options_of(options) }
    };
    cases.as_object().unwrap().iter().map(one).collect()
}

/// An option that is not known here fails the test, so that none goes unseen.
fn options_of(json: &Json) -> AttentionOptions {
    let mut options = AttentionOptions::default();
    for (name, value) in json.as_object().unwrap() {
        match name.as_str() {
            "causal" => options.causal = value.as_bool().unwrap(),
            "softcap" => options.softcap = value.as_f64(),
            "window" => options.window = Some([0, 1].map(|i| value[i].as_u64().unwrap() as u32)),
            "bottom_right" => options.align = AttentionAlign::BottomRight,
            other => panic!("'{other}' is not tested"),
        }
    }
    options
}

/// A tensor in the other order of axes.
fn turned(x: &Array) -> Array {
    let shape = [0, 2, 1, 3].map(|axis| x.shape()[axis]);
    let values = x.to_f64();
    let [b, t, h, d] = shape;
    let at = |n: usize| ((n / (h * d) / t * h + n / d % h) * t + n / (h * d) % t) * d + n % d;
    let turned: Vec<f64> = (0..b * t * h * d).map(|n| values[at(n)]).collect();
    Array::from_f64(x.dtype(), &shape, &turned).unwrap()
}

const OPERANDS: [&str; 6] = ["q", "k", "v", "mask", "lengths", "cotangent"];

/// A case in this dtype and layout: the graph of output and gradients, what to feed, and what PyTorch gave.
fn program(case: &Case, dtype: DType, layout: AttentionLayout) -> (Graph, Vec<Array>, Vec<(String, Array)>) {
    let g = GraphBuilder::new("attention");
    let arranged = |name: &str| {
        let x = case.tensors.get(name)?;
        let heads = !name.ends_with("mask") && name != "lengths";
        Some(if heads && layout == AttentionLayout::Bthd { turned(x) } else { x.clone() })
    };
    let mut fed = vec![];
    let [q, k, v, mask, lengths, cotangent] = OPERANDS.map(|name| {
        let x = arranged(name)?;
        let x =
            if x.dtype().is_float() { Array::from_f64(dtype, x.shape(), &x.to_f64()).unwrap() } else { x };
        let input = g.input(name, x.dtype(), Shape::fixed(x.shape()));
        fed.push(x);
        Some(input)
    });
    let [q, k, v, cotangent] = [q, k, v, cotangent].map(Option::unwrap);
    let out = q.attention_with(k, v, mask, lengths, AttentionOptions { layout, ..case.options });
    let mut named = vec![("out", out)];
    let wrt: Vec<(&str, Tensor<'_>)> = [("dq", q), ("dk", k), ("dv", v)]
        .into_iter()
        .chain(mask.filter(|m| m.dtype().is_float()).map(|m| ("dmask", m)))
        .collect();
    let found = onestep_autodiff::vjp(&g, &[(out, cotangent)], &wrt.iter().map(|w| w.1).collect::<Vec<_>>());
    named.extend(wrt.iter().zip(found.unwrap()).map(|((name, _), d)| (*name, d.unwrap())));
    let mut want = vec![];
    for (name, t) in named {
        g.output(name, t);
        want.push((name.to_string(), arranged(name).unwrap()));
    }
    (g.build().unwrap(), fed, want)
}

/// Whether all numbers lie within this distance of each other.
fn near(a: &Array, b: &Array, tolerance: f64) -> bool {
    let (a, b) = (a.to_f64(), b.to_f64());
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= tolerance * b.abs().max(1.0))
}

#[test]
fn pytorch_gives_the_same() {
    let cases = recorded();
    assert_eq!(cases.len(), 15);
    for case in &cases {
        for layout in [AttentionLayout::Bhtd, AttentionLayout::Bthd] {
            for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
                let (graph, fed, want) = program(case, dtype, layout);
                assert!(graph.to_string().contains("attention_grad"));
                let gradients = want.len() - 1;
                assert_eq!(gradients, 3 + usize::from(case.tensors.contains_key("dmask")));
                for runtime in all() {
                    let got = runtime.run(&graph, &fed).unwrap();
                    for (got, (what, want)) in got.iter().zip(&want) {
                        let where_ = format!("{}, {what} in {dtype}, {}", case.name, runtime.name());
                        assert!(near(got, want, tolerance), "{where_}:\n{got:?}\nfor\n{want:?}");
                    }
                }
            }
        }
    }
}

/// Options and operands drawn at random.
fn drawn(seed: u64) -> (Attention, Vec<Array>) {
    let mut rng = Rng::new(seed);
    let mut pick = |from: &[usize]| from[rng.int(0, from.len() as i64) as usize];
    let kv = pick(&[1, 2]);
    let (b, h, tq, tk) =
        (pick(&[1, 2, 3]), kv * pick(&[1, 2, 3]), pick(&[1, 2, 4, 6]), pick(&[0, 1, 3, 5, 7]));
    let (d, dv) = (pick(&[1, 2, 4]), pick(&[1, 3]));
    let side = |n: usize| [0, 1, 2, 5, u32::MAX][n];
    let op = Attention {
        causal: pick(&[0, 1]) == 1,
        softcap: (pick(&[0, 1]) == 1).then_some(Real::new(1.5)),
        window: (pick(&[0, 1]) == 1).then_some([side(pick(&[0, 1, 2, 3, 4])), side(pick(&[0, 1, 2, 3, 4]))]),
        align: [AttentionAlign::TopLeft, AttentionAlign::BottomRight][pick(&[0, 1])],
        lengths: pick(&[0, 1]) == 1,
        ..Attention::new([AttentionLayout::Bhtd, AttentionLayout::Bthd][pick(&[0, 1])], 0.7)
    };
    let dtype = [DType::F64, DType::F32, DType::BF16, DType::F16][pick(&[0, 0, 1, 1, 2, 3])];
    let mask = [None, Some(DType::Bool), Some(dtype)][pick(&[0, 1, 2])];
    let mask = mask.map(|dtype| Type::new(dtype, Shape::fixed(&[pick(&[1, b]), pick(&[1, h]), tq, tk])));
    let float = |sizes: [usize; 4]| Type::new(dtype, Shape::fixed(&op.layout.arrange(sizes)));
    let mut types = vec![float([b, h, tq, d]), float([b, kv, tk, d]), float([b, kv, tk, dv])];
    types.extend(mask);
    let mut values: Vec<Array> = types
        .iter()
        .map(|ty| {
            let range = if ty.dtype == DType::Bool { Range::Int(0, 2) } else { Range::Real(-1.5, 1.5) };
            rng.dense(ty, range).to_array().unwrap()
        })
        .collect();
    if op.lengths {
        let lengths = Type::new(DType::I32, Shape::fixed(&[b]));
        values.push(rng.dense(&lengths, Range::Int(0, tk as i64 + 1)).to_array().unwrap());
    }
    let out =
        op.infer(&values.iter().map(|v| Type::new(v.dtype(), Shape::fixed(v.shape()))).collect::<Vec<_>>());
    values.push(rng.dense(&out.unwrap()[0], Range::Real(-1.0, 1.0)).to_array().unwrap());
    (op, values)
}

/// Output, log-sum-exp and the gradients of all floats; of the op, or of its decomposition.
fn graph_of(op: &Attention, values: &[Array], decomposed: bool) -> Graph {
    let g = GraphBuilder::new("drawn");
    let input = |(i, v): (usize, &Array)| g.input(&format!("x{i}"), v.dtype(), Shape::fixed(v.shape()));
    let inputs: Vec<Tensor<'_>> = values.iter().enumerate().map(input).collect();
    let (dout, operands) = inputs.split_last().unwrap();
    let results = if decomposed { op.decompose(&g, operands).unwrap() } else { g.emit(*op, operands) };
    let wrt: Vec<Tensor<'_>> = operands.iter().copied().filter(|t| t.dtype().is_float()).collect();
    let found = onestep_autodiff::vjp(&g, &[(results[0], *dout)], &wrt).unwrap();
    g.output("out", results[0]);
    g.output("lse", results[1]);
    for (i, d) in found.into_iter().enumerate() {
        g.output(&format!("d{i}"), d.unwrap());
    }
    g.build().unwrap()
}

#[test]
fn options_drawn_at_random() {
    let seeds: Vec<u64> = (0..300).collect();
    each(&seeds, |_, &seed| {
        let (op, values) = drawn(seed);
        let dtype = values[0].dtype();
        let tolerance = match dtype {
            DType::F64 => 1e-11,
            DType::F32 => 3e-5,
            DType::F16 => 2e-2,
            _ => 1e-1,
        };
        let whole = graph_of(&op, &values, false);
        let want = Interpreter.run(&whole, &values).unwrap();
        let same = |what: &str, got: &[Array]| {
            assert_eq!(got.len(), want.len());
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let (got, want) = (got.to_f64(), want.to_f64());
                let near = |(a, b): (&f64, &f64)| a == b || (a - b).abs() <= tolerance * b.abs().max(1.0);
                let ok = got.len() == want.len() && got.iter().zip(&want).all(near);
                assert!(ok, "{seed} {what} {dtype} output {i}: {op:?}\n{got:?}\nfor\n{want:?}");
            }
        };
        for runtime in all() {
            same(runtime.name(), &runtime.run(&whole, &values).unwrap());
        }
        same(
            "differentiated decomposition",
            &Interpreter.run(&graph_of(&op, &values, true), &values).unwrap(),
        );
    });
}
