"""What memory and time a command takes on a large model: peak of all its processes, beside the model's size.

``memory.py run MODEL -- COMMAND…`` samples every process of the command's tree and prints the peak of the sum of their
proportional set sizes (proc(5), ``smaps_rollup``: a page that n processes share counts 1/n for each), how much of it
was anonymous (what the system cannot drop), and the wall time.  ``memory.py make FOLDER --kind matmul --mb 805`` writes
a model of dense layers with random weights in external data; kinds are ``matmul``, ``gemm``, ``tokens`` (a batch of
sequences), ``table`` (a large embedding before dense layers) and ``gru``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

ALLOWED_TIMES = 2.0
"""Peak of all processes, in sizes of the model, that an export of dense layers may take …"""
ALLOWED_MORE = 300e6
"""… and bytes besides, for the interpreters and the runtimes."""
_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes held by a tree of processes: all of it, and what of it is not a file's."""

    pss: int = 0
    anonymous: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.pss + other.pss, self.anonymous + other.anonymous)


@dataclass(frozen=True, slots=True)
class Measured:
    """A finished command: seconds by the clock and of processors, peaks in bytes, exit code."""

    seconds: float
    cpu_seconds: float
    pss: int
    anonymous: int
    code: int


def held_by(pid: int) -> Usage:
    """What one process holds; nothing where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return Usage()
    fields = {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(":") for line in lines)}
    return Usage(fields["Pss"], fields.get("Pss_Anon", 0) + fields.get("Pss_Shmem", 0))


def tree_of(pid: int) -> list[int]:
    """The process and all its descendants."""
    found, waiting = list[int](), [pid]
    while waiting:
        found.append(waiting.pop())
        for children in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            try:
                waiting += map(int, children.read_text().split())
            except OSError:
                continue
    return found


def measured(command: Sequence[str], told: Callable[[float, dict[int, Usage]], None] | None = None) -> Measured:
    """Run ``command``; ``told`` gets every sample: seconds since the start, and usage by process."""
    begun = time.perf_counter()
    process = subprocess.Popen(command)
    peak, done = Usage(), threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(_EVERY_S):
            held = {pid: held_by(pid) for pid in tree_of(process.pid)}
            total = sum(held.values(), Usage())
            peak = replace(peak, pss=max(peak.pss, total.pss), anonymous=max(peak.anonymous, total.anonymous))
            if told is not None:
                told(time.perf_counter() - begun, held)

    watcher = threading.Thread(target=sample, daemon=True)
    watcher.start()
    code = process.wait()
    done.set()
    watcher.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = round(used.ru_utime + used.ru_stime, 2)
    return Measured(round(time.perf_counter() - begun, 2), cpu, peak.pss, peak.anonymous, code)


def model_bytes(path: Path) -> int:
    """A model and the files of its weights; those of its folder, where it is a folder."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    beside = path.with_suffix(".bin")
    return path.stat().st_size + (beside.stat().st_size if beside.is_file() else 0)


class _Weights:
    """Weights written one by one to the file beside a model."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rng = np.random.default_rng(0)
        self.tensors = list[TensorProto]()
        path.write_bytes(b"")

    def add(self, name: str, shape: tuple[int, ...], fan_in: int) -> str:
        """N(0, 1/√fan_in) in float32."""
        values = self._rng.standard_normal(shape, np.float32) * np.float32(fan_in**-0.5)
        with self._path.open("ab") as stream:
            offset = stream.tell()
            stream.write(values.data)
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, value in {"location": self._path.name, "offset": offset, "length": values.nbytes}.items():
            tensor.external_data.add(key=key, value=str(value))
        self.tensors.append(tensor)
        return name


def _dense(kind: str, weights: _Weights, size: int, width: int) -> tuple[list[onnx.NodeProto], str]:
    """``h → MatMul, Add, Relu → …`` or ``h → Gemm, Relu → …`` until the weights are ``size`` bytes."""
    nodes, last = list[onnx.NodeProto](), "h"
    for i in range(max(1, round(size / (4 * width * width)))):
        w, b = weights.add(f"w{i}", (width, width), width), weights.add(f"b{i}", (width,), width)
        if kind == "gemm":
            nodes.append(helper.make_node("Gemm", [last, w, b], [f"a{i}"], transB=1))
        else:
            nodes += [
                helper.make_node("MatMul", [last, w], [f"m{i}"]),
                helper.make_node("Add", [f"m{i}", b], [f"a{i}"]),
            ]
        last = f"r{i}"
        nodes.append(helper.make_node("Relu", [f"a{i}"], [last]))
    return nodes, last


def _gru(weights: _Weights, size: int, width: int) -> tuple[list[onnx.NodeProto], str]:
    """Recurrent layers of ``width`` units over a sequence."""
    nodes, last = list[onnx.NodeProto](), "h"
    for i in range(max(1, round(size / (24 * width * width)))):
        w = weights.add(f"w{i}", (1, 3 * width, width), width)
        r = weights.add(f"r{i}", (1, 3 * width, width), width)
        b = weights.add(f"b{i}", (1, 6 * width), width)
        nodes.append(helper.make_node("GRU", [last, w, r, b], [f"s{i}"], hidden_size=width, linear_before_reset=1))
        nodes.append(helper.make_node("Squeeze", [f"s{i}", "one"], [last := f"q{i}"]))
    weights.tensors.append(helper.make_tensor("one", TensorProto.INT64, [1], [1]))
    return nodes, last


def make(folder: Path, kind: str, size: int, width: int) -> Path:
    """Write ``model.onnx`` and ``model.bin`` of about ``size`` bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = _Weights(folder / "model.bin")
    shape = {"matmul": ["n", width], "gemm": ["n", width], "gru": [8, 1, width]}.get(kind, [2, 16, width])
    dtype, first = TensorProto.FLOAT, helper.make_node("Identity", ["x"], ["h"])
    if kind == "table":
        rows = size // 2 // (4 * width)
        shape, dtype = ["n", 16], TensorProto.INT64
        first = helper.make_node("Gather", [weights.add("table", (rows, width), 1), "x"], ["h"])
        size //= 2
    nodes, last = _gru(weights, size, width) if kind == "gru" else _dense(kind, weights, size, width)
    shape_out = [*shape, width] if kind == "table" else shape
    graph = helper.make_graph(
        [first, *nodes, helper.make_node("Identity", [last], ["y"])],
        kind,
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape_out)],
        weights.tensors,
    )
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def told(path: Path, found: Measured) -> str:
    """One line: times the model's size, whether that is allowed, seconds."""
    size = model_bytes(path)
    verdict = "within" if found.pss <= ALLOWED_TIMES * size + ALLOWED_MORE else "ABOVE"
    return (
        f"{size / 1e6:.0f} MB model: peak {found.pss / 1e6:.0f} MB = {found.pss / size:.2f} x, anonymous "
        f"{found.anonymous / 1e6:.0f} MB = {found.anonymous / size:.2f} x, {verdict} {ALLOWED_TIMES:g} x + "
        f"{ALLOWED_MORE / 1e6:.0f} MB; {found.seconds:.1f} s, {found.cpu_seconds:.1f} s of processors, "
        f"exit {found.code}"
    )


def _row(seconds: float, held: dict[int, Usage]) -> None:
    parts = "  ".join(f"{pid}:{each.pss // 1_000_000}/{each.anonymous // 1_000_000}" for pid, each in held.items())
    print(f"{seconds:7.2f}  {sum(each.pss for each in held.values()) // 1_000_000:6d}  {parts}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="write a large model")
    making.add_argument("folder", type=Path)
    making.add_argument("--kind", choices=("matmul", "gemm", "tokens", "table", "gru"), default="matmul")
    making.add_argument("--mb", type=float, default=805)
    making.add_argument("--width", type=int, default=4096)
    running = commands.add_parser("run", help="measure a command")
    running.add_argument("model", type=Path)
    running.add_argument("--json", type=Path, help="write the result here, too")
    running.add_argument("--samples", action="store_true", help="print every sample to stderr")
    running.add_argument("rest", nargs=argparse.REMAINDER, help="-- and the command")
    args = parser.parse_args()
    if args.command == "make":
        print(make(args.folder, args.kind, round(args.mb * 1e6), args.width))
        return 0
    found = measured(args.rest[args.rest[:1] == ["--"] :], _row if args.samples else None)
    print(told(args.model, found))
    if args.json:
        args.json.write_text(json.dumps({"model_bytes": model_bytes(args.model), **asdict(found)}, indent=1))
    return found.code


if __name__ == "__main__":
    sys.exit(main())
