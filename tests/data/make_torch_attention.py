"""Record attention with each of its options from PyTorch: operands, a cotangent, output and gradients, in f64.

    python make_torch_attention.py torch-attention.safetensors.zst     (needs torch 2.15.0 and the zstd program)

What scaled_dot_product_attention has (grouped queries, masks with and without gradient, causal at the top left and, as
torch.nn.attention.bias.causal_lower_right, at the bottom right) is recorded from it. Soft cap, window and lengths it has
not; they are written as flex_attention's documentation writes them: a function of the scores, and one of the places of
query and key. A row that sees nothing gives 0 there.

Tensors of each CASE: CASE/q, k, v (batch, heads, positions, head size), mask and lengths where there are any, cotangent,
out, dq, dk, dv, and dmask where the mask is additive. The metadata's "cases" has the options of each as JSON: causal,
softcap, window ([left, right]), bottom_right. Operands are rounded to f32, so that f32 and f64 programs start alike.
"""
import json
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right

from safetensors_files import safetensors_bytes, write_zst

BATCH, SIZE, VALUE_SIZE = 2, 4, 3
DTYPES = {torch.float64: "F64", torch.int32: "I32", torch.bool: "BOOL"}


def written_out(q, k, v, mask, lengths, causal=False, softcap=None, window=None, bottom_right=False):
    """Attention by its definition."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    queries, keys = q.shape[2], k.shape[2]
    scores = q @ k.transpose(-2, -1) / SIZE**0.5
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    length = torch.full((q.shape[0],), keys) if lengths is None else lengths.long()
    length = length.view(-1, 1, 1, 1)
    i, j = torch.arange(queries).view(-1, 1), torch.arange(keys)
    place = i + length - queries if bottom_right else i.expand(q.shape[0], 1, queries, 1)
    seen = j < length
    if causal:
        seen = seen & (j <= place)
    if window is not None:
        seen = seen & (j >= place - window[0]) & (j <= place + window[1])
    if mask is not None:
        seen = seen & (mask if mask.dtype == torch.bool else mask != -torch.inf)
        if mask.dtype != torch.bool:
            scores = scores + mask.nan_to_num(neginf=0.0)
    scores = scores.masked_fill(~seen, -1e300)
    weights = scores.softmax(-1) * seen
    return weights @ v


def sdpa(q, k, v, mask, lengths, causal=False, bottom_right=False):
    if bottom_right:
        mask = causal_lower_right(q.shape[2], k.shape[2])
        # The mask as a tensor takes the same way as any other.
        mask, causal = mask._materialize(), False
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    out, cases = {}, {}

    def put(name, tensor):
        data = tensor.detach().contiguous().numpy().tobytes()
        out[name] = dict(dtype=DTYPES[tensor.dtype], shape=list(tensor.shape), data=data)

    def numbers(*shape):
        return torch.randn(shape).float().double()

    def record(name, attention, sizes, mask=None, lengths=None, **options):
        heads, kv_heads, queries, keys = sizes
        leaves = {
            "q": 2 * numbers(BATCH, heads, queries, SIZE),
            "k": numbers(BATCH, kv_heads, keys, SIZE),
            "v": numbers(BATCH, kv_heads, keys, VALUE_SIZE),
        }
        if mask is not None:
            leaves["mask"] = mask
        for x in leaves.values():
            x.requires_grad_(x.is_floating_point())
        lengths = None if lengths is None else torch.tensor(lengths, dtype=torch.int32)
        y = attention(*[leaves.get(n) for n in ("q", "k", "v", "mask")], lengths, **options)
        cotangent = numbers(*y.shape)
        y.backward(cotangent)
        cases[name] = options
        for leaf, x in leaves.items():
            put(f"{name}/{leaf}", x)
            if x.requires_grad:
                put(f"{name}/d{leaf}", x.grad)
        for what, x in dict(cotangent=cotangent, out=y, lengths=lengths).items():
            if x is not None:
                put(f"{name}/{what}", x)
        # What both have, both have alike.
        if attention is sdpa:
            again = written_out(*[leaves.get(n) for n in ("q", "k", "v", "mask")], lengths, **options)
            torch.testing.assert_close(again, y, rtol=1e-12, atol=1e-12)

    def holes(*shape):
        mask = numbers(*shape)
        mask[mask > 0.8] = -torch.inf
        mask[..., 0] = 0.25
        return mask

    record("grouped", sdpa, (4, 2, 5, 6))
    record("one key head", sdpa, (3, 1, 4, 4), causal=True)
    record("bias of heads", sdpa, (4, 2, 3, 5), mask=numbers(1, 4, 3, 5))
    record("bias of sequences", sdpa, (2, 2, 4, 3), mask=holes(2, 1, 4, 3))
    record("bias of all", sdpa, (4, 1, 3, 4), mask=holes(1, 1, 3, 4))
    record("bool mask", sdpa, (4, 2, 3, 4), mask=holes(2, 4, 3, 4) > -1)
    record("lower right", sdpa, (2, 2, 3, 7), causal=True, bottom_right=True)
    record("soft cap", written_out, (2, 2, 4, 5), softcap=1.25)
    record("sliding window", written_out, (4, 2, 7, 7), causal=True, window=[2, 0])
    record("local window", written_out, (2, 1, 6, 8), window=[1, 3])
    record("lengths", written_out, (2, 1, 4, 6), lengths=[6, 3])
    record("no keys", written_out, (2, 1, 3, 4), lengths=[0, 2])
    record("cache", written_out, (4, 2, 2, 8), lengths=[3, 7], causal=True, bottom_right=True)
    record("more queries than keys", written_out, (2, 2, 5, 3), causal=True, bottom_right=True)
    record(
        "everything", written_out, (4, 2, 4, 9), mask=holes(1, 4, 4, 9), lengths=[5, 9],
        causal=True, softcap=2.0, window=[3, 1], bottom_right=True,
    )
    metadata = {"torch": torch.__version__, "cases": json.dumps(cases)}
    write_zst(sys.argv[1], safetensors_bytes(dict(sorted(out.items())), metadata))


main()
