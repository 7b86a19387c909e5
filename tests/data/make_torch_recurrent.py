"""Record small recurrent networks from PyTorch: parameters, inputs, outputs, last states and all gradients, in f64.

    python make_torch_recurrent.py torch-recurrent.safetensors.zst     (needs torch 2.15.0 and the zstd program)

Tensors of each NETWORK of NETWORKS below:
  NETWORK/parameter/NAME, NETWORK/input/NAME, NETWORK/output/NAME, NETWORK/gradient/NAME
Inputs are x [batch, time, inputs], hidden and (of an LSTM) cell, the first state, and, where a network has lengths,
lengths [batch]; outputs are output [batch, time, directions*hidden], hidden and cell. The loss is the sum over the
outputs of each times weight/NAME; gradients are of the parameters and of the inputs, under their names. With lengths, the
sequences are packed and the outputs padded again.
"""
import sys

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from safetensors_files import safetensors_bytes, write_zst

BATCH, TIME, INPUTS, HIDDEN = 3, 5, 3, 4
LENGTHS = [5, 2, 4]
NETWORKS = {
    "rnn_tanh": (nn.RNN, dict(), None),
    "rnn_relu": (nn.RNN, dict(nonlinearity="relu", num_layers=2), LENGTHS),
    "lstm": (nn.LSTM, dict(), None),
    "lstm_lengths": (nn.LSTM, dict(num_layers=2, bidirectional=True), LENGTHS),
    "gru": (nn.GRU, dict(bias=False), None),
    "gru_lengths": (nn.GRU, dict(num_layers=2, bidirectional=True), LENGTHS),
}


def put(out, name, tensor):
    dtype = {torch.float64: "F64", torch.int64: "I64"}[tensor.dtype]
    data = tensor.detach().contiguous().numpy().tobytes()
    out[name] = dict(dtype=dtype, shape=list(tensor.shape), data=data)


def record(out, name, kind, options, lengths):
    module = kind(INPUTS, HIDDEN, batch_first=True, **options)
    states = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    inputs = {"x": torch.randn(BATCH, TIME, INPUTS, requires_grad=True)}
    for part in ["hidden", "cell"][: 1 + (kind is nn.LSTM)]:
        inputs[part] = torch.randn(states, BATCH, HIDDEN, requires_grad=True)
    first = (inputs["hidden"], inputs["cell"]) if kind is nn.LSTM else inputs["hidden"]
    if lengths:
        packed = pack_padded_sequence(inputs["x"], torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        y, last = module(packed, first)
        y, _ = pad_packed_sequence(y, batch_first=True, total_length=TIME)
        put(out, f"{name}/input/lengths", torch.tensor(lengths))
    else:
        y, last = module(inputs["x"], first)
    outputs = {"output": y, **dict(zip(["hidden", "cell"], last if kind is nn.LSTM else [last]))}
    loss = 0
    for what, tensor in outputs.items():
        weight = torch.randn_like(tensor)
        put(out, f"{name}/weight/{what}", weight)
        put(out, f"{name}/output/{what}", tensor)
        loss = loss + (tensor * weight).sum()
    loss.backward()
    for what, tensor in inputs.items():
        put(out, f"{name}/input/{what}", tensor)
        put(out, f"{name}/gradient/{what}", tensor.grad)
    for what, p in module.named_parameters():
        put(out, f"{name}/parameter/{what}", p.data)
        put(out, f"{name}/gradient/{what}", p.grad)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    out = {}
    for name, (kind, options, lengths) in NETWORKS.items():
        record(out, name, kind, options, lengths)
    write_zst(sys.argv[1], safetensors_bytes(dict(sorted(out.items())), {"torch": torch.__version__}))


main()
