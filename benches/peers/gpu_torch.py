"""One work on one GPU in PyTorch: prints a JSON line.  python gpu_torch.py WORK SYSTEM

WORK is gpt2-124m, mlp-32, mlp-128 or decode-1b, SYSTEM eager, compile or graph (the whole step captured by hand); or
`limits limits`, what the chip does on a matrix product and a copy. Steps follow each other and are waited for once; the
inputs are on the GPU."""
import json, sys, time
import torch
import torch.nn as nn
import torch.nn.functional as F

work, system = sys.argv[1], sys.argv[2]
GPU = "cuda"
torch.manual_seed(0)


def queued(call, seconds=1.0, warm=5):
    """Milliseconds of a call among many that are waited for once."""
    for _ in range(warm):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = max(5, int(seconds / max(time.perf_counter() - start, 1e-5)))
    start = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count * 1e3


def captured(call, warm=3):
    """The call as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(c, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, vocab=50304, context=1024, width=768, layers=12, heads=12):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, x, y):
        h = self.tok(x) + self.pos(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h))
        return F.cross_entropy(logits.flatten(0, 1).float(), y.flatten())


def gpt2():
    torch.backends.cuda.matmul.allow_tf32 = True
    model = Gpt2().to(GPU)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    x, y = (torch.randint(0, 50257, (16, 1024), device=GPU) for _ in range(2))
    forward = torch.compile(model) if system == "compile" else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(GPU, dtype=torch.bfloat16):
            loss = forward(x, y)
        loss.backward()
        optimizer.step()
    return step, 16 * 1024


def mlp(batch):
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)).to(GPU)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True, capturable=system == "graph")
    x, y = torch.randn(batch, 784, device=GPU), torch.randint(0, 10, (batch,), device=GPU)
    loss_of = lambda x, y: F.cross_entropy(model(x), y)
    if system == "compile":
        loss_of = torch.compile(loss_of, mode="reduce-overhead")

    def step():
        if system == "compile":
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss_of(x, y).backward()
        optimizer.step()
    return captured(step) if system == "graph" else step, batch


def decode():
    """One token of a Llama of 1.1 billion parameters (TinyLlama's sizes) in bf16, with a cache of 2048 of which 100 are in use."""
    width, layers, heads, shared, inner, vocab, context = 2048, 22, 32, 4, 5632, 32000, 2048
    size = width // heads
    draw = lambda *shape: torch.randn(*shape, device=GPU, dtype=torch.bfloat16) * 0.02
    blocks = [dict(q=draw(width, width), k=draw(shared * size, width), v=draw(shared * size, width), o=draw(width, width), gate=draw(inner, width),
                   up=draw(inner, width), down=draw(width, inner), norm1=draw(width) + 1, norm2=draw(width) + 1) for _ in range(layers)]
    table, head, last = draw(vocab, width), draw(vocab, width), draw(width) + 1
    keys = torch.zeros(layers, 1, shared, context, size, device=GPU, dtype=torch.bfloat16)
    values, places = torch.zeros_like(keys), torch.arange(context, device=GPU)
    angles = torch.outer(places, 1 / (10000 ** (torch.arange(0, size, 2, device=GPU) / size)))
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()

    def norm(x, w):
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, True) + 1e-5)).bfloat16() * w

    def turn(x, at):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos[at] - b * sin[at], a * sin[at] + b * cos[at]), -1)

    def next_token(token, at):
        x, mask = table[token], (places <= at).view(1, 1, 1, context)
        for l, w in enumerate(blocks):
            h = norm(x, w["norm1"])
            q, k = turn((h @ w["q"].T).view(1, heads, 1, size), at), turn((h @ w["k"].T).view(1, shared, 1, size), at)
            keys[l].index_copy_(2, at, k)
            values[l].index_copy_(2, at, (h @ w["v"].T).view(1, shared, 1, size))
            a = F.scaled_dot_product_attention(q, keys[l], values[l], attn_mask=mask, enable_gqa=True)
            x = x + a.reshape(1, width) @ w["o"].T
            h = norm(x, w["norm2"])
            x = x + (F.silu(h @ w["gate"].T) * (h @ w["up"].T)) @ w["down"].T
        return (norm(x, last) @ head.T).argmax(-1)
    token, at = torch.zeros(1, dtype=torch.long, device=GPU), torch.full((1,), 100, dtype=torch.long, device=GPU)
    f = next_token if system == "eager" else torch.compile(next_token, options={"triton.cudagraphs": False})
    call = lambda: f(token, at)
    return call if system == "eager" else captured(call), 1


def limits():
    n, found = 8192, {}
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float32, "f32")):
        a, b = (torch.randn(n, n, device=GPU, dtype=dtype) for _ in range(2))
        found[f"matmul {name}, TFLOP/s"] = 2 * n ** 3 / queued(lambda: a @ b, 0.3) / 1e9
    x = torch.randn(1 << 28, device=GPU)
    y = torch.empty_like(x)
    found["copy, TB/s read and written"] = 2 * x.nbytes / queued(lambda: y.copy_(x), 0.3) / 1e9
    return found


if work == "limits":
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, **limits()}))
    sys.exit()
with torch.set_grad_enabled(work != "decode-1b"):
    begin = time.perf_counter()
    step, units = gpt2() if work == "gpt2-124m" else decode() if work == "decode-1b" else mlp(int(work.removeprefix("mlp-")))
    step()
    torch.cuda.synchronize()
    first = (time.perf_counter() - begin) * 1e3
    ms = queued(step)
print(json.dumps({"ms": ms, "per_second": units / ms * 1e3, "bytes": torch.cuda.max_memory_allocated(), "first_ms": first}))
