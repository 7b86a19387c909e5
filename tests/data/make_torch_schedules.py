"""Record torch.optim.lr_scheduler: the rate of each of 300 steps, from a rate of 1, in f64.

    python make_torch_schedules.py OUT.safetensors.zst     (needs torch 2.15.0, zstd)

Tensors: a schedule's name -> [300]. The names are those in crates/optim/tests/schedules.rs.
"""
import sys
import warnings

import numpy as np
import torch
from safetensors_files import safetensors_bytes, write_zst

warnings.filterwarnings("ignore")
S = torch.optim.lr_scheduler
SCHEDULES = {
    "linear": lambda o: S.LinearLR(o, start_factor=.25, end_factor=.75, total_iters=120),
    "cosine": lambda o: S.CosineAnnealingLR(o, T_max=299, eta_min=.1),
    "cosine_restarts": lambda o: S.CosineAnnealingWarmRestarts(o, T_0=40, eta_min=.05),
    "cosine_restarts_doubling": lambda o: S.CosineAnnealingWarmRestarts(o, T_0=7, T_mult=2),
    "cosine_restarts_tripling": lambda o: S.CosineAnnealingWarmRestarts(o, T_0=1, T_mult=3, eta_min=.2),
    "step": lambda o: S.StepLR(o, step_size=30, gamma=.5),
    "multi_step": lambda o: S.MultiStepLR(o, milestones=[10, 50, 51, 200], gamma=.3),
    "exponential": lambda o: S.ExponentialLR(o, gamma=.99),
    "inverse_sqrt": lambda o: S.LambdaLR(o, lambda n: min((n + 1) / 40, (40 / (n + 1)) ** .5)),
    "one_cycle": lambda o: S.OneCycleLR(o, max_lr=1., total_steps=300, cycle_momentum=False),
    "one_cycle_linear": lambda o: S.OneCycleLR(o, max_lr=1., total_steps=300, pct_start=.37, anneal_strategy="linear", div_factor=5., final_div_factor=10., cycle_momentum=False),
    "polynomial": lambda o: S.PolynomialLR(o, total_iters=250, power=2.5),
    "sequence": lambda o: S.SequentialLR(o, [S.LinearLR(o, start_factor=.1, total_iters=20), S.CosineAnnealingLR(o, T_max=200, eta_min=.1), S.ExponentialLR(o, gamma=.98)], milestones=[20, 220]),
    "product": lambda o: S.ChainedScheduler([S.LinearLR(o, start_factor=.1, total_iters=30), S.ExponentialLR(o, gamma=.99), S.StepLR(o, step_size=100, gamma=.5)]),
    "warmup_step": lambda o: S.SequentialLR(o, [S.LinearLR(o, start_factor=1 / 25, total_iters=24), S.StepLR(o, step_size=50, gamma=.7)], milestones=[25]),
}


def main():
    out = {}
    for name, make in SCHEDULES.items():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.)
        scheduler, rates = make(optimizer), []
        for _ in range(300):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if len(rates) < 300:
                scheduler.step()
        out[name] = dict(dtype="F64", shape=[300], data=np.array(rates, dtype=np.float64).tobytes())
    write_zst(sys.argv[1], safetensors_bytes(out, {"runs": "{}", "torch": torch.__version__}))


main()
