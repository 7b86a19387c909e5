//! Rendered kernels run on the host: the text of every kernel of the device check that is not of f16 or bf16 (whose conversions
//! are instructions of the device) is compiled by g++ behind a small header, run, and compared with the reference evaluator.
//! Where there is no g++, the test says so and passes.

#[allow(dead_code)]
#[path = "../examples/nvrtc_check/case.rs"]
mod case;
#[allow(dead_code)]
#[path = "../examples/nvrtc_check/cases.rs"]
mod cases;

use case::Case;
use onestep_cuda::render::{CudaKernel, render};
use onestep_ir::Array;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// Points of a kernel that a test may take.
const MOST_POINTS: usize = 250_000;

#[test]
fn rendered_kernels_agree_with_the_reference() {
    if Command::new("g++").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no g++");
        return;
    }
    let ready: Vec<(Case, CudaKernel)> = cases::all()
        .into_iter()
        .filter(|c| c.kernel.rows() * c.kernel.row_len() <= MOST_POINTS)
        .map(|c| {
            let k = render(&c.kernel, &|b| c.dtype_of(b), &c.name).unwrap();
            (c, k)
        })
        .filter(|(_, k)| !k.source.contains("asm("))
        .collect();
    assert!(ready.len() > 100, "{}", ready.len());

    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("kernels.cpp"), folder.path().join("kernels"));
    std::fs::write(&source, program_text(&ready)).unwrap();
    let done = Command::new("g++")
        .args(["-std=c++17", "-O1", "-w", "-ffp-contract=off", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    let contents: Vec<Vec<Array>> = ready.iter().map(|(c, _)| c.contents()).collect();
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes: Vec<u8> = contents.iter().flatten().flat_map(|a| a.bytes()).copied().collect();
    let feeding = std::thread::spawn(move || input.write_all(&bytes));
    let mut results = vec![];
    child.stdout.take().unwrap().read_to_end(&mut results).unwrap();
    feeding.join().unwrap().unwrap();
    assert!(child.wait().unwrap().success());

    let mut at = 0;
    for ((case, kernel), contents) in ready.iter().zip(&contents) {
        let want = case.reference(contents);
        for (b, like) in contents.iter().enumerate() {
            let end = at + like.bytes().len();
            let got = Array::from_bytes(like.dtype(), like.shape(), &results[at..end]).unwrap();
            at = end;
            let error = case.error(b, &got, &want[b]);
            assert!(error <= case.tolerance, "{} b{b}: error {error:e}\n{}", case.name, kernel.source);
        }
    }
    assert_eq!(at, results.len());
}

/// All kernels, and a program that reads the buffers of each, runs it, and writes them back.
fn program_text(ready: &[(Case, CudaKernel)]) -> String {
    let mut text = format!("#include \"{}/tests/host/shim.h\"\n", env!("CARGO_MANIFEST_DIR"));
    for (i, (_, k)) in ready.iter().enumerate() {
        let _ = write!(
            text,
            "namespace n{i} {{\nlong long shared[{}];\n{}}}\n",
            k.shared_bytes / 8 + 1,
            k.source
        );
    }
    text += "int main() {\n";
    for (i, (case, k)) in ready.iter().enumerate() {
        let buffers: Vec<String> =
            case.slots.iter().map(|s| format!("take({})", s.len * s.dtype.size())).collect();
        // A pointer to anything becomes the parameter's type.
        let arguments: Vec<String> =
            k.parameters.iter().map(|b| format!("Any{{b[{}].data()}}", b.0)).collect();
        let _ = writeln!(
            text,
            "{{ std::vector<char> b[] = {{{}}}; launch({}, {}, n{i}::shared, [&] {{ n{i}::{}({}); }}); for (auto& x : b) give(x); }}",
            buffers.join(", "),
            k.grid[0],
            k.block[0],
            k.entry,
            arguments.join(", "),
        );
    }
    text + "}\n"
}
