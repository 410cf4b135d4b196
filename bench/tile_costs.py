"""Measure the tiles of LiteRT's convolutions on this machine: ``python bench/tile_costs.py [--no-amx]``.

Prints one ``[[float32]]`` and one ``[[int8]]`` table for ``targets/tflite/tiles.toml``, which holds those of several
machines.  Convolutions of different width are timed; the tile is the one of a few likely ones with which
``pixels * rounded filters * (output + taps * rounded channels * product)`` fits best.  ``--no-amx`` denies
the process the processor's matrix tiles, as if it had none.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import struct
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.tensor import DType, QuantParams, Tensor
from convertkit.targets.tflite.writer import Signature, write_model
from convertkit.tiles import ConvShape, Tile

SHAPES = tuple(
    ConvShape(size * size, size, (window, window), 1, channels, filters)
    for size, window, channels, filters in (
        (64, 3, 3, 16), (64, 3, 3, 32), (64, 3, 16, 16), (64, 3, 16, 32), (64, 3, 32, 64), (56, 3, 64, 64),
        (64, 1, 16, 4), (64, 1, 16, 96), (64, 1, 32, 16), (56, 1, 24, 144), (56, 1, 96, 24), (28, 5, 1, 8),
        (28, 5, 8, 16), (28, 3, 128, 128), (14, 1, 112, 672), (14, 1, 672, 112), (14, 3, 256, 256),
    )
)  # fmt: skip
LIKELY = tuple(itertools.product((1, 4, 8, 16, 32, 64), (8, 16, 32, 64)))
ROUNDS, LONG_S = 12, 0.004
_INPUT = QuantParams.per_tensor(0.05, -3)


def deny_matrix_tiles() -> None:
    """Let the system call fail by which a process asks for AMX (Linux, arch_prctl, ARCH_REQ_XCOMP_PERM)."""
    load, equal, give = 0x20, 0x15, 0x06
    program = b"".join(
        struct.pack("HBBI", *step)
        for step in (
            (load, 0, 0, 0), (equal, 0, 3, 158), (load, 0, 0, 16), (equal, 0, 1, 0x1023),
            (give, 0, 0, 0x50001), (give, 0, 0, 0x7FFF0000),
        )
    )  # fmt: skip

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))

    steps = ctypes.create_string_buffer(program)
    found = Filter(len(program) // 8, ctypes.addressof(steps))
    libc = ctypes.CDLL(None)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(found), 0, 0):
        raise SystemExit("this system does not let a process filter its system calls")


def artifact(shape: ConvShape, dtype: DType, folder: Path) -> Path:
    """A model of one convolution."""
    rng = np.random.default_rng(0)
    program = Program()
    subgraph = program.subgraphs[program.new_subgraph("main")]
    builder, size = Builder(program, subgraph), (shape.filters, *shape.window, shape.channels)
    whole = dtype == "int8"
    x = Tensor("x", (1, shape.width, shape.width, shape.channels), dtype, None, _INPUT if whole else None)
    subgraph.inputs = [x]
    builder.results = (_INPUT,)
    scales, points = (0.01,) * shape.filters, (0,) * shape.filters
    if whole:
        weight = builder.constant(rng.integers(-127, 128, size).astype(np.int8), QuantParams(scales, points, 0))
        bias = builder.constant(np.zeros(shape.filters, np.int32), QuantParams((0.0005,) * shape.filters, points, 0))
    else:
        weight = builder.constant(rng.normal(0, 1, size).astype(np.float32))
        bias = builder.constant(np.zeros(shape.filters, np.float32))
    y = builder.conv_2d(x, weight, bias, padding="SAME")
    subgraph.outputs = [y]
    path = folder / "conv.tflite"
    write_model(program, Signature({"x": x}, {"y": y}), path, metadata={}, description="")
    return path


def nanoseconds(path: Path) -> float:
    """Best time of one call, one thread."""
    runner = Interpreter(str(path), num_threads=1)
    runner.allocate_tensors()
    runner.invoke()
    start = time.thread_time()
    runner.invoke()
    calls = max(1, round(LONG_S / max(time.thread_time() - start, 1e-6)))
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(calls):
            runner.invoke()
        best = min(best, (time.thread_time() - start) / calls)
    return best * 1e9


def fitted(times: list[float]) -> tuple[Tile, float]:
    """The likely tile that explains the times best, and its mean relative error."""
    found = []
    for channels, filters in LIKELY:
        parts = [[tile.nanoseconds(shape) for shape in SHAPES] for tile in _units(channels, filters)]
        rows = np.array(parts).T / np.array(times)[:, None]
        (product, output), *_ = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)
        if product > 0 and output > 0:
            error = float(np.abs(rows @ (product, output) - 1).mean())
            found.append((error, Tile(channels, filters, float(product), float(output))))
    error, tile = min(found, key=lambda each: each[0])
    return tile, error


def _units(channels: int, filters: int) -> tuple[Tile, Tile]:
    """A tile of which only products cost something, and one of which only outputs do."""
    return Tile(channels, filters, 1.0, 0.0), Tile(channels, filters, 0.0, 1.0)


def main() -> None:
    """Print the two tables; what was measured goes to stderr."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-amx", action="store_true")
    if parser.parse_args().no_amx:
        deny_matrix_tiles()
    kinds: tuple[DType, ...] = ("float32", "int8")
    for dtype in kinds:
        with tempfile.TemporaryDirectory() as folder:
            times = [nanoseconds(artifact(shape, dtype, Path(folder))) for shape in SHAPES]
        tile, error = fitted(times)
        for shape, each in zip(SHAPES, times, strict=True):
            print(
                f"{dtype} {shape}: {each / 1e3:.1f} us, by the tile {tile.nanoseconds(shape) / 1e3:.1f}",
                file=sys.stderr,
            )
        print(f"{dtype}: mean error {100 * error:.0f} %", file=sys.stderr)
        print(f"[[{dtype}]]\nchannels = {tile.channels}\nfilters = {tile.filters}")
        print(f"product = {tile.product:.3g}\noutput = {tile.output:.3g}\n")


if __name__ == "__main__":
    main()
