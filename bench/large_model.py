"""A model past 2 GB through the TFLite stage: is its peak RSS at most 1.5 × model size + 250 MB, and does the file run?

``large_model.py [--gb 3]``.  The model is a chain of dense layers with random weights in external data, written layer
by layer.  The conversion stage and LiteRT each run in a process of their own, so that each peak is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

WIDTH = 8192
LAYER_BYTES = 4 * WIDTH * WIDTH


def write_model(folder: Path, layers: int) -> Path:
    """``x → Gemm → Relu → …``: [N, 8192] throughout, weights beside the model."""
    rng = np.random.default_rng(0)
    nodes, tensors = [], []
    with (folder / "weights.bin").open("wb") as stream:
        for i in range(layers):
            offset = stream.tell()
            # One block of values over and over: the bytes count, not the numbers.
            block = (rng.standard_normal((64, WIDTH)) * (2 / WIDTH) ** 0.5).astype(np.float32)
            for part in range(WIDTH // 64):
                stream.write(np.roll(block, part, axis=1).tobytes())
            tensor = TensorProto(
                name=f"w{i}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH], data_location=TensorProto.EXTERNAL
            )
            for key, value in {"location": "weights.bin", "offset": str(offset), "length": str(LAYER_BYTES)}.items():
                tensor.external_data.add(key=key, value=value)
            tensors.append(tensor)
            source, result = ("x" if i == 0 else f"r{i - 1}"), ("y" if i == layers - 1 else f"h{i}")
            nodes.append(helper.make_node("Gemm", [source, f"w{i}"], [result], transB=1))
            if i < layers - 1:
                nodes.append(helper.make_node("Relu", [f"h{i}"], [f"r{i}"]))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "large", values[:1], values[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), folder / "m.onnx")
    return folder / "m.onnx"


def convert(source: Path, out: Path) -> dict[str, object]:
    """The compiler alone, in this process."""
    from convertkit.onnx.canonical import canonicalize
    from convertkit.onnx.load import load_model
    from convertkit.targets.tflite.compile import compile_model
    from convertkit.targets.tflite.passes import Options

    started = time.perf_counter()
    compile_model(canonicalize(load_model(source)), Options()).write(out)
    return {"seconds": round(time.perf_counter() - started, 2), "bytes": out.stat().st_size}


def run(path: Path, expected: Path) -> dict[str, object]:
    """The artifact in LiteRT against NumPy's answer."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    truth = np.load(expected)
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], truth["x"])
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return {"relative_error": float(np.abs(found - truth["y"]).max() / np.abs(truth["y"]).max())}


def answer(folder: Path, layers: int) -> Path:
    """Input and output of the chain, computed a layer at a time."""
    x = np.random.default_rng(1).standard_normal((1, WIDTH)).astype(np.float32)
    weights = np.memmap(folder / "weights.bin", np.float32, "r", shape=(layers, WIDTH, WIDTH))
    y = x
    for i in range(layers):
        y = y @ weights[i].T
        y = np.maximum(y, 0) if i < layers - 1 else y
    np.savez(folder / "answer.npz", x=x, y=y)
    return folder / "answer.npz"


def alone(*arguments: str) -> dict[str, object]:
    """One of the two steps in a process of its own; its report has the peak RSS in bytes."""
    done = subprocess.run([sys.executable, __file__, *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=3)
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="write the result here, too")
    args = parser.parse_args()
    if args.step:
        kind, first, second = args.step
        result = {"convert": convert, "run": run}[kind](Path(first), Path(second))
        result["peak_rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(result))
        return 0
    layers = max(1, round(args.gb * 1e9 / LAYER_BYTES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = write_model(folder, layers)
        model_bytes = layers * LAYER_BYTES
        converted = alone("--step", "convert", str(source), str(folder / "m.tflite"))
        allowed = 1.5 * model_bytes + 250e6
        print(f"model {model_bytes / 1e9:.2f} GB, conversion {converted}")
        ran = alone("--step", "run", str(folder / "m.tflite"), str(answer(folder, layers)))
        print(f"LiteRT {ran}; allowed for the conversion: {allowed / 1e9:.2f} GB")
    if args.json:
        args.json.write_text(json.dumps({"model_bytes": model_bytes, "convert": converted, "run": ran}, indent=1))
    good = converted.get("peak_rss", allowed + 1) <= allowed and ran.get("relative_error", 1.0) <= 1e-4
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
