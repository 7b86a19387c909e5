//! 8-bit floats on every runtime: casts against PyTorch's (described at the head of `tests/data/make_torch_eight_bits.py`), bit for
//! bit, and products, scaled and not, with their gradients against the interpreter.

use onestep_autodiff::gradients;
use onestep_ir::testing::{Rng, difference};
use onestep_ir::{Array, DType, Dense, Fp8, GraphBuilder, Shape, Type, op::Range};
use onestep_suite::{Interpreter, Runtime, runtimes};
use safetensors::SafeTensors;
use std::io::Read;

const FORMATS: [(&str, DType, Fp8); 2] =
    [("e4m3", DType::F8E4M3, Fp8::E4M3), ("e5m2", DType::F8E5M2, Fp8::E5M2)];

fn recorded() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/torch-eight-bits.safetensors.zst");
    let mut bytes = vec![];
    let mut packed = std::fs::File::open(path).unwrap();
    ruzstd::decoding::StreamingDecoder::new(&mut packed).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// The cast of an array on a runtime.
fn cast(runtime: &dyn Runtime, x: &Array, to: DType) -> Array {
    let g = GraphBuilder::new("cast");
    g.output("y", g.input("x", x.dtype(), x.shape()).cast(to));
    runtime.run(&g.build().unwrap(), std::slice::from_ref(x)).unwrap().remove(0)
}

#[test]
fn casts_are_those_of_pytorch() {
    let bytes = recorded();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |name: &str| file.tensor(name).unwrap();
    let all_16_bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let numbers = tensor("f32").data();
    let sources = [
        ("f16", DType::F16, &all_16_bits[..]),
        ("bf16", DType::BF16, &all_16_bits),
        ("f32", DType::F32, numbers),
    ];
    for runtime in runtimes::all() {
        for (name, dtype, format) in FORMATS {
            let values = tensor(&format!("{name}/values"));
            let codes = Array::from_bytes(dtype, &[256], &(0..=u8::MAX).collect::<Vec<_>>()).unwrap();
            let want = Array::from_bytes(DType::F32, &[256], values.data()).unwrap().to_f64();
            for (code, (got, want)) in
                cast(runtime, &codes, DType::F32).to_f64().iter().zip(&want).enumerate()
            {
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(same, "{dtype} {code:#04x} is {got} on {}, not {want}", runtime.name());
            }
            for (from, wide, data) in &sources {
                let x = Array::from_bytes(*wide, &[data.len() / wide.size()], data).unwrap();
                let got = cast(runtime, &x, dtype);
                let want = tensor(&format!("{name}/{from}"));
                let exact = x.to_f64();
                for (i, (got, want)) in got.bytes().iter().zip(want.data()).enumerate() {
                    // PyTorch saturates to e4m3, up to infinity; here what rounds beyond the largest number is no number.
                    let beyond = dtype == DType::F8E4M3 && exact[i].abs() > 464.0;
                    // PyTorch's NaN keep their signs.
                    let want = if beyond || format.decode(*want).is_nan() { Fp8::NAN } else { *want };
                    let x = &data[i * wide.size()..][..wide.size()];
                    assert_eq!(*got, want, "{x:x?} of {wide} as {dtype} on {}", runtime.name());
                }
            }
        }
    }
}

/// A layer of 8-bit floats, its result and its gradients.
#[test]
fn scaled_products_and_their_gradients() {
    for (rows, inner, columns) in [(16, 32, 48), (64, 128, 16), (5, 16, 32), (128, 144, 80)] {
        let g = GraphBuilder::new("layer");
        let x = g.input("x", DType::BF16, [rows, inner]);
        let w = g.input("w", DType::F32, [inner, columns]);
        let dy = g.input("dy", DType::BF16, [rows, columns]);
        let ((qx, sx), (qw, sw)) = (x.quantize(DType::F8E4M3), w.quantize(DType::F8E4M3));
        let product = qx.matmul_t(qw.transpose_last(), false, true).cast(DType::BF16);
        let y = product * sx.cast(DType::BF16) * sw.cast(DType::BF16);
        g.output("y", y);
        let back = gradients(&g, (y * dy).cast(DType::F32).sum_all(), &[x, w]).unwrap();
        g.output("dx", back[0].unwrap());
        g.output("dw", back[1].unwrap());
        let graph = g.build().unwrap();
        let draw = |seed, dtype, shape: &[usize], most: f64| {
            let ty = Type::new(dtype, Shape::fixed(shape));
            Rng::new(seed).dense(&ty, Range::Real(-most, most)).to_array().unwrap()
        };
        let inputs = [
            draw(1, DType::BF16, &[rows, inner], 3.0),
            draw(2, DType::F32, &[inner, columns], 0.05),
            draw(3, DType::BF16, &[rows, columns], 1e-5),
        ];
        let want = Interpreter.run(&graph, &inputs).unwrap();
        // Near the product of the numbers themselves: 4 bits of significand, in sums of many.
        let exact = |a: &Array, i: usize, j: usize, b: &Array| -> f64 {
            let (a, b) = (a.to_f64(), b.to_f64());
            (0..inner).map(|k| a[i * inner + k] * b[k * columns + j]).sum()
        };
        let most = want[0].to_f64().iter().fold(0.0, |a: f64, b| a.max(b.abs()));
        assert!((want[0].to_f64()[columns + 3] - exact(&inputs[0], 1, 3, &inputs[1])).abs() < 0.1 * most);
        for runtime in runtimes::all() {
            let got = runtime.run(&graph, &inputs).unwrap();
            for (what, (got, want)) in ["y", "dx", "dw"].iter().zip(got.iter().zip(&want)) {
                let scale = want.to_f64().iter().fold(0.0, |a: f64, b| a.max(b.abs()));
                let off = difference(&scaled(got, scale), &scaled(want, scale));
                assert!(off <= 1.0 / 64.0, "{what} of {rows}x{inner}x{columns} on {}: {off}", runtime.name());
            }
        }
    }
}

/// An array with its largest element at about 1.
fn scaled(x: &Array, largest: f64) -> Dense {
    let values = x.to_f64().iter().map(|v| v / largest).collect();
    Dense::from_reals(DType::F64, x.shape(), values)
}
