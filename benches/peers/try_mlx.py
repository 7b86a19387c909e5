"""MLX on the CPU: `venv/bin/python try_mlx.py [ROW…]`."""
from functools import partial
import numpy as np
import mlx.core as mx, mlx.nn as nn, mlx.optimizers as optim
from mlx.utils import tree_flatten
from trial import allocations, child, first_line, killed_while, main, trial

mx.random.seed(0)
X, Y = mx.random.normal((32, 64)), mx.random.randint(0, 10, (32,))


def mlp(norm=False):
    return nn.Sequential(nn.Linear(64, 128), nn.BatchNorm(128) if norm else nn.ReLU(), nn.ReLU(), nn.Linear(128, 10))


def loss_of(model, x, y):
    return nn.losses.cross_entropy(model(x), y, reduction="mean")


def compiled(model, optimizer, traces, **options):
    state = [model.state, optimizer.state]

    @partial(mx.compile, inputs=state, outputs=state, **options)
    def step(x, y):
        traces.append(x.shape)
        loss, gradient = nn.value_and_grad(model, loss_of)(model, x, y)
        optimizer.update(model, gradient)
        return loss

    def run(x=X, y=Y):
        loss = step(x, y)
        mx.eval(loss, state)
        return loss
    return run


@trial("whole step")
def whole_step():
    model, traces = mlp(), []
    step = compiled(model, optim.AdamW(1e-3), traces)
    [step() for _ in range(4)]
    return "partly", f"mx.compile with the state as inputs and outputs traces the whole step {len(traces)} time(s); what it makes is a graph that the runtime dispatches op by op (element-wise ones fused)"


@trial("schedule")
def schedule():
    model, traces = mlp(), []
    optimizer = optim.SGD(optim.linear_schedule(0.1, 0.0, 10))
    step, rates = compiled(model, optimizer, traces), []
    for _ in range(4):
        step()
        rates.append(round(float(optimizer.learning_rate), 4))
    return "yes", f"a schedule is computed from the counter in the compiled step: {rates}, traced {len(traces)} time(s)"


@trial("overflow")
def overflow():
    model = mlp(norm=True)
    step = compiled(model, optim.AdamW(1e-3), [])
    step(), step(X * float("inf"))
    return "no", f"nothing looks: finite weights after one overflow: {bool(np.isfinite(np.array(model.layers[0].weight)).all())}"


@trial("steady allocation")
def steady_allocation():
    n = allocations(compiled(mlp(), optim.AdamW(1e-3), []))
    return "yes" if n == 0 else "no", f"{n:.1f} allocations of 4 KiB or more in a steady step of an MLP (its own cache on the CPU counts where it calls malloc)"


SMALLER = """
from try_mlx import *
model, traces = mlp(), []
step = compiled(model, optim.SGD(0.1), traces, shapeless=%s)
for n in (32, 20, 32, 20, 7):
    step(X[:n], Y[:n])
print(len(traces))
"""


@trial("smaller batch")
def smaller_batch():
    shaped, shapeless = child(SMALLER % False), [child(SMALLER % True) for _ in range(3)]
    return "yes", f"five calls of three sizes: traced {shaped[1]} times (exit {shaped[0]}); with shapeless=True, three tries: exits {[code for code, _ in shapeless]}, {shapeless[0][1][:60]}"


THREADS = """
import os; os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "%d"
import hashlib, numpy as np, mlx.core as mx, mlx.nn as nn
mx.random.seed(0)
y = mx.softmax(nn.gelu(mx.random.normal((509, 1000)) @ mx.random.normal((1000, 300)))).sum(0)
print(hashlib.sha1(np.array(y).tobytes()).hexdigest()[:8])
"""


@trial("threads")
def threads():
    digests = [child(THREADS % n)[1] for n in (1, 2)]
    return "yes" if len(set(digests)) == 1 else "no", f"a product, GELU, softmax and sum with 1 and 2 threads asked for: {', '.join(digests)} (this wheel's BLAS has one thread); nothing promises it"


@trial("resume")
def resume():
    key = mx.random.key(5)
    a, b = mx.random.normal((3,), key=key).tolist(), mx.random.normal((3,), key=mx.array(np.array(key))).tolist()
    return "partly", f"keys are arrays that can be kept (same numbers after a copy: {a == b}), as can model and optimizer state; data position is the user's"


@trial("killed")
def killed():
    return killed_while("import mlx.core as mx; mx.save_safetensors(path + '.safetensors', {'a': mx.full((50000,), number)})",
                        "import mlx.core as mx; print(float(mx.load(path + '.safetensors')['a'][0]))")


@trial("bad index")
def bad_index():
    said = [child(f"import mlx.core as mx, mlx.nn as nn\nprint({e})") for e in
            ("mx.arange(5.0)[mx.array([7])].tolist()", "nn.losses.cross_entropy(mx.zeros((1, 3)), mx.array([70000000])).tolist()")]
    return "no", f"row 7 of 5: exit {said[0][0]}, {said[0][1]}; label 70,000,000 of 3: exit {said[1][0]}, {said[1][1]} (the documentation: out of bounds is undefined)"


@trial("shape errors")
def shape_errors():
    def model():
        a = mx.ones((2, 3)) @ mx.ones((4, 5))
        b = mx.ones(2) + mx.ones(3)
        return a, b
    try:
        model()
    except Exception as error:
        return "partly", f"the first only, when the graph is built, its line in the traceback: {first_line(error)}"


@trial("groups")
def groups():
    model, traces = mlp(), []
    optimizer = optim.MultiOptimizer([optim.SGD(0.1), optim.AdamW(1e-3)], [lambda name, _: "bias" in name])
    step = compiled(model, optimizer, traces)
    step(), step(), step()
    return "yes", f"MultiOptimizer of SGD and AdamW in one compiled step, traced {len(traces)} time(s)"


@trial("recompute")
def recompute():
    return "partly", f"mx.checkpoint around a function: {hasattr(mx, 'checkpoint')}; the user chooses, none takes bytes"


@trial("population")
def population():
    def step(w, m, lr):
        g = mx.grad(lambda w: nn.losses.cross_entropy(X @ w, Y, reduction="mean"))(w)
        m = 0.9 * m + g
        return w - lr * m, m
    w = mx.random.normal((3, 64, 10))
    new, _ = mx.vmap(step)(w, mx.zeros_like(w), mx.array([0.0, 0.1, 1.0]))
    moved = mx.abs(new - w).max(axis=(1, 2)).tolist()
    try:
        optimizer = optim.AdamW(1e-3)
        optimizer.init({"w": w[0]})
        mx.eval(mx.vmap(lambda w: optimizer.apply_gradients({"w": w}, {"w": w})["w"])(w))
        library = "runs under vmap, with one state for all"
    except Exception as error:
        library = first_line(error)
    return "partly", f"vmap of a step whose optimizer is written by hand moves members by {[round(v, 4) for v in moved]}; mlx.optimizers keeps its state in an object: {library}"


@trial("derivatives")
def derivatives():
    x, v = mx.array([1.0, 2.0]), mx.array([1.0, 10.0])
    return "yes", f"mx.jvp of mx.grad: {mx.jvp(mx.grad(lambda x: (x ** 3).sum()), [x], [v])[1][0].tolist()}"


@trial("nan")
def nan():
    return "no", f"nothing said: {mx.log(mx.ones(3) - 2).sum().item()}"


@trial("cache")
def cache():
    kv = mx.zeros((1, 512, 64))
    mx.eval(kv)

    def decode(q, at):
        kv[:, at:at + 1] = q
        return mx.softmax(q @ kv.transpose(0, 2, 1), axis=-1) @ kv
    mx.eval(decode(mx.ones((1, 1, 64)), 3), kv)
    return "partly", "slice assignment gives a new array, whose buffer is the old one's if nothing else holds it when it runs; no plan shows it"


@trial("user op")
def user_op():
    @mx.custom_function
    def cube(x):
        return x ** 3

    @cube.vjp
    def cube_vjp(x, g, y):
        return g * 3 * x ** 2
    kernel = getattr(mx.fast, "metal_kernel", None)
    return "partly", f"mx.custom_function with its own vjp: {mx.grad(lambda x: cube(x).sum())(mx.array([1.0, 2.0])).tolist()}; a kernel of one's own is Metal or CUDA source (metal_kernel: {kernel is not None}), on the CPU a C++ extension"


if __name__ == "__main__":
    main(f"MLX {mx.__version__}")
