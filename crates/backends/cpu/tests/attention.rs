//! Attention's kernels against the references, plain and with every option; and what they promise about bits.

mod common;

use common::op::{case, check, reference};
use common::{noise, random};
use onestep_ir::ops::{Attention, AttentionAlign, AttentionGrad, AttentionLayout};
use onestep_ir::testing::Rng;
use onestep_ir::{Array, DType, Dense, Op, OpRule, Real, Type};
use onestep_passes::schedule::{Kernel, View};

const F32: f64 = 2e-5;
const F64: f64 = 1e-12;

/// Sizes of an attention: batch, heads, key heads, queries, keys, head size, head size of the values.
type Sizes = [usize; 7];

/// Operands in this dtype.
fn operands(
    op: &Attention,
    dtype: DType,
    [b, h, kv, tq, tk, d, dv]: Sizes,
    mask: Option<&Array>,
    lengths: Option<&[f64]>,
) -> Vec<Array> {
    let tensor = |h, t, d, seed| random(dtype, &op.layout.arrange([b, h, t, d]), seed);
    let mut all = vec![tensor(h, tq, d, 1), tensor(kv, tk, d, 2), tensor(kv, tk, dv, 3)];
    all.extend(mask.map(|m| match m.dtype() {
        DType::Bool => m.clone(),
        _ => Array::from_f64(dtype, m.shape(), &m.to_f64()).unwrap(),
    }));
    all.extend(lengths.map(|n| Array::from_f64(DType::I32, &[b], n).unwrap()));
    all
}

/// The gradient's op and its operands: those of the attention, its results, and a cotangent.
fn backward(op: &Attention, mut operands: Vec<Array>) -> (Op, Vec<Array>) {
    let types: Vec<Type> = operands.iter().map(|a| Dense::from_array(a).ty()).collect();
    let results = op.infer(&types).unwrap();
    let mask_grad = operands.get(3).is_some_and(|m| m.dtype().is_float());
    let forward = reference(&(*op).into(), &operands, &results);
    operands.extend(forward.iter().map(|d| d.to_array().unwrap()));
    operands.push(random(operands[0].dtype(), &results[0].sizes(), 4));
    (AttentionGrad { forward: *op, mask_grad }.into(), operands)
}

/// Holds both kernels to their references, in both dtypes.
fn agree(op: Attention, sizes: Sizes, mask: Option<&Array>, lengths: Option<&[f64]>) {
    let op = Attention { lengths: lengths.is_some(), ..op };
    for (dtype, tolerance) in [(DType::F32, F32), (DType::F64, F64)] {
        let operands = operands(&op, dtype, sizes, mask, lengths);
        check(&op.into(), &operands, tolerance);
        let (grad, operands) = backward(&op, operands);
        check(&grad, &operands, tolerance);
    }
}

fn plain(layout: AttentionLayout, causal: bool, sizes: Sizes) -> Attention {
    Attention { causal, ..Attention::new(layout, 1.0 / (sizes[5] as f64).sqrt()) }
}

#[test]
fn attention_and_its_gradient() {
    use AttentionLayout::{Bhtd, Bthd};
    for layout in [Bhtd, Bthd] {
        for causal in [false, true] {
            for sizes in [
                [2, 3, 3, 33, 33, 8, 8],
                [1, 4, 4, 4, 4, 4, 4],
                [1, 2, 2, 130, 130, 32, 32],
                [2, 1, 1, 5, 70, 16, 24],
                [1, 2, 2, 70, 5, 128, 64],
                [1, 1, 1, 1, 300, 64, 64],
                [1, 1, 1, 100, 1, 8, 8],
                // Grouped queries.
                [2, 6, 2, 40, 35, 8, 12],
                [1, 5, 1, 1, 70, 16, 16],
            ] {
                agree(plain(layout, causal, sizes), sizes, None, None);
            }
        }
    }
}

#[test]
fn masked_attention_and_rows_that_see_nothing() {
    let [b, h, tq, tk] = [2, 3, 19, 37];
    for shape in [[b, h, tq, tk], [1, h, tq, tk], [b, 1, tq, tk], [1, 1, tq, tk]] {
        let n: usize = shape.iter().product();
        // Every fourth row is masked altogether.
        let allow = |i: usize, x: f64| i / tk % 4 != 2 && x > -0.2;
        let noise = noise(7, n);
        let bools: Vec<bool> = noise.iter().enumerate().map(|(i, &x)| allow(i, x)).collect();
        let added: Vec<f64> =
            bools.iter().zip(&noise).map(|(&a, &x)| if a { x } else { f64::NEG_INFINITY }).collect();
        for causal in [false, true] {
            for layout in [AttentionLayout::Bhtd, AttentionLayout::Bthd] {
                let sizes = [b, h, 1, tq, tk, 16, 8];
                let op = plain(layout, causal, sizes);
                agree(op, sizes, Some(&Array::bools(&shape, &bools).unwrap()), None);
                agree(op, sizes, Some(&Array::from_f64(DType::F64, &shape, &added).unwrap()), None);
            }
        }
    }
}

#[test]
fn gradients_in_a_packed_tensor_have_the_bits_of_gradients_by_themselves() {
    let [b, h, t, d] = [2, 3, 20, 8];
    for layout in [AttentionLayout::Bhtd, AttentionLayout::Bthd] {
        let op = Attention { causal: true, ..Attention::new(layout, 0.3) };
        let (grad, operands) = backward(&op, operands(&op, DType::F32, [b, h, h, t, t, d, d], None, None));
        let (alone, results) = case(&grad, &operands);
        let alone = alone.run();
        let (mut packed, _) = case(&grad, &operands);
        // [b, t, 3, h, d], as the gradient of a fused projection wants them.
        let whole = packed.temp(DType::F32, &[b, t, 3, h, d]);
        if let Kernel::Library(l) = &mut packed.schedule.kernels[0] {
            for (part, view) in l.results.iter_mut().enumerate() {
                let strides = layout.arrange([t * 3 * h * d, d, 3 * h * d, 1]);
                *view =
                    View { buffer: whole, offset: part * h * d, strides: strides.to_vec(), ..view.clone() };
            }
        }
        let whole = packed.run()[whole.index()].to_f64();
        for part in 0..3 {
            let result = alone[operands.len() + part].to_f64();
            let sizes = results[part].sizes();
            for (n, want) in result.iter().enumerate() {
                let at =
                    [0, 1, 2, 3].map(|axis| n / sizes[axis + 1..].iter().product::<usize>() % sizes[axis]);
                let [b, h_at, t_at, d_at] = layout.arrange(at);
                let got = whole[(((b * t + t_at) * 3 + part) * h + h_at) * d + d_at];
                assert_eq!(got.to_bits(), want.to_bits(), "{layout:?} {part} {n}");
            }
        }
    }
}

#[test]
fn attention_of_views_has_the_bits_of_attention_of_copies() {
    let [b, h, t, d] = [2, 3, 20, 8];
    // q, k and v in one [b, t, 3, h, d] tensor, as a fused projection leaves them.
    let fused = random(DType::F32, &[b, t, 3, h, d], 1);
    let numbers = fused.to_f64();
    let op: Op = Attention { causal: true, ..Attention::new(AttentionLayout::Bhtd, 0.3) }.into();
    let mut copies = vec![];
    for part in 0..3 {
        let mut copy = vec![];
        for (b, h, t) in (0..b).flat_map(|b| (0..h).flat_map(move |h| (0..t).map(move |t| (b, h, t)))) {
            copy.extend_from_slice(&numbers[(((b * 20 + t) * 3 + part) * 3 + h) * d..][..d]);
        }
        copies.push(Array::from_f64(DType::F32, &[b, h, t, d], &copy).unwrap());
    }
    let (copied, results) = case(&op, &copies);
    let copied = copied.run();
    let (mut viewed, _) = case(&op, &copies);
    let buffer = viewed.input(fused);
    if let Kernel::Library(l) = &mut viewed.schedule.kernels[0] {
        for (part, view) in l.operands.iter_mut().enumerate() {
            let strides = vec![t * 3 * h * d, d, 3 * h * d, 1];
            *view = View { buffer, offset: part * h * d, shape: vec![b, h, t, d], strides };
        }
    }
    let viewed = viewed.run();
    for i in 0..results.len() {
        assert_eq!(copied[3 + i].bytes(), viewed[3 + i].bytes());
    }
}

/// Options drawn at random, for sizes that reach over several blocks of queries, lanes and depths.
struct Drawn {
    op: Attention,
    sizes: Sizes,
    mask: Option<Array>,
    lengths: Option<Vec<f64>>,
}

fn draw(seed: u64) -> Drawn {
    let mut rng = Rng::new(seed);
    let mut pick = |from: &[usize]| from[rng.int(0, from.len() as i64) as usize];
    let layout = [AttentionLayout::Bhtd, AttentionLayout::Bthd][pick(&[0, 1])];
    let [kv, group] = [pick(&[1, 2]), pick(&[1, 1, 2, 3])];
    let (tq, tk) = (pick(&[1, 7, 33, 70, 130]), pick(&[1, 15, 40, 129, 300]));
    let [b, h] = [pick(&[1, 2, 3]), kv * group];
    let side = |n: usize| if n == 9999 { u32::MAX } else { n as u32 };
    let sides = [0, 0, 3, 16, 50, 270, 9999];
    let window = [side(pick(&sides)), side(pick(&sides))];
    let align = [AttentionAlign::TopLeft, AttentionAlign::BottomRight][pick(&[0, 1])];
    let op = Attention {
        causal: pick(&[0, 1]) == 1,
        softcap: (pick(&[0, 1, 2]) == 2).then_some(Real::new(0.75)),
        window: (pick(&[0, 1]) == 1).then_some(window),
        align,
        ..Attention::new(layout, [0.3, 1.0, -0.5][pick(&[0, 0, 1, 2])])
    };
    let lengths = (pick(&[0, 1]) == 1).then(|| (0..b).map(|_| pick(&[0, 1, tk / 2, tk, tk])).collect());
    let lengths: Option<Vec<usize>> = lengths;
    let shape = [pick(&[1, b]), pick(&[1, h]), tq, tk];
    let kind = pick(&[0, 0, 1, 2]);
    let noise = noise(seed, shape.iter().product());
    let hidden = |i: usize, x: f64| i / tk % 5 == 3 || x < -0.6;
    let numbers = noise.iter().enumerate();
    let mask = match kind {
        0 => None,
        1 => Some(Array::bools(&shape, &numbers.map(|(i, &x)| !hidden(i, x)).collect::<Vec<_>>())),
        _ => {
            let added = numbers.map(|(i, &x)| if hidden(i, x) { f64::NEG_INFINITY } else { x });
            Some(Array::from_f64(DType::F64, &shape, &added.collect::<Vec<_>>()))
        }
    };
    let lengths = lengths.map(|n| n.into_iter().map(|n| n as f64).collect());
    Drawn { op, sizes: [b, h, kv, tq, tk, 8, 5], mask: mask.map(Result::unwrap), lengths }
}

#[test]
fn every_option_with_every_other() {
    for seed in 0..150 {
        let Drawn { op, sizes, mask, lengths } = draw(seed);
        agree(op, sizes, mask.as_ref(), lengths.as_deref());
    }
}

/// What a window, causality and lengths hide is hidden as a mask hides it, to the bit: however the keys are cut.
#[test]
fn a_band_has_the_bits_of_a_mask() {
    let mut banded = 0;
    for seed in 0..120 {
        let Drawn { op, sizes, lengths, .. } = draw(seed);
        let [b, h, _, tq, tk, ..] = sizes;
        let op = Attention { lengths: lengths.is_some(), ..op };
        let mut seen = vec![];
        for at in 0..b {
            let band = op.band(tq, lengths.as_ref().map_or(tk, |n| n[at] as usize));
            for i in 0..tq {
                seen.extend((0..tk).map(|j| band.keys(i).contains(&j)));
            }
        }
        banded += usize::from(seen.contains(&false) && seen.contains(&true));
        let mask = Array::bools(&[b, 1, tq, tk], &seen).unwrap();
        let Attention { layout, scale, softcap, .. } = op;
        // The gradients of keys add up over blocks of queries, which are as long as those of a band.
        let window = (op.causal || op.window.is_some()).then_some([u32::MAX; 2]);
        let masked = Attention { softcap, window, ..Attention::new(layout, scale.get()) };
        let own = operands(&op, DType::F32, sizes, None, lengths.as_deref());
        let other = operands(&masked, DType::F32, sizes, Some(&mask), None);
        let bits = |op: Op, operands: &[Array]| {
            let (case, results) = case(&op, operands);
            let all = case.run();
            all[all.len() - results.len()..].iter().map(Array::to_f64).collect::<Vec<_>>()
        };
        assert_eq!(bits(op.into(), &own), bits(masked.into(), &other), "{seed}: {op:?} {sizes:?} {h}");
        let ((grad, own), (masked, other)) = (backward(&op, own), backward(&masked, other));
        // The results of the references are the same too.
        assert_eq!(own[own.len() - 1].bytes(), other[other.len() - 1].bytes());
        assert_eq!(bits(grad, &own), bits(masked, &other), "{seed}: the gradient of {op:?} {sizes:?}");
    }
    assert!(banded > 60, "{banded}");
}

/// Storage beyond a length is never read, and a length that is none is no way out of the keys.
#[test]
fn beyond_a_length_nothing_is_read() {
    let sizes = [3, 4, 2, 5, 40, 8, 8];
    for layout in [AttentionLayout::Bhtd, AttentionLayout::Bthd] {
        let op = Attention { lengths: true, ..plain(layout, false, sizes) };
        let lengths = [17.0, 0.0, 33.0];
        let own = operands(&op, DType::F32, sizes, None, Some(&lengths));
        let spoilt = |x: &Array| {
            let [b, h, t, d] = op.layout.arrange([3, 2, 40, 8]);
            let mut v = x.to_f64();
            for (n, x) in v.iter_mut().enumerate() {
                let at = op.layout.arrange([n / (h * t * d), n / (t * d) % h, n / d % t, n % d]);
                let _ = b;
                if at[2] >= lengths[at[0]] as usize {
                    *x = f64::NAN;
                }
            }
            Array::from_f64(DType::F32, x.shape(), &v).unwrap()
        };
        let mut other = own.clone();
        (other[1], other[2]) = (spoilt(&own[1]), spoilt(&own[2]));
        let results = |op: &Op, operands: &[Array]| {
            let (case, results) = case(op, operands);
            let all = case.run();
            all[all.len() - results.len()..].to_vec()
        };
        let (a, b) = (results(&op.into(), &own), results(&op.into(), &other));
        assert!(a.iter().zip(&b).all(|(a, b)| a.bytes() == b.bytes()));
        let (grad, own) = backward(&op, own);
        let mut spoilt = own.clone();
        (spoilt[1], spoilt[2]) = (other[1].clone(), other[2].clone());
        let (a, b) = (results(&grad, &own), results(&grad, &spoilt));
        assert!(a.iter().zip(&b).all(|(a, b)| a.bytes() == b.bytes()));
        for bad in [-1.0, 41.0, i32::MIN as f64, i32::MAX as f64] {
            let mut own = own.clone();
            own[3] = Array::from_f64(DType::I32, &[3], &[3.0, bad, 40.0]).unwrap();
            results(&op.into(), &own[..4]);
            results(&grad, &own);
        }
    }
}
