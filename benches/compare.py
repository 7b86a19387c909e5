"""Onestep beside PyTorch eager, pass by pass in turn. See README.md."""
import argparse, json, os, statistics, subprocess, sys

here = os.path.dirname(os.path.abspath(__file__))
p = argparse.ArgumentParser()
p.add_argument("works", nargs="*", default=["mlp", "gpt-mini"])
p.add_argument("--passes", type=int, default=7)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--seconds", type=float, default=3.0)
p.add_argument("--onestep", default=os.path.join(here, "..", "target", "release", "onestep"))
a = p.parse_args()


def last_json(command):
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(out.strip().splitlines()[-1])["ms_median"]


def spread(ms):
    return f"{statistics.median(ms):8.3f} ({min(ms):.3f} to {max(ms):.3f})"


print(f"load at the start: {os.getloadavg()[0]:.2f}; {a.passes} passes of {a.seconds} s each, {a.threads} threads")
for work in a.works:
    ours, theirs = [], []
    for _ in range(a.passes):
        ours.append(last_json([a.onestep, "bench", work, "--threads", str(a.threads), "--seconds", str(a.seconds), "--json"]))
        theirs.append(last_json([sys.executable, os.path.join(here, "torch_peer.py"), work, str(a.threads), str(a.seconds)]))
    ratios = [t / o for o, t in zip(ours, theirs)]
    print(f"{work}: onestep {spread(ours)} ms, PyTorch eager {spread(theirs)} ms; ratio {spread(ratios)}")
