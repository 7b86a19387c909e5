"""Record update rules beyond the first recording of trajectories, all in f64.

    python make_optimizer_references.py ALL.safetensors OUT.safetensors.zst     (needs torch 2.15.0, numpy, safetensors, zstd)

Start and gradients are those of ALL.safetensors, which make_torch_optimizer_trajectories.py made; the format is that script's too. The rules:
- torch.optim, with options that the first recording leaves out, and with scalars in f64 (there NAdam's and ASGD's are f32);
- torch.optim.SparseAdam on w, whose gradient at step t has the rows where "sparse/rows" [300, 7] is 1;
- LAMB, Lion, and Muon without bf16, transcribed from the papers into NumPy.
"""
import json
import sys

import numpy as np
import torch
from safetensors import safe_open
from safetensors_files import safetensors_bytes, write_zst

STEPS = [1, 2, 3, 4, 5, 6, 7, 10, 30, 100, 300]
O = torch.optim
TORCH = [
    ("nadam", O.NAdam, dict(lr=.01)), ("nadam", O.NAdam, dict(lr=.01, weight_decay=.1, momentum_decay=.05)),
    ("nadam", O.NAdam, dict(lr=.01, weight_decay=.1, decoupled_weight_decay=True, maximize=True)),
    ("asgd", O.ASGD, dict(lr=.05)), ("asgd", O.ASGD, dict(lr=.05, t0=10., lambd=.01, alpha=.6)), ("asgd", O.ASGD, dict(lr=.05, t0=10., weight_decay=.1, maximize=True)),
    ("asgd", O.ASGD, dict(lr=.05, t0=10., lambd=.01), {20: .005, 200: .1}),
    ("radam", O.RAdam, dict(lr=.01, maximize=True)), ("radam", O.RAdam, dict(lr=.01, betas=(.9, .99), eps=1e-3)),
    ("adam", O.Adam, dict(lr=.01, amsgrad=True, maximize=True, weight_decay=.1)), ("adamw", O.AdamW, dict(lr=.01, amsgrad=True, maximize=True)),
    ("rmsprop", O.RMSprop, dict(lr=.01, eps=1e-3), {50: .001}), ("adagrad", O.Adagrad, dict(lr=.05, eps=1e-3, lr_decay=.01), {50: .1}),
    ("adadelta", O.Adadelta, dict(lr=1., eps=1e-3), {50: .1}), ("adamax", O.Adamax, dict(lr=.01, betas=(.8, .99)), {50: .1}),
    ("rprop", O.Rprop, dict(lr=.01), {50: .5}),
    ("adafactor", O.Adafactor, dict(lr=.5, maximize=True)), ("adafactor", O.Adafactor, dict(lr=.05, beta2_decay=-.5, eps=(1e-2, .5)), {50: .01}),
    ("sparse_adam", O.SparseAdam, dict(lr=.01)), ("sparse_adam", O.SparseAdam, dict(lr=.01, betas=(.8, .99), eps=1e-3, maximize=True), {50: .1}),
]


def norm(x):
    return np.sqrt((x * x).sum())


class Lamb:
    """You et al. 2020, algorithm 2, with bias correction."""
    slots = ["exp_avg", "exp_avg_sq"]

    def step(self, p, g, s, t, lr, betas=(.9, .999), eps=1e-6, weight_decay=.01, norms=(0., np.inf)):
        s["exp_avg"] = betas[0] * s["exp_avg"] + (1 - betas[0]) * g
        s["exp_avg_sq"] = betas[1] * s["exp_avg_sq"] + (1 - betas[1]) * g * g
        m, v = s["exp_avg"] / (1 - betas[0] ** t), s["exp_avg_sq"] / (1 - betas[1] ** t)
        r = m / (np.sqrt(v) + eps) + weight_decay * p
        phi = np.clip(norm(p), *norms)
        return p - lr * (phi / norm(r) if phi > 0 and norm(r) > 0 else 1.) * r


class Lion:
    """Chen et al. 2023, algorithm 2."""
    slots = ["exp_avg"]

    def step(self, p, g, s, t, lr, betas=(.9, .99), weight_decay=0.):
        update = np.sign(betas[0] * s["exp_avg"] + (1 - betas[0]) * g)
        s["exp_avg"] = betas[1] * s["exp_avg"] + (1 - betas[1]) * g
        return p - lr * (update + weight_decay * p)


class Muon:
    """Jordan et al. 2024, as torch.optim.Muon but for bf16; what is no matrix as torch.optim.AdamW with a rate of 3e-4."""

    def step(self, p, g, s, t, lr, momentum=.95, nesterov=True, weight_decay=.1, rate="original", steps=5):
        if p.ndim != 2:
            s["exp_avg"] = .9 * s.get("exp_avg", 0.) + .1 * g
            s["exp_avg_sq"] = .999 * s.get("exp_avg_sq", 0.) + .001 * g * g
            m, v = s["exp_avg"] / (1 - .9 ** t), s["exp_avg_sq"] / (1 - .999 ** t)
            return p * (1 - 3e-4 * .01) - 3e-4 * m / (np.sqrt(v) + 1e-8)
        s["momentum_buffer"] = momentum * s.get("momentum_buffer", 0.) + (1 - momentum) * g
        u = momentum * s["momentum_buffer"] + (1 - momentum) * g if nesterov else s["momentum_buffer"]
        x = (u.T if u.shape[0] > u.shape[1] else u) / max(norm(u), 1e-7)
        for _ in range(steps):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        u = x.T if u.shape[0] > u.shape[1] else x
        n, m = p.shape
        factor = {"original": max(1, n / m) ** .5, "match_adamw": .2 * max(n, m) ** .5, "spectral": (n / m) ** .5}[rate]
        return p * (1 - lr * weight_decay) - lr * factor * u


PAPERS = [
    ("lamb", Lamb(), dict(lr=.01)), ("lamb", Lamb(), dict(lr=.01, betas=(.8, .99), eps=1e-3, weight_decay=.3, norms=(.5, 2.)), {50: .001}),
    ("lion", Lion(), dict(lr=.003)), ("lion", Lion(), dict(lr=.003, betas=(.95, .98), weight_decay=.3), {50: .001}),
    ("muon", Muon(), dict(lr=.02)), ("muon", Muon(), dict(lr=.02, nesterov=False, weight_decay=.3, momentum=.9), {50: .001}),
    ("muon", Muon(), dict(lr=.02, rate="match_adamw")), ("muon", Muon(), dict(lr=.02, rate="spectral", steps=3)),
]


def record(out, run, names, step, lr_at, options):
    lr = options["lr"]
    for t in range(1, 301):
        lr = lr_at.get(t, lr)
        for name in names:
            p, slots = step(name, t, lr)
            if t in STEPS:
                out[f"{run}/{name}@{t}"] = p
                out.update({f"{run}/{slot}/{name}@{t}": v for slot, v in slots.items()})


def main():
    torch.set_default_dtype(torch.float64)
    given = safe_open(sys.argv[1], "pt")
    grads = {k: given.get_tensor(f"grads/{k}") for k in "wb"}
    rows = torch.tensor([[float((3 * t + 5 * i) % 7 < 3) for i in range(7)] for t in range(300)])
    out, runs = {"sparse/rows": rows.numpy()}, {}
    for number, (rule, made, options, *rest) in enumerate(TORCH + PAPERS):
        run, lr_at = f"{number:02d}-{rule}", rest[0] if rest else {}
        names = "w" if rule == "sparse_adam" else "wb"
        if isinstance(made, type):
            p = {k: torch.nn.Parameter(given.get_tensor(f"init/{k}").clone()) for k in names}
            optimizers = {k: made([p[k]], **options) for k in names}

            def step(name, t, lr):
                o, g = optimizers[name], grads[name][t - 1].clone()
                o.param_groups[0]["lr"] = lr
                if rule == "sparse_adam":
                    ids = rows[t - 1].nonzero().flatten()
                    g = torch.sparse_coo_tensor(ids[None], g[ids], g.shape)
                p[name].grad = g
                o.step()
                slots = {k: v.detach().numpy().copy() for k, v in o.state[p[name]].items() if isinstance(v, torch.Tensor)}
                return p[name].detach().numpy().copy(), slots
        else:
            p = {k: given.get_tensor(f"init/{k}").numpy().copy() for k in names}
            slots = {k: {s: np.zeros_like(p[k]) for s in getattr(made, "slots", [])} for k in names}

            def step(name, t, lr):
                p[name] = made.step(p[name], grads[name][t - 1].numpy(), slots[name], t, **(options | {"lr": lr}))
                return p[name].copy(), dict(slots[name])
        record(out, run, names, step, lr_at, options)
        runs[run] = dict(rule=rule, dtype="float64", options=options, lr_at=lr_at)
    tensors = {name: dict(dtype="F64", shape=list(np.shape(x)), data=np.asarray(x, dtype=np.float64).tobytes()) for name, x in out.items()}
    metadata = {"runs": json.dumps(runs), "steps": json.dumps(STEPS), "torch": torch.__version__}
    write_zst(sys.argv[2], safetensors_bytes(tensors, metadata))
    print(f"{len(runs)} runs, {len(tensors)} tensors")


main()
