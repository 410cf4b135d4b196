"""Estimates beside what others have published of the same architectures: ``published.py FOLDER [--write]``.

The architectures are written down once more with random weights, as those who published them did or might have, in
float32 and in whole int8.  One call of each is counted under emulation (``arm_costs.py``), with the kernels, threads
and core of what was published.  Each finding is a line of FOLDER/rows.jsonl, and what is in there is not done
again.  ``--write`` puts the tables into docs/measurements/device-costs.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import zoo
from arm.cores import cores
from arm.emulator import counted
from arm.schedule import Schedule
from page_rows import replace_between
from torch import nn
from zoo_mobile import Block, Pooled, Squeeze, mobilenetv2, mobilenetv3s, unit

import convertkit

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "measurements" / "device-costs.md"
BEGIN, END = "<!-- bench/published.py -->", "<!-- end of published -->"
LITE = {0: (1.0, 1.0, 224), 1: (1.0, 1.1, 240), 2: (1.1, 1.2, 260), 3: (1.2, 1.4, 280), 4: (1.4, 1.8, 300)}
"""Width, depth and size of EfficientNet-Lite's members."""
PIXEL_3A = {"MobileNetV1": 88, "MobileNetV2": 55, "MobileNetV3 large": 44, "MobileNetV3 small": 14}
"""Milliseconds of float32, one thread, XNNPACK's README of March 2020."""
LIMIT = 0.2


@dataclass(frozen=True, slots=True)
class Way:
    """How it was measured, and what that is here."""

    source: str
    core: str
    threads: int
    kernels: str


@dataclass(frozen=True, slots=True)
class Told:
    """What somebody published: milliseconds of float32 and int8, and of what."""

    name: str
    how: Way
    float_ms: float
    integer_ms: float


_PI = Way("Raspberry Pi 4 in 64 bits, 4 threads, XNNPACK 2022", "arm64-a72", 4, "xnnpack")
_PIXEL_4 = Way("Pixel 4, 4 threads, TFLite 2020", "arm64-a76", 4, "builtin")
_PIXEL_3 = Way("Pixel 3, 1 thread, TFLite 2019", "arm64-a75", 1, "builtin")
_PIXEL_3A = Way("Pixel 3a, 1 thread, XNNPACK 2020", "arm64-a76", 1, "xnnpack")
PUBLISHED = (
    Told("MobileNetV1", _PI, 77, 24),
    Told("MobileNetV2", _PI, 46, 17),
    Told("MobileNetV3 large", _PIXEL_3, 44, 32),
    Told("MobileNetV3 small", _PIXEL_3, 14.4, 10.7),
    Told("EfficientNet-Lite0", _PIXEL_4, 12, 6.5),
    Told("EfficientNet-Lite1", _PIXEL_4, 18, 9.1),
    Told("EfficientNet-Lite2", _PIXEL_4, 26, 12),
    Told("EfficientNet-Lite3", _PIXEL_4, 41, 18),
    Told("EfficientNet-Lite4", _PIXEL_4, 76, 30),
)


def mobilenetv1() -> nn.Module:
    """Depthwise and pointwise convolutions in turns (Howard 2017)."""
    rows = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    layers, channels = [unit(3, 32, 3, nn.ReLU6, 2)], 32
    for outputs, stride in rows:
        layers += [unit(channels, channels, 3, nn.ReLU6, stride, channels), unit(channels, outputs, 1, nn.ReLU6)]
        channels = outputs
    return Pooled(nn.Sequential(*layers), channels)


def mobilenetv3l() -> nn.Module:
    """MobileNetV3 large (Howard 2019)."""
    hard, relu = nn.Hardswish, nn.ReLU
    # inputs, hidden, outputs, kernel, stride, width of the gate (0: none), activation
    rows = [
        (16, 16, 16, 3, 1, 0, relu), (16, 64, 24, 3, 2, 0, relu), (24, 72, 24, 3, 1, 0, relu),
        (24, 72, 40, 5, 2, 24, relu), (40, 120, 40, 5, 1, 32, relu), (40, 120, 40, 5, 1, 32, relu),
        (40, 240, 80, 3, 2, 0, hard), (80, 200, 80, 3, 1, 0, hard), (80, 184, 80, 3, 1, 0, hard),
        (80, 184, 80, 3, 1, 0, hard), (80, 480, 112, 3, 1, 120, hard), (112, 672, 112, 3, 1, 168, hard),
        (112, 672, 160, 5, 2, 168, hard), (160, 960, 160, 5, 1, 240, hard), (160, 960, 160, 5, 1, 240, hard),
    ]  # fmt: skip
    layers: list[nn.Module] = [unit(3, 16, 3, hard, 2)]
    for inputs, hidden, outputs, size, stride, width, act in rows:
        gate = Squeeze(hidden, width, nn.ReLU, nn.Hardsigmoid) if width else None
        layers.append(Block(inputs, outputs, hidden, size, stride, act, gate))
    layers.append(unit(160, 960, 1, hard))
    return Pooled(nn.Sequential(*layers), 1280, nn.Sequential(nn.Conv2d(960, 1280, 1), nn.Hardswish()))


def efficientnet_lite(member: int) -> nn.Module:
    """EfficientNet without gates and with ReLU6; stem, head and the repeats of both ends do not grow."""
    width, depth, _ = LITE[member]
    # expansion, channels, repeats, stride, kernel
    rows = [
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
    ]  # fmt: skip
    layers, channels = [unit(3, 32, 3, nn.ReLU6, 2)], 32
    for place, (expansion, outputs, repeats, stride, size) in enumerate(rows):
        count = repeats if place in (0, len(rows) - 1) else math.ceil(depth * repeats)
        for turn in range(count):
            wide = _rounded(outputs * width)
            step = stride if turn == 0 else 1
            layers.append(Block(channels, wide, channels * expansion, size, step, nn.ReLU6, None))
            channels = wide
    layers.append(unit(channels, 1280, 1, nn.ReLU6))
    return Pooled(nn.Sequential(*layers), 1280)


def _rounded(channels: float) -> int:
    """To a multiple of 8, and not below nine tenths."""
    found = max(8, int(channels + 4) // 8 * 8)
    return found + 8 if found < 0.9 * channels else found


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "MobileNetV1": (mobilenetv1, 224),
    "MobileNetV2": (mobilenetv2, 224),
    "MobileNetV3 large": (mobilenetv3l, 224),
    "MobileNetV3 small": (mobilenetv3s, 224),
    **{f"EfficientNet-Lite{n}": (lambda n=n: efficientnet_lite(n), size) for n, (_, _, size) in LITE.items()},
}


def files(name: str, folder: Path) -> dict[str, Path]:
    """The model in float32 and int8, made where they are missing."""
    stem = folder / name.replace(" ", "-")
    found = {kind: stem.with_suffix(f".{kind}.tflite") for kind in ("float32", "int8")}
    if all(path.exists() for path in found.values()):
        return found
    make, size = MODELS[name]
    torch.manual_seed(0)
    model, samples = make().eval(), {"x": zoo.image(1, 2, size).numpy()}
    common = {"example": zoo.image(0, 1, size), "allow_unverified": True, "force": True}  # weights are random
    ways: dict[str, dict[str, object]] = {
        "float32": {},
        "int8": {"int8": True, "full_integer": True, "device": "phone", "calib": samples},
    }
    for kind, path in found.items():
        result = convertkit.export(model, "tflite", output=stem.with_suffix(f".{kind}"), **common, **ways[kind])
        shutil.copyfile(result.artifact.path, path)
    return found


def wanted() -> Iterator[tuple[str, str, Way]]:
    """Model, precision and way of all that the tables hold."""
    yield from ((name, "float32", _PIXEL_3A) for name in PIXEL_3A)
    for told in PUBLISHED:
        yield from ((told.name, kind, told.how) for kind in ("float32", "int8"))


def rows(book: Path) -> dict[tuple[str, str, str], float]:
    """Milliseconds by model, precision and way."""
    lines = book.read_text().splitlines() if book.exists() else []
    return {(row["model"], row["kind"], row["way"]): row["ms"] for row in map(json.loads, lines)}


def section(known: dict[tuple[str, str, str], float]) -> str:
    """Both tables."""
    lines = [BEGIN, "| architecture | published of | int8 / float32 | core | kernels | estimated ms | int8 / float32 |"]
    lines += ["|---|---|---|---|---|---|---|"]
    near = []
    for told in PUBLISHED:
        if any((told.name, kind, told.how.source) not in known for kind in ("float32", "int8")):
            continue
        real, integer = (known[told.name, kind, told.how.source] for kind in ("float32", "int8"))
        published, ours = told.integer_ms / told.float_ms, integer / real
        near.append(abs(ours / published - 1) <= LIMIT)
        lines.append(
            f"| {told.name} | {told.how.source} | {told.float_ms:g} → {told.integer_ms:g}, {published:.2f} "
            f"| `{told.how.core}` | `{told.how.kernels}` | {real:.3g} → {integer:.3g} "
            f"| {ours:.2f} ({100 * (ours / published - 1):+.0f} %) |"
        )
    lines += ["", f"Within {100 * LIMIT:.0f} %: {sum(near)} of {len(near)}.", ""] if near else [""]
    lines += [
        "| architecture, float32 | Pixel 3a, 1 thread, ms | over MobileNetV2 | `arm64-a76` ms | over MobileNetV2 |"
    ]
    lines += ["|---|---|---|---|---|"]
    first = known["MobileNetV2", "float32", _PIXEL_3A.source]
    for name, ms in PIXEL_3A.items():
        ours = known.get((name, "float32", _PIXEL_3A.source), math.nan)
        lines.append(f"| {name} | {ms} | {ms / PIXEL_3A['MobileNetV2']:.2f} | {ours:.3g} | {ours / first:.2f} |")
    return "\n".join((*lines, END))


def main() -> None:
    """Make, count and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    args.folder.mkdir(parents=True, exist_ok=True)
    book = args.folder / "rows.jsonl"
    if args.write:
        replace_between(PAGE, section(rows(book)), BEGIN, END)
        return
    for name, kind, way in wanted():
        if (name, kind, way.source) in rows(book):
            continue
        known = cores()[way.core]
        counts, _ = counted([files(name, args.folder)[kind]], known, kernels=way.kernels)
        (found,) = Schedule(known).estimates(counts, way.threads)
        row = {"model": name, "kind": kind, "way": way.source, "ms": found.nanoseconds / 1e6}
        with book.open("a") as lines:
            lines.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
