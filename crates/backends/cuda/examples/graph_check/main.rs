//! Whole programs on the first CUDA device, compared with the interpreter; twice, with equal bits; captured in a graph and not.
//!
//! ```text
//! cargo run --release -p onestep-cuda --features device --example graph_check            # everything
//! cargo run --release -p onestep-cuda --features device --example graph_check -- quick   # a subset, for compute-sanitizer
//! cargo run --release -p onestep-cuda --features device --example graph_check -- attention  # attention alone
//! cargo run --release -p onestep-cuda --features device --example graph_check -- products   # large products alone
//! cargo run --release -p onestep-cuda --features device --example graph_check -- time    # timings alone
//! cargo run --release -p onestep-cuda --features device --example graph_check -- sizes   # a large model's sizes, with timings
//! ```
//!
//! Exits with 0 when every program agrees, 1 when one does not, 2 when there is no device.

mod cases;

use cases::Case;
use onestep_cuda::CudaError;
use onestep_cuda::device::{CudaBound, CudaDevice, CudaProgram, Memory, libraries};
use onestep_ir::Array;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Instant;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |w: &str| words.iter().any(|x| x == w);
    for l in libraries() {
        println!("{} {}: {}", l.file, if l.found { "found" } else { "missing" }, l.purpose);
    }
    let device = match CudaDevice::open(0) {
        Ok(device) => device,
        Err(e) => {
            eprintln!("graph_check: {e}");
            return ExitCode::from(2);
        }
    };
    println!("{device:?}");
    let mut failures = 0;
    if !word("time") && !word("sizes") {
        let start = Instant::now();
        let mut all = vec![];
        if !word("products") {
            all.extend(cases::attention::options());
            all.extend(cases::attention::models());
        }
        if !word("attention") {
            all.extend(cases::products::all());
        }
        if !word("attention") && !word("products") {
            all.extend(others(word("quick")));
        }
        println!("{} programs ready in {:.1} s", all.len(), start.elapsed().as_secs_f64());
        for (vendor, products) in [(true, "cuBLASLt's products"), (false, "own products")] {
            let failed = check_all(&device, &all, vendor);
            let seconds = start.elapsed().as_secs_f64();
            println!("{} programs with {products}, {failed} failures, {seconds:.1} s", all.len());
            failures += failed;
        }
        if !word("attention") {
            failures += check_all(&device, &cases::tf32(), true);
            let case = cases::classifier(128, 256);
            if let Err(why) = check_queue(&device, &case) {
                println!("FAILED {}, queued: {why}", case.name);
                failures += 1;
            }
        }
    }
    if word("sizes") {
        let all = cases::realistic();
        failures += check_all(&device, &all, true);
        println!("{} programs at the sizes of a large model, {failures} failures", all.len());
        for case in &all {
            if let Err(e) = time(&device, case, true) {
                println!("FAILED {}: {e}", case.name);
                failures += 1;
            }
        }
    }
    if !word("quick") && !word("sizes") && !word("products") {
        let mut timed: Vec<(Case, &[bool])> =
            cases::attention::timed().into_iter().map(|case| (case, &[true][..])).collect();
        if !word("attention") {
            let classifiers = [cases::classifier(32, 256), cases::classifier(128, 256)];
            timed.extend(classifiers.map(|case| (case, &[true, false][..])));
        }
        for (case, libraries) in timed {
            for &vendor in libraries {
                if let Err(e) = time(&device, &case, vendor) {
                    println!("FAILED {}: {e}", case.name);
                    failures += 1;
                }
            }
        }
    }
    ExitCode::from((failures > 0) as u8)
}

/// Everything but attention, or some of it.
fn others(quick: bool) -> Vec<Case> {
    let (samples, refused) = cases::samples();
    println!("ops that are refused: {}", refused.join(", "));
    let mut all = [(32, 256), (128, 256), (37, 100)]
        .map(|(n, h)| cases::classifier(n, h))
        .into_iter()
        .collect::<Vec<_>>();
    all.extend(cases::large());
    all.extend([1, 5].map(cases::gated));
    // Realistic, of the least sizes, and with rows that the library does not take.
    let layers = [(512, 768, 1024), (16, 16, 16), (208, 144, 48), (37, 32, 80)];
    all.extend(layers.map(|(rows, inner, columns)| cases::eight_bits(rows, inner, columns)));
    all.push(cases::draws());
    all.extend([(1, 0), (1, 8), (3, 6)].map(|(rows, at)| cases::decoder(rows, at)));
    if quick {
        all.extend(samples.into_iter().step_by(7));
        all.extend(cases::random(0..6));
        all.extend(cases::steps(0..6));
    } else {
        all.extend(cases::realistic());
        all.extend(samples);
        all.extend(cases::random(0..150));
        all.extend(cases::steps(0..90));
    }
    all
}

/// Compiles on every core, runs one after the other; the number of failures.
fn check_all(device: &Arc<CudaDevice>, all: &[Case], vendor: bool) -> usize {
    let next = Mutex::new(0);
    let compiled: Vec<Mutex<Option<Result<CudaProgram, CudaError>>>> =
        all.iter().map(|_| Mutex::new(None)).collect();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = {
                        let mut next = next.lock().expect("no holder panics");
                        *next += 1;
                        *next - 1
                    };
                    let (Some(case), Some(slot)) = (all.get(at), compiled.get(at)) else { break };
                    let program =
                        CudaProgram::with(device, &case.compiled.schedule, &case.compiled.plan, vendor);
                    *slot.lock().expect("no holder panics") = Some(program);
                }
            });
        }
    });
    let mut failures = 0;
    for (case, slot) in all.iter().zip(compiled) {
        let program = slot.into_inner().expect("no holder panics").expect("every case was compiled");
        if let Err(why) = program.map_err(|e| e.to_string()).and_then(|p| check(device, &Arc::new(p), case)) {
            failures += 1;
            if failures <= 20 {
                println!("FAILED {}: {why}", case.name);
            }
        }
    }
    failures
}

/// The state of a case on the device, and a binding to it.
fn bind(
    device: &Arc<CudaDevice>,
    program: &Arc<CudaProgram>,
    case: &Case,
    capture: bool,
) -> Result<(CudaBound, Vec<Memory>), CudaError> {
    let states: Vec<Memory> =
        case.states.iter().map(|a| Memory::of(device, a.bytes())).collect::<Result<_, _>>()?;
    let addresses: Vec<u64> = states.iter().map(Memory::pointer).collect();
    // SAFETY: the states are returned with the binding, which is dropped first.
    let mut bound = unsafe { CudaBound::new(program, &addresses, capture) }?;
    for (n, a) in case.inputs.iter().enumerate() {
        bound.input(n)?.copy_from_slice(a.bytes());
    }
    Ok((bound, states))
}

fn run(
    device: &Arc<CudaDevice>,
    program: &Arc<CudaProgram>,
    case: &Case,
    capture: bool,
) -> Result<Vec<Array>, CudaError> {
    let (mut bound, states) = bind(device, program, case, capture)?;
    bound.run()?;
    let s = &case.compiled.schedule;
    let mut results = vec![];
    for (_, b) in &s.outputs[..case.outputs()] {
        results.push(bound.read(*b)?);
    }
    for (memory, state) in states.iter().zip(&case.states) {
        let mut bytes = vec![0; state.bytes().len()];
        memory.read(0, &mut bytes)?;
        results.push(Array::from_bytes(state.dtype(), state.shape(), &bytes).expect("sizes agree"));
    }
    drop(bound);
    Ok(results)
}

fn check(device: &Arc<CudaDevice>, program: &Arc<CudaProgram>, case: &Case) -> Result<(), String> {
    let one = |capture| run(device, program, case, capture).map_err(|e| e.to_string());
    let (first, second, plain) = (one(true)?, one(true)?, one(false)?);
    let bits = |a: &[Array]| a.iter().map(|a| a.bytes().to_vec()).collect::<Vec<_>>();
    if bits(&first) != bits(&second) {
        return Err("two runs differ".into());
    }
    if bits(&first) != bits(&plain) {
        return Err("captured and not captured differ".into());
    }
    let error = case.error(&first);
    if error < case.least {
        return Err(format!("error {error:e}, at least {:e} was due", case.least));
    }
    if error > case.tolerance {
        return Err(format!("error {error:e}, tolerance {:e}\n{}", case.tolerance, case.compiled.schedule));
    }
    Ok(())
}

/// Runs that are waited for once have the results of those that are waited for each, though each has other inputs.
fn check_queue(device: &Arc<CudaDevice>, case: &Case) -> Result<(), String> {
    let (schedule, plan) = (&case.compiled.schedule, &case.compiled.plan);
    let results = |waited: bool| -> Result<Vec<Vec<u8>>, CudaError> {
        let program = Arc::new(CudaProgram::new(device, schedule, plan)?);
        let (mut bound, states) = bind(device, &program, case, true)?;
        for run in 0..40 {
            for (n, a) in case.inputs.iter().enumerate() {
                let into = bound.input(n)?;
                into.copy_from_slice(a.bytes());
                if n == 0 {
                    // Other rows for the same labels.
                    into.rotate_left(run * into.len() / a.shape()[0]);
                }
            }
            bound.run()?;
            if waited {
                device.synchronize()?;
            }
        }
        let mut all = vec![bound.read(schedule.outputs[0].1)?.bytes().to_vec()];
        for memory in &states {
            let mut bytes = vec![0; memory.len()];
            memory.read(0, &mut bytes)?;
            all.push(bytes);
        }
        Ok(all)
    };
    let one = |waited| results(waited).map_err(|e| e.to_string());
    if one(true)? == one(false)? { Ok(()) } else { Err("other results than waited for one by one".into()) }
}

/// Prints the time of a run as one launch, beside that of its kernels.
fn time(device: &Arc<CudaDevice>, case: &Case, vendor: bool) -> Result<(), CudaError> {
    let start = Instant::now();
    let program = Arc::new(CudaProgram::with(device, &case.compiled.schedule, &case.compiled.plan, vendor)?);
    let compile = start.elapsed();
    let (mut bound, _states) = bind(device, &program, case, true)?;
    let mut times: Vec<f64> = (0..9).map(|_| bound.time(200)).collect::<Result<_, _>>()?;
    times.sort_by(f64::total_cmp);
    let loss = case.compiled.schedule.outputs[0].1;
    let start = Instant::now();
    for _ in 0..200 {
        bound.run()?;
        bound.read(loss)?;
    }
    let whole = start.elapsed().as_secs_f64() * 1e3 / 200.0;
    let steps = program.code().steps.len();
    println!(
        "{} ({}): {:.4} ms a step on the device (9 times 200: {:.4} to {:.4}), {whole:.4} ms with inputs and the loss read; {steps} launches of {} kernels, compiled in {:.2} s",
        case.name,
        if vendor { "cuBLASLt" } else { "own products" },
        times[4],
        times[0],
        times[8],
        program.code().kernels.len(),
        compile.as_secs_f64(),
    );
    let (mut plain, _states) = bind(device, &program, case, false)?;
    println!("  not captured: {:.4} ms", plain.time(200)?);
    for (name, ms) in program.names().zip(plain.time_kernels(50)?) {
        println!("  {:>8.2} us  {name}", ms * 1e3);
    }
    Ok(())
}
