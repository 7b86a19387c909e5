//! The examples run, at small sizes.

#[path = "../../examples/curvature.rs"]
mod curvature;
#[path = "../../examples/gpt.rs"]
mod gpt;
#[path = "../../examples/groups.rs"]
mod groups;
#[path = "../../examples/kv_cache.rs"]
pub mod kv_cache;
#[path = "../../examples/mixed_precision.rs"]
mod mixed_precision;
#[path = "../../examples/mlp.rs"]
mod mlp;
#[path = "../../examples/own_op.rs"]
mod own_op;
#[path = "../../examples/own_optimizer.rs"]
mod own_optimizer;
#[path = "../../examples/own_pass.rs"]
mod own_pass;
#[path = "../../examples/own_rule.rs"]
mod own_rule;
#[path = "../../examples/population.rs"]
mod population;
#[path = "../../examples/recompute.rs"]
mod recompute;
#[path = "../../examples/recurrent.rs"]
mod recurrent;
#[path = "../../examples/serve.rs"]
mod serve;

#[test]
fn a_classifier_learns_and_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = mlp::Sizes { batch: 32, steps: 80 };
    let [trained, again] = mlp::run(&sizes, &folder.path().join("mlp.safetensors")).unwrap();
    assert!(trained > 0.9, "{trained}");
    assert_eq!(trained, again);
}

#[test]
fn a_gpt_learns_to_count() {
    let [first, last] = gpt::run(60, 4).unwrap();
    assert!(last < 0.5 * first, "{first} → {last}");
}

#[test]
fn a_recurrent_network_learns_to_add() {
    let [first, last] = recurrent::run(300, 16).unwrap();
    assert!(last < 0.5 * first, "{first} → {last}");
}

#[test]
fn a_text_is_written_from_the_cache() {
    let model =
        onestep::nn::Gpt { vocab: 20, width: 16, layers: 1, heads: 2, context: 12, ..onestep::nn::Gpt::MINI };
    let text = kv_cache::run(&model, &[1, 2, 3], 10, 7).unwrap();
    assert_eq!((text.len(), &text[..3]), (10, &[1, 2, 3][..]));
    assert_eq!(text, kv_cache::run(&model, &[1, 2, 3], 10, 7).unwrap());
    assert_eq!(kv_cache::run(&model, &[1, 2, 3], 99, 7).unwrap().len(), 12, "the context is full");
}

#[test]
fn an_own_optimizer_gives_the_compiled_steps_numbers() {
    let difference = own_optimizer::run(20).unwrap();
    assert!(difference <= 1e-6, "{difference}");
}

#[test]
fn an_own_rule_follows_its_formula() {
    let difference = own_rule::run(60).unwrap();
    assert!(difference <= 1e-5, "{difference}");
}

#[test]
fn an_own_op_has_a_gradient_and_a_kernel_and_is_trained() {
    let found = own_op::run(100).unwrap();
    assert!(found.gradient < 1e-8 && found.kernel < 1e-6, "{found:?}");
    assert!(found.losses[1] < 0.2 * found.losses[0], "{found:?}");
}

#[test]
fn an_own_pass_changes_the_graph_and_not_the_results() {
    let found = own_pass::run(20).unwrap();
    assert!(found.divisions[0] > found.divisions[1], "{:?}", found.divisions);
    assert!(found.difference < 1e-5, "{}", found.difference);
    assert!(found.text.contains(" mul ") && !found.text.is_empty());
}

#[test]
fn a_population_finds_a_learning_rate() {
    let (accuracies, best) = population::run(&[1e-5, 2e-2], 200).unwrap();
    assert_eq!(best, 1);
    assert!(accuracies[1] > 0.8 && accuracies[1] > accuracies[0], "{accuracies:?}");
}

#[test]
fn the_largest_curvature_is_found() {
    let [curvature, change] = curvature::run(60).unwrap();
    assert!(curvature > 0.01 && change < 1e-3 * curvature, "{curvature} {change}");
}

#[test]
fn half_precision_learns_and_its_average_too() {
    let [plain, average, scale] = mixed_precision::run(80).unwrap();
    assert!(plain > 0.9 && average > 0.9 && scale >= 1.0, "{plain} {average} {scale}");
}

#[test]
fn groups_move_as_they_are_told() {
    let [first, last, moved] = groups::run(120).unwrap();
    assert!(last < 0.5 * first && moved == 0.0, "{first} {last} {moved}");
}

#[test]
fn recomputation_takes_less_memory() {
    let [plain, marked, fitted] = recompute::run(8).unwrap();
    assert!(marked < fitted && fitted <= (plain + marked) / 2, "{plain} {marked} {fitted}");
}

#[test]
fn a_trained_llama_counts_on_from_a_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let text = serve::run(150, &folder.path().join("llama.safetensors"), &[3, 4, 5, 6], 20).unwrap();
    let want: Vec<i32> = (3..23).map(|n| n % 16).collect();
    assert_eq!(text, want);
}
