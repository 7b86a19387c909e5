"""Record what PyTorch's loss scaling and averages of weights do.

    python make_torch_mixed_precision.py torch-mixed-precision.json     (needs torch)

"scaler": for each configuration of torch.amp.GradScaler a scripted sequence of steps, "overflows" (1 where a gradient is infinite),
and the scale and the growth tracker after each.
"averages": a sequence of parameters (3 elements, f64), and what torch.optim.swa_utils.AveragedModel holds after each, as EMA
of two decays and as SWA; and timm's warm-up of the decay, from its documented formula.
"""
import json, sys
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def scaler(overflows, **options):
    s = torch.amp.GradScaler("cpu", **options)
    p = torch.nn.Parameter(torch.ones(3))
    sgd = torch.optim.SGD([p], lr=.1)
    scales, trackers, values = [], [], []
    for bad in overflows:
        sgd.zero_grad()
        x = torch.ones(3)
        if bad:
            x[1] = float("inf")
        s.scale((p * x).sum()).backward()
        s.step(sgd)
        s.update()
        scales.append(s.get_scale())
        trackers.append(s._get_growth_tracker())
        values.append(p[0].item())
    return dict(options=options, overflows=overflows, scales=scales, trackers=trackers, parameter=values)


def averages():
    g = torch.Generator().manual_seed(5)
    course = torch.randn((40, 3), generator=g, dtype=torch.float64)
    kinds = {f"ema-{d}": dict(multi_avg_fn=get_ema_multi_avg_fn(d)) for d in (.9, .25)} | {"swa": {}}
    out = dict(course=course.tolist())
    for name, options in kinds.items():
        model = torch.nn.Linear(3, 1, bias=False).double()
        average = AveragedModel(model, **options)
        held = []
        for p in course:
            with torch.no_grad():
                model.weight.copy_(p.view(1, 3))
            average.update_parameters(model)
            held.append(average.module.weight.detach().flatten().tolist())
        out[name] = held
    # timm.utils.ModelEmaV3 with use_warmup: gamma 1, power 2/3, decay .9; step counts updates from 1.
    held, a = [], None
    for step, p in enumerate(course, 1):
        n = step - 1
        decay = 0. if n <= 0 else min(1 - (1 + n / 1.) ** -(2 / 3), .9)
        a = p.clone() if a is None else a.lerp(p, 1 - decay)
        held.append(a.tolist())
    out["warmup"] = held
    return out


def main():
    runs = [
        scaler([0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1], init_scale=1024., growth_factor=2., backoff_factor=.5, growth_interval=3),
        scaler([1] * 6 + [0] * 9 + [1], init_scale=65536., growth_factor=4., backoff_factor=.25, growth_interval=2),
        scaler([0] * 5 + [1, 0] * 3 + [0] * 4, init_scale=8., growth_factor=1.5, backoff_factor=.75, growth_interval=1),
    ]
    with open(sys.argv[1], "w") as f:
        json.dump(dict(torch=torch.__version__.split("+")[0], scaler=runs, averages=averages()), f)
        f.write("\n")


if __name__ == "__main__":
    main()
