//! The rendered text: expected files for a handful of kernels, and rules that hold for every kernel of the device check.
//!
//! `ONESTEP_BLESS=1 cargo test -p onestep-cuda` writes the expected files anew.

#[allow(dead_code)]
#[path = "../examples/nvrtc_check/case.rs"]
mod case;
#[allow(dead_code)]
#[path = "../examples/nvrtc_check/cases.rs"]
mod cases;

use case::{Case, Fill};
use onestep_cuda::render::{CudaKernel, Form, MOST_REDUCTIONS, RenderError, render};
use onestep_ir::DType::{BF16, F32, I32};
use onestep_ir::ops::{BinaryKind, ReduceKind, UnaryKind};
use onestep_passes::schedule::{BufferId, ExprId};
use std::collections::BTreeSet;
use std::path::Path;

fn rendered(c: &Case) -> Result<CudaKernel, RenderError> {
    render(&c.kernel, &|b| c.dtype_of(b), &c.name)
}

fn expect(case: &Case) {
    let got = rendered(case).unwrap();
    let head = format!(
        "// {:?}, {} blocks of {}, {} bytes shared\n",
        got.form, got.grid[0], got.block[0], got.shared_bytes
    );
    let got = head + &got.source;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/expected/{}.cu", case.name));
    if std::env::var_os("ONESTEP_BLESS").is_some() {
        std::fs::write(&path, &got).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, want, "{} is not what {} holds", case.name, path.display());
}

fn named(name: &str) -> Case {
    cases::all().into_iter().find(|c| c.name == name).unwrap()
}

/// Axes that run together in every operand are one.
#[test]
fn collapsed_add() {
    let mut c = Case::new("collapsed_add", &[4, 5, 6], &[]);
    let (a, b) = (c.buffer(BF16, 120, Fill::Edges), c.buffer(BF16, 4, Fill::Edges));
    let (x, y) = (c.load(a, &[30, 6, 1]), c.load(b, &[1, 0, 0]));
    let s = c.binary(BinaryKind::Add, x, y);
    c.store(s, 120, &[30, 6, 1]);
    expect(&c);
}

#[test]
fn expected_files() {
    for name in [
        "transposed_broadcast",
        "padded_interior",
        "softmax_64x300",
        "softmax_64x1000",
        "reduce_columns_33_i32",
    ] {
        expect(&named(name));
    }
}

/// A reduction that needs the mean of the row first keeps the row in registers.
#[test]
fn rows_are_read_once_where_registers_hold_them() {
    let text = rendered(&named("layer_norm_64x768")).unwrap().source;
    assert_eq!(text.matches("load_group<4, 4>(b0 + ").count(), 1, "{text}");
    // A row of 20000 is 80 points for each thread: too many. What the last reduction's pass knows is stored there. Each pass
    // stands there twice: for the groups that are loaded several at a time, and for the rest.
    let text = rendered(&named("softmax_8x20000")).unwrap().source;
    assert_eq!(text.matches("load_group<4, 4>(b0 + ").count(), 2 * 3, "{text}");
    let text = rendered(&named("statistics_3x20002")).unwrap().source;
    assert_eq!(text.matches("load_group<2, 2>(b0 + ").count(), 2 * 2, "{text}");
}

/// Of what two passes need, the value that saves most loads is kept; and what only the last one loads comes with the first
/// one's loads, while registers last.
#[test]
fn no_pass_waits_for_memory_again() {
    let text = rendered(&named("residual_norm_64x768")).unwrap().source;
    let loads: Vec<usize> = text.match_indices("load_group<4, 4>(b").map(|(at, _)| at).collect();
    assert_eq!(loads.len(), 3, "{text}");
    let first = text.find("__shfl_down_sync").unwrap();
    assert!(loads.iter().all(|&at| at < first), "{text}");
    assert_eq!(text.matches("[24];").count(), 2, "the product and what is added to it: {text}");
    assert!(text.contains("__launch_bounds__(256, 2)"), "{text}");
    // Rows that registers do not hold are read in each pass, several groups at a time.
    let text = rendered(&named("residual_norm_3x20000")).unwrap().source;
    assert_eq!(text.matches("[80];").count(), 0, "{text}");
    assert!(text.contains("Group<unsigned short, 4> m0[8];"), "{text}");
}

/// Names of the form `e12` that stand in a text.
fn names(text: &str, head: char) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|w| w.len() > 1 && w.starts_with(head) && w[1..].bytes().all(|b| b.is_ascii_digit()))
        .map(String::from)
        .collect()
}

#[test]
fn every_kernel_renders_with_its_names_declared() {
    for case in cases::all() {
        let k = rendered(&case).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let text = &k.source[k.source.find("extern \"C\"").unwrap()..];
        assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
        for name in names(text, 'e').iter().chain(&names(text, 'i')) {
            assert!(text.contains(&format!(" {name} = ")), "{name} is not declared:\n{text}");
        }
        let parameters: BTreeSet<String> = k.parameters.iter().map(|b| b.to_string()).collect();
        assert_eq!(names(text, 'b'), parameters, "{text}");
        for b in case.kernel.reads().iter().filter(|b| !case.kernel.writes().contains(b)) {
            assert!(text.contains(&format!("* {b}")) && !text.contains(&format!("{b}[0] =")));
        }
        assert!(k.grid[0] > 0 && k.block == [256, 1, 1]);
    }
}

/// The form follows the memory, the tree the length alone.
#[test]
fn forms() {
    let form = |n, columns| rendered(&cases::reductions(F32, 40, n, columns)).unwrap().form;
    assert_eq!(form(8, true), Form::Thread);
    assert_eq!(form(9, false), Form::Warp);
    assert_eq!(form(9, true), Form::Columns { lanes: 32, columns: 8 });
    assert_eq!(form(1025, false), Form::Block);
    assert_eq!(form(1025, true), Form::Columns { lanes: 256, columns: 8 });
}

/// What all columns share along the rows does not make rows of them, however often it is loaded.
#[test]
fn shared_scales_do_not_choose_the_form() {
    let mut c = Case::new("scaled_columns", &[64], &[300]);
    let x = c.buffer(F32, 64 * 300, Fill::Edges);
    let mut value = c.load(x, &[1, 64]);
    for _ in 0..3 {
        let b = c.buffer(F32, 300, Fill::Edges);
        let scale = c.load(b, &[0, 1]);
        value = c.binary(BinaryKind::Mul, value, scale);
    }
    let sum = c.reduce(ReduceKind::Sum, value);
    c.store(sum, 64, &[1, 0]);
    assert!(matches!(rendered(&c).unwrap().form, Form::Columns { .. }));
}

#[test]
fn large_domains_have_wide_indices() {
    let mut c = Case::new("wide", &[1 << 20, 1 << 12], &[]);
    let b = c.buffer(F32, 1, Fill::Edges);
    let x = c.load(b, &[0, 0]);
    c.store(x, 1, &[1 << 12, 1]);
    assert!(rendered(&c).unwrap().source.contains("for (long long row"));
    c.kernel.extents = vec![1 << 40, 1 << 30];
    assert_eq!(rendered(&c), Err(RenderError::TooLarge { what: "index" }));
}

#[test]
fn a_stage_of_too_many_reductions_is_refused() {
    let mut c = Case::new("many", &[4], &[2000]);
    let b = c.buffer(F32, 8000, Fill::Edges);
    let x = c.load(b, &[2000, 1]);
    for count in 1..=MOST_REDUCTIONS + 1 {
        let r = c.reduce(ReduceKind::Sum, x);
        c.store(r, 4, &[1, 0]);
        let refused = rendered(&c) == Err(RenderError::TooManyReductions { count });
        assert_eq!(refused, count > MOST_REDUCTIONS);
    }
}

#[test]
fn malformed_kernels_are_refused_by_name() {
    let mut good = Case::new("good", &[4], &[]);
    let b = good.buffer(F32, 4, Fill::Edges);
    let x = good.load(b, &[1]);
    let y = good.unary(UnaryKind::Exp, x);
    good.store(y, 4, &[1]);
    assert!(rendered(&good).is_ok());

    let refused = |change: &dyn Fn(&mut Case), place: &str| {
        let mut c = good.clone();
        change(&mut c);
        let e = rendered(&c).unwrap_err();
        assert!(e.to_string().contains(place), "{e}");
    };
    refused(&|c| c.name = "no name".into(), "identifier");
    refused(&|c| c.kernel.parallel = 2, "the domain");
    refused(&|c| c.kernel.extents.push(3), "e0");
    refused(&|c| c.slots[0].dtype = I32, "e0 is f32, but b0 is i32");
    refused(&|c| c.slots[1].dtype = I32, "store 0");
    refused(&|c| c.kernel.stores[0].value = ExprId(9), "store 0");
    refused(&|c| c.kernel.body.swap(0, 1), "e0 uses");
    refused(
        &|c| {
            c.binary(BinaryKind::And, x, y);
        },
        "e2 gives f32",
    );
    refused(&|c| _ = c.push(I32, onestep_passes::schedule::Expr::Reduce(ReduceKind::Sum, x)), "e2 gives i32");
    assert_eq!(rendered(&good).unwrap().parameters, [BufferId(0), BufferId(1)]);
}
