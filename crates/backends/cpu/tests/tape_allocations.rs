//! A tape allocates nothing while it runs. In a binary of its own, since it counts allocations: those of the thread that runs
//! it, as others belong to the test's harness.

use onestep_cpu::tape::LoopTape;
use onestep_ir::DType::F32;
use onestep_ir::ops::{BinaryKind, ReduceKind, UnaryKind};
use onestep_passes::schedule::{Access, Affine, BufferId, Expr, ExprId, LoopKernel, Store, TypedExpr};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is `alloc`'s.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is `dealloc`'s.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn access(buffer: u32, coefs: [i64; 2]) -> Access {
    Access { buffer: BufferId(buffer), place: Affine { offset: 0, coefs: coefs.to_vec() } }
}

fn shared<T: Send + Sync>(_: &T) {}

#[test]
fn running_allocates_nothing() {
    for (rows, n, coefs) in [(8, 1500, [1500, 1]), (200, 10, [10, 1]), (200, 1500, [1, 200])] {
        let body = [
            Expr::Load { access: access(0, coefs), bounds: vec![], fill: 0 },
            Expr::Reduce(ReduceKind::Max, ExprId(0)),
            Expr::Binary(BinaryKind::Sub, ExprId(0), ExprId(1)),
            Expr::Unary(UnaryKind::Exp, ExprId(2)),
            Expr::Reduce(ReduceKind::Sum, ExprId(3)),
            Expr::Binary(BinaryKind::Div, ExprId(3), ExprId(4)),
        ];
        let kernel = LoopKernel {
            extents: vec![rows, n],
            parallel: 1,
            body: body.into_iter().map(|expr| TypedExpr { dtype: F32, expr }).collect(),
            stores: vec![Store { value: ExprId(5), access: access(1, [n as i64, 1]) }],
        };
        let tape = LoopTape::new(&kernel, &|_| F32).expect("the kernel is supported");
        shared(&tape);
        let mut memory = vec![vec![1f32; rows * n]; 2];
        let buffers: Vec<*mut u8> = memory.iter_mut().map(|m| m.as_mut_ptr().cast()).collect();
        let mut scratch = vec![0u8; tape.scratch_bytes()];
        let before = ALLOCATIONS.get();
        for chunk in 0..tape.chunks(0) {
            // SAFETY: the buffers have all elements of the kernel, and this thread alone uses them.
            unsafe { tape.run_chunk(0, chunk, &buffers, scratch.as_mut_ptr(), std::ptr::null_mut()) };
        }
        assert_eq!(ALLOCATIONS.get(), before);
        assert!(memory[1].iter().all(|y| (y - 1.0 / n as f32).abs() < 1e-6));
    }
}
