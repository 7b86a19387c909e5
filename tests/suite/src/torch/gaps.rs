//! Why operators of PyTorch's suite have no entry in the table.

/// The result's shape depends on the elements.
pub const DATA_SHAPE: &str = "the result's shape depends on the data";

/// What stands for a reason where none is known.
pub const NO_ENTRY: &str = "no entry yet";

/// What a random operator gives cannot be compared.
pub const RANDOM: &str = "random numbers: a sample is no reference";

/// Kinds of operators without an entry: why, and the beginnings of their names.
const GAPS: &[(&str, &str)] = &[
    (
        RANDOM,
        "bernoulli cauchy exponential geometric log_normal multinomial normal rand uniform empty new_empty \
         nn.functional.dropout nn.functional.alpha_dropout nn.functional.feature_alpha_dropout nn.functional.rrelu \
         nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d resize_",
    ),
    (
        "decomposition of a matrix, or a function defined by one",
        "cholesky geqrf linalg. lu logdet matrix_exp norm/nuc ormqr pca_lowrank pinverse svd triangular_solve",
    ),
    ("Fourier transform", "fft. stft istft"),
    ("complex numbers", "cdouble cfloat chalf complex polar view_as_complex view_as_real imag"),
    (
        "expressible by scatters, but it has no entry yet",
        "nn.functional.max_unpool nn.functional.lp_pool max_pool2d",
    ),
    ("resampling between pixels at places that are data", "nn.functional.grid_sample grid_sampler"),
    ("resampling with a filter that grows with the step", "_upsample"),
    ("counting of values", "histc histogram mode"),
    (DATA_SHAPE, "argwhere masked_scatter masked_select nonzero unique item"),
    (
        "special function or polynomial that has no op of ours",
        "digamma erfinv frexp hash_tensor i0 igamma igammac lgamma mvlgamma nextafter polygamma \
         signal.windows.kaiser special.",
    ),
    (
        "scatter or segments with a maximum, a minimum or a product",
        "index_reduce scatter_reduce _segment_reduce",
    ),
    ("reads storage outside the tensor that was recorded", "as_strided"),
    ("an integer dtype that is not ours", "short"),
    (
        "expressible, but not among the recorded samples",
        "_batch_norm_with_update nn.functional.multi_head_attention_forward nn.functional.multilabel_margin_loss",
    ),
    ("result that is not a tensor", "allclose broadcast_shapes equal"),
];

/// The reason for an operator without an entry.
pub fn why_not(key: &str) -> &'static str {
    let begins = |names: &str| names.split_whitespace().any(|n| key.starts_with(n));
    GAPS.iter().find(|(_, names)| begins(names)).map_or(NO_ENTRY, |(reason, _)| reason)
}
