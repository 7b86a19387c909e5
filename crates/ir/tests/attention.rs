//! What the options of attention mean, by hand-made cases, on the reference and on the decomposition; and what is refused.

use onestep_ir::interp::{Mode, run};
use onestep_ir::ops::{Attention, AttentionAlign, AttentionGrad, AttentionLayout, Op};
use onestep_ir::testing::{self, Rng};
use onestep_ir::{AttentionOptions, DType, Dense, Graph, GraphBuilder, OpRule, Real, Tensor, op::Range};
use std::collections::BTreeMap;

fn real(shape: &[usize], data: &[f64]) -> Dense {
    Dense::from_reals(DType::F64, shape, data.to_vec())
}

/// The op by its reference, and by its decomposition.
fn both_ways(op: impl Into<Op>, values: &[Dense]) -> [Vec<Dense>; 2] {
    let op = op.into();
    let types: Vec<_> = values.iter().map(Dense::ty).collect();
    let whole = testing::graph_of(&op, &types).unwrap();
    let parts = testing::decomposed(&op, &types).unwrap().unwrap();
    [whole, parts].map(|g| run(&g, values, &BTreeMap::new(), Mode::Declared).unwrap().outputs)
}

fn plain() -> Attention {
    Attention::new(AttentionLayout::Bhtd, 1.0)
}

/// What each query sees, as text: keys that are equal share the weight, so values of 2ʲ tell which they are.
fn seen(op: Attention, queries: usize, keys: usize, lengths: Option<Vec<i64>>) -> Vec<String> {
    let batch = lengths.as_ref().map_or(1, Vec::len);
    let op = Attention { lengths: lengths.is_some(), ..op };
    let zeros = |t: usize| real(&[batch, 1, t, 1], &vec![0.0; batch * t]);
    let powers: Vec<f64> = (0..batch * keys).map(|n| f64::from(1u32 << (n % keys))).collect();
    let mut values = vec![zeros(queries), zeros(keys), real(&[batch, 1, keys, 1], &powers)];
    values.extend(lengths.map(|n| Dense::from_ints(DType::I32, &[batch], n)));
    let [reference, decomposition] = both_ways(op, &values).map(|results| {
        let of = |(out, lse): (&f64, &f64)| {
            let set = (out * lse.exp()).round() as u32;
            (0..keys).map(|j| if set >> j & 1 == 1 { 'x' } else { '.' }).collect::<String>()
        };
        results[0].reals().iter().zip(results[1].reals()).map(of).collect::<Vec<_>>()
    });
    assert_eq!(reference, decomposition);
    reference
}

#[test]
fn who_sees_what() {
    let causal = Attention { causal: true, ..plain() };
    assert_eq!(seen(causal, 3, 4, None), ["x...", "xx..", "xxx."]);
    let end = Attention { align: AttentionAlign::BottomRight, ..causal };
    assert_eq!(seen(end, 3, 4, None), ["xx..", "xxx.", "xxxx"]);
    assert_eq!(seen(end, 4, 2, None), ["..", "..", "x.", "xx"]);
    let local = Attention { window: Some([1, 2]), ..plain() };
    assert_eq!(seen(local, 4, 5, None), ["xxx..", "xxxx.", ".xxxx", "..xxx"]);
    let sliding = Attention { causal: true, ..local };
    assert_eq!(seen(sliding, 4, 4, None), ["x...", "xx..", ".xx.", "..xx"]);
    assert_eq!(seen(Attention { window: Some([0, 0]), ..plain() }, 3, 2, None), ["x.", ".x", ".."]);
    let most = Attention { window: Some([u32::MAX, u32::MAX]), ..plain() };
    assert_eq!(seen(most, 2, 3, None), ["xxx", "xxx"]);
    assert_eq!(seen(plain(), 1, 3, Some(vec![2, 0, 3])), ["xx.", "...", "xxx"]);
    assert_eq!(seen(causal, 3, 3, Some(vec![1])), ["x..", "x..", "x.."]);
    // A cache: two queries behind the keys before them.
    assert_eq!(seen(end, 2, 5, Some(vec![2, 4])), ["x....", "xx...", "xxx..", "xxxx."]);
    let end = Attention { align: AttentionAlign::BottomRight, ..sliding };
    assert_eq!(seen(end, 2, 5, Some(vec![4])), [".xx..", "..xx."]);
}

#[test]
fn a_group_of_query_heads_reads_one_key_head() {
    let q = real(&[1, 4, 1, 1], &[0.0; 4]);
    let k = real(&[1, 2, 1, 1], &[0.0; 2]);
    let v = real(&[1, 2, 1, 1], &[5.0, 7.0]);
    for r in both_ways(plain(), &[q, k, v]) {
        assert_eq!(r[0].reals(), [5.0, 5.0, 7.0, 7.0]);
    }
}

/// A cap of 2 makes of scaled scores of ±10⁶ almost ±2, and leaves small ones; a mask comes on top.
#[test]
fn a_soft_cap_bounds_scores_before_the_mask() {
    let op = Attention { softcap: Some(Real::new(2.0)), ..plain() };
    let q = real(&[1, 1, 1, 1], &[1.0]);
    let k = real(&[1, 1, 3, 1], &[1e6, -1e6, 1e-3]);
    let (v, mask) = (real(&[1, 1, 3, 1], &[0.0; 3]), real(&[1, 1, 1, 3], &[10.0, 0.0, 0.0]));
    for r in both_ways(op, &[q, k, v, mask]) {
        let want = (12f64.exp() + (-2f64).exp() + 1e-3f64.exp()).ln();
        assert!((r[1].reals()[0] - want).abs() < 1e-9);
    }
}

/// Keys and values beyond a length may be anything, forward and backward.
#[test]
fn beyond_a_length_is_nothing() {
    let op = Attention { lengths: true, softcap: Some(Real::new(3.0)), ..plain() };
    let mut rng = Rng::new(1);
    let mut draw = |shape: &[usize]| {
        rng.dense(&real(shape, &vec![0.0; shape.iter().product()]).ty(), Range::Real(-1.0, 1.0))
    };
    let (q, k, v) = (draw(&[2, 2, 2, 2]), draw(&[2, 1, 4, 2]), draw(&[2, 1, 4, 2]));
    let (mask, dout) = (draw(&[1, 1, 2, 4]), draw(&[2, 2, 2, 2]));
    let lengths = Dense::from_ints(DType::I32, &[2], vec![3, 0]);
    let spoilt = |x: &Dense| {
        let keep = |n: usize| n < 6;
        let x = x.reals().iter().enumerate().map(|(n, &x)| if keep(n) { x } else { f64::NAN }).collect();
        Dense::from_reals(DType::F64, &[2, 1, 4, 2], x)
    };
    let results = |k: &Dense, v: &Dense| {
        both_ways(op, &[q.clone(), k.clone(), v.clone(), mask.clone(), lengths.clone()]).map(|forward| {
            assert_eq!(forward[0].reals()[8..], [0.0; 8], "the sequence without keys");
            let all = [&q, k, v, &mask, &lengths, &forward[0], &forward[1], &dout].map(Dense::clone);
            let [a, b] = both_ways(AttentionGrad { forward: op, mask_grad: true }, &all);
            for d in [&a, &b] {
                assert_eq!(d[0].reals()[8..], [0.0; 8]);
                assert!(d[1].reals()[6..].iter().chain(&d[2].reals()[6..]).all(|x| *x == 0.0));
                assert!(d.iter().all(|d| d.reals().iter().all(|x| x.is_finite())));
                assert!([3, 7].iter().all(|&n| d[3].reals()[n] == 0.0));
            }
            [forward, a, b]
        })
    };
    assert_eq!(results(&k, &v), results(&spoilt(&k), &spoilt(&v)));
}

/// A graph of one attention over inputs of these types, and what is wrong with it.
fn refused(f: impl for<'g> FnOnce(&'g GraphBuilder) -> Tensor<'g>) -> String {
    let g = GraphBuilder::new("wrong");
    assert!(f(&g).value().is_none());
    g.errors().iter().map(|e| e.to_string()).collect::<Vec<_>>().join("; ")
}

#[test]
fn mistakes_name_the_operand_and_the_remedy() {
    let x =
        |g: &GraphBuilder, name: &str, shape: [usize; 4]| g.input(name, DType::F32, shape).value().unwrap();
    let with = |shape: [usize; 4], lengths: Option<(DType, usize)>, options: AttentionOptions| {
        refused(|g| {
            let (q, k) = (g.tensor(x(g, "q", [2, 6, 3, 4])), g.tensor(x(g, "k", shape)));
            let lengths = lengths.map(|(dtype, n)| g.input("n", dtype, [n]));
            q.attention_with(k, k, None, lengths, options)
        })
    };
    let options = AttentionOptions::default();
    for (error, words) in [
        (with([2, 4, 5, 4], None, options), ["q has 6 heads and k has 4", "divides that of q"]),
        (with([2, 12, 5, 4], None, options), ["q has 6 heads and k has 12", "divides that of q"]),
        (with([2, 0, 5, 4], None, options), ["q has 6 heads and k has 0", "divides that of q"]),
        (with([3, 2, 5, 4], None, options), ["k has shape [3, 2, 5, 4] instead of [2, 2, 5, 4]", "reshape"]),
        (
            with([2, 2, 5, 4], Some((DType::I32, 3)), options),
            ["lengths has shape [3] instead of [2]", "reshape"],
        ),
        (with([2, 2, 5, 4], Some((DType::I64, 2)), options), ["the lengths are i64", "cast them to i32"]),
        (
            with([2, 2, 5, 4], None, AttentionOptions { softcap: Some(0.0), ..options }),
            ["the soft cap is 0", "above 0"],
        ),
        (
            with([2, 2, 5, 4], None, AttentionOptions { softcap: Some(f64::NAN), ..options }),
            ["the soft cap is NaN", "above 0"],
        ),
    ] {
        assert!(words.iter().all(|w| error.contains(w)), "{error} does not say all of {words:?}");
    }
    let f64s = |s: &[usize]| real(s, &vec![0.0; s.iter().product()]).ty();
    let (q, lse) = (f64s(&[1, 1, 2, 2]), f64s(&[1, 1, 2]));
    let op = AttentionGrad { forward: plain(), mask_grad: true };
    let all = [&q, &q, &q, &q, &lse, &q].map(Clone::clone);
    assert!(op.infer(&all).unwrap_err().to_string().contains("no additive mask"));
    let op = Attention { lengths: true, ..plain() };
    for n in [0, 1, 2, 3, 6] {
        let error = op.infer(&vec![q.clone(); n]).unwrap_err().to_string();
        assert!(error.contains(&format!("takes 4 or 5 operands, got {n}")), "{error}");
    }
}

#[test]
fn a_length_out_of_range_is_named() {
    let op = Attention { lengths: true, ..plain() };
    let x = real(&[2, 1, 3, 1], &[0.0; 6]);
    for bad in [4, -1, i64::from(i32::MIN)] {
        let values = [x.clone(), x.clone(), x.clone(), Dense::from_ints(DType::I32, &[2], vec![3, bad])];
        let graph = testing::graph_of(&op.into(), &values.clone().map(|v| v.ty())).unwrap();
        let error = run(&graph, &values, &BTreeMap::new(), Mode::Declared).unwrap_err().to_string();
        let want = format!("length {bad} (element 1 of the lengths) is outside 0..=3");
        assert!(error.contains(&want), "{error}");
    }
}

/// What is not said has its default, so text from before an option is read as it was.
#[test]
fn options_in_text() {
    let graph = |attrs: &str, operands: &str| {
        Graph::parse(&format!(
            "graph \"g\" {{\n  input \"q\" %q: f32[2, 2, 3, 4]\n  input \"n\" %n: i32[2]\n  %a, %l = attention {operands} {{{attrs}}}\n  \
             output \"a\" %a\n}}\n"
        ))
    };
    let qkv = "%q, %q, %q";
    let old = graph("layout=bhtd, causal=true, scale=0.5", qkv).unwrap().to_string();
    assert!(old.contains("{layout=bhtd, causal=true, scale=0.5} :"), "{old}");
    let attrs = "layout=bhtd, causal=false, scale=0.5, softcap=50.0, window=[7, 4294967295], align=bottom_right, lengths=true";
    let new = graph(attrs, "%q, %q, %q, %n").unwrap();
    assert!(new.to_string().contains(&format!("{{{attrs}}}")), "{new}");
    assert_eq!(Graph::parse(&new.to_string()).unwrap().to_string(), new.to_string());
    for (attrs, error) in [
        ("layout=bhtd, causal=true, scale=0.5, window=[1]", "a window takes two numbers"),
        ("layout=bhtd, causal=true, scale=0.5, window=[1, 4294967296]", "a window takes two numbers"),
        ("layout=bhtd, causal=true, scale=0.5, window=[1, -1]", "non-negative"),
        ("layout=bhtd, causal=true, scale=0.5, align=middle", "there is no alignment 'middle'"),
        ("layout=bhtd, causal=true, scale=0.5, softcap=-1.0", "the soft cap is -1"),
        ("layout=bhtd, causal=true, scale=0.5, cap=1.0", "unknown attribute 'cap'"),
    ] {
        let found = graph(attrs, qkv).unwrap_err().to_string();
        assert!(found.contains(error), "{attrs}: {found}");
    }
}
