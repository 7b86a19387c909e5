//! Programs of loops: several in one dispatch, and in the order of the schedule.

mod common;

use common::{Case, random};
use onestep_cpu::CpuProgram;
use onestep_ir::DType;
use onestep_ir::ops::BinaryKind;
use onestep_passes::schedule::{
    Access, Affine, BufferId, Expr, ExprId, Kernel, LoopKernel, Store, TypedExpr,
};

/// `to = from + from` over `n` elements.
fn double(n: usize, from: BufferId, to: BufferId) -> LoopKernel {
    let at = |buffer| Access { buffer, place: Affine { offset: 0, coefs: vec![1] } };
    let body = [
        Expr::Load { access: at(from), bounds: vec![], fill: 0 },
        Expr::Binary(BinaryKind::Add, ExprId(0), ExprId(0)),
    ];
    let body = body.into_iter().map(|expr| TypedExpr { dtype: DType::F32, expr }).collect();
    LoopKernel {
        extents: vec![n],
        parallel: 1,
        body,
        stores: vec![Store { value: ExprId(1), access: at(to) }],
    }
}

#[test]
fn loops_of_one_dispatch_share_it_and_kernels_follow_one_another() {
    let mut case = Case::default();
    let mut first = vec![];
    let mut second = vec![];
    let mut ends = vec![];
    for (i, n) in [1, 70_000, 0, 3, 12_345].into_iter().enumerate() {
        let from = case.input(random(DType::F32, &[n], i as u64));
        let (middle, end) = (case.temp(DType::F32, &[n]), case.temp(DType::F32, &[n]));
        first.push(double(n, from, middle));
        second.push(double(n, middle, end));
        ends.push((from, end));
    }
    case.push(Kernel::Loops(first));
    case.push(Kernel::Loops(second));
    let got = case.run();
    for (from, end) in ends {
        let want: Vec<f64> = got[from.index()].to_f64().iter().map(|x| 4.0 * x).collect();
        assert_eq!(got[end.index()].to_f64(), want);
    }
    let program = CpuProgram::new(&case.schedule).unwrap();
    assert_eq!(program.names().collect::<Vec<_>>(), ["5 loops", "5 loops"]);
}

#[test]
fn an_empty_schedule_runs() {
    assert!(Case::default().run().is_empty());
}
