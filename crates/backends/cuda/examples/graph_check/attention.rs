//! Attention and its gradient in 16-bit floats: every option, at sizes that are no multiples of a block, over views of packed
//! tensors; and the shapes of models.

use super::Case;
use onestep_cuda::CudaTarget;
use onestep_ir::op::Range;
use onestep_ir::ops::{Attention, AttentionAlign, AttentionGrad, AttentionLayout};
use onestep_ir::testing::{Rng, random_inputs};
use onestep_ir::{Array, DType, Dense, Graph, GraphBuilder, Real, ScanOptions, Shape, Tensor, Type};
use onestep_passes::pipeline::{Options, compile};
use std::collections::BTreeMap;

/// An attention to test, forwards and backwards.
#[derive(Clone)]
struct Setting {
    op: Attention,
    dtype: DType,
    /// Batch, heads, key heads, queries, keys.
    sizes: [usize; 5],
    /// Head sizes of queries and values.
    head: [usize; 2],
    /// Dtype, batch and heads of the mask.
    mask: Option<(DType, usize, usize)>,
    lengths: Option<Vec<i32>>,
    gradient: bool,
    /// The gradients side by side, as those of a packed tensor are.
    joined: bool,
}

impl Setting {
    fn new(op: Attention, sizes: [usize; 5], head: [usize; 2]) -> Setting {
        let lengths = None;
        Setting { op, dtype: DType::BF16, sizes, head, mask: None, lengths, gradient: true, joined: false }
    }

    fn case(&self, name: &str) -> Case {
        let (graph, inputs) = self.program(name);
        let tolerance = if self.dtype == DType::F16 { 4e-3 } else { 2e-2 };
        Case::new(name.into(), &graph, inputs, BTreeMap::new(), tolerance).expect("every op has a kernel")
    }

    /// A program to be timed: the interpreter would take minutes.
    fn timed(&self, name: &str) -> Case {
        let (graph, inputs) = self.program(name);
        let compiled =
            compile(&graph, &CudaTarget::HOPPER, &Options::default()).expect("every op has a kernel");
        Case {
            name: name.into(),
            compiled,
            inputs,
            states: vec![],
            wants: vec![],
            tolerance: 0.0,
            least: 0.0,
        }
    }

    fn program(&self, name: &str) -> (Graph, Vec<Array>) {
        let Setting { op, dtype, sizes: [batch, heads, kv, queries, keys], head: [size, values], .. } = *self;
        let mut rng = Rng::new(name.len() as u64 + 7 * queries as u64 + keys as u64);
        let g = GraphBuilder::new("attention");
        let mut inputs: Vec<Array> = vec![];
        let mut add = |name: &str, value: Dense| {
            inputs.push(value.to_array().expect("sizes agree"));
            g.input(name, value.dtype, Shape::fixed(&value.shape))
        };
        let mut real = |dtype, shape: &[usize]| {
            rng.dense(&Type::new(dtype, Shape::fixed(shape)), Range::Real(-1.5, 1.5))
        };
        // Keys and values are halves of the rows of one tensor, whose order is always batch, sequence, heads.
        let q = add("q", real(dtype, &[batch, queries, heads, size]));
        let width = kv * (size + values);
        let packed = real(dtype, &[batch, keys, width]);
        // What lies beyond a length takes no part.
        let end = |b: usize| self.lengths.as_ref().map_or(keys, |l| l[b] as usize);
        let beyond = |i: usize| i / width % keys >= end(i / width / keys);
        let packed = packed.reals().iter().enumerate();
        let packed = packed.map(|(i, &x)| if beyond(i) { f64::NAN } else { x }).collect();
        let packed = add("kv", Dense::from_reals(dtype, &[batch, keys, width], packed));
        let mask = self.mask.map(|(dtype, b, h)| {
            let ty = Type::new(dtype, Shape::fixed(&[b, h, queries, keys]));
            let range = if dtype == DType::Bool { Range::Int(0, 2) } else { Range::Real(-2.0, 2.0) };
            add("mask", Rng::new(3).dense(&ty, range))
        });
        let lengths = self.lengths.as_ref().map(|l| {
            add("lengths", Dense::from_ints(DType::I32, &[batch], l.iter().map(|&n| n.into()).collect()))
        });
        let dout = self.gradient.then(|| add("dout", real(dtype, &[batch, queries, heads, values])));
        let split = |start: usize, d: usize| {
            packed.slice(-1, start, start + kv * d).reshape(Shape::fixed(&[batch, keys, kv, d]))
        };
        let mut operands = vec![
            arrange(op.layout, q),
            arrange(op.layout, split(0, size)),
            arrange(op.layout, split(kv * size, values)),
        ];
        operands.extend(mask.into_iter().chain(lengths));
        let results = g.emit(op, &operands);
        for (result, name) in results.iter().zip(["out", "lse"]) {
            g.output(name, *result);
        }
        if let Some(dout) = dout {
            operands.extend(results.into_iter().chain([arrange(op.layout, dout)]));
            let grad = AttentionGrad { forward: op, mask_grad: false };
            let gradients = g.emit(grad, &operands);
            if self.joined {
                let of_heads = if op.layout == AttentionLayout::Bthd { 2 } else { 1 };
                g.output("gradients", g.concat(&gradients, of_heads));
            } else {
                for (result, name) in gradients.into_iter().zip(["dq", "dk", "dv"]) {
                    g.output(name, result);
                }
            }
        }
        (g.build().unwrap_or_else(|e| panic!("{name}: {e}")), inputs)
    }
}

fn plain(layout: AttentionLayout, size: usize) -> Attention {
    Attention::new(layout, (size as f64).powf(-0.5))
}

fn causal(layout: AttentionLayout, size: usize) -> Attention {
    Attention { causal: true, ..plain(layout, size) }
}

/// A tensor whose axes are batch, sequence, heads and head size, in a layout's order.
fn arrange(layout: AttentionLayout, x: Tensor<'_>) -> Tensor<'_> {
    match layout {
        AttentionLayout::Bthd => x,
        AttentionLayout::Bhtd => x.transpose(&[0, 2, 1, 3]),
    }
}

/// Small cases: every option.
pub fn options() -> Vec<Case> {
    use AttentionLayout::{Bhtd, Bthd};
    let mut all = vec![];
    let mut add = |name: &str, s: Setting| {
        all.push(s.case(&format!("attention {name}")));
        all.push(Setting { dtype: DType::F16, ..s }.case(&format!("attention {name}, f16")));
    };
    add("whole", Setting::new(plain(Bhtd, 64), [1, 2, 2, 64, 64], [64, 64]));
    add("causal", Setting::new(causal(Bthd, 64), [2, 2, 2, 150, 150], [64, 64]));
    add("of odd sizes", Setting::new(plain(Bthd, 13), [1, 3, 1, 37, 75], [13, 7]));
    add("of eights", Setting::new(plain(Bhtd, 72), [1, 2, 1, 66, 130], [72, 40]));
    add("wide", Setting::new(causal(Bthd, 128), [1, 2, 1, 70, 70], [128, 96]));
    add("widest", Setting::new(causal(Bhtd, 256), [1, 1, 1, 66, 66], [256, 200]));
    let joined = |s| Setting { joined: true, ..s };
    add("of packed rows", joined(Setting::new(causal(Bthd, 64), [2, 3, 3, 150, 150], [64, 64])));
    add("of packed heads", joined(Setting::new(plain(Bhtd, 40), [2, 2, 1, 70, 70], [40, 40])));
    add("of odd packed rows", joined(Setting::new(plain(Bthd, 13), [2, 3, 1, 37, 37], [13, 13])));
    let end = |op: Attention| Attention { align: AttentionAlign::BottomRight, ..op };
    add("of the last queries", Setting::new(end(causal(Bthd, 32)), [1, 2, 2, 70, 190], [32, 32]));
    add("of more queries than keys", Setting::new(end(causal(Bthd, 32)), [1, 2, 2, 190, 70], [32, 32]));
    let window = |op: Attention, left, right| Attention { window: Some([left, right]), ..op };
    add("in a window", Setting::new(window(plain(Bthd, 32), 20, 9), [1, 2, 1, 200, 170], [32, 32]));
    add("behind", Setting::new(window(causal(Bhtd, 32), 40, 0), [1, 2, 1, 200, 200], [32, 32]));
    let capped = Attention { softcap: Some(Real::new(1.5)), ..causal(Bthd, 32) };
    add("capped", Setting::new(capped, [1, 2, 2, 80, 80], [32, 32]));
    let masked = |op, mask| Setting { mask: Some(mask), ..Setting::new(op, [2, 2, 1, 70, 90], [32, 48]) };
    add("where allowed", masked(plain(Bthd, 32), (DType::Bool, 1, 2)));
    let biased = |dtype, op, b, h| Setting { dtype, ..masked(op, (dtype, b, h)) };
    for dtype in [DType::BF16, DType::F16] {
        all.push(biased(dtype, plain(Bhtd, 32), 2, 1).case(&format!("attention with a bias, {dtype}")));
        all.push(biased(dtype, capped, 1, 1).case(&format!("attention capped with a bias, {dtype}")));
    }
    let mut add = |name: &str, s: Setting| all.push(s.case(&format!("attention {name}")));
    let ragged = |op, lengths: [i32; 3]| Setting {
        lengths: Some(lengths.to_vec()),
        ..Setting::new(Attention { lengths: true, ..op }, [3, 2, 1, 70, 140], [32, 32])
    };
    add("of ragged lengths", ragged(plain(Bthd, 32), [0, 77, 140]));
    add("of ragged ends", ragged(end(causal(Bhtd, 32)), [3, 64, 139]));
    add("without a key", Setting::new(plain(Bthd, 32), [1, 2, 1, 5, 0], [32, 32]));
    add("of a negative scale", Setting::new(Attention::new(Bthd, -0.2), [1, 1, 1, 40, 40], [32, 32]));
    // Few queries: keys are shared among blocks, and heads of a group share a block.
    let cached = |op, queries, lengths: Vec<i32>| {
        let op = Attention { lengths: true, ..end(op) };
        let sizes = [lengths.len(), 6, 2, queries, 400];
        Setting { lengths: Some(lengths), gradient: false, ..Setting::new(op, sizes, [64, 64]) }
    };
    add("of a query over a cache", cached(causal(Bthd, 64), 1, vec![300]));
    add("of queries over caches", cached(causal(Bhtd, 64), 5, vec![400, 3, 0]));
    let capped = Attention { softcap: Some(Real::new(2.0)), ..plain(Bthd, 64) };
    let masked = Setting { mask: Some((DType::Bool, 1, 6)), ..cached(capped, 30, vec![390]) };
    add("of masked queries over a cache", masked);
    all.push(scanned());
    all
}

/// Attention in a scan, where an address is known to be that of an element and no more.
fn scanned() -> Case {
    let g = GraphBuilder::new("scan");
    let first = g.input("first", DType::BF16, [1, 21, 2, 32]);
    let all = g.input("all", DType::BF16, [3, 1, 21, 2, 32]);
    let op = causal(AttentionLayout::Bthd, 32);
    let scanned = g.scan(&[first], &[all], ScanOptions::default(), |carries, slices| {
        let results = g.emit(op, &[slices[0], slices[0], carries[0]]);
        (vec![results[0]], vec![results[1]])
    });
    g.output("last", scanned.carries[0]);
    g.output("lse", scanned.outputs[0]);
    let graph = g.build().expect("the graph is well formed");
    Case::new("attention in a scan".into(), &graph, random_inputs(&graph, 1), BTreeMap::new(), 2e-2)
        .expect("every op has a kernel")
}

/// A query of Llama 1.1B over a cache of 2048 keys.
fn cached(length: i32) -> Setting {
    let op = causal(AttentionLayout::Bthd, 64);
    let op = Attention { lengths: true, align: AttentionAlign::BottomRight, ..op };
    let setting = Setting::new(op, [1, 32, 4, 1, 2048], [64, 64]);
    Setting { gradient: false, lengths: Some(vec![length]), ..setting }
}

/// The shapes of models, with fewer heads.
pub fn models() -> Vec<Case> {
    let causal = |size| causal(AttentionLayout::Bthd, size);
    vec![
        Setting { joined: true, ..Setting::new(causal(64), [1, 2, 2, 1024, 1024], [64, 64]) }
            .case("attention of GPT-2, 2 heads"),
        Setting::new(causal(64), [1, 8, 1, 512, 512], [64, 64]).case("attention of Llama 1.1B, 8 heads"),
        Setting::new(causal(128), [1, 4, 1, 300, 300], [128, 128]).case("attention of Llama 8B, 4 heads"),
        cached(2048).case("attention of Llama 1.1B over 2048 keys"),
        cached(700).case("attention of Llama 1.1B over 700 keys"),
    ]
}

/// Programs to be timed.
pub fn timed() -> Vec<Case> {
    let causal = |size| causal(AttentionLayout::Bthd, size);
    vec![
        Setting::new(causal(64), [16, 12, 12, 1024, 1024], [64, 64]).timed("attention of GPT-2"),
        Setting::new(causal(64), [8, 32, 4, 1024, 1024], [64, 64]).timed("attention of Llama 1.1B"),
        Setting::new(causal(128), [8, 16, 4, 1024, 1024], [128, 128]).timed("attention of Llama 8B"),
        cached(2048).timed("attention of Llama 1.1B over 2048 keys"),
    ]
}
