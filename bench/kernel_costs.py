"""Measure the cost table that decides where integers pay: ``bench/kernel_costs.py > targets/tflite/costs/x86.toml``.

Every operator becomes a model of its own, exported in float32 and in full-integer int8, and both
are timed in turns on one thread.  The numbers are nanoseconds per unit of work (see
``convertkit.profile.OpCost``).  Rows whose export refuses keep the committed numbers.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from ai_edge_litert.interpreter import Interpreter
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.errors import ConvertKitError

COSTS = Path(__file__).resolve().parents[1] / "targets" / "tflite" / "costs" / "x86.toml"
ROUNDS, LONG_S = 15, 0.002
MAP = (1, 64, 56, 56)
PRODUCTS = ((64, 512, 128), (64, 128, 128), (64, 128, 512), (197, 768, 192), (197, 192, 192), (197, 192, 768))
"""Rows, columns and columns of the result of the products that ``DynamicQuantizeLinear`` is fitted to."""


@dataclass(frozen=True, slots=True)
class Row:
    """One operator: inputs, constants by input name, attributes, and the unit of work."""

    kind: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    constants: tuple[tuple[int, ...], ...]
    attributes: dict[str, object]
    work: float


def conv(kind: str, weight: tuple[int, ...], **attributes: object) -> Row:
    """A convolution over the standard map; its unit is a multiply-add."""
    return Row(kind, "Conv", (MAP,), (weight, weight[:1]), attributes, 56 * 56 * float(np.prod(weight)))


def plain(op: str, inputs: int = 1, **attributes: object) -> Row:
    """An elementwise operator over the standard map; its unit is an element."""
    return Row(op, op, (MAP,) * inputs, (), attributes, float(np.prod(MAP)))


ROWS = (
    conv("Conv", (64, 64, 3, 3), pads=[1] * 4),
    conv("Conv.pointwise", (64, 64, 1, 1)),
    conv("Conv.depthwise", (64, 1, 3, 3), pads=[1] * 4, group=64),
    conv("Conv.depthwise_large", (64, 1, 7, 7), pads=[3] * 4, group=64),
    Row("Gemm", "Gemm", ((197, 768),), ((768, 768), (768,)), {"transB": 1}, 197.0 * 768 * 768),
    Row("MatMul", "MatMul", ((1, 197, 768),), ((768, 768),), {}, 197.0 * 768 * 768),
    Row("MatMul.dynamic", "MatMul", ((12, 197, 64), (12, 64, 197)), (), {}, 12.0 * 197 * 64 * 197),
    Row("Softmax", "Softmax", ((12, 197, 197),), (), {"axis": -1}, 12.0 * 197 * 197),
    *(plain(op) for op in ("Sigmoid", "Tanh", "HardSwish", "Relu", "LeakyRelu", "Abs", "GlobalAveragePool")),
    *(plain(op, 2) for op in ("Add", "Mul", "Sub", "Max", "Min")),
    plain("Concat", 2, axis=1),
    plain("Transpose", perm=[0, 2, 3, 1]),
    plain("MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
    plain("AveragePool", kernel_shape=[2, 2], strides=[2, 2]),
)


def model(row: Row) -> onnx.ModelProto:
    """The one-operator model."""
    rng = np.random.default_rng(0)
    inputs = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, s) for i, s in enumerate(row.shapes)]
    constants = [
        numpy_helper.from_array(rng.normal(0, 0.1, shape).astype(np.float32), f"c{i}")
        for i, shape in enumerate(row.constants)
    ]
    names = [value.name for value in (*inputs, *constants)]
    node = helper.make_node(row.op, names, ["y"], "op", **row.attributes)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def artifacts(row: Row, folder: Path) -> tuple[Path, Path]:
    """The operator in float32 and in int8, integer interface included."""
    source = folder / "op.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model(row)), source)
    rng = np.random.default_rng(1)
    data = [{f"x{i}": rng.normal(0, 1, s).astype(np.float32) for i, s in enumerate(row.shapes)} for _ in range(8)]
    real = convertkit.export(source, target="tflite", output=folder / "float", force=True)
    whole = convertkit.export(source, target="tflite", int8=True, full_integer=True, io_dtype="int8", calib=data,
                              calib_method="minmax", output=folder / "int8", force=True)  # fmt: skip
    return real.artifact.path, whole.artifact.path


def weights_only(row: Row, folder: Path) -> tuple[Path, Path]:
    """The operator in int8, and with weights that are integers alone."""
    _, whole = artifacts(row, folder)
    dynamic = convertkit.export(folder / "op.onnx", target="tflite", w8=True, output=folder / "w8", force=True)
    return whole, dynamic.artifact.path


def milliseconds(paths: tuple[Path, ...]) -> list[float]:
    """Best time of one call of each artifact, measured in turns on one thread."""
    runners = [Interpreter(str(path), num_threads=1) for path in paths]
    best, calls = [float("inf")] * len(runners), []
    for runner in runners:
        runner.allocate_tensors()
        runner.invoke()
        start = time.thread_time()
        runner.invoke()
        calls.append(max(1, round(LONG_S / max(time.thread_time() - start, 1e-6))))
    for _ in range(ROUNDS):
        for place, runner in enumerate(runners):
            start = time.thread_time()
            for _ in range(calls[place]):
                runner.invoke()
            best[place] = min(best[place], (time.thread_time() - start) * 1e3 / calls[place])
    return best


def on_the_fly() -> dict[str, float]:
    """What ``--w8`` adds to an integer product, by least squares over several sizes: see ``QuantProfile.dynamic``."""
    terms, added = [], []
    for rows, deep, wide in PRODUCTS:
        work = float(rows * deep * wide)
        row = Row("MatMul", "MatMul", ((1, rows, deep),), ((deep, wide),), {}, work)
        with tempfile.TemporaryDirectory() as name:
            integer, real = milliseconds(weights_only(row, Path(name)))
        terms.append([rows * deep, rows, rows * wide])
        added.append((real - integer) * 1e6)
        print(f"MatMul {rows}x{deep}x{wide}: {added[-1]:.0f} ns more on the fly", file=sys.stderr)
    read, call, written = np.linalg.lstsq(np.array(terms, float), np.array(added), rcond=None)[0]
    return {"float32": read, "int8": 0.0, "float32_call": call, "float32_element": written}


def rendered(table: Mapping[str, Any]) -> str:
    """The cost table as the text of its file, with the comments and scalars of the committed one."""
    rows = {
        kind: f'"{kind}" = {{ {", ".join(f"{name} = {value:.6g}" for name, value in each.items())} }}'
        for kind, each in table["ns_per_unit"].items()
    }
    committed = COSTS.read_text().splitlines()
    return "\n".join(rows[line.split('"')[1]] if line.startswith('"') else line for line in committed)


def main() -> None:
    """Print the table; progress and refusals go to stderr."""
    committed = tomllib.loads(COSTS.read_text())
    table = committed["ns_per_unit"]
    for row in ROWS:
        with tempfile.TemporaryDirectory() as name:
            try:
                real, whole = milliseconds(artifacts(row, Path(name)))
            except ConvertKitError as error:
                print(f"{row.kind}: kept, {str(error).splitlines()[0]}", file=sys.stderr)
                continue
        for name, each in (("float32", real), ("int8", whole)):
            beside = 2 * float(np.prod(MAP)) * table[row.kind].get(f"{name}_element", 0.0)
            table[row.kind][name] = (each * 1e6 - beside) / row.work
        print(f"{row.kind}: {real:.3f} ms float32, {whole:.3f} ms int8", file=sys.stderr)
    table["DynamicQuantizeLinear"] = on_the_fly()
    print(rendered(committed))


if __name__ == "__main__":
    main()
