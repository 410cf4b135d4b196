"""Measure the tiles of LiteRT's convolutions on this machine: ``python bench/tile_costs.py [--no-amx]``.

Prints a table for each kind of kernel, for ``targets/tflite/costs/x86.kernels.toml``, which holds those of several
machines.
Convolutions of different width, plain, of one element and transposed, and dense layers are timed
(``convertkit.targets.tflite.costs.measured.tiles``).  Between floats the int8 kernel takes longer by what it reads and
writes.  ``--no-amx`` denies the process the processor's matrix tiles, as if it had none.
"""

from __future__ import annotations

import argparse
import ctypes
import struct
import sys

from convertkit.targets.tflite.costs.measured.clock import Clock, Here
from convertkit.targets.tflite.costs.measured.tiles import (
    DENSE,
    LARGE,
    POINTWISE,
    STEPS,
    STRIDED,
    Timed,
    best_alone,
    best_within,
    between_floats,
    rendered,
    timings,
)

HERE = Here(sweeps=12, rounds=3)
ALONE = Here(sweeps=1, rounds=20)


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


def say(line: str) -> None:
    """What was measured goes to stderr."""
    print(line, file=sys.stderr)


def tables(clock: Clock, alone: Clock) -> None:
    """Print all; ``alone`` times convolutions that are a model of their own."""
    kinds: tuple[tuple[str, tuple[Timed, ...]], ...] = (("", STEPS), ("_pointwise", POINTWISE), ("_dense", DENSE))
    for suffix, every in kinds:
        layers = [each for each in every if not clock.exact or each.work <= LARGE]
        for dtype in ("float32", "int8"):
            kind, apart = f"{dtype}{suffix}", None if suffix == "_dense" else alone
            print(rendered(kind, best_within(kind, layers, dtype, clock, say, apart)), end="")
    for dtype in ("float32", "int8"):
        kind = f"{dtype}_transposed"
        times = timings(STRIDED, dtype, dtype, alone)
        print(rendered(kind, best_alone(kind, STRIDED, times, say)), end="")
    whole, mixed = (timings(STEPS, given, "int8", alone) for given in ("int8", "float32"))
    print(f"[between_floats]\nread = {between_floats(STEPS, whole, mixed):.3g}\n")


def main() -> None:
    """Print the tables of this machine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-amx", action="store_true")
    if parser.parse_args().no_amx:
        deny_matrix_tiles()
    tables(HERE, ALONE)


if __name__ == "__main__":
    main()
