"""Read and write safetensors files byte for byte the same on every machine, and pack them with zstd."""
import json
import os
import struct
import subprocess

SIZE = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


def read_safetensors(path):
    """The tensors, name -> {dtype, shape, data}, and the metadata."""
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    for entry in header.values():
        begin, end = entry.pop("data_offsets")
        entry["data"] = data[8 + length + begin : 8 + length + end]
    return header, metadata


def safetensors_bytes(tensors, metadata=None):
    """The file's bytes. Wider elements come first, so that every tensor is aligned to its element."""
    header, chunks, offset = {"__metadata__": metadata} if metadata else {}, [], 0
    for name, t in sorted(tensors.items(), key=lambda item: -SIZE[item[1]["dtype"]]):
        end = offset + len(t["data"])
        header[name] = {"dtype": t["dtype"], "shape": t["shape"], "data_offsets": [offset, end]}
        chunks.append(t["data"])
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(chunks)


def write_zst(path, data):
    subprocess.run(["zstd", "-q", "-f", "-19", "-o", path], input=data, check=True)
    print(f"{path}: {os.path.getsize(path)} bytes, {len(data)} unpacked")
