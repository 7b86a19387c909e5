//! The steady state allocates nothing: counted by the global allocator of this test, on every thread, over whole training
//! steps and over inference.

#[path = "cases/common.rs"]
mod common;

use common::*;
use onestep::io::{Batches, Columns, Last, Loader, Position};
use onestep::prelude::*;
use onestep::{Executable, Options, Program};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: the caller's promises about `layout` are the ones that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, hence from `System`, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How often `f` allocates, in 30 calls after 3 that may.
fn allocations(mut f: impl FnMut()) -> usize {
    (0..3).for_each(|_| f());
    // Threads that are still starting allocate for themselves.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let before = ALLOCATIONS.load(SeqCst);
    (0..30).for_each(|_| f());
    ALLOCATIONS.load(SeqCst) - before
}

fn training(graph: &Graph, device: &Device) -> CompiledStep {
    let step = TrainingStep::new(graph.clone()).optimizer(AdamW::new(1e-3)).clip_global_norm(1.0);
    let schedule = Schedule::WarmupCosine { warmup: 3, total: 20, floor: 0.1 };
    step.schedule(schedule).compile(device).unwrap()
}

/// One test, since another beside it would be counted too.
#[test]
fn the_steady_state_allocates_nothing() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8]))) >= 30, "the counter counts");
    for threads in [1, 2] {
        let device = cpu(threads);
        for (name, graph, batch) in [
            ("classifier", classifier(32), rows(32, 1)),
            ("gpt", language_model(2, 0.1), tokens(2, 1)),
            ("recurrent", recurrent(), sequences(1)),
        ] {
            let mut step = training(&graph, &device);
            let mut state = step.init(0).unwrap();
            let counted = allocations(|| {
                let out = step.run(&mut state, &batch).unwrap();
                assert!(out.loss().unwrap() + out.scalar("grad_norm").unwrap() > 0.0);
            });
            assert_eq!(counted, 0, "a step of the {name} with {threads} threads");
            let [x, y] = &batch;
            let counted = allocations(|| assert!(step.run(&mut state, [("y", y), ("x", x)]).is_ok()));
            assert_eq!(counted, 0, "named feeds of the {name} with {threads} threads");
            step.run_selected(&mut state, &batch, &["grad_norm"]).unwrap();
            let selected = &["grad_norm"];
            let counted = allocations(|| assert!(step.run_selected(&mut state, &batch, selected).is_ok()));
            assert_eq!(counted, 0, "selected outputs of the {name}");
            let mut timed = step.program().run_timed(&mut state, &batch).map(|_| ());
            let counted = allocations(|| timed = step.program().run_timed(&mut state, &batch).map(|_| ()));
            assert_eq!((counted, timed.is_ok()), (0, true), "timed steps of the {name}");

            let mut evaluation = Program::new(&graph, &device, &Options::default()).unwrap();
            let counted = allocations(|| {
                // Between two programs on one state, as in training with evaluations.
                step.run(&mut state, &batch).unwrap();
                evaluation.run(&mut state, &batch).unwrap();
            });
            assert_eq!(counted, 0, "training and evaluation of the {name}");

            let bound_graph = onestep::ir::bind(&graph, &graph.dims).unwrap();
            let executable = Executable::compile(&bound_graph, &device, &Options::default()).unwrap();
            let mut bound = executable.bind(&state).unwrap();
            let counted =
                allocations(|| assert!(bound.run(&mut state, &batch).unwrap().loss().unwrap() > 0.0));
            assert_eq!(counted, 0, "a bound {name}");
        }
        // The step with its data: shuffled, read ahead on a thread of its own.
        let columns = Columns::new(rows(200, 1)).unwrap();
        let batches = Batches::new(columns, 32, Last::Drop).unwrap().shuffled(1);
        let mut loader = Loader::start(batches, Position::default()).unwrap();
        let mut step = training(&classifier(32), &device);
        let mut state = step.init(0).unwrap();
        // The first time that either side of the loader has to wait for the other, it makes its place in a queue; when that is,
        // is the scheduler's affair.
        let mut turn = || allocations(|| assert!(step.run(&mut state, loader.next().unwrap()).is_ok()));
        let counted = (0..8).map(|_| turn()).min().unwrap();
        assert_eq!(counted, 0, "a step and its loader with {threads} threads");
        drop(loader);
        // Sizes that change from call to call, once they are known.
        let mut step = training(&classifier(32), &device);
        let mut state = step.init(0).unwrap();
        let (full, rest) = (rows(32, 1), rows(17, 2));
        let counted = allocations(|| {
            step.run(&mut state, &full).unwrap();
            step.run(&mut state, &rest).unwrap();
        });
        assert_eq!(counted, 0, "two sizes in turn");
        // A scalar that is read in every dtype.
        let g = GraphBuilder::new("scalars");
        let x = g.input("x", F32, ());
        for dtype in DType::ALL {
            g.output(dtype.name(), x.cast(dtype));
        }
        let mut program = compile(&g.build().unwrap(), &device).unwrap();
        let one = [Array::scalar(1f32)];
        let counted = allocations(|| {
            let out = program.run(&mut state, &one).unwrap();
            assert!(DType::ALL.iter().all(|d| out.scalar(d.name()).unwrap() == 1.0));
        });
        assert_eq!(counted, 0, "scalars");
    }
}
