"""Record torch.optim.LBFGS in f64: what each of 12 steps leaves.

    python make_torch_lbfgs.py OUT.safetensors.zst     (needs torch 2.15.0, zstd)

Problems: "valley", Σ 100 (xᵢ₊₁ − xᵢ²)² + (1 − xᵢ)² over 6 elements (its negative under maximize), and "network", the mean
squared error of tanh(data @ w1.T + b1) @ w2.T over given data [20, 3] and targets [20, 2].
Tensors: "data", "targets"; for each run "RUN/start/PARAM", "RUN/PARAM@STEP", "RUN/loss@STEP" (before the step) and "RUN/evaluations@STEP" (so far).
The metadata "runs" is JSON: RUN -> {problem, options, lr_at}.
"""
import json
import sys

import numpy as np
import torch
from safetensors_files import safetensors_bytes, write_zst

torch.set_default_dtype(torch.float64)
wolfe = dict(line_search_fn="strong_wolfe")
RUNS = [
    ("valley", dict(lr=1e-3)), ("valley", dict(lr=.02, max_iter=7, history_size=3), {4: .1}),
    ("valley", dict(lr=1., max_iter=5) | wolfe), ("valley", dict(lr=.5, max_iter=3, max_eval=4, history_size=3) | wolfe, {3: 1.}),
    ("valley", dict(lr=1., max_iter=3, maximize=True) | wolfe), ("valley", dict(lr=1., tolerance_grad=1e-2, tolerance_change=1e-4) | wolfe),
    ("network", dict(lr=.1, max_iter=4)), ("network", dict(lr=1., max_iter=4) | wolfe),
]


def main():
    g = torch.Generator().manual_seed(3)
    data, targets = torch.randn(20, 3, generator=g), torch.randn(20, 2, generator=g)
    out, runs = {"data": data, "targets": targets}, {}
    for number, (problem, options, *rest) in enumerate(RUNS):
        run, lr_at = f"{number}-{problem}", rest[0] if rest else {}
        if problem == "valley":
            p = {"x": torch.tensor([-1.2, 1., -.5, .8, 1.5, -.3])}
        else:
            p = {k: .5 * torch.randn(*s, generator=g) for k, s in {"w1": (5, 3), "b1": (5,), "w2": (2, 5)}.items()}
        out.update({f"{run}/start/{k}": v.clone() for k, v in p.items()})
        for v in p.values():
            v.requires_grad_()
        optimizer = torch.optim.LBFGS(list(p.values()), **options)

        def closure():
            optimizer.zero_grad()
            if problem == "valley":
                x = p["x"]
                loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
                loss = -loss if options.get("maximize") else loss
            else:
                loss = ((torch.tanh(data @ p["w1"].T + p["b1"]) @ p["w2"].T - targets) ** 2).mean()
            loss.backward()
            return loss

        for step in range(1, 13):
            optimizer.param_groups[0]["lr"] = lr_at.get(step, optimizer.param_groups[0]["lr"])
            out[f"{run}/loss@{step}"] = optimizer.step(closure).detach().clone()
            out[f"{run}/evaluations@{step}"] = torch.tensor(float(optimizer.state[next(iter(p.values()))]["func_evals"]))
            out.update({f"{run}/{k}@{step}": v.detach().clone() for k, v in p.items()})
        print(run, [round(float(out[f"{run}/loss@{s}"]), 6) for s in range(1, 13)], float(out[f"{run}/evaluations@12"]))
        runs[run] = dict(problem=problem, options=options, lr_at=lr_at)
    tensors = {name: dict(dtype="F64", shape=list(x.shape), data=x.numpy().astype(np.float64).tobytes()) for name, x in out.items()}
    write_zst(sys.argv[1], safetensors_bytes(tensors, {"runs": json.dumps(runs), "torch": torch.__version__}))


main()
