//! Why operators of PyTorch's suite have no entry in the table.

/// The result's shape depends on the elements.
pub const DATA_SHAPE: &str = "the result's shape depends on the data";

/// Factors, eigenvalues, singular values, and what is made of them.
pub const DECOMPOSITION: &str = "decomposition of a matrix, or a function defined by one";

/// What stands for a reason where none is known.
pub const NO_ENTRY: &str = "no entry yet";

/// What a random operator gives cannot be compared.
pub const RANDOM: &str = "random numbers: a sample is no reference";

/// Kinds of operators without an entry: why, and the beginnings of their names.
const GAPS: &[(&str, &str)] = &[
    (
        RANDOM,
        "bernoulli cauchy exponential geometric log_normal multinomial normal rand uniform empty new_empty \
         nn.functional.dropout nn.functional.alpha_dropout nn.functional.feature_alpha_dropout \
         nn.functional.multi_head_attention_forward nn.functional.rrelu nn.functional.fractional_max_pool2d \
         nn.functional.fractional_max_pool3d resize_",
    ),
    (DECOMPOSITION, "geqrf linalg. matrix_exp norm/nuc pca_lowrank pinverse svd"),
    (DATA_SHAPE, "argwhere masked_select nonzero unique"),
    (
        "special function or polynomial that has no op of ours",
        "frexp hash_tensor i0 igamma igammac nextafter signal.windows.kaiser special.",
    ),
    ("reads storage outside the tensor that was recorded", "as_strided/"),
    (
        "its gradient in PyTorch is that of the elements that it overwrites, not of those that it keeps",
        "as_strided_scatter",
    ),
    ("an integer dtype that is not ours", "short"),
    ("result that is not a tensor", "allclose broadcast_shapes equal item"),
];

/// The reason for an operator without an entry.
pub fn why_not(key: &str) -> &'static str {
    let begins = |names: &str| names.split_whitespace().any(|n| key.starts_with(n));
    GAPS.iter().find(|(_, names)| begins(names)).map_or(NO_ENTRY, |(reason, _)| reason)
}
