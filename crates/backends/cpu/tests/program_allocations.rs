//! A program's run allocates nothing, whatever kernels it has: counted by the global allocator of this test, on every
//! thread.

mod common;

use common::{Case, bias_tanh, dense, random};
use onestep_cpu::CpuProgram;
use onestep_cpu::pool::Pool;
use onestep_ir::ops::{ArgKind, ArgReduce, Attention, AttentionGrad, AttentionLayout, Gather, ScatterAdd};
use onestep_ir::{Array, DType, Op};
use onestep_passes::schedule::{Kernel, LibraryKernel, MatmulKernel, View};
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

/// Adds a kernel of `op` whose results are fresh temporaries of these shapes.
fn library(case: &mut Case, op: impl Into<Op>, operands: Vec<View>, results: &[(DType, &[usize])]) {
    let results = results.iter().map(|(d, s)| View::whole(case.temp(*d, s), s)).collect();
    case.push(Kernel::Library(LibraryKernel { op: op.into(), operands, results }));
}

#[test]
fn a_run_allocates_nothing() {
    const F32: DType = DType::F32;
    let mut case = Case::default();
    let (a, b) = (case.input(random(F32, &[300, 200], 1)), case.input(random(F32, &[150, 200], 2)));
    let rhs = View { strides: vec![0, 1, 200], shape: vec![1, 200, 150], ..dense(b, &[1, 150, 200]) };
    let out = case.temp(F32, &[300, 150]);
    let [epilogue, loop_kernel] = [0, 1].map(|_| bias_tanh(300, 150, &mut case, out));
    let epilogue = Some(Box::new(epilogue));
    case.push(Kernel::Matmul(MatmulKernel { lhs: dense(a, &[1, 300, 200]), rhs, out, epilogue }));
    case.push(Kernel::Loops(vec![loop_kernel]));

    let shape = [2, 50, 4, 16];
    let qkv = [3, 4, 5].map(|seed| dense(case.input(random(F32, &shape, seed)), &shape));
    let lse: &[usize] = &[2, 4, 50];
    let attention = Attention { causal: true, ..Attention::new(AttentionLayout::Bthd, 0.25) };
    library(&mut case, attention, qkv.to_vec(), &[(F32, &shape), (F32, lse)]);
    let last =
        |case: &Case, back: usize| onestep_passes::schedule::BufferId((case.values.len() - back) as u32);
    let more = [dense(last(&case, 2), &shape), dense(last(&case, 1), lse), qkv[0].clone()];
    let op = AttentionGrad { forward: attention, mask_grad: false };
    library(&mut case, op, [qkv.to_vec(), more.to_vec()].concat(), &[(F32, &shape[..]); 3]);

    let indices = case.input(Array::from_f64(DType::I32, &[100], &[7.0; 100]).unwrap());
    let rows: &[usize] = &[100, 200];
    library(
        &mut case,
        Gather { axis: 0 },
        vec![dense(a, &[300, 200]), dense(indices, &[100])],
        &[(F32, rows)],
    );
    let gathered = dense(last(&case, 1), rows);
    let operands = vec![dense(a, &[300, 200]), dense(indices, &[100]), gathered];
    library(&mut case, ScatterAdd { axis: 0 }, operands, &[(F32, &[300, 200])]);
    let op = ArgReduce { kind: ArgKind::Max, axis: 1 };
    library(&mut case, op, vec![dense(a, &[300, 200])], &[(DType::I32, &[300])]);

    let program = CpuProgram::new(&case.schedule).unwrap();
    let pool = Pool::new(3).unwrap();
    let mut storage = case.storage();
    let buffers: Vec<*mut u8> = storage.iter_mut().map(|s| s.as_mut_ptr().cast()).collect();
    let mut scratch = vec![0u64; program.scratch_bytes(3) / 8 + 8];
    let scratch = scratch.as_mut_ptr().cast::<u8>();
    let scratch = scratch.wrapping_add(scratch.align_offset(64));
    let mut nanoseconds = vec![0; program.names().count()];
    let mut step = || {
        // SAFETY: every buffer has its bytes, aligned to 8, in a vector of its own; the scratch is as large as asked.
        unsafe {
            program.run(&pool, &buffers, scratch);
            program.run_timed(&pool, &buffers, scratch, &mut nanoseconds);
        }
    };
    step();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let before = ALLOCATIONS.load(SeqCst);
    for _ in 0..50 {
        step();
    }
    assert_eq!(ALLOCATIONS.load(SeqCst) - before, 0);
    assert!(nanoseconds.iter().all(|&n| n > 0));
    let names: Vec<&str> = program.names().collect();
    assert_eq!(names[0], "matmul 300×150×200 + epilogue");
    assert_eq!(names[2], "attention 2×4 heads, 50×50×16 causal");
}
