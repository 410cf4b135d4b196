"""Write docs/measurements/npus.md: ``python bench/npus.py``, about ten minutes on two idle cores.

Real models come from the folder in ``$CONVERTKIT_CASES``.  Every number is of an export that was run here; what runs on
an NPU alone is told as an estimate.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from npu_operators import Case, cases

import convertkit
from convertkit.artifact import sha256_of
from convertkit.errors import ConvertKitError
from convertkit.result import Result

HERE = Path(__file__).resolve().parents[1]
PAGE = HERE / "docs" / "measurements" / "npus.md"
CASES = Path(os.environ["CONVERTKIT_CASES"])
ACCELERATORS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
WORKERS = 2
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


def whole_model(model: Model) -> tuple[str, list[str]]:
    """Rows of both tables."""
    plain = Model(model.name, model.path, model.calibration, None)
    with tempfile.TemporaryDirectory() as place:
        row = _simulated(model, plain, Path(place))
        arms = []
        for accelerator in ACCELERATORS:
            options = {"ethos-u": {"accelerator": accelerator}}
            arms.append(_arm(plain, accelerator, Path(place) / accelerator, options))
    print(model.name, flush=True)
    return row, arms


def _simulated(model: Model, plain: Model, place: Path) -> str:
    try:
        made = exported(model, "qnn", place / "qnn")
        again = exported(plain, "qnn", place / "again")
    except ConvertKitError as refusal:
        return _row([model.name, f"refused: {_brief(refusal)}", "", "", "", ""])
    same = sha256_of(made.path / "model_qnn.bin") == sha256_of(again.path / "model_qnn.bin")
    report = made.report
    cells = [
        model.name, _accuracy(report["evaluation"]), _decibels(report["quality"]["snr_db"]),
        _parity(report["steps"][-1]["parity"]["versus_previous"]["tensors"]), f"{made.artifact.size_bytes:,}",
        "yes" if same else "NO",
    ]  # fmt: skip
    return _row(cells)


def _arm(model: Model, accelerator: str, place: Path, options: Mapping[str, Any]) -> str:
    try:
        made = exported(model, "ethos-u", place, io_dtype="int8", target_options=options)
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
    print(case.name, _parity(tensors), flush=True)
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


def page() -> str:
    """All of it."""
    with ProcessPoolExecutor(WORKERS) as pool:
        wholes = [pool.submit(whole_model, model) for model in models()]
        rows = [each.result() for each in [pool.submit(operator, case) for case in cases()]]
        made = [each.result() for each in wholes]
    counts = {word: sum(f"| {word} |" in row for row in rows) for word in ("right", "off", "refused", "wrong")}
    counted = ", ".join(f"{count} {word}" for word, count in counts.items())
    return _PAGE.format(
        tools=" and ".join(f"{name} {version(name)}" for name in ("onnxruntime-qnn", "ethos-u-vela")),
        models="\n".join(row for row, _ in made),
        arms="\n".join(row for _, arms in made for row in arms),
        operators="\n".join(rows),
        counted=counted,
    )


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
    PAGE.write_text(page(), encoding="utf-8")
