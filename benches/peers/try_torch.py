"""PyTorch, eager and compiled, on the CPU: `venv/bin/python try_torch.py [ROW…]`. Rows that end in "(compile)" are torch.compile's."""
import contextlib, io, tempfile
import torch, torch.nn as nn, torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend
from trial import allocations, child, first_line, killed_while, main, trial

torch.manual_seed(0)
X, Y = torch.randn(32, 64), torch.randint(0, 10, (32,))


def mlp(norm=False):
    return nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128) if norm else nn.Identity(), nn.ReLU(), nn.Linear(128, 10))


def step_of(model, optimizer):
    def step(x=X, y=Y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    return step


def compiled(f, **options):
    """The compiled function, and what counts its graphs."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("inductor")
    return torch.compile(f, backend=counter, **options), counter


@trial("whole step (compile)")
def whole_step():
    said = []
    for trace_backward in (False, True):
        model = mlp()
        torch._dynamo.reset()
        torch._dynamo.config.trace_autograd_ops = trace_backward
        try:
            torch.compile(step_of(model, torch.optim.AdamW(model.parameters())), fullgraph=True)()
            said.append("one graph")
        except Exception as error:
            said.append(first_line(error))
    torch._dynamo.config.trace_autograd_ops = False
    model = mlp()
    step, graphs = compiled(step_of(model, torch.optim.AdamW(model.parameters())))
    [step() for _ in range(3)]
    return "partly", f"fullgraph=True: {said[0]}; with trace_autograd_ops: {said[1]}; by default {graphs.frame_count} graphs, and the backward between them"


@trial("whole step, functional (compile)")
def whole_step_functional():
    model = mlp()
    params = {k: v.detach() for k, v in model.named_parameters()}
    loss_of = lambda p, x, y: F.cross_entropy(torch.func.functional_call(model, p, (x,)), y)

    def step(p, m, x, y):
        gradient, loss = torch.func.grad_and_value(loss_of)(p, x, y)
        m = {k: 0.9 * m[k] + gradient[k] for k in m}
        return {k: p[k] - 0.1 * m[k] for k in p}, m, loss
    f, graphs = compiled(step, fullgraph=True)
    f(params, {k: torch.zeros_like(v) for k, v in params.items()}, X, Y)
    return "partly", f"torch.func.grad and an optimizer by hand, out of place: {graphs.frame_count} graph"


@trial("schedule (compile)")
def schedule():
    counts = []
    for lr in (0.1, torch.tensor(0.1)):
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        F.cross_entropy(model(X), Y).backward()
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=50)
        f, graphs = compiled(optimizer.step)
        for _ in range(10):
            f(), scheduler.step()
        counts.append(graphs.frame_count)
    return "partly", f"ten rates of a schedule on the host: the optimizer compiled {counts[0]} times with a float, {counts[1]} with a tensor as lr"


@trial("overflow")
def overflow():
    model = mlp(norm=True)
    optimizer, scaler = torch.optim.AdamW(model.parameters(), fused=True), torch.amp.GradScaler("cpu", init_scale=8.0)

    def step(x):
        scaler.scale(F.cross_entropy(model(x), Y)).backward()
        scaler.step(optimizer), scaler.update(), optimizer.zero_grad()
    step(X)
    slots = lambda: [t.clone() for s in optimizer.state.values() for t in s.values()]
    before, slots_before = {k: v.clone() for k, v in model.state_dict().items()}, slots()
    step(X * float("inf"))
    moved = [k for k, v in model.state_dict().items() if not torch.equal(v, before[k])]
    same = all(torch.equal(a, b) for a, b in zip(slots(), slots_before))
    return "partly" if moved else "yes", f"parameters, slots and counter stay ({same}); these moved with the refused step: {', '.join(moved) or 'none'}"


@trial("loss scale")
def loss_scale():
    reads = []
    for fused in (False, True):
        model = mlp()
        optimizer, scaler = torch.optim.AdamW(model.parameters(), fused=fused, foreach=not fused), torch.amp.GradScaler("cpu")
        item, n = torch.Tensor.item, [0]
        for i in range(3):
            scaler.scale(F.cross_entropy(model(X), Y)).backward()
            torch.Tensor.item = lambda t: (n.__setitem__(0, n[0] + (i == 2)), item(t))[1]
            scaler.step(optimizer), scaler.update()
            torch.Tensor.item = item
            optimizer.zero_grad()
        reads.append(n[0])
    return "yes" if reads[1] == 0 else "partly", f"reads by the host in a step: {reads[0]} with a foreach optimizer, {reads[1]} with a fused one"


@trial("memory before")
def memory_before():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker
    with FakeTensorMode():
        model = mlp()
        tracker = MemTracker()
        tracker.track_external(model)
        with tracker:
            F.cross_entropy(model(torch.randn(32, 64)), torch.zeros(32, dtype=torch.long)).backward()
        peak = tracker.get_tracker_snapshot("peak")
    total = {str(d): s["Total"] for d, s in peak.items()}
    return "partly", f"an estimate of the eager step under fake tensors (private tool MemTracker): {total} bytes; no plan"


@trial("steady allocation")
def steady_allocation():
    model = mlp()
    return "no", f"{allocations(step_of(model, torch.optim.AdamW(model.parameters(), fused=True))):.0f} allocations of 4 KiB or more in a steady step of an MLP"


@trial("steady allocation (compile)")
def steady_allocation_compiled():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    f, _ = compiled(lambda x, y: F.cross_entropy(model(x), y))

    def step():
        f(X, Y).backward()
        optimizer.step(), optimizer.zero_grad()
    return "no", f"{allocations(step):.0f} allocations of 4 KiB or more in a steady step of an MLP"


@trial("smaller batch (compile)")
def smaller_batch():
    model = mlp()
    f, graphs = compiled(lambda x, y: F.cross_entropy(model(x), y))
    for n in (32, 32, 20, 7, 13, 29):
        f(X[:n], Y[:n]).backward()
    return "yes", f"batches of five sizes: {graphs.frame_count} graphs (the second takes every size)"


THREADS = """
import sys, torch, torch.nn as nn, torch.nn.functional as F, hashlib
torch.set_num_threads(%d); torch.manual_seed(0)
f = nn.Sequential(nn.Linear(1000, 300), nn.LayerNorm(300), nn.GELU(), nn.Linear(300, 77))
x, y = torch.randn(509, 1000), torch.randint(0, 77, (509,))
g = torch.compile(f) if %d else f
o = torch.optim.AdamW(f.parameters(), fused=True)
for _ in range(3):
    F.cross_entropy(g(x), y).backward(); o.step(); o.zero_grad()
print(hashlib.sha1(b"".join(p.detach().numpy().tobytes() for p in f.parameters())).hexdigest()[:8])
"""


def threads(compile):
    digests = [child(THREADS % (n, compile))[1] for n in (1, 2, 3)]
    return "yes" if len(set(digests)) == 1 else "no", f"parameters after three steps on 1, 2, 3 threads: {', '.join(digests)}"


trial("threads")(lambda: threads(0))
trial("threads (compile)")(lambda: threads(1))


@trial("resume")
def resume():
    def start():
        torch.manual_seed(1)
        model = nn.Sequential(mlp(), nn.Dropout(0.5), nn.Linear(10, 10))
        return model, torch.optim.AdamW(model.parameters())

    def go(model, optimizer, steps):
        for _ in range(steps):
            step_of(model, optimizer)()
        return torch.cat([p.detach().flatten() for p in model.parameters()])
    whole = go(*start(), 8)
    model, optimizer = start()
    go(model, optimizer, 4)
    path = tempfile.mktemp()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}, path)
    model, optimizer = start()
    kept = torch.load(path)
    model.load_state_dict(kept["model"]), optimizer.load_state_dict(kept["optimizer"]), torch.set_rng_state(kept["rng"])
    same, position = torch.equal(whole, go(model, optimizer, 4)), hasattr(torch.utils.data.DataLoader, "state_dict")
    return "partly", f"model, optimizer and generator saved by hand at step 4 of 8, with dropout: same bits: {same}; DataLoader has a position to save: {position} (torchdata's StatefulDataLoader has, not tried)"


@trial("killed")
def killed():
    return killed_while("import torch; torch.save(torch.full((50000,), number), path)", "import torch; print(float(torch.load(path)[0]))")


@trial("killed, distributed.checkpoint")
def killed_dcp():
    return killed_while("import torch, torch.distributed.checkpoint as c; c.save({'a': torch.full((50000,), number)}, checkpoint_id=path)",
                        "import torch, torch.distributed.checkpoint as c; d = {'a': torch.zeros(50000)}; c.load(d, checkpoint_id=path); print(float(d['a'][0]))")


@trial("bad index")
def bad_index():
    said = []
    for f in (lambda: nn.Embedding(5, 3)(torch.tensor([7])), lambda: F.cross_entropy(torch.zeros(1, 3), torch.tensor([7]))):
        try:
            said.append(f"gave {f()}")
        except Exception as error:
            said.append(first_line(error))
    return "yes", f"{said[0]}; {said[1]}; the traceback has the line"


@trial("bad index (compile)")
def bad_index_compiled():
    code, said = child("import torch, torch.nn as nn\ne = nn.Embedding(5, 3)\nprint(torch.compile(lambda i: e(i))(torch.tensor([7])))")
    return "partly", f"exit {code}: {said[:160]}"


@trial("shape errors")
def shape_errors():
    def model():
        a = torch.ones(2, 3) @ torch.ones(4, 5)
        b = torch.ones(2) + torch.ones(3)
        return a, b
    try:
        model()
    except Exception as error:
        return "partly", f"the first only, when it runs, its line in the traceback: {first_line(error)}"


@trial("groups (compile)")
def groups():
    model = mlp()
    optimizer = torch.optim.AdamW([{"params": model[0].parameters(), "weight_decay": 0.0}, {"params": model[3].parameters(), "lr": torch.tensor(0.1)}])
    F.cross_entropy(model(X), Y).backward()
    f, graphs = compiled(optimizer.step)
    f(), f()
    return "yes", f"two groups in {graphs.frame_count} graph of the optimizer"


@trial("recompute (compile)")
def recompute():
    import torch._functorch.config as config
    return "partly", f"torch._functorch.config.activation_memory_budget, a fraction between 0 and 1 of the activations ({config.activation_memory_budget} by default), no bytes"


@trial("population")
def population():
    model = mlp()
    params, _ = torch.func.stack_module_state([mlp() for _ in range(3)])
    loss_of = lambda p, x, y: F.cross_entropy(torch.func.functional_call(model, p, (x,)), y)

    def step(p, m, lr):
        gradient = torch.func.grad(loss_of)(p, X, Y)
        m = {k: 0.9 * m[k] + gradient[k] for k in m}
        return {k: p[k] - lr * m[k] for k in p}, m
    new, _ = torch.vmap(step)(params, {k: torch.zeros_like(v) for k, v in params.items()}, torch.tensor([0.0, 0.1, 1.0]))
    moved = [not all(torch.equal(new[k][i], params[k][i]) for k in params) for i in range(3)]
    return "partly", f"vmap of a step whose optimizer is written by hand; torch.optim is not a function. Members moved: {moved}"


@trial("derivatives")
def derivatives():
    f, x, v = (lambda x: (x ** 3).sum()), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 10.0])
    hvp = torch.func.jvp(torch.func.grad(f), (x,), (v,))[1]
    return "yes", f"torch.func.jvp of grad: {hvp.tolist()}"


@trial("scan (compile)")
def scan():
    from torch._higher_order_ops.scan import scan
    sizes = []
    for n in (4, 64):
        torch._dynamo.reset()
        nodes = []
        torch._dynamo.config.recompile_limit = 100
        w = torch.randn(8, 8, requires_grad=True)

        def backend(gm, _):
            nodes.append(len(gm.graph.nodes))
            return gm.forward
        torch.compile(lambda xs: scan(lambda h, x: (torch.tanh(h @ w + x), h.clone()), torch.zeros(8, 8), xs)[0].sum(), backend=backend)(torch.randn(n, 8, 8)).backward()
        sizes.append(sum(nodes))
    return "partly", f"torch._higher_order_ops.scan, private, with gradient: nodes for 4 and 64 iterations: {sizes}"


@trial("bisect")
def bisect():
    from torch.utils._debug_mode import DebugMode
    torch.manual_seed(0)
    model, logs = mlp(), []
    for change in (0, 1e-3):
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            model[3].bias[0] += change
        with DebugMode() as log, DebugMode.log_tensor_hashes():
            F.cross_entropy(model(X), Y).backward()
        logs.append(log)
    found = DebugMode.check_hash_mismatches(logs[0].logs, logs[1].logs)
    return "partly", f"DebugMode (private) keeps hashes of what each op computes; the first difference of two runs: {found[0]['call']}; nothing goes to the step first"


@trial("nan")
def nan():
    said = []
    w = torch.tensor([-1.0, 2.0], requires_grad=True)
    text = io.StringIO()
    with contextlib.redirect_stderr(text), torch.autograd.set_detect_anomaly(True):
        try:
            torch.sqrt(w).sum().backward()
        except RuntimeError as error:
            said.append(first_line(error))
    return "partly", f"detect_anomaly: {said[0] if said else 'nothing'}; names the op of a NaN gradient, with its line in a warning; a NaN of the forward pass alone passes: {torch.log(torch.tensor(-1.0)).item()}"


@trial("cache (compile)")
def cache():
    torch._dynamo.reset()
    from torch._inductor.utils import run_and_get_code
    kv = torch.zeros(1, 512, 64)

    def decode(q, at):
        kv.index_copy_(1, at, q)
        return (q @ kv.transpose(1, 2)).softmax(-1) @ kv
    _, code = run_and_get_code(torch.compile(decode), torch.randn(1, 1, 64), torch.tensor([3]))
    address = kv.data_ptr()
    return "partly", f"the state's address stays, and the generated code says what is written ('copy_' in it: {'copy_' in code[0]}; 'index_put' in it: {'index_put' in code[0]}); no plan or refusal is printed"


@trial("user op (compile)")
def user_op():
    @torch.library.custom_op("peers::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.detach().numpy() ** 3)
    cube.register_fake(lambda x: torch.empty_like(x))
    cube.register_autograd(lambda c, g: g * 3 * c.saved_tensors[0] ** 2, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    torch._dynamo.reset()
    torch.compile(lambda x: cube(x).sum(), fullgraph=True)(x).backward()
    return "yes", f"torch.library.custom_op with its own kernel and gradient, in one graph: {x.grad.tolist()}"


if __name__ == "__main__":
    main(f"PyTorch {torch.__version__}")
