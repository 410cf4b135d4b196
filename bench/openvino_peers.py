"""Our int8 for OpenVINO beside NNCF's, from the same calibration data: SNR, size, latency.

    python bench/openvino_peers.py ZOO OUT --nncf PYTHON [--models A,B] [--rounds N]

ZOO is what ``make_zoo.py`` writes, PYTHON the interpreter of an environment with nncf and openvino.  Files that exist
in OUT are kept.  Prints a row of docs/measurements/openvino.md for each model, as soon as it is known.

Every file runs in OpenVINO's CPU plugin on one thread, float parts in float32.  Latency is the process's own time: the
least of three calls, in turns, and of the turns the median.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
import openvino

MODELS = ("bert_small", "unet", "resnet18", "yolo_head", "mobilenetv2", "vit_tiny")
TRANSFORMERS = frozenset({"bert_small", "vit_tiny"})
PRESETS = ("performance", "mixed")
SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
CALLS = 3

Feed = dict[str, np.ndarray]


def made(name: str, zoo: Path, out: Path, nncf: Path) -> dict[str, Path]:
    """The files of one model, by who made them; one that was not made is left out."""
    model, calibration = zoo / f"{name}.onnx", zoo / f"{name}.calib.npz"
    commands: dict[str, tuple[Path, list[str | Path]]] = {}
    convertkit = [sys.executable, "-m", "convertkit", "export", model, "--target", "openvino"]
    ours, plain = out / f"{name}.int8", out / f"{name}.float32"
    quantized = [*convertkit, "--int8", "--calib", calibration, "-o"]
    commands["convertkit"] = ours / "model.xml", [*quantized, ours]
    eight = out / f"{name}.int8-8"
    commands["convertkit, 8 bits"] = eight / "model.xml", [*quantized, eight, "--openvino-weight-bits", "8"]
    commands["float32"] = plain / "model.xml", [*convertkit, "-o", plain]
    script, kind = Path(__file__).parent / "peers" / "nncf_quantize.py", "none"
    if name in TRANSFORMERS:
        kind = "transformer"
    for preset in PRESETS:
        path = out / f"{name}.nncf-{preset}.xml"
        commands[f"nncf {preset}"] = path, [nncf, script, model, path, calibration, preset, kind]
    for label, (path, command) in commands.items():
        if not path.exists() and subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
            print(f"{name}: {label} failed", flush=True)
    return {label: path for label, (path, _) in commands.items() if path.exists()}


class Loaded:
    """An IR in the CPU plugin; outputs in the order of the ONNX graph."""

    def __init__(self, path: Path) -> None:
        core = openvino.Core()
        self.request = core.compile_model(core.read_model(path), "CPU", SETTINGS).create_infer_request()
        self.bytes = path.stat().st_size + path.with_suffix(".bin").stat().st_size

    def run(self, feed: Feed) -> list[np.ndarray]:
        found = self.request.infer(feed)
        return [np.array(found[place]) for place in range(len(found))]

    def least_ms(self, feed: Feed) -> float:
        times = []
        for _ in range(CALLS):
            started = time.process_time_ns()
            self.request.infer(feed)
            times.append(time.process_time_ns() - started)
        return 1e-6 * min(times)


def decibels(loaded: Loaded, samples: list[Feed], wanted: list[list[np.ndarray]]) -> float:
    """Signal over noise of all outputs over all samples."""
    signal = noise = 0.0
    for feed, expected in zip(samples, wanted, strict=True):
        for got, right in zip(loaded.run(feed), expected, strict=True):
            signal += float(np.square(right, dtype=np.float64).sum())
            noise += float(np.square(got.astype(np.float64) - right).sum())
    return 10 * float(np.log10(signal / max(noise, 1e-300)))


def measured(name: str, zoo: Path, files: dict[str, Path], rounds: int) -> dict[str, str]:
    """SNR, size and latency of each file, in words."""
    arrays = dict(np.load(zoo / f"{name}.eval.npz"))
    count = len(next(iter(arrays.values())))
    samples = [{key: array[place : place + 1] for key, array in arrays.items()} for place in range(count)]
    session = onnxruntime.InferenceSession(zoo / f"{name}.onnx", providers=["CPUExecutionProvider"])
    wanted = [session.run(None, feed) for feed in samples]
    loaded = {label: Loaded(path) for label, path in files.items()}
    snr = {label: decibels(each, samples, wanted) for label, each in loaded.items()}
    times: dict[str, list[float]] = {label: [] for label in loaded}
    for turn in range(rounds):
        for label, each in loaded.items():
            times[label].append(each.least_ms(samples[turn % count]))
    return {
        label: f"{snr[label]:.1f} dB, {each.bytes / 1000:,.0f} KB, {np.median(times[label]):.3g} ms"
        for label, each in loaded.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("zoo", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--nncf", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    columns = ("float32", "convertkit", "convertkit, 8 bits", *(f"nncf {preset}" for preset in PRESETS))
    print(f"| model | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}", flush=True)
    for name in options.models.split(","):
        files = made(name, options.zoo, options.out, options.nncf)
        found = measured(name, options.zoo, files, options.rounds)
        print(f"| {name} | {' | '.join(found.get(column, '–') for column in columns)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
