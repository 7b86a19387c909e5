"""Select, from PyTorch's operator samples, the operators that Onestep's ops can express.

    python make_torch_op_samples.py ALL                         (needs torch 2.15.0; format of both: that script's head)
    python select_torch_op_samples.py ALL torch-op-samples     (needs the zstd program)

Writes index.jsonl.zst and tensors.safetensors.zst with the tensors numbered anew, and suite.json: how many samples
every operator of the whole suite has, so that what is left out can be counted too. An operator's key is "op" or
"op/variant".
"""
import collections
import json
import os
import sys

from safetensors_files import read_safetensors, safetensors_bytes, write_zst

# Every variant of a name is taken, unless EXCEPT leaves it out.
SELECTED = {
    "constants": """
        arange eye fill full full_like linspace logspace new_full new_ones new_zeros ones ones_like
        scalar_tensor signal.windows.bartlett signal.windows.blackman signal.windows.cosine
        signal.windows.exponential signal.windows.gaussian signal.windows.general_cosine
        signal.windows.general_hamming signal.windows.hamming signal.windows.hann signal.windows.nuttall zero_
        zeros zeros_like""",
    "unary": """
        abs acos acosh alias_copy angle asin asinh atan atanh ceil clone conj conj_physical contiguous cos cosh
        deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac isfinite isinf isnan isneginf isposinf isreal lgamma log log10 log1p
        log2 logical_not logit mvlgamma nan_to_num neg polygamma positive rad2deg real reciprocal resolve_conj resolve_neg round
        rsqrt sgn sigmoid sign signbit sin sinc sinh special.entr special.ndtr special.ndtri special.polygamma sqrt square tan tanh trunc""",
    "casts": "bfloat16 bool byte char double float half int long",
    "binary and ternary": """
        __radd__ __rdiv__ __rmod__ __rmul__ __rpow__ __rsub__ add addcdiv addcmul atan2 clamp clamp_max
        clamp_min copysign div eq float_power floor_divide fmax fmin fmod ge gt heaviside hypot isclose isin
        ldexp le lerp logaddexp logaddexp2 logical_and logical_or logical_xor lt masked_fill maximum minimum mul
        ne pow remainder rsub special.xlog1py sub true_divide where xlogy""",
    "products of matrices": """
        __rmatmul__ addbmm addmm addmv addr baddbmm bmm corrcoef cov cross dot einsum inner linalg.cross
        linalg.multi_dot linalg.vander linalg.vecdot matmul mm mv nn.functional.bilinear nn.functional.linear
        outer tensordot vdot""",
    "linear algebra": """
        cholesky_inverse cholesky_solve linalg.cholesky linalg.cholesky_ex linalg.det
        linalg.householder_product linalg.inv linalg.inv_ex linalg.lu linalg.lu_factor linalg.lu_factor_ex
        linalg.lu_solve linalg.matrix_power linalg.slogdet linalg.solve linalg.solve_ex
        linalg.solve_triangular linalg.tensorinv linalg.tensorsolve logdet lu lu_solve lu_unpack ormqr
        triangular_solve""",
    "reductions": """
        all amax amin aminmax any argmax argmin argsort count_nonzero cummax cummin cumprod cumsum
        cumulative_trapezoid diff dist gradient kthvalue linalg.matrix_norm linalg.norm linalg.vector_norm logcumsumexp logsumexp max mean
        median min msort nanmean nanmedian nanquantile nansum norm prod quantile renorm sort std std_mean sum
        sum_to_size topk trace trapezoid trapz var var_mean""",
    "masked reductions": """
        masked.amax masked.amin masked.argmax masked.argmin masked.cumprod masked.cumsum masked.log_softmax
        masked.logaddexp masked.logsumexp masked.mean masked.median masked.norm masked.normalize masked.prod
        masked.softmax masked.softmin masked.std masked.sum masked.var""",
    "layout": """
        H T __getitem__ _chunk_cat as_strided as_strided_copy atleast_1d atleast_2d atleast_3d block_diag
        broadcast_tensors broadcast_to cartesian_prod cat chunk column_stack combinations constant_pad_nd diag
        diag_embed diagflat diagonal diagonal_copy diagonal_scatter dsplit dstack expand expand_as expand_copy
        flatten flip fliplr flipud hsplit hstack linalg.diagonal mH mT meshgrid movedim narrow narrow_copy
        nn.functional.channel_shuffle nn.functional.pad nn.functional.pixel_shuffle
        nn.functional.pixel_unshuffle nn.functional.unfold permute permute_copy ravel repeat repeat_interleave
        reshape reshape_as roll rot90 select select_scatter slice split split_with_sizes split_with_sizes_copy
        squeeze squeeze_copy stack t t_copy tensor_split tile transpose transpose_copy tril triu unbind
        unbind_copy unflatten unfold unfold_copy unsafe_chunk unsafe_split unsqueeze unsqueeze_copy view view_as
        view_copy vsplit vstack""",
    "indexing": """
        _unsafe_masked_index _unsafe_masked_index_put_accumulate bucketize gather index_add index_copy
        index_fill index_put index_reduce index_select masked_scatter nn.functional.embedding nn.functional.embedding_bag
        nn.functional.interpolate nn.functional.upsample_nearest nonzero_static put scatter scatter_add
        scatter_reduce searchsorted _segment_reduce take take_along_dim""",
    "images": """
        nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d
        nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d
        nn.functional.avg_pool1d nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.conv1d
        nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d
        nn.functional.conv_transpose3d nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d
        nn.functional.upsample_bilinear nn.functional.max_unpool1d nn.functional.max_unpool2d
        nn.functional.max_unpool3d max_pool2d_with_indices_backward _upsample_bilinear2d_aa
        nn.functional.grid_sample grid_sampler_2d grid_sampler_3d""",
    "complex numbers": "cdouble cfloat complex polar view_as_complex",
    "Fourier transforms": """
        fft.fft fft.fft2 fft.fftn fft.fftshift fft.hfft fft.hfft2 fft.hfftn fft.ifft fft.ifft2 fft.ifftn
        fft.ifftshift fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn fft.rfft fft.rfft2
        fft.rfftn stft""",
    "counting": "histc histogram histogramdd mode",
    "activations": """
        _softmax_backward_data log_softmax native_dropout_backward nn.functional.celu nn.functional.elu
        nn.functional.gelu nn.functional.glu nn.functional.hardshrink nn.functional.hardsigmoid
        nn.functional.hardswish nn.functional.hardtanh nn.functional.leaky_relu nn.functional.logsigmoid
        nn.functional.mish nn.functional.prelu nn.functional.relu nn.functional.relu6 nn.functional.selu
        nn.functional.silu nn.functional.softmin nn.functional.softplus nn.functional.softshrink
        nn.functional.softsign nn.functional.tanhshrink nn.functional.threshold softmax
        torch.ops.aten._safe_softmax.default""",
    "norms and attention": """
        _batch_norm_with_update _native_batch_norm_legit native_batch_norm native_group_norm native_layer_norm nn.functional.batch_norm
        nn.functional.group_norm nn.functional.instance_norm nn.functional.layer_norm
        nn.functional.local_response_norm nn.functional.normalize nn.functional.rms_norm
        nn.functional.scaled_dot_product_attention torch.ops.aten._scaled_dot_product_flash_attention_for_cpu""",
    "losses and distances": """
        cdist nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits
        nn.functional.cosine_embedding_loss nn.functional.cosine_similarity nn.functional.cross_entropy
        nn.functional.gaussian_nll_loss nn.functional.hinge_embedding_loss nn.functional.huber_loss
        nn.functional.kl_div nn.functional.l1_loss nn.functional.linear_cross_entropy
        nn.functional.margin_ranking_loss nn.functional.mse_loss nn.functional.multi_margin_loss
        nn.functional.multilabel_margin_loss
        nn.functional.multilabel_soft_margin_loss nn.functional.nll_loss nn.functional.pairwise_distance
        nn.functional.pdist nn.functional.poisson_nll_loss nn.functional.smooth_l1_loss
        nn.functional.soft_margin_loss nn.functional.triplet_margin_loss""",
}
EXCEPT = {
    "as_strided/partial_views": "reads storage outside the tensor that was recorded",
    "norm/nuc": "singular values",
}


def key(row):
    return f"{row['op']}/{row['variant']}" if row["variant"] else row["op"]


def is_random(row):
    """Attention with dropout: its mask came from PyTorch's generator."""
    return bool(row["kwargs"].get("dropout_p"))


def renumber(row, number):
    def walk(value):
        if isinstance(value, dict):
            return {"t": number(value["t"])} if "t" in value else {k: walk(v) for k, v in value.items()}
        if isinstance(value, list):
            return [walk(v) for v in value]
        return value

    return row | {
        "input": walk(row["input"]),
        "args": walk(row["args"]),
        "kwargs": walk(row["kwargs"]),
        "outputs": [number(t) for t in row["outputs"]],
        "cotangents": [None if t is None else number(t) for t in row["cotangents"]],
        "gradients": {str(number(int(t))): number(g) for t, g in row["gradients"].items()},
    }


def main():
    source, out = sys.argv[1:]
    rows = [json.loads(line) for line in open(os.path.join(source, "index.jsonl"))]
    tensors, _ = read_safetensors(os.path.join(source, "tensors.safetensors"))
    names = {name for group in SELECTED.values() for name in group.split()}
    if unknown := (names - {row["op"] for row in rows}) | (EXCEPT.keys() - {key(row) for row in rows}):
        sys.exit(f"no such operators: {sorted(unknown)}")

    kept, numbers = [], {}
    for row in rows:
        if row["op"] in names and key(row) not in EXCEPT and not is_random(row):
            kept.append(renumber(row, lambda t: numbers.setdefault(t, len(numbers))))
    write_zst(os.path.join(out, "index.jsonl.zst"), "".join(json.dumps(row) + "\n" for row in kept).encode())
    chosen = {str(number): tensors[str(t)] for t, number in numbers.items()}
    write_zst(os.path.join(out, "tensors.safetensors.zst"), safetensors_bytes(chosen))

    counts = collections.Counter(key(row) for row in rows)
    suite = {"torch": "2.15.0", "samples": len(rows), "operators": dict(sorted(counts.items()))}
    with open(os.path.join(out, "suite.json"), "w") as f:
        json.dump(suite, f, indent=0)
        f.write("\n")
    operators = {key(row) for row in kept}
    gradients = sum(bool(row["gradients"]) for row in kept)
    print(f"{len(kept)} of {len(rows)} samples, {gradients} with gradients, {len(numbers)} tensors")
    print(f"{len(operators)} of {len(counts)} operators")


main()
