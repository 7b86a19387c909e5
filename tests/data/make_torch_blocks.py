"""Record a small Llama, a small BERT, a small residual network and CTC losses from PyTorch, in f64.

    python make_torch_blocks.py torch-blocks.safetensors.zst     (needs torch 2.15.0 and the zstd program)

The models are the published formulas, written out over named tensors; the names are those of Onestep's parameters. Norms
and biases start away from 1 and 0, so that each matters, and parameters are rounded to f32, so that f32 and f64 programs
start alike. Queries and keys are turned as in Hugging Face's Llama: halves, with Llama 3's scaling of the frequencies.

Tensors of each MODEL, "llama", "llama-tied", "bert" and "resnet":
  MODEL/parameter/PATH, MODEL/gradient/PATH, MODEL/input, MODEL/target, MODEL/logits, MODEL/loss
  bert/types, bert/lengths, bert/pooled
The loss is the mean cross-entropy; BERT's has the mean square of the pooled features added, so that all parameters count.

Tensors of each case CTC of PyTorch's ctc_loss, "ctc" and "ctc-last" (the blank is the last class):
  CTC/logits, CTC/targets, CTC/input_lengths, CTC/target_lengths
  CTC/none, CTC/sum, CTC/mean and CTC/zero (the mean with zero_infinity) of the logits' log_softmax
  CTC/gradient: of CTC/zero by the logits
"""
import math
import sys

import torch
import torch.nn.functional as F

from safetensors_files import safetensors_bytes, write_zst

LLAMA = dict(vocab=11, width=24, hidden=20, layers=2, heads=6, kv_heads=2, base=100.0, eps=1e-5)
SCALING = dict(factor=4.0, low=1.0, high=4.0, context=48)
BERT = dict(vocab=13, width=12, hidden=20, layers=2, heads=3, context=9, types=2, eps=1e-12)


def put(out, name, tensor):
    dtype = {torch.float64: "F64", torch.float32: "F32", torch.int32: "I32"}[tensor.dtype]
    out[name] = dict(dtype=dtype, shape=list(tensor.shape), data=tensor.detach().contiguous().numpy().tobytes())


def parameters(shapes):
    def first(path, shape):
        near = 1.0 if "norm" in path and path.endswith("weight") else 0.0
        spread = 0.1 if "norm" in path or path.endswith("bias") else 0.4
        return (near + spread * torch.randn(shape)).float().double().requires_grad_()

    return {path: first(path, shape) for path, shape in shapes.items()}


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def frequencies(size):
    f = 1.0 / LLAMA["base"] ** (torch.arange(0, size, 2) / size)
    out = []
    for frequency in f.tolist():
        wavelength = 2 * math.pi / frequency
        if wavelength < SCALING["context"] / SCALING["high"]:
            out.append(frequency)
        elif wavelength > SCALING["context"] / SCALING["low"]:
            out.append(frequency / SCALING["factor"])
        else:
            smooth = (SCALING["context"] / wavelength - SCALING["low"]) / (SCALING["high"] - SCALING["low"])
            out.append((1 - smooth) * frequency / SCALING["factor"] + smooth * frequency)
    return torch.tensor(out)


def rotary(x):
    """x: [batch, heads, time, size]"""
    time, size = x.shape[-2:]
    angles = torch.outer(torch.arange(time).double(), frequencies(size))
    angles = torch.cat([angles, angles], -1)
    half = torch.cat([-x[..., size // 2 :], x[..., : size // 2]], -1)
    return x * angles.cos() + half * angles.sin()


def split(x, heads):
    b, t, c = x.shape
    return x.view(b, t, heads, c // heads).transpose(1, 2)


def joined(x):
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


def llama_shapes(tied):
    v, w, h = LLAMA["vocab"], LLAMA["width"], LLAMA["hidden"]
    kv = w // LLAMA["heads"] * LLAMA["kv_heads"]
    shapes = {"tok.weight": (v, w)}
    for i in range(LLAMA["layers"]):
        parts = {"norm1": (w,), "attn.q": (w, w), "attn.k": (kv, w), "attn.v": (kv, w), "attn.proj": (w, w)}
        parts |= {"norm2": (w,), "mlp.gate": (h, w), "mlp.up": (h, w), "mlp.down": (w, h)}
        shapes |= {f"block.{i}.{part}.weight": shape for part, shape in parts.items()}
    shapes["norm.weight"] = (w,)
    return shapes if tied else shapes | {"head.weight": (v, w)}


def llama(p, tokens, tied):
    x = p["tok.weight"][tokens]
    for i in range(LLAMA["layers"]):
        w = lambda part: p[f"block.{i}.{part}.weight"]
        y = rms_norm(x, w("norm1"), LLAMA["eps"])
        q = rotary(split(y @ w("attn.q").T, LLAMA["heads"]))
        k = rotary(split(y @ w("attn.k").T, LLAMA["kv_heads"]))
        v = split(y @ w("attn.v").T, LLAMA["kv_heads"])
        k, v = (t.repeat_interleave(LLAMA["heads"] // LLAMA["kv_heads"], 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        x = x + joined(scores.masked_fill(hidden, -math.inf).softmax(-1) @ v) @ w("attn.proj").T
        y = rms_norm(x, w("norm2"), LLAMA["eps"])
        x = x + (F.silu(y @ w("mlp.gate").T) * (y @ w("mlp.up").T)) @ w("mlp.down").T
    x = rms_norm(x, p["norm.weight"], LLAMA["eps"])
    return x @ p["tok.weight" if tied else "head.weight"].T


def bert_shapes():
    w, h = BERT["width"], BERT["hidden"]
    shapes = {"tok.weight": (BERT["vocab"], w), "pos.weight": (BERT["context"], w), "type.weight": (BERT["types"], w)}
    linear = lambda path, o, i: {f"{path}.weight": (o, i), f"{path}.bias": (o,)}
    norm = lambda path: {f"{path}.weight": (w,), f"{path}.bias": (w,)}
    shapes |= norm("norm")
    for i in range(BERT["layers"]):
        block = f"block.{i}"
        for part in ["q", "k", "v", "proj"]:
            shapes |= linear(f"{block}.attn.{part}", w, w)
        shapes |= norm(f"{block}.norm1") | linear(f"{block}.mlp.up", h, w)
        shapes |= linear(f"{block}.mlp.down", w, h) | norm(f"{block}.norm2")
    shapes |= linear("pooler", w, w) | linear("mlm.dense", w, w) | norm("mlm.norm")
    return shapes | {"mlm.bias": (BERT["vocab"],)}


def bert(p, tokens, types, lengths):
    linear = lambda path, x: F.linear(x, p[f"{path}.weight"], p[f"{path}.bias"])
    norm = lambda path, x: F.layer_norm(x, x.shape[-1:], p[f"{path}.weight"], p[f"{path}.bias"], BERT["eps"])
    time = tokens.shape[1]
    x = norm("norm", p["tok.weight"][tokens] + p["pos.weight"][:time] + p["type.weight"][types])
    padding = torch.arange(time) >= lengths[:, None]
    for i in range(BERT["layers"]):
        block = f"block.{i}"
        q, k, v = (split(linear(f"{block}.attn.{part}", x), BERT["heads"]) for part in "qkv")
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(padding[:, None, None], -math.inf)
        x = norm(f"{block}.norm1", x + linear(f"{block}.attn.proj", joined(scores.softmax(-1) @ v)))
        x = norm(f"{block}.norm2", x + linear(f"{block}.mlp.down", F.gelu(linear(f"{block}.mlp.up", x))))
    pooled = linear("pooler", x[:, 0]).tanh()
    logits = norm("mlm.norm", F.gelu(linear("mlm.dense", x))) @ p["tok.weight"].T + p["mlm.bias"]
    return logits, pooled


# Of each block: path, inputs, outputs, stride, and the sizes of its kernels.
RESNET = [("layer1.0", 4, 8, 1, [3, 3]), ("layer2.0", 8, 16, 2, [1, 3, 1]), ("layer2.1", 16, 16, 1, [1, 3, 1])]


def resnet_shapes():
    shapes = {}
    for path, inputs, outputs, stride, kernels in RESNET:
        before = inputs
        for i, k in enumerate(kernels):
            width = outputs // 4 if len(kernels) == 3 and i < 2 else outputs
            shapes |= {f"{path}.conv{i + 1}.weight": (width, before, k, k)}
            shapes |= {f"{path}.bn{i + 1}.weight": (width,), f"{path}.bn{i + 1}.bias": (width,)}
            before = width
        if stride > 1 or inputs != outputs:
            shapes[f"{path}.downsample.0.weight"] = (outputs, inputs, 1, 1)
            shapes |= {f"{path}.downsample.1.weight": (outputs,), f"{path}.downsample.1.bias": (outputs,)}
    return shapes | {"fc.weight": (3, 16), "fc.bias": (3,)}


def resnet(p, x):
    norm = lambda path, x: F.batch_norm(x, None, None, p[f"{path}.weight"], p[f"{path}.bias"], training=True, eps=1e-5)
    for path, inputs, outputs, stride, kernels in RESNET:
        y = x
        for i, k in enumerate(kernels):
            # The first 3x3 convolution takes the steps.
            step = stride if i == kernels.index(3) else 1
            y = norm(f"{path}.bn{i + 1}", F.conv2d(y, p[f"{path}.conv{i + 1}.weight"], stride=step, padding=k // 2))
            y = y.relu() if i + 1 < len(kernels) else y
        if f"{path}.downsample.0.weight" in p:
            x = norm(f"{path}.downsample.1", F.conv2d(x, p[f"{path}.downsample.0.weight"], stride=stride))
        x = (x + y).relu()
    return F.linear(x.mean((2, 3)), p["fc.weight"], p["fc.bias"])


def record(out, model, p, **tensors):
    tensors["loss"].backward()
    for path, parameter in p.items():
        put(out, f"{model}/parameter/{path}", parameter.float())
        put(out, f"{model}/gradient/{path}", parameter.grad)
    for name, tensor in tensors.items():
        put(out, f"{model}/{name}", tensor)


def record_ctc(out, name, blank, logits, targets, input_lengths, target_lengths):
    logits.requires_grad_()
    log_probs = logits.log_softmax(-1)
    lengths = [x.long() for x in (targets, input_lengths, target_lengths)]
    loss = lambda reduction, zero: F.ctc_loss(log_probs, *lengths, blank, reduction, zero)
    zero = loss("mean", True)
    zero.backward()
    for what in ["none", "sum", "mean"]:
        put(out, f"{name}/{what}", loss(what, False))
    put(out, f"{name}/zero", zero)
    put(out, f"{name}/gradient", logits.grad)
    given = dict(logits=logits, targets=targets, input_lengths=input_lengths, target_lengths=target_lengths)
    for what, tensor in given.items():
        put(out, f"{name}/{what}", tensor)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    out = {}
    ints = lambda *x, **k: torch.tensor(*x, dtype=torch.int32, **k)
    for tied in [False, True]:
        tokens = torch.randint(LLAMA["vocab"], (2, 11), dtype=torch.int32)
        p, target = parameters(llama_shapes(tied)), tokens[:, 1:].clone()
        target[0, 3] = -100
        logits = llama(p, tokens[:, :-1].long(), tied)
        loss = F.cross_entropy(logits.flatten(0, 1), target.long().flatten())
        model = "llama-tied" if tied else "llama"
        record(out, model, p, input=tokens[:, :-1], target=target, logits=logits, loss=loss)

    tokens = torch.randint(BERT["vocab"], (2, 7), dtype=torch.int32)
    types, lengths = ints([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0]]), ints([7, 4])
    target = torch.full_like(tokens, -100)
    for b, t in [(0, 1), (0, 5), (1, 0), (1, 3)]:
        target[b, t] = torch.randint(BERT["vocab"], ())
    p = parameters(bert_shapes())
    logits, pooled = bert(p, tokens.long(), types.long(), lengths)
    loss = F.cross_entropy(logits.flatten(0, 1), target.long().flatten()) + pooled.square().mean()
    tensors = dict(input=tokens, types=types, lengths=lengths, target=target, logits=logits, pooled=pooled, loss=loss)
    record(out, "bert", p, **tensors)

    x, target = torch.randn(3, 4, 6, 5).float().double(), ints([2, 0, 1])
    p = parameters(resnet_shapes())
    for path in p:
        if "bn" in path or "downsample.1" in path:
            p[path].data = (p[path].data + (1.0 if path.endswith("weight") else 0.0)).float().double()
    logits = resnet(p, x)
    record(out, "resnet", p, input=x, target=target, logits=logits, loss=F.cross_entropy(logits, target.long()))

    # Different labels, a repeated one, none at all, one that just fits, one that does not, and a short input; padded with 0.
    targets = ints([[1, 2, 3, 4], [2, 2, 2, 0], [0, 0, 0, 0], [3, 3, 1, 1], [3, 3, 1, 1], [4, 1, 0, 0]])
    record_ctc(out, "ctc", 0, 2 * torch.randn(12, 6, 5), targets, ints([12, 10, 9, 6, 5, 2]), ints([4, 3, 0, 4, 4, 2]))
    targets = torch.randint(0, 7, (3, 20), dtype=torch.int32)
    record_ctc(out, "ctc-last", 7, 3 * torch.randn(60, 3, 8), targets, ints([60, 55, 60]), ints([20, 13, 17]))
    write_zst(sys.argv[1], safetensors_bytes(dict(sorted(out.items())), {"torch": torch.__version__}))


main()
