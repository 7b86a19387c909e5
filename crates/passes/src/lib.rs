//! Onestep's passes: functions from graph to graph, and at the end from graph to schedule and plan.

pub mod plan;
pub mod schedule;
