"""Our int8 against onnxruntime's quantize_static on the same calibration data: SNR, accuracy, size.

    python bench/quantization.py MODEL.onnx CALIB.npz EVAL.npz [--threads N]

Prints one Markdown row per artifact.  ``quantize_static`` gets its best of three calibration methods
(MinMax, Entropy, Percentile), per channel, s8 activations and weights, after its own preprocessing;
ours gets its defaults, without looking at EVAL.npz.  Outputs are computed with graph optimisations
off, so that both are judged by what their graphs say.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from convertkit.artifact import Artifact, sha256_of
from convertkit.feeds import Feeds, load_feeds
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.plugins import target
from convertkit.quantization.stage import build
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext

PEER_METHODS = (CalibrationMethod.MinMax, CalibrationMethod.Entropy, CalibrationMethod.Percentile)


class Reader(CalibrationDataReader):
    """Feeds as quantize_static wants them."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        feed = next(self._feeds, None)
        return None if feed is None else dict(feed)


def ours(source: Artifact, calibration: Feeds, target_name: str, precision: str, folder: Path) -> Artifact:
    """The quantizing stage alone."""
    options = ExportOptions(source="bench", targets=(target_name,), precision=precision)
    stage = build(BuildContext(options, target(target_name), calibration=calibration))
    return stage.run(source, folder)


def peer(source: Artifact, calibration: Feeds, method: CalibrationMethod, folder: Path) -> Artifact:
    """quantize_static at its documented best: preprocessed, per channel, s8s8."""
    ready, path = folder / "ready.onnx", folder / f"{method.name}.onnx"
    quant_pre_process(str(source.path), str(ready), skip_symbolic_shape=True)
    quantize_static(
        str(ready),
        str(path),
        Reader(calibration),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=method,
    )
    return replace(source, path=path, sha256=sha256_of(path))


def outputs(artifact: Artifact, feeds: Feeds) -> list[np.ndarray]:
    """First output of every feed."""
    names = {spec.name for spec in artifact.inputs}
    with OnnxRunner(artifact) as runner:
        return [
            next(iter(runner.run({name: value for name, value in feed.items() if name in names}).values()))
            for feed in feeds
        ]


def row(title: str, artifact: Artifact, seconds: float, expected: list[np.ndarray], feeds: Feeds) -> str:
    """Time, size, SNR in dB over all samples, and top-1 where there are labels, else agreement with float."""
    got = outputs(artifact, feeds)
    a, b = np.concatenate([x.ravel() for x in expected]), np.concatenate([x.ravel() for x in got])
    snr = 10 * np.log10(
        float(np.square(a, dtype=np.float64).sum() / max(np.square(a - b, dtype=np.float64).sum(), 1e-30))
    )
    chosen = np.array([x.reshape(-1).argmax() for x in got])
    truth = feeds.labels if feeds.labels is not None else np.array([x.reshape(-1).argmax() for x in expected])
    accuracy = 100 * float((chosen == np.asarray(truth).reshape(-1)).mean())
    return f"| {title} | {seconds:.1f} | {artifact.size_bytes:,} | {snr:.1f} | {accuracy:.2f} |"


def main() -> None:
    """Measure one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("calibration")
    parser.add_argument("evaluation")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = save_model(canonicalize(load_model(arguments.model)), folder / "float.onnx", "bench")
        calibration = load_feeds(arguments.calibration, source.inputs)
        evaluation = load_feeds(arguments.evaluation, source.inputs)
        expected = outputs(source, evaluation)
        print(f"| {arguments.model.stem} | seconds | bytes | SNR dB | top-1 % |\n|---|---|---|---|---|")
        print(row("float32", source, 0.0, expected, evaluation))
        for target_name, precision in (("tflite", "int8"), ("onnxruntime", "int8"), ("tflite", "w4")):
            start = time.perf_counter()
            made = ours(source, calibration, target_name, precision, folder)
            print(
                row(
                    f"convertkit {precision}, {target_name} rules",
                    made,
                    time.perf_counter() - start,
                    expected,
                    evaluation,
                )
            )
        for method in PEER_METHODS:
            start = time.perf_counter()
            made = peer(source, calibration, method, folder)
            seconds = time.perf_counter() - start
            print(row(f"quantize_static {method.name}", made, seconds, expected, evaluation), flush=True)


if __name__ == "__main__":
    main()
