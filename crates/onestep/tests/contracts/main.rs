//! The contracts of the two systems that Onestep replaces, one file for each row of the design's table. A new backend
//! runs the same tests: they take their device from [`common::device`].

mod adopt;
mod backward;
mod bind_executable;
mod bind_tensor;
mod common;
mod compile;
mod examples;
mod fresh_loss;
mod kv_cache;
mod missing;
mod own_optimizer;
mod rows_and_selection;
mod scalar_inputs;
mod schedule_and_plan;
mod training_step;
mod typed_errors;
