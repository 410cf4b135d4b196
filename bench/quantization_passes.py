"""What each technique of ``--int8`` is worth: SNR on fresh data with everything, and with one technique left out.

    python bench/quantization_passes.py [--everything] MODEL.onnx CALIB.npz EVAL.npz [MODEL.onnx CALIB.npz EVAL.npz …]

Prints one Markdown row per model, by TFLite's rules.  ``nothing`` rounds to nearest at the ranges of least squared
error.  A technique that does not gain on held-out calibration samples is not applied, so leaving it out changes
nothing: such cells are empty.  Outputs are computed by ONNX Runtime with graph optimisations off.
``--everything`` takes integers wherever there is a kernel, also in models so small that float is faster.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.data.feeds import Feeds, load_feeds
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.plugins import target
from convertkit.profile import QuantProfile
from convertkit.progress import Silent
from convertkit.quantization.integers import PASSES, Integers
from convertkit.recipe import ExportOptions

_SAME_DB = 0.005


def outputs(artifact: Artifact, feeds: Feeds) -> Array:
    """All float outputs of all feeds, in a row, float64."""
    names = {spec.name for spec in artifact.inputs}
    with OnnxRunner(artifact) as runner:
        answers = [runner.run({name: array for name, array in feed.items() if name in names}) for feed in feeds]
    return np.concatenate([array.ravel() for answer in answers for array in answer.values()]).astype(np.float64)


def profile_of(options: ExportOptions, *, everything: bool) -> QuantProfile:
    """TFLite's rules, with or without its cost table."""
    profile = target("tflite").profile(options)
    return replace(profile, costs={}, least_gain=0.0) if everything else profile


def snr_db(
    source: Artifact, passes: Iterable[str], data: tuple[Feeds, Feeds], folder: Path, *, everything: bool
) -> float:
    """Signal over noise on fresh data of an int8 model that was made with some techniques alone."""
    calibration, fresh = data
    options = ExportOptions(source="bench", targets=("tflite",), precision="int8")
    profile = profile_of(options, everything=everything)
    worker = Integers(load_model(source.path), profile, options, calibration, {}, Silent(), tuple(passes))
    made = save_model(worker.quantized(), folder / "made.onnx", "bench")
    expected, got = outputs(source, fresh), outputs(made, fresh)
    return float(10 * np.log10(np.square(expected).sum() / max(float(np.square(expected - got).sum()), 1e-30)))


def row(model: Path, calib: str, fresh: str, *, everything: bool) -> str:
    """SNR with nothing, with everything, and the loss when one technique is missing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = save_model(canonicalize(load_model(model)), folder / "float.onnx", "bench")
        data = load_feeds(calib, source.inputs), load_feeds(fresh, source.inputs)
        levels = [snr_db(source, passes, data, folder, everything=everything) for passes in ((), PASSES)]
        without = [[each for each in PASSES if each != left_out] for left_out in PASSES]
        losses = [levels[1] - snr_db(source, passes, data, folder, everything=everything) for passes in without]
    gains = [f"{loss:+.2f}" if abs(loss) > _SAME_DB else "" for loss in losses]
    return f"| {model.stem} | {levels[0]:.2f} | {levels[1]:.2f} | {' | '.join(gains)} |"


def main() -> None:
    """Measure the models that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="three for each model")
    parser.add_argument("--everything", action="store_true", help="integers wherever there is a kernel")
    given = parser.parse_args()
    files = given.files
    print(f"| model | nothing, dB | everything, dB | {' | '.join(f'{name} adds' for name in PASSES)} |")
    print("|---" * (3 + len(PASSES)) + "|")
    for place in range(0, len(files), 3):
        model, calib, fresh = files[place : place + 3]
        print(row(Path(model), calib, fresh, everything=given.everything), flush=True)


if __name__ == "__main__":
    main()
