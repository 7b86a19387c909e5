"""One work on one GPU in JAX with optax: prints a JSON line.  python gpu_jax.py WORK     WORK is gpt2-124m, mlp-32 or mlp-128

The whole step is one jitted function whose parameters and slots are donated. Steps follow each other and are waited for once;
the inputs are on the GPU."""
import json, os, sys, time
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax, jax.numpy as jnp, optax

work = sys.argv[1]
draws = iter(jax.random.split(jax.random.key(0), 400))
normal = lambda *shape: jax.random.normal(next(draws), shape) * 0.02


def mlp(batch):
    p = dict(w1=normal(784, 256), b1=jnp.zeros(256), w2=normal(256, 10), b2=jnp.zeros(10))

    def loss(p, x, y):
        z = jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        return optax.softmax_cross_entropy_with_integer_labels(z, y).mean()
    batch_of = jax.random.normal(next(draws), (batch, 784)), jax.random.randint(next(draws), (batch,), 0, 10)
    return p, optax.adam(1e-3), loss, batch_of, batch


def gpt2(batch=16, context=1024, layers=12, width=768, vocab=50304, heads=12):
    zeros, ones = (lambda *shape: jnp.zeros(shape)), (lambda *shape: jnp.ones(shape))
    block = lambda: dict(g1=ones(width), b1=zeros(width), g2=ones(width), b2=zeros(width), qkv=normal(width, 3 * width), qkv_b=zeros(3 * width),
                         proj=normal(width, width), proj_b=zeros(width), up=normal(width, 4 * width), up_b=zeros(4 * width), down=normal(4 * width, width), down_b=zeros(width))
    p = dict(tok=normal(vocab, width), pos=normal(context, width), g=ones(width), b=zeros(width), blocks=[block() for _ in range(layers)])
    half = lambda w: w.astype(jnp.bfloat16)

    def norm(x, g, b):
        x = x.astype(jnp.float32)
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return half((x - mean) * jax.lax.rsqrt(variance + 1e-5) * g + b)

    def loss(p, x, y):
        h = half(p["tok"])[x] + half(p["pos"])
        for w in p["blocks"]:
            q, k, v = jnp.split(norm(h, w["g1"], w["b1"]) @ half(w["qkv"]) + half(w["qkv_b"]), 3, -1)
            q, k, v = (z.reshape(batch, context, heads, width // heads) for z in (q, k, v))
            a = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
            h = h + a.reshape(batch, context, width) @ half(w["proj"]) + half(w["proj_b"])
            h = h + jax.nn.gelu(norm(h, w["g2"], w["b2"]) @ half(w["up"]) + half(w["up_b"])) @ half(w["down"]) + half(w["down_b"])
        logits = (norm(h, p["g"], p["b"]) @ half(p["tok"]).T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    batch_of = tuple(jax.random.randint(next(draws), (batch, context), 0, 50257) for _ in range(2))
    return p, optax.adamw(3e-4, 0.9, 0.95, weight_decay=0.1), loss, batch_of, batch * context


begin = time.perf_counter()
p, optimizer, loss, (x, y), units = gpt2() if work == "gpt2-124m" else mlp(int(work.removeprefix("mlp-")))
slots = optimizer.init(p)


def step(p, slots, x, y):
    value, gradient = jax.value_and_grad(loss)(p, x, y)
    updates, slots = optimizer.update(gradient, slots, p)
    return optax.apply_updates(p, updates), slots, value


f = jax.jit(step, donate_argnums=(0, 1))


def run(count):
    global p, slots
    start = time.perf_counter()
    for _ in range(count):
        p, slots, value = f(p, slots, x, y)
    value.block_until_ready()
    return (time.perf_counter() - start) * 1e3 / count


run(1)
first = (time.perf_counter() - begin) * 1e3
ms = run(max(5, int(1000 / max(run(5), 1e-2))))
stats = jax.devices()[0].memory_stats() or {}
print(json.dumps({"ms": ms, "per_second": units / ms * 1e3, "bytes": stats.get("peak_bytes_in_use", 0), "first_ms": first}))
