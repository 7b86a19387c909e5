"""Onestep beside PyTorch and JAX on one NVIDIA GPU, pass by pass in turn. See README.md."""
import argparse, json, os, statistics, subprocess, sys

here = os.path.dirname(os.path.abspath(__file__))
WORKS = ["gpt2-124m", "mlp-32", "mlp-128", "decode-1b"]
PEERS = {"gpt2-124m": ["torch eager", "torch compile", "jax"], "decode-1b": ["torch eager", "torch compile"]}
MLP = ["torch eager", "torch compile", "torch graph", "jax"]
UNITS = {"gpt2-124m": "tokens/s", "decode-1b": "tokens/s"}
p = argparse.ArgumentParser(description=__doc__)
p.add_argument("works", nargs="*", default=WORKS, help=f"of {', '.join(WORKS)} [default: all]")
p.add_argument("--passes", type=int, default=3)
p.add_argument("--seconds", type=float, default=2.0, help="of each of Onestep's measurements")
p.add_argument("--without", nargs="*", default=[], help="peers to leave out, such as jax, or \"torch compile\"")
p.add_argument("--onestep", default=os.path.join(here, "..", "target", "release", "onestep"))
p.add_argument("--json", metavar="FILE", help="write every figure of every pass")
a = p.parse_args()


def last_json(command):
    """The last line of a command as JSON; a string that says why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        return json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no word"])[-1]
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return str(error)


def ours(work, fed):
    name, _, batch = work.partition("-") if work.startswith("mlp") else (work, "", "")
    # A classifier's inputs are on the GPU, as its peers have them, unless they are handed over at each call.
    where = ["--resident"] if name == "mlp" and not fed else []
    found = last_json([a.onestep, "bench", name, *(["--batch", batch] if batch else []), *where, "--device", "cuda", "--seconds", str(a.seconds), "--json"])
    if isinstance(found, str):
        return found
    ms = found["ms_queued"]
    units = found["batch"] * {"gpt2-124m": 1024}.get(work, 1)
    return {"ms": ms, "per_second": units / ms * 1e3, "bytes": found["memory"]["peak"], "first_ms": found["first_ms"], "ms_read": found["ms_median"], "loss": found.get("loss_last")}


def measure(system, work):
    if system.startswith("onestep"):
        return ours(work, system != "onestep")
    kind, _, how = system.partition(" ")
    return last_json([sys.executable, os.path.join(here, "peers", f"gpu_{kind}.py"), work, how])


figures = {"limits": last_json([sys.executable, os.path.join(here, "peers", "gpu_torch.py"), "limits", "limits"])}
print("limits:", figures["limits"] if isinstance(figures["limits"], str) else ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures["limits"].items()))
print(f"{a.passes} passes in turn; medians, least and most in brackets; ratio: theirs by ours, pass by pass")
for work in a.works:
    systems = ["onestep"] + (["onestep fed"] if work.startswith("mlp") else []) + [s for s in PEERS.get(work, MLP) if s not in a.without and s.split()[0] not in a.without]
    runs = {s: [] for s in systems}
    for _ in range(a.passes):
        for s in systems:
            # What failed once is not tried again.
            if not any(isinstance(r, str) for r in runs[s]):
                runs[s].append(measure(s, work))
    figures[work] = runs
    if a.json:
        with open(a.json, "w") as file:
            json.dump(figures, file, indent=1)
    print(f"\n{work}")
    for s in systems:
        bad = next((r for r in runs[s] if isinstance(r, str)), None)
        if bad is not None:
            print(f"  {s:14} not run: {bad[:160]}")
            continue
        of = lambda key: [r[key] for r in runs[s]]
        ms = of("ms")
        mine = [r["ms"] for r in runs["onestep"] if not isinstance(r, str)]
        ratios = [t / o for t, o in zip(ms, mine)]
        ratio = "" if s == "onestep" or len(mine) < len(ms) else f"  ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        rate = f"{statistics.median(of('per_second')):12,.0f} {UNITS.get(work, 'examples/s')}"
        print(f"  {s:14} {statistics.median(ms):9.4f} ms ({min(ms):.4f} to {max(ms):.4f}) {rate}  {statistics.median(of('bytes')) / 2**30:7.3f} GiB  first {statistics.median(of('first_ms')) / 1e3:.1f} s{ratio}")
