//! Whole programs run on the host: their kernels are compiled by g++ behind a small header, and the launches are made one after
//! the other over the addresses that [`lower`] gave, in an order that the branches allow and that is as far from the schedule's
//! as can be. The results are compared with the interpreter's.
//!
//! Where there is no g++, the test says so and passes.

#[allow(dead_code)]
#[path = "../examples/graph_check/cases.rs"]
mod cases;

#[path = "host/instructions.rs"]
mod instructions;

use cases::Case;
use instructions::on_host;
use onestep_cuda::CudaTarget;
use onestep_cuda::code::{Address, Code, Space, Step};
use onestep_cuda::lower::lower;
use onestep_ir::{Array, DType};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

#[test]
fn samples_of_the_op_table() {
    let (cases, refused) = cases::samples();
    assert!(refused.is_empty(), "{refused:?}");
    assert!(cases.len() > 400, "{}", cases.len());
    check(&cases);
}

#[test]
fn library_kernels_of_every_size() {
    check(&cases::large());
}

/// A reduction has the same bits down columns and along rows, in one kernel and cut into pieces, and whatever is stored on the way.
#[test]
fn cut_reductions_have_the_bits_of_whole_ones() {
    // So few columns that a thread takes one, and so many that it takes two or four abreast.
    let sizes = [
        (DType::F32, 2100, 9),
        (DType::BF16, 2304, 40),
        (DType::F32, 16_500, 3),
        (DType::BF16, 2050, 562),
        (DType::F32, 2304, 1060),
    ];
    let cases: Vec<Case> = sizes.map(|(d, rows, columns)| cases::columns(d, rows, columns)).into();
    for case in &cases {
        assert!(lowered(case).scratch_bytes > 0, "{} is not cut", case.name);
    }
    for (case, w) in [(&cases[3], 2), (&cases[4], 4)] {
        let abreast = format!("load_group<{w}, {w}>(b0 + {w} * i");
        assert!(lowered(case).kernels.iter().any(|k| k.source.contains(&abreast)), "{}", case.name);
    }
    for (case, got) in cases.iter().zip(check(&cases)) {
        let bits = |n: usize| got[n].bytes().to_vec();
        assert_eq!(bits(0), bits(1), "{}", case.name);
        assert_eq!(bits(3), bits(4), "{}", case.name);
    }
}

#[test]
fn guards_of_gradients() {
    check(&[cases::finite(&[50_000, 17_001, 16_385, 768])]);
}

#[test]
fn attention_of_every_option() {
    check(&cases::attention::options());
}

#[test]
fn random_programs() {
    check(&cases::random(0..30));
}

#[test]
fn random_training_steps() {
    let cases = cases::steps(0..40);
    assert!(cases.len() > 12, "{}", cases.len());
    check(&cases);
}

#[test]
fn random_bits_of_neighbours() {
    let case = cases::draws();
    let code = lowered(&case);
    let texts = |what: &str| code.kernels.iter().filter(|k| k.source.contains(what)).count();
    assert!(texts("if (v % 4 == 0) q") > 0, "some share a block");
    assert!(texts("= philox(") > 0, "some do not");
    check(&[case]);
}

#[test]
fn a_gated_layer_of_few_rows() {
    let cases = [1, 5].map(cases::gated);
    for case in &cases {
        assert_eq!(lowered(case).steps.len(), 2, "two products with the work on them, and one with its own");
    }
    check(&cases);
}

/// The norm before products is part of their launch, and what goes within a cache is stored there.
#[test]
fn a_step_of_a_decoder() {
    let cases = [(1, 0), (1, 8), (3, 6)].map(|(rows, at)| cases::decoder(rows, at));
    for case in &cases {
        let steps = lowered(case).steps.len();
        // The first norm with three products, the other loops, the notice of a bad index, the gated layer, and its last product.
        assert_eq!(steps, 5, "{}", case.compiled.schedule);
    }
    check(&cases);
}

/// Quantised, turned through shared memory, and multiplied; with 36 rows, no multiple of 16, the products are in 16 bits.
#[test]
fn a_layer_of_eight_bits() {
    let cases = [144, 36].map(|rows| cases::eight_bits(rows, 32, 16));
    for (case, turned) in cases.iter().zip([true, false]) {
        let text: String = lowered(case).kernels.iter().map(|k| k.source.as_str()).collect();
        assert!(text.contains("f32_to_f8e5m2"), "{}", case.name);
        assert_eq!(text.contains("__byte_perm"), turned, "{}", case.name);
    }
    check(&cases);
}

#[test]
fn a_classifier_learns_in_a_few_launches() {
    let case = cases::classifier(4, 16);
    let code = lowered(&case);
    assert!(code.steps.len() <= 24, "{} launches", code.steps.len());
    check(&[case]);
}

fn lowered(case: &Case) -> Code {
    lower(&case.compiled.schedule, &case.compiled.plan, &CudaTarget::HOPPER, &|_| false)
        .unwrap_or_else(|e| panic!("{}: {e}", case.name))
}

/// Runs the cases and holds them to the interpreter; their results, none where there is no compiler.
fn check(cases: &[Case]) -> Vec<Vec<Array>> {
    if Command::new("g++").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no g++");
        return vec![];
    }
    let codes: Vec<Code> = cases.iter().map(lowered).collect();
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("programs.cpp"), folder.path().join("programs"));
    std::fs::write(&source, program_text(cases, &codes)).unwrap();
    let done = Command::new("g++")
        .args(["-std=c++17", "-O1", "-w", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut bytes: Vec<u8> = vec![];
    for (case, code) in cases.iter().zip(&codes) {
        let mut inputs = vec![0; code.input_bytes];
        for (a, (_, b)) in case.inputs.iter().zip(&case.compiled.schedule.inputs) {
            let at = code.homes[b.index()].offset;
            inputs[at..at + a.bytes().len()].copy_from_slice(a.bytes());
        }
        bytes.extend(inputs);
        bytes.extend(&code.constants);
        case.states.iter().for_each(|a| bytes.extend(a.bytes()));
    }
    let feeding = std::thread::spawn(move || input.write_all(&bytes));
    let mut results = vec![];
    child.stdout.take().unwrap().read_to_end(&mut results).unwrap();
    feeding.join().unwrap().unwrap();
    assert!(child.wait().unwrap().success());

    let (mut at, mut all) = (0, vec![]);
    for case in cases {
        let s = &case.compiled.schedule;
        let outputs = s.outputs[..case.outputs()].iter().map(|(_, b)| s.buffer(*b));
        let states = s.states.iter().map(|st| s.buffer(st.buffer));
        let got: Vec<Array> = outputs
            .chain(states)
            .map(|b| {
                at += b.bytes();
                Array::from_bytes(b.dtype, &b.shape, &results[at - b.bytes()..at]).unwrap()
            })
            .collect();
        let error = case.error(&got);
        assert!(error <= case.tolerance, "{}: error {error:e}\n{got:?}\n{:?}\n{s}", case.name, case.wants);
        all.push(got);
    }
    assert_eq!(at, results.len());
    all
}

/// All kernels, each once, and a function for each program.
fn program_text(cases: &[Case], codes: &[Code]) -> String {
    let mut text = format!("#include \"{}/tests/host/shim.h\"\n", env!("CARGO_MANIFEST_DIR"));
    let mut kernels = BTreeMap::new();
    codes.iter().flat_map(|c| &c.kernels).for_each(|k| {
        kernels.insert(&k.name, k);
    });
    for (name, k) in kernels {
        let shared = k.shared_bytes / 8 + 1;
        let _ = write!(
            text,
            "namespace n_{name} {{\nalignas(16) long long shared[{shared}];\n{}}}\n",
            on_host(&k.source)
        );
    }
    for (i, (case, code)) in cases.iter().zip(codes).enumerate() {
        let s = &case.compiled.schedule;
        let areas = [code.input_bytes, code.constants.len()].map(|n| format!("take({n})"));
        let _ = writeln!(
            text,
            "void program{i}() {{\nstd::vector<char> inputs = {}, constants = {};",
            areas[0], areas[1]
        );
        let states: Vec<String> = case.states.iter().map(|a| format!("take({})", a.bytes().len())).collect();
        let _ = writeln!(text, "std::vector<std::vector<char>> state = {{{}}};", states.join(", "));
        let _ = writeln!(text, "std::vector<char> notice(4);");
        // What was never written is not 0.
        let _ = writeln!(
            text,
            "std::vector<char> arena({}, 0x5a), scratch({}, 0x5a);",
            code.arena_bytes + 1,
            code.scratch_bytes + 1
        );
        for step in reordered(code) {
            match step {
                Step::Launch { kernel, grid, arguments } => {
                    let k = &code.kernels[*kernel];
                    let (name, threads) = (&k.name, k.threads);
                    let list: Vec<String> =
                        arguments.iter().map(|a| format!("Any{{{}}}", address(a))).collect();
                    let _ = writeln!(
                        text,
                        "launch({grid}, {threads}, n_{name}::shared, [&] {{ n_{name}::{name}({}); }});",
                        list.join(", ")
                    );
                }
                Step::Copy { from, to, bytes } => {
                    let _ = writeln!(text, "memmove({}, {}, {bytes});", address(to), address(from));
                }
                Step::Product(_) => unreachable!("no product is the vendor's"),
            }
        }
        for (_, b) in &s.outputs[..case.outputs()] {
            let from = address(&code.homes[b.index()]);
            let _ = writeln!(text, "fwrite({from}, 1, {}, stdout);", s.buffer(*b).bytes());
        }
        text += "for (auto& x : state) give(x);\n}\n";
    }
    text += "int main() {\n";
    (0..cases.len()).for_each(|i| {
        let _ = writeln!(text, "program{i}();");
    });
    text + "}\n"
}

/// The steps with the last branch first: the first one runs only where the others wait for it.
fn reordered(code: &Code) -> Vec<&Step> {
    let b = &code.branches;
    let mut done = vec![false; b.of.len()];
    let mut steps = vec![];
    while done.contains(&false) {
        let next = |branch: usize| (0..done.len()).find(|&n| !done[n] && b.of[n] == branch);
        let free = |n: &usize| b.waits[*n].iter().all(|&w| done[w]);
        let kernel = (0..b.count).rev().find_map(|branch| next(branch).filter(free));
        let kernel = kernel.expect("branches do not wait for each other in a circle");
        steps.extend(code.steps.iter().filter(|(of, _)| *of == kernel).map(|(_, step)| step));
        done[kernel] = true;
    }
    steps
}

fn address(a: &Address) -> String {
    let area = match a.space {
        Space::Inputs => "inputs".into(),
        Space::State(n) => format!("state[{n}]"),
        Space::Constants => "constants".into(),
        Space::Arena => "arena".into(),
        Space::Scratch => "scratch".into(),
        Space::Notice => "notice".into(),
        Space::Body(_) => unreachable!("iterations have real addresses"),
    };
    format!("({area}.data() + {})", a.offset)
}
