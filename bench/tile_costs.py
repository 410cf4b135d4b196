"""Measure the tiles of LiteRT's convolutions on this machine: ``python bench/tile_costs.py [--no-amx]``.

Prints a table for each kind of kernel, for ``targets/tflite/tiles.toml``, which holds those of several
machines.  Convolutions of different width, plain and transposed, are timed; the tile is the one of a few likely ones
with which ``pixels * rounded filters * (output + taps * rounded channels * product)`` fits best.  Between floats the
int8 kernel takes longer by what it reads and writes.  ``--no-amx`` denies the process the processor's matrix tiles,
as if it had none.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.tensor import DType, QuantParams, Tensor
from convertkit.targets.tflite.writer import Signature, write_model
from convertkit.tiles import ConvShape, DenseShape, Shape, Tile, TransposedShape

SHAPES = tuple(
    ConvShape(size * size, size, (window, window), 1, channels, filters)
    for size, window, channels, filters in (
        (64, 3, 3, 16), (64, 3, 3, 32), (64, 3, 16, 16), (64, 3, 16, 32), (64, 3, 32, 64), (56, 3, 64, 64),
        (64, 1, 16, 4), (64, 1, 16, 96), (64, 1, 32, 16), (56, 1, 24, 144), (56, 1, 96, 24), (28, 5, 1, 8),
        (28, 5, 8, 16), (28, 3, 128, 128), (14, 1, 112, 672), (14, 1, 672, 112), (14, 3, 256, 256),
    )
)  # fmt: skip
TRANSPOSED = ((16, 2, 128, 64), (32, 3, 64, 32), (14, 2, 256, 128), (8, 4, 32, 16), (56, 2, 64, 32), (28, 3, 16, 8),
              (64, 2, 32, 16), (28, 4, 128, 64), (12, 5, 48, 48))  # fmt: skip
"""Elements of a side, of the window's, channels and filters; the stride is 2."""
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


@dataclass(frozen=True, slots=True)
class Timed:
    """A convolution of a square image."""

    shape: Shape
    side: int
    window: int

    @property
    def read(self) -> int:
        return self.side * self.side * self.shape.channels


PLAIN = tuple(Timed(shape, shape.width, shape.window[0]) for shape in SHAPES)
STRIDED = tuple(
    Timed(TransposedShape((2 * side - 2 + window) ** 2, window * window / 4, channels, filters), side, window)
    for side, window, channels, filters in TRANSPOSED
)


DENSE = tuple(
    DenseShape(rows, deep, wide)
    for rows, deep, wide in (
        (1, 16, 16), (1, 32, 32), (1, 64, 64), (1, 64, 128), (1, 128, 128), (4, 32, 32), (8, 64, 16), (16, 32, 32),
        (16, 64, 64), (34, 16, 16), (34, 34, 16), (34, 64, 64), (64, 32, 64), (64, 128, 128), (128, 64, 32),
    )
)  # fmt: skip
ROWS = (1, 4, 8, 16)
"""That a dense kernel may round up to."""
SHORT, LONG = 2, 10
"""Layers of two chains: their difference is free of what a call of the whole model costs."""


def chain(shape: DenseShape, layers: int, dtype: DType, folder: Path) -> Path:
    """A model of dense layers, to ``filters`` and back to ``channels``, ``layers`` times."""
    rng = np.random.default_rng(0)
    program = Program()
    subgraph = program.subgraphs[program.new_subgraph("main")]
    builder, whole = Builder(program, subgraph), dtype == "int8"
    builder.results = (_INPUT,)
    x = y = Tensor("x", (shape.pixels, shape.channels), dtype, None, _INPUT if whole else None)
    subgraph.inputs = [x]
    for size in ((shape.filters, shape.channels), (shape.channels, shape.filters)) * layers:
        scales, points = (0.01,) * size[0], (0,) * size[0]
        if whole:
            weight = builder.constant(rng.integers(-127, 128, size).astype(np.int8), QuantParams(scales, points, 0))
            params = QuantParams((0.0005,) * size[0], points, 0)
            bias = builder.constant(rng.integers(0, 9, size[0]).astype(np.int32), params)
        else:
            weight = builder.constant(rng.normal(0, 0.1, size).astype(np.float32))
            bias = builder.constant(rng.normal(0, 0.1, size[0]).astype(np.float32))
        y = builder.fully_connected(y, weight, bias)
    subgraph.outputs = [y]
    path = folder / "dense.tflite"
    write_model(program, Signature({"x": x}, {"y": y}), path, metadata={}, description="")
    return path


def layer(shape: DenseShape, dtype: DType) -> float:
    """Nanoseconds of one dense layer within a model, the mean of there and back."""
    with tempfile.TemporaryDirectory() as folder:
        short, long = (nanoseconds(chain(shape, layers, dtype, Path(folder))) for layers in (SHORT, LONG))
    return (long - short) / (2 * (LONG - SHORT))


def dense_table(kind: str, times: Sequence[float]) -> None:
    """Print the best tile of dense layers, with what a call costs."""
    found = []
    both = [(shape, DenseShape(shape.pixels, shape.filters, shape.channels)) for shape in DENSE]
    for rows, (channels, filters) in itertools.product(ROWS, LIKELY):
        units = Tile(channels, filters, 1.0, 0.0, rows), Tile(channels, filters, 0.0, 1.0, rows)
        parts = [[1.0, *(float(np.mean([unit.nanoseconds(each) for each in pair])) for unit in units)] for pair in both]
        scaled = np.array(parts) / np.array(times)[:, None]
        call, product, output = np.linalg.lstsq(scaled, np.ones(len(times)), rcond=None)[0]
        if min(call, product, output) > 0:
            error = float(np.abs(scaled @ (call, product, output) - 1).mean())
            found.append((error, Tile(channels, filters, float(product), float(output), rows, float(call))))
    error, tile = min(found, key=lambda each: each[0])
    for shape, each in zip(DENSE, times, strict=True):
        print(f"{kind} {shape}: {each:.0f} ns, by the tile {tile.nanoseconds(shape):.0f}", file=sys.stderr)
    print(f"{kind}: mean error {100 * error:.0f} %", file=sys.stderr)
    print(f"[[{kind}]]\nchannels = {tile.channels}\nfilters = {tile.filters}\npixels = {tile.pixels}")
    print(f"product = {tile.product:.3g}\noutput = {tile.output:.3g}\ncall = {tile.call:.3g}\n")


def artifact(timed: Timed, given: DType, stored: DType, folder: Path) -> Path:
    """A model of one convolution, of images of type ``given`` with weights of type ``stored``."""
    rng = np.random.default_rng(0)
    program = Program()
    subgraph = program.subgraphs[program.new_subgraph("main")]
    builder, filters = Builder(program, subgraph), timed.shape.filters
    size = (filters, timed.window, timed.window, timed.shape.channels)
    x = Tensor("x", (1, timed.side, timed.side, size[3]), given, None, _INPUT if given == "int8" else None)
    subgraph.inputs = [x]
    builder.results = (_INPUT,)
    points = (0,) * filters
    if stored == "int8":
        weight = builder.constant(
            rng.integers(-127, 128, size).astype(np.int8), QuantParams((0.01,) * filters, points, 0)
        )
    else:
        weight = builder.constant(rng.normal(0, 1, size).astype(np.float32))
    if given == "int8":
        bias = builder.constant(np.zeros(filters, np.int32), QuantParams((0.0005,) * filters, points, 0))
    else:
        bias = builder.constant(np.zeros(filters, np.float32))
    if isinstance(timed.shape, TransposedShape):
        side = 2 * timed.side - 2 + timed.window
        wanted = (1, side, side, filters)
        y = builder.transpose_conv(
            x, weight, bias, sizes=builder.ints(wanted), shape=wanted, padding="VALID", strides=(2, 2)
        )
    else:
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


def fitted(all_timed: Sequence[Timed], times: Sequence[float]) -> tuple[Tile, float]:
    """The likely tile that explains the times best, and its mean relative error."""
    found = []
    for channels, filters in LIKELY:
        parts = [[tile.nanoseconds(timed.shape) for timed in all_timed] for tile in _units(channels, filters)]
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


def timings(all_timed: Sequence[Timed], given: DType, stored: DType) -> list[float]:
    """Nanoseconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        return [nanoseconds(artifact(timed, given, stored, Path(folder))) for timed in all_timed]


def table(kind: str, all_timed: Sequence[Timed], times: Sequence[float]) -> None:
    """Print the best tile as a table; what was measured goes to stderr."""
    tile, error = fitted(all_timed, times)
    for timed, each in zip(all_timed, times, strict=True):
        by_tile = tile.nanoseconds(timed.shape) / 1e3
        print(f"{kind} {timed.shape}: {each / 1e3:.1f} us, by the tile {by_tile:.1f}", file=sys.stderr)
    print(f"{kind}: mean error {100 * error:.0f} %", file=sys.stderr)
    print(f"[[{kind}]]\nchannels = {tile.channels}\nfilters = {tile.filters}")
    print(f"product = {tile.product:.3g}\noutput = {tile.output:.3g}\n")


def between_floats(all_timed: Sequence[Timed], whole: Sequence[float], mixed: Sequence[float]) -> None:
    """Print what an element that is read costs more than in integers throughout; writing floats is no dearer."""
    read = np.array([timed.read for timed in all_timed]) / np.array(mixed)
    more = (np.array(mixed) - np.array(whole)) / np.array(mixed)
    print(f"[between_floats]\nread = {max(float(read @ more / (read @ read)), 0.0):.3g}\n")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-amx", action="store_true")
    if parser.parse_args().no_amx:
        deny_matrix_tiles()
    for suffix, all_timed in (("", PLAIN), ("_transposed", STRIDED)):
        table(f"float32{suffix}", all_timed, timings(all_timed, "float32", "float32"))
        table(f"int8{suffix}", all_timed, timings(all_timed, "int8", "int8"))
    dense_table("float32_dense", [layer(shape, "float32") for shape in DENSE])
    dense_table("int8_dense", [layer(shape, "int8") for shape in DENSE])
    windows = [timed for timed in PLAIN if timed.window > 1]
    between_floats(windows, timings(windows, "int8", "int8"), timings(windows, "float32", "int8"))


if __name__ == "__main__":
    main()
