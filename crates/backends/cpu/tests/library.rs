//! Every library kernel against the reference of its op, on the op's own samples and on larger cases.

mod common;

use common::op::{case, case_of_views, check};
use common::{noise, random};
use onestep_cpu::library::accepts;
use onestep_ir::op::Range;
use onestep_ir::ops::{
    ArgKind, ArgReduce, Convolution, ConvolutionInputGrad, ConvolutionWeightGrad, DynamicSlice,
    DynamicUpdateSlice, Gather, GatherAlong, MaxPool, ScatterAdd, ScatterAddAlong, Unary, UnaryKind, Window,
};
use onestep_ir::{Array, DType, Op, Type};

fn draw(ty: &Type, range: Range, as_f32: bool, seed: u64) -> Array {
    let sizes = ty.sizes();
    let noise = noise(seed, sizes.iter().product());
    let dtype = if as_f32 && ty.dtype == DType::F64 { DType::F32 } else { ty.dtype };
    let values: Vec<f64> = match range {
        Range::Real(a, b) => noise.iter().map(|x| a + (b - a) * (x + 1.0) / 2.0).collect(),
        Range::Int(a, b) => {
            noise.iter().map(|x| (a as f64 + (b - a) as f64 * (x + 1.0) / 2.0).floor()).collect()
        }
        Range::Distinct => (0..noise.len()).map(|i| (i * 7 % noise.len().max(1)) as f64).collect(),
    };
    Array::from_f64(dtype, &sizes, &values).unwrap()
}

#[test]
fn the_samples_of_every_accepted_op() {
    let mut seen = std::collections::BTreeSet::new();
    for as_f32 in [true, false] {
        for (n, sample) in Op::samples().into_iter().enumerate() {
            if matches!(sample.op, Op::Matmul(_)) {
                continue;
            }
            let draw =
                |(i, (ty, range)): (usize, &(Type, Range))| draw(ty, *range, as_f32, (n * 8 + i) as u64);
            let operands: Vec<Array> = sample.operands.iter().enumerate().map(draw).collect();
            let dtypes: Vec<DType> = operands.iter().map(|a| a.dtype()).collect();
            if accepts(&sample.op, &dtypes).is_some() {
                seen.insert(sample.op.rule().name());
                check(&sample.op, &operands, if as_f32 { 2e-5 } else { 1e-12 });
            }
        }
    }
    let want = "argmax argmin attention attention_grad convolution convolution_input_grad convolution_weight_grad \
                ctc_loss cummax cummin cumprod cumsum dynamic_slice dynamic_update_slice gather gather_along \
                max_pool scatter_add scatter_add_along sort";
    assert_eq!(seen.into_iter().collect::<Vec<_>>().join(" "), want);
}

#[test]
fn an_op_without_a_kernel_is_named() {
    let (case, _) = case(&Unary { kind: UnaryKind::Exp }.into(), &[random(DType::F32, &[3], 1)]);
    let error = onestep_cpu::CpuProgram::new(&case.schedule).err().unwrap().to_string();
    assert!(error.contains("no kernel for 'exp'"), "{error}");
}

fn ints(shape: &[usize], values: &[i64]) -> Array {
    Array::from_f64(DType::I32, shape, &values.iter().map(|&x| x as f64).collect::<Vec<_>>()).unwrap()
}

#[test]
fn an_index_outside_gives_nothing_and_takes_nothing() {
    let data = random(DType::F32, &[4, 3], 1);
    let numbers = data.to_f64();
    let indices = ints(&[4], &[1, -1, 4, i32::MAX as i64]);
    let got =
        case(&Gather { axis: 0 }.into(), &[data.clone(), indices.clone()]).0.run().pop().unwrap().to_f64();
    assert_eq!(got[..3], numbers[3..6]);
    assert!(got[3..].iter().all(|x| x.is_nan()));

    let along = ints(&[2, 3], &[0, 4, -2, 3, 3, 9]);
    let got =
        case(&GatherAlong { axis: 0 }.into(), &[data.clone(), along.clone()]).0.run().pop().unwrap().to_f64();
    assert_eq!([got[0], got[3], got[4]], [numbers[0], numbers[9], numbers[10]]);
    assert!([1, 2, 5].iter().all(|&i| got[i].is_nan()));

    let updates = Array::from_f64(DType::F32, &[4, 3], &[1.0; 12]).unwrap();
    let got = case(&ScatterAdd { axis: 0 }.into(), &[data.clone(), indices, updates]).0.run().pop().unwrap();
    let changed: Vec<bool> = got.to_f64().iter().zip(&numbers).map(|(a, b)| a != b).collect();
    assert_eq!(changed, (0..12).map(|i| (3..6).contains(&i)).collect::<Vec<_>>());

    let updates = Array::from_f64(DType::F32, &[2, 3], &[1.0; 6]).unwrap();
    let got =
        case(&ScatterAddAlong { axis: 0 }.into(), &[data.clone(), along, updates]).0.run().pop().unwrap();
    let changed: Vec<bool> = got.to_f64().iter().zip(&numbers).map(|(a, b)| a != b).collect();
    assert_eq!(changed, (0..12).map(|i| [0, 9, 10].contains(&i)).collect::<Vec<_>>());

    for start in [-1, 3, i32::MAX as i64] {
        let op = DynamicSlice { axis: 0, size: 2 };
        let got = case(&op.into(), &[data.clone(), ints(&[], &[start])]).0.run().pop().unwrap().to_f64();
        assert!(got.iter().all(|x| x.is_nan()), "{start}");
        let op = DynamicUpdateSlice { axis: 0 };
        let update = random(DType::F32, &[2, 3], 2);
        let got = case(&op.into(), &[data.clone(), update, ints(&[], &[start])]).0.run().pop().unwrap();
        assert_eq!(got.to_f64(), numbers, "{start}");
    }
}

#[test]
fn large_scatters_and_gathers_share_their_work() {
    let ids = |n: usize, bound: f64| {
        let ids: Vec<f64> = noise(9, n).iter().map(|x| ((x + 1.0) / 2.0 * bound).floor()).collect();
        Array::from_f64(DType::I32, &[n], &ids).unwrap()
    };
    // Bands of columns, and bands of the axis.
    for (n, inner, count) in [(65, 128, 1024), (5000, 1, 3000), (300, 24, 500), (5, 2000, 40)] {
        let (base, updates) = (random(DType::F32, &[n, inner], 1), random(DType::F32, &[count, inner], 2));
        let indices = ids(count, n as f64);
        check(&ScatterAdd { axis: 0 }.into(), &[base.clone(), indices.clone(), updates], 1e-4);
        check(&Gather { axis: 0 }.into(), &[base, indices], 0.0);
    }
}

#[test]
fn one_element_of_each_row_is_read_and_added_to() {
    let ids: Vec<f64> = noise(5, 3000).iter().map(|x| ((x + 1.0) * 4.5).floor()).collect();
    let ids = Array::from_f64(DType::I32, &[3000, 1], &ids).unwrap();
    let (data, updates) = (random(DType::F32, &[3000, 9], 1), random(DType::F32, &[3000, 1], 2));
    check(&ScatterAddAlong { axis: 1 }.into(), &[data.clone(), ids.clone(), updates], 1e-6);
    check(&GatherAlong { axis: 1 }.into(), &[data, ids], 0.0);
}

#[test]
fn a_scatter_may_begin_from_one_number_broadcast() {
    let op: Op = ScatterAdd { axis: 0 }.into();
    let (indices, updates) = (ints(&[3], &[2, 0, 2]), random(DType::F32, &[3, 4], 1));
    let zero = Array::from_f64(DType::F32, &[1], &[0.0]).unwrap();
    let views = [(zero, Some((vec![5, 4], vec![0, 0]))), (indices.clone(), None), (updates.clone(), None)];
    let got = case_of_views(&op, &views).0.run().pop().unwrap();
    let zeros = Array::zeros(DType::F32, &[5, 4]).unwrap();
    let want = case(&op, &[zeros, indices, updates]).0.run().pop().unwrap();
    assert_eq!(got.bytes(), want.bytes());
}

#[test]
fn argmax_takes_the_first_nan_else_the_first_of_equals() {
    for n in [1, 5, 16, 33, 100] {
        for kind in [ArgKind::Max, ArgKind::Min] {
            let op: Op = ArgReduce { kind, axis: 1 }.into();
            let mut values = noise(n as u64, 3 * n).iter().map(|x| (x * 4.0).round()).collect::<Vec<_>>();
            values[2 * n - 1] = f64::NAN;
            values[n + n / 2] = f64::NAN;
            check(&op, &[Array::from_f64(DType::F32, &[3, n], &values).unwrap()], 0.0);
        }
    }
}

/// Convolutions with several blocks, panels, parts and chunks, against the references of all three ops.
#[test]
fn large_convolutions_and_their_gradients() {
    let window = |axes: usize, stride, padding, dilation| {
        Window::plain(axes)
            .strides(&vec![stride; axes])
            .padding(&vec![padding; axes])
            .dilations(&vec![dilation; axes])
    };
    for (window, groups, x, w) in [
        (window(2, 1, 0, 1), 1, vec![3, 1, 14, 13], vec![33, 1, 3, 3]),
        (window(2, 1, 1, 1), 1, vec![2, 20, 9, 40], vec![10, 20, 3, 3]),
        (window(2, 2, 1, 1), 2, vec![1, 34, 25, 10], vec![18, 17, 3, 2]),
        (window(2, 1, 0, 1), 1, vec![5, 40, 6, 6], vec![70, 40, 1, 1]),
        (window(1, 3, 2, 2), 1, vec![2, 3, 900], vec![5, 3, 7]),
        (window(3, 1, 1, 2), 1, vec![1, 2, 7, 8, 9], vec![4, 2, 2, 3, 2]),
        (window(2, 1, 2, 1), 9, vec![2, 9, 11, 3], vec![9, 1, 5, 5]),
        // A batch of 17 is no multiple of the parts.
        (window(2, 1, 0, 1), 1, vec![17, 2, 18, 18], vec![3, 2, 2, 2]),
    ] {
        for (dtype, tolerance) in [(DType::F32, 5e-5), (DType::F64, 1e-11)] {
            let op = Convolution { window: window.clone(), groups };
            let out = window.out_sizes(&x[2..], &w[2..]).unwrap();
            let (xs, ws) = (random(dtype, &x, 1), random(dtype, &w, 2));
            let dy = random(dtype, &[&[x[0], w[0]], &out[..]].concat(), 3);
            check(&op.into(), &[xs.clone(), ws.clone()], tolerance);
            let (window, input_size, kernel_size) = (window.clone(), x[2..].to_vec(), w[2..].to_vec());
            let op = ConvolutionInputGrad { window: window.clone(), groups, input_size };
            check(&op.into(), &[dy.clone(), ws], tolerance);
            check(&ConvolutionWeightGrad { window, groups, kernel_size }.into(), &[xs, dy], tolerance);
        }
    }
}

#[test]
fn max_pool_takes_the_first_nan_else_the_first_of_equals() {
    let mut values: Vec<f64> = noise(3, 4 * 17 * 12).iter().map(|x| (x * 3.0).round()).collect();
    (0..9).for_each(|i| values[i * 31 + 5] = f64::NAN);
    for dtype in [DType::F32, DType::F64] {
        let x = Array::from_f64(dtype, &[2, 2, 17, 12], &values).unwrap();
        for window in
            [Window::tiles(&[2, 2]), Window::plain(2).strides(&[2, 1]).padding(&[1, 1]).dilations(&[1, 3])]
        {
            check(&MaxPool { kernel: vec![2, 2], window }.into(), std::slice::from_ref(&x), 0.0);
        }
    }
}
