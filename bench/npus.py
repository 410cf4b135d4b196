"""Write docs/measurements/npus.md: ``python bench/npus.py [--part PART …] [--model NAME …]``, about ten minutes in all.

Each row is a line of JSON in ``build/npus.jsonl`` and is not made again while that is there; rows of the page whose
lines are not there stay as they are.  Parts are ``simulated``, ``arm`` and ``operators``.
Real models come from the folder in ``$CONVERTKIT_CASES``.  Every number is of an export that was run here; what runs on
an NPU alone is told as an estimate.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from npu_operators import Case, cases
from page_rows import merged

import convertkit
from convertkit.artifact import sha256_of
from convertkit.errors import ConvertKitError
from convertkit.result import Result

HERE = Path(__file__).resolve().parents[1]
PAGE = HERE / "docs" / "measurements" / "npus.md"
CASES = Path(os.environ["CONVERTKIT_CASES"])
ACCELERATORS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
ROWS = HERE / "build" / "npus.jsonl"
HEADINGS = {
    "simulated": ("## Qualcomm's HTP", 1),
    "arm": ("## Arm's Ethos-U", 2),
    "operators": ("## Operators on the HTP", 1),
}
"""By part, the heading of its table and how many cells tell its rows apart."""
INTEGERS: Mapping[str, Any] = {"int8": True, "full_integer": True}
EVALUATED = 300
"""Samples for the accuracy: the simulator takes up to 0.1 s for each."""
SAME_LSB = 3.0
"""Above it, a result is not explained by the roundings of one operator."""

Samples = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Model:
    """A trained model with samples to calibrate on, and labelled ones where there are any."""

    name: str
    path: Path
    calibration: Samples
    labelled: Samples | None


def models() -> Iterator[Model]:
    """Fixtures and real cases."""
    for name, file in (("digits", "model.pt"), ("keras-digits", "model.keras")):
        folder = HERE / "fixtures" / name
        yield Model(name, folder / file, dict(np.load(folder / "calib.npz")), dict(np.load(folder / "test.npz")))
    spoken = np.load(CASES / "mlperf-kws" / "kws01.npz")
    sounds = (spoken["mfcc_int8"].astype(np.float32) - 83) * np.float32(0.5847029)
    labelled = {"input_1": sounds[100:], "label": spoken["label"][100:]}
    yield Model("MLPerf keyword spotting", CASES / "mlperf-kws" / "saved_model", {"input_1": sounds[:100]}, labelled)
    digits, labels = (_idx(CASES / "mnist" / f"t10k-{name}-ubyte.gz") for name in ("images-idx3", "labels-idx1"))
    pixels = digits[:, None].astype(np.float32)
    (name,) = (each.name for each in onnx.load(CASES / "mnist" / "mnist.onnx").graph.input if "Input" in each.name)
    labelled = {name: pixels[200:1200], "label": labels[200:1200].astype(np.int64)}
    yield Model("MNIST CNN", CASES / "mnist" / "mnist.onnx", {name: pixels[:200]}, labelled)
    noise = np.random.default_rng(0).uniform(0, 255, (100, 32, 32, 3)).astype(np.float32)
    yield Model("MLPerf image classification", CASES / "mlperf-ic" / "pretrainedResnet.h5", {"input_1": noise}, None)


def _idx(path: Path) -> np.ndarray:
    """Source of the format: the header of MNIST's files, three bytes and the number of axes, sizes big-endian."""
    data = gzip.decompress(path.read_bytes())
    axes = data[3]
    sizes = np.frombuffer(data, ">i4", axes, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(sizes)


def exported(model: Model, target: str, place: Path, **flags: Any) -> Result:
    """Calibrated, and evaluated where labels are there."""
    some = {name: values[:EVALUATED] for name, values in (model.labelled or {}).items()}
    evaluated = {"eval": some, "max_drop": 100.0} if some else {}
    return convertkit.export(
        model.path, target, calib=dict(model.calibration), output=place, **INTEGERS, **evaluated, **flags
    )


def simulated(model: Model) -> str:
    """A row of the first table; exported twice."""
    plain = Model(model.name, model.path, model.calibration, None)
    with tempfile.TemporaryDirectory() as place:
        try:
            made = exported(model, "qnn", Path(place) / "qnn")
            again = exported(plain, "qnn", Path(place) / "again")
        except ConvertKitError as refusal:
            return _row([model.name, f"refused: {_brief(refusal)}", "", "", "", ""])
        return _measured(model, made, again)


def _measured(model: Model, made: Result, again: Result) -> str:
    same = sha256_of(made.path / "model_qnn.bin") == sha256_of(again.path / "model_qnn.bin")
    report = made.report
    cells = [
        model.name, _accuracy(report["evaluation"]), _decibels(report["quality"]["snr_db"]),
        _parity(report["steps"][-1]["parity"]["versus_previous"]["tensors"]), f"{made.artifact.size_bytes:,}",
        "yes" if same else "NO",
    ]  # fmt: skip
    return _row(cells)


def arm(model: Model, accelerator: str) -> str:
    """A row of the second table."""
    plain = Model(model.name, model.path, model.calibration, None)
    options = {"ethos-u": {"accelerator": accelerator}}
    with tempfile.TemporaryDirectory() as place:
        try:
            made = exported(plain, "ethos-u", Path(place) / "out", io_dtype="int8", target_options=options)
        except ConvertKitError as refusal:
            return _row([model.name, accelerator, f"refused: {_brief(refusal)}", "", "", ""])
    (device,) = made.report["estimates"]["devices"]
    memory = ", ".join(f"{name} {count:,}" for name, count in device["memory_bytes"].items())
    quality = _decibels(made.report["quality"]["snr_db"])
    return _row([model.name, accelerator, quality, f"{device['cycles']:,}", f"{device['ms']:.3g}", memory])


def operator(case: Case) -> str:
    """A row: right, refused or wrong, and how far the simulator is from the quantized graph."""
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "model.onnx"
        onnx.save(case.model(), source)
        try:
            made = convertkit.export(source, "qnn", calib=case.samples(), output=Path(place) / "out", **INTEGERS)
        except ConvertKitError as refusal:
            return _row([case.name, "wrong" if refusal.exit_code == 3 else "refused", _brief(refusal)])
        tensors = made.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    worst = max(float(each["lsb"]) for each in tensors)
    return _row([case.name, "right" if worst < SAME_LSB + 0.5 else "off", _parity(tensors)])


def _accuracy(evaluation: Mapping[str, Any] | None) -> str:
    if evaluation is None:
        return "no labels"
    return f"{evaluation['before']:.2f} → {evaluation['after']:.2f} ({evaluation['samples']})"


def _parity(tensors: Sequence[Mapping[str, Any]]) -> str:
    worst = max(tensors, key=lambda each: float(each["lsb"]))
    return f"{float(worst['lsb']):.2g} LSB, {_decibels(worst['snr_db'])}"


def _decibels(value: Any) -> str:
    return "equal" if value == "inf" else f"{float(value):.1f} dB"


def _brief(refusal: ConvertKitError) -> str:
    return str(refusal).splitlines()[0].replace("|", "/")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def wanted(parts: Sequence[str]) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Part, what tells the row apart in it, and what makes the row."""
    for model in models():
        if "simulated" in parts:
            yield "simulated", model.name, partial(simulated, model)
        for accelerator in ACCELERATORS if "arm" in parts else ():
            yield "arm", f"{model.name} | {accelerator}", partial(arm, model, accelerator)
    for case in cases() if "operators" in parts else ():
        yield "operators", case.name, partial(operator, case)


def page(rows: Mapping[str, Mapping[str, str]]) -> str:
    """All of it, with the rows that the page has and nobody made again."""
    found = {
        part: merged(PAGE, heading, list(rows.get(part, {}).values()), cells)
        for part, (heading, cells) in HEADINGS.items()
    }
    operators = found["operators"]
    counts = {word: sum(f"| {word} |" in row for row in operators) for word in ("right", "off", "refused", "wrong")}
    return _PAGE.format(
        tools=" and ".join(f"{name} {version(name)}" for name in ("onnxruntime-qnn", "ethos-u-vela")),
        models="\n".join(found["simulated"]),
        arms="\n".join(found["arm"]),
        operators="\n".join(operators),
        counted=", ".join(f"{count} {word}" for word, count in counts.items()),
    )


def main() -> None:
    """Make what is not there, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=tuple(HEADINGS))
    parser.add_argument("--model", action="append", help="rows of this model or operator only")
    options = parser.parse_args()
    ROWS.parent.mkdir(exist_ok=True)
    lines = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    rows: dict[str, dict[str, str]] = {part: {} for part in HEADINGS}
    for each in lines:
        rows[each["part"]][each["key"]] = each["row"]
    for part, key, make in wanted(options.part or tuple(HEADINGS)):
        if key in rows[part] or (options.model and key.partition(" | ")[0] not in options.model):
            continue
        rows[part][key] = make()
        with ROWS.open("a") as stream:
            stream.write(json.dumps({"part": part, "key": key, "row": rows[part][key]}) + "\n")
        print(rows[part][key], flush=True)
    PAGE.write_text(page(rows), encoding="utf-8")


_PAGE = """# NPUs: Qualcomm's in its simulator, Arm's as compiled

Generated by `python bench/npus.py` with {tools}, on x86.
The real models are not part of this repository.

## Qualcomm's HTP
`--target qnn --int8 --full-integer`, for `sm8650`. **Executed**: the delivered binary, every node of it, in the HTP
simulator. The accuracy is before and after, with the number of samples; the SNR is against the source on held-out
samples, and the last step is the simulator against the quantized graph in ONNX Runtime. The image classifier's data is
not here: it sees noise.

| model | top-1, % | SNR | last step | bytes | same bytes twice |
|---|---|---|---|---|---|
{models}

## Arm's Ethos-U
`--target ethos-u --int8 --full-integer --io-dtype int8`. **Compiled, not executed**: the SNR is that of the file before
Vela, in LiteRT; cycles, milliseconds and bytes of memory are Vela's estimates. `tests/targets/ethos_u/` finds the
weights again in Vela's streams.

| model | NPU | SNR before Vela | cycles | ms | memory |
|---|---|---|---|---|---|
{arms}

## Operators on the HTP
One operator each, quantized, compiled and simulated: {counted}. *Right* is at most 3 LSB from the quantized graph; an
output whose scale is finer than its input's may be *off* by one rounding of the input. *Refused* has no artifact.

| operator | | |
|---|---|---|
{operators}
"""


if __name__ == "__main__":
    main()
