"""One work in PyTorch eager: prints a JSON line with the median step in ms.  python torch_peer.py mlp|cnn|gpt-mini THREADS SECONDS"""
import json, statistics, sys, time
import torch
import torch.nn as nn
import torch.nn.functional as F

work, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(threads)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(c, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, vocab=256, width=128, layers=4, heads=4, context=128):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tok(x) + self.pos.weight))).flatten(0, 1)


if work == "mlp":
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    x, y = torch.rand(128, 784), torch.randint(0, 10, (128,))
elif work == "cnn":
    model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    x, y = torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,))
else:
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=True)
    x, y = torch.randint(0, 256, (8, 128)), torch.randint(0, 256, (8, 128))


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(model(x), y.flatten())
    loss.backward()
    optimizer.step()
    return loss.item()


begin = time.perf_counter()
while time.perf_counter() - begin < seconds / 5:
    step()
times, begin = [], time.perf_counter()
while time.perf_counter() - begin < seconds or len(times) < 5:
    t = time.perf_counter()
    step()
    times.append((time.perf_counter() - t) * 1e3)
print(json.dumps({"ms_median": statistics.median(times), "steps": len(times)}))
