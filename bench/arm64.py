"""Artifacts on arm64 beside x86-64: real models, and what exports make of the fixtures.

``arm64.py [--cases FOLDER] [--only WORD]`` exports each fixture in each precision, runs every file and package by
``convertkit verify --arm64`` on both cores, and writes ``docs/measurements/arm64.md``.  It needs what ``--arm64-setup``
makes.  FOLDER holds the real models that the tests use; ``$CONVERTKIT_CASES`` without it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import convertkit
from convertkit.compare.agreement import Verification
from convertkit.emulation.arm64 import verify_arm64
from convertkit.emulation.cores import CORES
from convertkit.emulation.root import installed
from convertkit.errors import ConvertKitError
from convertkit.formatting import diff_text

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measurements" / "arm64.md"
FILES = (
    "mlperf-kws/reference_int8.tflite",
    "mlperf-kws/reference_hybrid.tflite",
    "mlperf-ic/pretrainedResnet.tflite",
    "mlperf-ic/pretrainedResnet_quant.tflite",
    "mnist/trained_lstm.tflite",
    "mnist/trained_lstm_int8.tflite",
    "mnist/mnist.onnx",
    "mnist/cnn_mnist_pytorch.onnx",
    "tflm/hello_world_float.tflite",
    "tflm/hello_world_int8.tflite",
    "tflm/micro_speech_quantized.tflite",
    "dtln/model_1.tflite",
    "dtln/model_2.tflite",
    "dtln/model_quant_1.tflite",
    "dtln/model_quant_2.tflite",
    "dtln/model_1.onnx",
    "dtln/model_2.onnx",
    "silero-vad/silero_vad.onnx",
)
SOURCES = {
    "digits": ("digits/model.pt", "digits/calib.npz"),
    "keras-digits": ("keras-digits/model.keras", "keras-digits/calib.npz"),
    "detector": ("detector/saved_model", "detector/calib.npz"),
    "brackets": ("brackets/model.onnx", "brackets/calib.npz"),
    "keywords": ("keywords/model.pt2", None),
}
MADE: dict[str, Sequence[dict[str, object]]] = {
    "tflite": (
        {},
        {"int8": True},
        {"int8": True, "full_integer": True},
        {"int16x8": True},
        {"fp16": True},
        {"w8": True},
    ),
    "onnxruntime": ({}, {"int8": True}, {"fp16": True}, {"w8": True}),
    "ort-mobile": ({}, {"int8": True}),
    "android": ({"int8": True},),
}
CALIBRATED = frozenset({"int8", "int16x8"})


@dataclass(frozen=True, slots=True)
class Row:
    """A model on every core; ``said`` is why not, where it was not run."""

    name: str
    kind: str
    cores: tuple[Verification, ...] = ()
    said: str = ""

    def cells(self) -> Iterator[str]:
        """The row of the table."""
        yield self.name
        yield self.kind
        if self.said:
            yield from (self.said, *("" for _ in range(len(CORES))))
            return
        yield str(self.cores[0].report.feeds)
        yield from map(_difference, self.cores)


def _difference(found: Verification) -> str:
    told = "; ".join(dict.fromkeys(diff_text(diff) for diff in found.report.diffs))
    if not found.passed:
        return f"**{found.headline.partition(': ')[0]}**: {told}"
    beyond = sum(bool(each.explained) for each in found.report.departures)
    return f"{told}; {beyond} beyond 1e-6, as its float64 twin allows" if beyond else told


def verified(name: str, kind: str, path: Path, calib: Path | None = None) -> Row:
    """One file or delivered folder."""
    try:
        return Row(name, kind, verify_arm64(path, calib=None if calib is None else str(calib)).cores)
    except ConvertKitError as error:
        return Row(name, kind, said=str(error).splitlines()[0])


def rows(cases: Path | None, only: str, folder: Path) -> Iterator[Row]:
    """Real models as they are, then what exports make."""
    for name in FILES if cases is not None else ():
        if only in name:
            assert cases is not None
            yield verified(name.removesuffix(Path(name).suffix), f"as it is, {Path(name).suffix}", cases / name)
    for name, (source, calib) in SOURCES.items():
        for target, choices in MADE.items():
            for chosen in choices:
                label = f"{target} {' '.join(chosen) or 'float32'}"
                needs = bool(CALIBRATED & set(chosen))
                if only in f"{name} {label}" and (calib is not None or not needs):
                    yield exported(name, label, source, calib if needs else None, folder, target, chosen)


def exported(
    name: str, label: str, source: str, calib: str | None, folder: Path, target: str, chosen: dict[str, object]
) -> Row:
    """An export, run."""
    fixtures, out = ROOT / "fixtures", folder / f"{name} {label}"
    more = {} if calib is None else {"calib": str(fixtures / calib)}
    try:
        convertkit.export(str(fixtures / source), target=target, output=str(out), **more, **chosen)
    except ConvertKitError as error:
        return Row(name, label, said=f"not exported: {str(error).splitlines()[0]}")
    return verified(name, label, out)


def page(found: Iterable[Row]) -> str:
    """The page, with the table."""
    versions = ", ".join(f"{name} {version}" for name, version in installed().items())
    head = ("model", "artifact", "inputs", *CORES)
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *(row.cells() for row in found))]
    intro = PAGE.read_text(encoding="utf-8").partition("<!-- table -->")[0]
    return f"{intro}<!-- table -->\n{versions}.\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write the page, or print the rows that hold a word."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=Path, default=os.environ.get("CONVERTKIT_CASES"))
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    cases = None if given.cases is None else Path(given.cases)
    found = []
    with tempfile.TemporaryDirectory() as name:
        for row in rows(cases, given.only, Path(name)):
            print(" | ".join(row.cells()), flush=True)
            found.append(row)
    if not given.only:
        PAGE.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
