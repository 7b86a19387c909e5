"""JAX with optax, flax and Orbax on the CPU: `venv/bin/python try_jax.py [ROW…]`."""
import contextlib, hashlib, warnings
import numpy as np
import jax, jax.numpy as jnp, optax
from trial import allocations, child, first_line, killed_while, main, trial

X, Y = jax.random.normal(jax.random.key(1), (32, 64)), jax.random.randint(jax.random.key(2), (32,), 0, 10)


def init(key=jax.random.key(0)):
    a, b = jax.random.split(key)
    return {"a": jax.random.normal(a, (64, 128)) * 0.1, "b": jax.random.normal(b, (128, 10)) * 0.1}


def loss_of(p, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(jax.nn.relu(x @ p["a"]) @ p["b"], y).mean()


def step_of(optimizer):
    def step(p, s, x, y):
        loss, gradient = jax.value_and_grad(loss_of)(p, x, y)
        updates, s = optimizer.update(gradient, s, p)
        return optax.apply_updates(p, updates), s, loss
    return step


SCHEDULED = optax.inject_hyperparams(optax.adamw)(learning_rate=optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100))
equal = lambda a, b: all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), a, b)))


@trial("whole step")
def whole_step():
    p, optimizer = init(), optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    compiled = jax.jit(step_of(optimizer), donate_argnums=(0, 1)).lower(p, optimizer.init(p), X, Y).compile()
    return "yes", f"one executable ({len(compiled.as_text().splitlines())} lines of HLO)"


@trial("schedule")
def schedule():
    p, f = init(), jax.jit(step_of(SCHEDULED))
    s, rates = SCHEDULED.init(p), []
    for _ in range(5):
        p, s, _ = f(p, s, X, Y)
        rates.append(round(float(s.hyperparams["learning_rate"]), 6))
    fed = optax.inject_hyperparams(optax.adamw)(learning_rate=1e-3)
    f2, s2 = jax.jit(step_of(fed)), fed.init(p)
    for lr in (1e-3, 1e-4, 1e-5):
        s2.hyperparams["learning_rate"] = jnp.asarray(lr)
        p, s2, _ = f2(p, s2, X, Y)
    return "yes", f"rates {rates} in the executable, compiled {f._cache_size()} time(s); three rates set by the host: {f2._cache_size()} (inject_hyperparams)"


@trial("overflow")
def overflow():
    p, optimizer = init(), optax.apply_if_finite(optax.adamw(1e-3), max_consecutive_errors=2)
    f, s, moved = jax.jit(step_of(optimizer)), optimizer.init(p), []
    p, s, _ = f(p, s, X, Y)
    for _ in range(4):
        q, t, _ = f(p, s, X * jnp.inf, Y)
        moved.append(not equal(p, q) or not equal(s.inner_state, t.inner_state))
        p, s = q, t
    return "partly", f"optax.apply_if_finite(…, 2): parameters or slots moved at four overflows in a row: {moved} (it lets the third through); statistics outside of the optimizer are not its own"


@trial("loss scale")
def loss_scale():
    from flax.training.dynamic_scale import DynamicScale
    scale = DynamicScale(scale=8.0)

    @jax.jit
    def step(d, p, x):
        d, finite, _, gradient = d.value_and_grad(loss_of)(p, x, Y)
        return d, jax.tree.map(lambda p, g: jnp.where(finite, p - 0.1 * g, p), p, gradient)
    p = init()
    d, q = step(scale, p, X * 1e38)
    return "yes", f"flax's DynamicScale in the executable: scale {float(d.scale)} after an overflow of one at 8, parameters kept: {equal(p, q)} (the selection is the user's)"


@trial("memory before")
def memory_before():
    p = init()
    m = jax.jit(step_of(SCHEDULED), donate_argnums=(0, 1)).lower(p, SCHEDULED.init(p), X, Y).compile().memory_analysis()
    return "yes", f"memory_analysis before a run: arguments {m.argument_size_in_bytes}, aliased {m.alias_size_in_bytes}, temporaries {m.temp_size_in_bytes} bytes; each buffer's place by XLA_FLAGS=--xla_dump_to"


@trial("steady allocation")
def steady_allocation():
    p, f = init(), jax.jit(step_of(optax.adamw(1e-3)), donate_argnums=(0, 1))
    keep = [p, optax.adamw(1e-3).init(p)]

    def step():
        keep[0], keep[1], loss = f(keep[0], keep[1], X, Y)
        loss.block_until_ready()
    return "no", f"{allocations(step):.1f} allocations of 4 KiB or more in a steady donated step of an MLP"


@trial("in place")
def in_place():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        jax.jit(lambda a, b: (a.sum(), b + 1), donate_argnums=(0, 1))(jnp.ones(3), jnp.ones(4))
    return "yes", f"donated arguments are aliased; what is not is warned of: {first_line(said[0].message)[:110] if said else 'nothing'}"


@trial("smaller batch")
def smaller_batch():
    p, f = init(), jax.jit(step_of(optax.sgd(0.1)))
    for n in (32, 32, 20, 20, 32):
        f(p, optax.sgd(0.1).init(p), X[:n], Y[:n])
    return "yes", f"two sizes, alternating: {f._cache_size()} executables, one for each"


THREADS = """
import os; os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:%d])
import jax, jax.numpy as jnp, hashlib, numpy as np
k = jax.random.split(jax.random.key(0), 4)
p = [jax.random.normal(k[0], (1000, 300)) * 0.03, jax.random.normal(k[1], (300, 77)) * 0.05]
x, y = jax.random.normal(k[2], (509, 1000)), jax.random.randint(k[3], (509,), 0, 77)
def loss(p):
    h = x @ p[0]; h = (h - h.mean(-1, keepdims=True)) / h.std(-1, keepdims=True)
    return -jnp.take_along_axis(jax.nn.log_softmax(jax.nn.gelu(h) @ p[1]), y[:, None], 1).mean()
step = jax.jit(lambda p: jax.tree.map(lambda a, b: a - 0.1 * b, p, jax.grad(loss)(p)))
for _ in range(3): p = step(p)
print(hashlib.sha1(b"".join(np.asarray(a).tobytes() for a in p)).hexdigest()[:8])
"""


@trial("threads")
def threads():
    digests = [child(THREADS % cores, NPROC=str(n))[1] for cores, n in ((1, 1), (2, 2), (2, 4))]
    return "yes" if len(set(digests)) == 1 else "no", f"parameters after three steps on 1, 2, 4 threads (affinity and NPROC): {', '.join(digests)}"


@trial("resume")
def resume():
    def run(p, s, key, steps):
        @jax.jit
        def step(p, s, key):
            key, noise = jax.random.split(key)
            return *step_of(optax.adamw(1e-3))(p, s, X + jax.random.normal(noise, X.shape), Y)[:2], key
        for _ in range(steps):
            p, s, key = step(p, s, key)
        return p, s, key
    start = (init(), optax.adamw(1e-3).init(init()), jax.random.PRNGKey(7))
    whole, half = run(*start, 8), run(*start, 4)
    leaves, tree = jax.tree.flatten(half)
    back = jax.tree.unflatten(tree, [jnp.asarray(np.asarray(a)) for a in leaves])
    return "partly", f"keys are values: after a copy through the host, same bits: {equal(whole[:2], run(*back, 4)[:2])}; data position is another library's (Grain, not tried)"


@trial("killed")
def killed():
    verdict, what = killed_while(
        "import orbax.checkpoint as o, jax.numpy as jnp\nm = o.CheckpointManager(path, options=o.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False))\n"
        "m.save(int(number), args=o.args.StandardSave({'a': jnp.full((50000,), number) * jnp.sin(jnp.arange(50000.0) + 1)})); m.wait_until_finished(); m.close()",
        "import orbax.checkpoint as o\nm = o.CheckpointManager(path)\nprint(float(m.restore(m.latest_step(), args=o.args.StandardRestore())['a'][0]))")
    return verdict, f"Orbax's CheckpointManager: {what}; JAX alone has no checkpoint"


@trial("bad index")
def bad_index():
    table = jnp.arange(5.0)
    plain = jax.jit(lambda i: table[i])(7)
    label = optax.softmax_cross_entropy_with_integer_labels(jnp.zeros((1, 3)), jnp.array([7]))
    from jax.experimental import checkify
    error, _ = jax.jit(checkify.checkify(lambda i: table[i], errors=checkify.index_checks))(7)
    return "partly", f"silent: table[7] of 5 rows gives {plain}, the loss of label 7 of 3 {label[0]}; if asked, checkify: {' '.join(str(error.get()).split())[:140]}"


@trial("shape errors")
def shape_errors():
    def model():
        a = jnp.ones((2, 3)) @ jnp.ones((4, 5))
        b = jnp.ones(2) + jnp.ones(3)
        return a, b
    try:
        jax.eval_shape(model)
    except Exception as error:
        return "partly", f"the first only, before anything runs, its line in the traceback: {first_line(error)}"


@trial("token weights")
def token_weights():
    parts = [(4.0, 1), (0.0, 3)]  # mean loss and tokens of a micro-batch; the gradient of w * loss is loss
    optimizer = optax.MultiSteps(optax.sgd(1.0), every_k_schedule=2)
    w, s = jnp.zeros(()), optimizer.init(jnp.zeros(()))
    for loss, _ in parts:
        u, s = optimizer.update(jnp.asarray(loss), s, w)
        w = optax.apply_updates(w, u)
    return "no", f"optax.MultiSteps: one token of loss 4 and three of 0 make a mean gradient of {-float(w)}, not 1; by hand it is a few lines"


@trial("groups")
def groups():
    p = init()
    optimizer = optax.partition({"x": optax.adamw(1e-3), "y": optax.sgd(0.1)}, {"a": "x", "b": "y"})
    f, s = jax.jit(step_of(optimizer)), optimizer.init(p)
    f(p, s, X, Y)
    return "yes", f"optax.partition, two rules in {f._cache_size()} executable"


@trial("recompute")
def recompute():
    names = [n for n in dir(jax.checkpoint_policies) if not n.startswith("_")]
    return "partly", f"jax.checkpoint with policies by op and name ({len(names)}), such as {names[0]}; none takes bytes"


@trial("population")
def population():
    optimizer = optax.inject_hyperparams(optax.adamw)(learning_rate=1e-3)
    p = jax.vmap(init)(jax.random.split(jax.random.key(0), 3))
    s = jax.vmap(optimizer.init)(p)
    s.hyperparams["learning_rate"] = jnp.array([0.0, 1e-3, 1e-2])
    f = jax.jit(jax.vmap(step_of(optimizer), (0, 0, None, None)), donate_argnums=(0, 1))
    q, s, losses = f(jax.tree.map(jnp.copy, p), s, X, Y)
    return "yes", f"jit of vmap of the step with optax's state: one executable, moved by {[round(float(jnp.abs(q['a'] - p['a'])[i].max()), 4) for i in range(3)]} at rates 0, 0.001, 0.01"


@trial("derivatives")
def derivatives():
    f, x, v = (lambda x: (x ** 3).sum()), jnp.array([1.0, 2.0]), jnp.array([1.0, 10.0])
    return "yes", f"jvp of grad: {jax.jvp(jax.grad(f), (x,), (v,))[1].tolist()}"


@trial("scan")
def scan():
    w, sizes = jnp.ones((8, 8)), []
    for n in (4, 64):
        f = lambda w, xs: jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros((8, 8)), xs)[0].sum()
        sizes.append(len(jax.jit(jax.grad(f)).lower(w, jnp.zeros((n, 8, 8))).as_text().splitlines()))
    return "yes", f"lax.scan with its gradient: lines of StableHLO for 4 and 64 iterations: {sizes}"


@trial("nan")
def nan():
    with jax.debug_nans(True), jax.debug_infs(True):
        try:
            jax.jit(lambda x: jnp.log(x - 2).sum())(jnp.ones(3))
        except FloatingPointError as error:
            return "yes", f"debug_nans runs op by op again and names the primitive, the line in the traceback: {first_line(error)}"
    return "no", "nothing said"


@trial("cache")
def cache():
    def decode(kv, q, at):
        kv = jax.lax.dynamic_update_slice(kv, q, (0, at, 0))
        return kv, jax.nn.softmax(q @ kv.transpose(0, 2, 1)) @ kv
    compiled = jax.jit(decode, donate_argnums=0).lower(jnp.zeros((1, 512, 64)), jnp.zeros((1, 1, 64)), 3).compile()
    text = compiled.as_text()
    copies = sum(" copy(" in line and "512,64" in line for line in text.splitlines())
    return "partly" if copies else "yes", f"aliased by the plan: {compiled.memory_analysis().alias_size_in_bytes} of {512 * 64 * 4} bytes; yet copies of the whole cache in the compiled HLO: {copies}"


@trial("user op")
def user_op():
    from jax.experimental import pallas as pl

    @jax.custom_vjp
    def cube(x):
        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...] ** 3
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)
    cube.defvjp(lambda x: (cube(x), x), lambda x, g: (g * 3 * x ** 2,))
    return "yes", f"custom_vjp around a Pallas kernel (interpreted on the CPU; FFI for native ones): {jax.jit(jax.grad(lambda x: cube(x).sum()))(jnp.array([1.0, 2.0])).tolist()}"


if __name__ == "__main__":
    import flax, orbax.checkpoint
    main(f"JAX {jax.__version__}, optax {optax.__version__}, flax {flax.__version__}, Orbax {orbax.checkpoint.__version__}")
