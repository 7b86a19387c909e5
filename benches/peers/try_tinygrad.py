"""tinygrad on its CPU device, which needs clang in PATH: `venv/bin/python try_tinygrad.py [ROW…]`."""
import os
os.environ.setdefault("DEV", "CPU")
import importlib.metadata
import numpy as np
from tinygrad import Tensor, TinyJit, UOp, nn
from tinygrad.helpers import Context, GlobalCounters
from tinygrad.uop.ops import KernelInfo
from trial import allocations, child, first_line, killed_while, main, trial

Tensor.manual_seed(0)
X, Y = Tensor.randn(32, 64).realize(), Tensor.randint(32, high=10).realize()


def mlp(norm=False):
    return [nn.Linear(64, 128), *([nn.BatchNorm(128)] if norm else []), Tensor.relu, nn.Linear(128, 10)]


def jitted(model, optimizer, loss=lambda out, y: out.sparse_categorical_crossentropy(y)):
    @TinyJit
    def step(x, y):
        with Context(TRAINING=1):
            optimizer.zero_grad()
            value = loss(x.sequential(model), y).backward()
            return value.realize(*optimizer.schedule_step())
    return step


def kernels(f):
    GlobalCounters.reset()
    f()
    return GlobalCounters.kernel_count


@trial("whole step")
def whole_step():
    model = mlp()
    step = jitted(model, nn.optim.AdamW(nn.state.get_parameters(model)))
    for _ in range(3):
        step(X, Y)
    return "yes", f"TinyJit replays the whole step as captured at its second call: {kernels(lambda: step(X, Y))} kernels"


@trial("schedule")
def schedule():
    model = mlp()
    optimizer = nn.optim.SGD(nn.state.get_parameters(model), lr=0.1)
    step, moves = jitted(model, optimizer), []
    for i in range(6):
        optimizer.lr.assign(Tensor([0.1 if i < 4 else 0.0])).realize()
        before = model[0].weight.numpy().copy()
        step(X, Y)
        moves.append(bool((model[0].weight.numpy() != before).any()))
    return "partly", f"lr is a tensor that the captured step reads: moved {moves} with the rate 0 for the last two; schedules are the user's code (extra.lr_scheduler is not in the package)"


@trial("overflow")
def overflow():
    model = mlp(norm=True)
    step = jitted(model, nn.optim.AdamW(nn.state.get_parameters(model)))
    step(X, Y), step(X, Y), step((X * float("inf")).realize(), Y)
    return "no", f"nothing looks: finite weights after one overflow: {bool(np.isfinite(model[0].weight.numpy()).all())}"


@trial("memory before")
def memory_before():
    loss = X.sequential(mlp()).sparse_categorical_crossentropy(Y)
    linear = loss.schedule_linear()
    return "partly", f"the schedule ({len(linear.src)} kernels) exists before it runs, and a planner puts buffers together at capture; no total or plan is given to the user"


@trial("steady allocation")
def steady_allocation():
    model = mlp()
    step = jitted(model, nn.optim.AdamW(nn.state.get_parameters(model)))
    n = allocations(lambda: step(X, Y).item())
    return "yes" if n == 0 else "partly", f"{n:.1f} allocations of 4 KiB or more in a steady step: replay runs on the captured buffers; Python's objects aside"


@trial("smaller batch")
def smaller_batch():
    model = mlp()
    step = jitted(model, nn.optim.SGD(nn.state.get_parameters(model)))
    for _ in range(3):
        step(X, Y)
    try:
        step(X[:20].contiguous().realize(), Y[:20].contiguous().realize())
        plain = "taken"
    except Exception as error:
        plain = first_line(error)
    n = UOp.variable("n", 1, 32)
    sums = TinyJit(lambda x: x.square().sum().realize())
    for k in (5, 6, 7, 8):
        total = sums(X[:n.bind(k)]).item()
    return "partly", f"another shape: {plain}; with a symbolic variable a captured forward sum takes any size ({total:.1f} for 8 rows, {float(X[:8].square().sum().item()):.1f} expected)"


THREADS = """
import os; os.environ["DEV"] = "CPU"; os.environ["NUM_CPU_THREADS"] = "%d"; os.environ["THREADS"] = "%d"
import hashlib
from tinygrad import Tensor, nn
Tensor.manual_seed(0)
x, w = Tensor.randn(509, 1000).realize(), Tensor.randn(1000, 300).realize()
y = (x @ w).gelu().softmax().sum(0).realize()
print(hashlib.sha1(y.numpy().tobytes()).hexdigest()[:8])
"""


@trial("threads")
def threads():
    digests = [child(THREADS % (n, n > 1))[1] for n in (1, 2, 4)]
    return "yes" if len(set(digests)) == 1 else "no", f"a product, GELU, softmax and sum on 1, 2, 4 threads: {', '.join(digests)}; nothing promises it"


@trial("resume")
def resume():
    names = [n for n in dir(nn.state) if "load" in n or "save" in n]
    seen = []
    for seed in (3, 3):
        Tensor.manual_seed(seed)
        seen.append(Tensor.rand(2).tolist())
    return "partly", f"weights and optimizer tensors by {', '.join(n for n in names if 'safe' in n or 'state' in n)}; the generator's seed can be set again (same numbers: {seen[0] == seen[1]}), its counter and the data position are not saved"


@trial("killed")
def killed():
    return killed_while("from tinygrad import Tensor, nn; nn.state.safe_save({'a': Tensor.full((50000,), number).contiguous().realize()}, path)",
                        "from tinygrad import nn; print(float(nn.state.safe_load(path)['a'].to('CPU').numpy()[0]))")


@trial("bad index")
def bad_index():
    table = nn.Embedding(5, 3)(Tensor([7])).tolist()
    loss = Tensor.zeros(1, 3).sparse_categorical_crossentropy(Tensor([7])).item()
    return "no", f"silent: row 7 of 5 is {table}, the loss of label 7 of 3 is {loss:.3f}"


@trial("shape errors")
def shape_errors():
    def model():
        a = Tensor.ones(2, 3) @ Tensor.ones(4, 5)
        b = Tensor.ones(2) + Tensor.ones(3)
        return a, b
    try:
        model()
    except Exception as error:
        return "partly", f"the first only, when the graph is built, its line in the traceback: {first_line(error)}"


@trial("groups")
def groups():
    model = mlp()
    a = nn.optim.SGD(nn.state.get_parameters(model[0]), lr=0.1)
    b = nn.optim.AdamW(nn.state.get_parameters(model[2]), lr=1e-3)
    step = jitted(model, nn.optim.OptimizerGroup(a, b))
    for _ in range(3):
        step(X, Y)
    return "yes", f"OptimizerGroup of SGD and AdamW in one captured step: {kernels(lambda: step(X, Y))} kernels"


@trial("population")
def population():
    return ("no", "no vmap") if not hasattr(Tensor, "vmap") else ("partly", "Tensor.vmap")


@trial("derivatives")
def derivatives():
    x = Tensor([1.0, 2.0])
    gradient = (x ** 3).sum().gradient(x)[0]
    hvp = (gradient * Tensor([1.0, 10.0])).sum().gradient(x)[0].tolist()
    return "partly", f"gradient of gradient · v gives an HVP: {[round(h, 3) for h in hvp]}; no forward mode (jvp): {not hasattr(Tensor, 'jvp')}"


@trial("scan")
def scan():
    counts, w = [], (Tensor.ones(8, 8) * 0.1).contiguous().realize()
    for n in (4, 64):
        h, xs = Tensor.zeros(8, 8).contiguous().realize(), Tensor.ones(n, 8, 8).contiguous().realize()
        for i in range(n):
            h = ((h @ w) + xs[i]).tanh()
        counts.append(len(h.sum().schedule_linear().src))
    return "no", f"a loop is unrolled: kernels for 4 and 64 iterations: {counts}"


@trial("nan")
def nan():
    value = (Tensor.ones(3) - 2).log().sum().item()
    return "no", f"nothing said: {value}"


@trial("cache")
def cache():
    kv = Tensor.zeros(1, 512, 64).contiguous().realize()
    at, buffer = UOp.variable("at", 0, 511), kv.uop.base.realized

    @TinyJit
    def decode(q, p):
        kv[:, p:p + 1].assign(q).realize()
        return (q @ kv.transpose(1, 2)).softmax().matmul(kv).realize()
    for i in range(4):
        decode(Tensor.full((1, 1, 64), float(i)).contiguous().realize(), at.bind(i))
    rows = kv[0, :4, 0].tolist()
    return "partly", f"a slice of the cache is assigned in place (rows {rows}, the same buffer: {kv.uop.base.realized is buffer}); no plan shows it"


@trial("user op")
def user_op():
    def kernel(c, a):
        i = UOp.range(2, 0)
        return c[i].store(a[i] * a[i] * a[i]).end(i).sink(arg=KernelInfo(name="cube"))

    def gradient(g, call):
        a = Tensor(call.src[2])
        return (None, (Tensor(g) * 3 * a * a).uop)
    x = Tensor([1.0, 2.0]).contiguous().realize()
    y = Tensor.empty(2).custom_kernel(x, fxn=kernel, grad_fxn=gradient)[0]
    value, slope = y.tolist(), y.sum().gradient(x)[0].tolist()
    right = value == [1, 8] and slope == [3, 12]
    return "yes" if right else "partly", f"Tensor.custom_kernel (alpha) takes a kernel in UOps and a gradient; this trial's cube of [1, 2]: {value}, gradient {slope}"


if __name__ == "__main__":
    main(f"tinygrad {importlib.metadata.version('tinygrad')}")
