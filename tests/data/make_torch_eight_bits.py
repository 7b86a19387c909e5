"""Records the 8-bit floats of PyTorch: what each code is, and what numbers become.

    python make_torch_eight_bits.py torch-eight-bits.safetensors.zst

For each format (e4m3: torch.float8_e4m3fn, e5m2: torch.float8_e5m2):

    <format>/values   f32 [256]: the number of each code
    <format>/f16      u8 [65536]: the code of each f16, by its bits
    <format>/bf16     u8 [65536]: that of each bf16
    <format>/f32      u8 [n]: that of each number of `f32`

    f32               i32 [n], bits: all codes' numbers and the middles between them with their neighbours, and numbers spread
                      over all bits

PyTorch keeps the sign of a NaN; Onestep has one NaN.
"""

import sys

import torch
from safetensors_files import safetensors_bytes, write_zst

FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


TYPES = {torch.float32: "F32", torch.int32: "I32", torch.uint8: "U8"}


def entry(t):
    return {"dtype": TYPES[t.dtype], "shape": list(t.shape), "data": t.numpy().tobytes()}


def main():
    out = {}
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    near = []
    for name, dtype in FORMATS.items():
        values = codes.view(dtype).float()
        out[f"{name}/values"] = values
        finite = values[values.isfinite()].sort().values.double()
        middles = ((finite[1:] + finite[:-1]) / 2).float()
        near += [finite.float(), middles, finite[-1:].float() * 1.0625, finite[:1].float() * 1.0625]
        beyond = torch.tensor([464.0, 480.0, 61440.0, 65536.0])
        near += [beyond, -beyond]
    near = torch.cat(near).view(torch.int32)
    spread = (torch.arange(1 << 15, dtype=torch.int64) * 131_101 % (1 << 32) - (1 << 31)).to(torch.int32)
    bits = torch.cat([near - 1, near, near + 1, spread])
    out["f32"] = bits
    halves = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    for name, dtype in FORMATS.items():
        code = lambda x: x.to(dtype).view(torch.uint8)
        out[f"{name}/f16"] = code(halves.view(torch.float16))
        out[f"{name}/bf16"] = code(halves.view(torch.bfloat16))
        out[f"{name}/f32"] = code(bits.view(torch.float32))
    write_zst(sys.argv[1], safetensors_bytes({name: entry(t) for name, t in sorted(out.items())}, {"torch": torch.__version__}))


main()
