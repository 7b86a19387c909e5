"""Record a small GPT and a small MLP from PyTorch: parameters, inputs, logits, loss and the loss's gradients, in f64.

    python make_torch_models.py torch-models.safetensors.zst     (needs torch 2.15.0 and the zstd program)

The GPT is written as PyTorch's users write it, with one layer for queries, keys and values together; it is recorded with
that layer cut in three, under the names that Onestep gives: block.0.attn.q.weight and so on. Parameters are rounded to
f32, so that f32 and f64 programs start alike, and norms start away from 1 and 0, so that each matters.

Tensors of each MODEL, "gpt" and "mlp":
  MODEL/parameter/PATH, MODEL/gradient/PATH, MODEL/input, MODEL/target, MODEL/logits, MODEL/loss
One target of the GPT is -100, which the loss ignores.
"""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from safetensors_files import safetensors_bytes, write_zst

VOCAB, WIDTH, LAYERS, HEADS, CONTEXT, BATCH, TIME = 11, 12, 2, 3, 8, 2, 7
MLP, EXAMPLES = [5, 8, 6, 3], 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def attn(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in self.qkv(x).split(c, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.block = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, x):
        return self.head(self.norm(self.block(self.tok(x) + self.pos.weight[: x.shape[1]])))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        for i, (a, b) in enumerate(zip(MLP, MLP[1:])):
            setattr(self, f"fc{i + 1}", nn.Linear(a, b))

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def named(path, tensor):
    """The names and parts under which a parameter, or its gradient, is recorded."""
    if ".qkv." in path:
        for name, part in zip("qkv", tensor.chunk(3)):
            yield path.replace(".qkv.", f".attn.{name}."), part
    else:
        for name, scope in dict(proj="attn", up="mlp", down="mlp").items():
            path = path.replace(f".{name}.", f".{scope}.{name}.")
        yield path, tensor


def put(out, name, tensor):
    dtype = {torch.float64: "F64", torch.float32: "F32", torch.int32: "I32"}[tensor.dtype]
    data = tensor.detach().contiguous().numpy().tobytes()
    out[name] = dict(dtype=dtype, shape=list(tensor.shape), data=data)


def record(out, model, module, x, y):
    for path, p in module.named_parameters():
        if "norm" in path:
            p.data += 0.1 * torch.randn_like(p)
        p.data = p.data.float().double()
    logits = module(x if x.is_floating_point() else x.long())
    loss = F.cross_entropy(logits.flatten(0, -2), y.long().flatten())
    loss.backward()
    for path, p in module.named_parameters():
        for name, part in named(path, p.data):
            put(out, f"{model}/parameter/{name}", part.float())
        for name, part in named(path, p.grad):
            put(out, f"{model}/gradient/{name}", part)
    for name, tensor in dict(input=x, target=y, logits=logits, loss=loss).items():
        put(out, f"{model}/{name}", tensor)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    out = {}
    tokens = torch.randint(VOCAB, (BATCH, TIME + 1), dtype=torch.int32)
    targets = tokens[:, 1:].clone()
    targets[1, 2] = -100
    record(out, "gpt", Gpt(), tokens[:, :-1], targets)
    x = torch.randn(EXAMPLES, MLP[0]).float().double()
    record(out, "mlp", Mlp(), x, torch.randint(MLP[-1], (EXAMPLES,), dtype=torch.int32))
    write_zst(sys.argv[1], safetensors_bytes(dict(sorted(out.items())), {"torch": torch.__version__}))


main()
