//! Renders the kernels of `cases`, compiles them by NVRTC, runs each twice on the first CUDA device and compares the results
//! with the reference evaluator.
//!
//! ```text
//! cargo run --release -p onestep-cuda --features device --example nvrtc_check            # needs a device
//! cargo run --release -p onestep-cuda --features device --example nvrtc_check -- compile # needs NVRTC alone; runs the references
//! ```
//!
//! Further words choose the kernels whose names contain one of them.
//!
//! Exits with 0 when every kernel agrees, 1 when one does not, 2 when there is no device.

mod case;
mod cases;
mod device;

use case::Case;
use cudarc::nvrtc::Ptx;
use device::Device;
use onestep_cuda::render::{CudaKernel, Form, render};
use onestep_ir::{Array, Dense};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Any failure, as text.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A case made ready without the device.
struct Ready {
    case: Case,
    kernel: CudaKernel,
    ptx: Ptx,
    contents: Vec<Array>,
    want: Vec<Dense>,
}

fn main() -> ExitCode {
    let (commands, words): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|a| a == "compile");
    let compile_only = !commands.is_empty();
    let chosen = || -> Vec<Case> {
        let named = |c: &Case| words.is_empty() || words.iter().any(|w| c.name.contains(w.as_str()));
        cases::all().into_iter().filter(named).collect()
    };
    if !device::has_nvrtc() {
        eprintln!("nvrtc_check: NVRTC (libnvrtc) was not found; its folder can be named in LD_LIBRARY_PATH");
        return ExitCode::from(2);
    }
    if compile_only {
        let results = in_parallel(chosen(), |c| {
            if c.sample.is_none() {
                c.reference(&c.contents());
            }
            device::compile(&rendered(&c)?, "sm_90").map(drop)
        });
        return report_compiled(&results);
    }
    let device = match Device::open() {
        Ok(device) => device,
        Err(e) => {
            eprintln!("nvrtc_check: {e}; it needs a machine with an NVIDIA GPU");
            return ExitCode::from(2);
        }
    };
    println!("{}, {}", device.name, device.architecture);
    let architecture = device.architecture.clone();
    let ready = in_parallel(chosen(), |case| -> Result<Ready, Error> {
        let kernel = rendered(&case)?;
        let ptx = device::compile(&kernel, &architecture)?;
        let contents = case.contents();
        let want = case.reference(&contents);
        Ok(Ready { case, kernel, ptx, contents, want })
    });
    println!(
        "{:<34} {:>8} {:>10} {:>10} {:>10} {:>8}  ok",
        "kernel", "form", "max error", "tolerance", "us/launch", "GB/s"
    );
    let mut failures = 0;
    let mut rows_and_columns: Vec<(String, Vec<Array>)> = vec![];
    let count = ready.len();
    for r in ready {
        match r.and_then(|r| check(&device, r)) {
            Ok((name, good, results)) => {
                failures += !good as usize;
                if name.starts_with("reduce_rows") || name.starts_with("reduce_columns") {
                    rows_and_columns.push((name, results));
                }
            }
            Err(e) => {
                failures += 1;
                println!("FAILED {e}");
            }
        }
    }
    failures += compare_forms(&rows_and_columns);
    println!("{count} kernels, {failures} failures");
    ExitCode::from((failures > 0) as u8)
}

fn rendered(case: &Case) -> Result<CudaKernel, Error> {
    Ok(render(&case.kernel, &|b| case.dtype_of(b), &case.name)?)
}

fn report_compiled(results: &[Result<(), Error>]) -> ExitCode {
    let failed: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    failed.iter().take(3).for_each(|e| println!("FAILED {e}"));
    println!("{} kernels compiled, {} failed", results.len() - failed.len(), failed.len());
    ExitCode::from(!failed.is_empty() as u8)
}

/// `f` of each case, on every core, in order.
fn in_parallel<R: Send>(cases: Vec<Case>, f: impl Fn(Case) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = cases.iter().map(|_| Mutex::new(None)).collect();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((case, slot)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    cases.get(i).zip(results.get(i))
                } {
                    let result = f(case.clone());
                    *slot.lock().expect("no holder panics") = Some(result);
                }
            });
        }
    });
    results.into_iter().filter_map(|r| r.into_inner().expect("no holder panics")).collect()
}

/// Runs a case twice; its name, whether it agrees, and its results.
fn check(device: &Device, r: Ready) -> Result<(String, bool, Vec<Array>), Error> {
    let mut loaded = device.load(&r.kernel, r.ptx, &r.contents)?;
    loaded.launch()?;
    let first = loaded.read(&r.contents)?;
    loaded.reset(&r.contents)?;
    loaded.launch()?;
    let second = loaded.read(&r.contents)?;
    let error = (0..first.len()).map(|b| r.case.error(b, &first[b], &r.want[b])).fold(0.0, f64::max);
    let microseconds = loaded.time()?;
    let same = first == second;
    let good = error <= r.case.tolerance && same;
    let form = match r.kernel.form {
        Form::Thread => "thread",
        Form::Abreast(_) => "abreast",
        Form::Warp => "warp",
        Form::Block => "block",
        Form::Columns { .. } => "columns",
    };
    let verdict = match (good, same) {
        (true, _) => "yes",
        (_, true) => "NO",
        (_, false) => "NO: two runs differ",
    };
    println!(
        "{:<34} {form:>8} {error:>10.2e} {:>10.2e} {microseconds:>10.2} {:>8.0}  {verdict}",
        r.case.name,
        r.case.tolerance,
        r.case.bytes() as f64 / microseconds * 1e-3,
    );
    if error > r.case.tolerance {
        explain(&r.case, &first, &r.want);
    }
    // The operand of a reduction stands first; only the results are compared between forms.
    let results = first.into_iter().skip(1).collect();
    Ok((r.case.name, good, results))
}

/// The first element of each result that is off.
fn explain(case: &Case, got: &[Array], want: &[Dense]) {
    for (b, (g, w)) in got.iter().zip(want).enumerate() {
        if case.error(b, g, w) <= case.tolerance {
            continue;
        }
        let Ok(w) = w.to_array() else { continue };
        let (g, w) = (g.to_f64(), w.to_f64());
        let differs = |i: &usize| g[*i].to_bits() != w[*i].to_bits() && !(g[*i].is_nan() && w[*i].is_nan());
        let worst = (0..g.len()).filter(differs).max_by(|&i, &j| {
            let e = |i: usize| ((g[i] - w[i]) / w[i]).abs();
            e(i).total_cmp(&e(j))
        });
        if let Some(i) = worst {
            println!("    b{b}[{i}] = {:e}, the reference {:e}", g[i], w[i]);
        }
    }
}

/// Rows along memory and across it hold the same numbers: their reductions are equal bit for bit. The number that are not.
fn compare_forms(all: &[(String, Vec<Array>)]) -> usize {
    let mut failures = 0;
    let mut compared = 0;
    for (name, rows) in all.iter().filter(|(n, _)| n.starts_with("reduce_rows")) {
        let other = name.replace("rows", "columns");
        // Integers at the edges are drawn by name; their reductions are exact anyway.
        let float = rows.first().is_some_and(|a| a.dtype().is_float());
        if let Some((_, columns)) = all.iter().find(|(n, _)| *n == other && float) {
            compared += 1;
            if rows != columns {
                failures += 1;
                println!("{name} and {other} differ in their bits");
            }
        }
    }
    println!("{compared} reductions along and across memory compared bit for bit, {failures} differ");
    failures
}
