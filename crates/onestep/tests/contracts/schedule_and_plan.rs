//! The schedule and the memory plan are there to be read.

use crate::common::*;
use onestep::Executable;
use onestep::passes::plan::PlanOf;
use onestep::prelude::*;

#[test]
fn schedule_and_plan_are_printable() {
    let mut step = TrainingStep::new(regression()).optimizer(AdamW::new(0.1)).compile(&device()).unwrap();
    let executable: &Executable = step.program().executable().unwrap();
    let compiled = executable.compiled();
    let schedule = compiled.schedule.to_string();
    assert!(schedule.contains("matmul") && schedule.contains("fc1.weight"), "{schedule}");
    let plan = PlanOf(&compiled.schedule, &compiled.plan).to_string();
    for (i, b) in compiled.schedule.buffers.iter().enumerate() {
        let line = plan.lines().find(|l| l.trim_start().starts_with(&format!("b{i} "))).unwrap();
        assert!(line.contains(&format!("{} bytes", b.bytes())), "{line}");
    }
    assert!(plan.contains("state \"fc1.weight\"") && plan.contains("arena"), "{plan}");
    let (arena, live) = (compiled.plan.arena_bytes, compiled.plan.live_bytes);
    assert!(arena as f64 <= 1.05 * live as f64, "{arena} bytes for {live} live");
    assert!(executable.report().to_string().contains("updated in place"));
}
