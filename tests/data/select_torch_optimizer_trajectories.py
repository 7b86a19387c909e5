"""Select, from PyTorch's optimizer trajectories, the runs of the rules that Onestep has.

    python make_torch_optimizer_trajectories.py ALL.safetensors     (needs torch 2.15.0; format of both: that script's head)
    python select_torch_optimizer_trajectories.py ALL.safetensors torch-optimizer-trajectories.safetensors.zst

The given start and gradients are kept, and every run, f32 and f64, of RULES. Needs the zstd program.
"""
import json
import sys

from safetensors_files import read_safetensors, safetensors_bytes, write_zst

RULES = ["sgd", "adam", "adamw"]


def main():
    source, out = sys.argv[1:]
    tensors, metadata = read_safetensors(source)
    runs = {run: facts for run, facts in json.loads(metadata["runs"]).items() if facts["rule"] in RULES}
    given = ("init", "grads")
    kept = {name: t for name, t in sorted(tensors.items()) if name.split("/")[0] in given or name.split("/")[0] in runs}
    metadata = {"runs": json.dumps(runs), "steps": metadata["steps"], "torch": metadata["torch"]}
    write_zst(out, safetensors_bytes(kept, metadata))
    print(f"{len(runs)} runs, {len(kept)} tensors")


main()
