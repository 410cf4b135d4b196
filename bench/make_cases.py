"""Real models in the zoo's form: ``make_cases.py OUT``, with $CONVERTKIT_CASES set.

Writes NAME.onnx, NAME.calib.npz (200 samples) and NAME.eval.npz (with the array ``label``) for the MLPerf Tiny
keyword spotter, two MNIST networks and the digits fixture.  ``--samples`` gives the first two more to calibrate on:
utterances that are then not counted, and images behind those that are.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

import convertkit

CALIBRATION = 200
DIGITS = Path(__file__).resolve().parents[1] / "fixtures" / "digits"
Samples = tuple[np.ndarray, np.ndarray]


def keywords(cases: Path) -> Samples:
    """All 1,000 utterances as the SavedModel takes them; the int8 file's own scale and zero point."""
    arrays = np.load(cases / "mlperf-kws" / "kws01.npz")
    return ((arrays["mfcc_int8"].astype(np.float32) - 83) * np.float32(0.5847029)), arrays["label"]


def images(cases: Path) -> Samples:
    """MNIST's test set, raw 0..255."""
    pixels = gzip.decompress((cases / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((cases / "mnist" / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:]
    array = np.frombuffer(pixels, np.uint8).reshape(-1, 1, 28, 28)
    return array.astype(np.float32), np.frombuffer(labels, np.uint8).astype(np.int64)


def write(name: str, source: Path, calibration: np.ndarray, evaluation: Samples, out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        free = convertkit.export(str(source), "onnxruntime", output=f"{folder}/free")
        static = {dim: 1 for dim in free.artifact.inputs[0].shape if isinstance(dim, str)}
        result = convertkit.export(str(free.artifact.path), "onnxruntime", output=f"{folder}/fixed", static=static)
        shutil.copy(result.artifact.path, out / f"{name}.onnx")
    entry = result.artifact.inputs[0].name
    np.savez(out / f"{name}.calib.npz", **{entry: calibration})
    np.savez(out / f"{name}.eval.npz", **{entry: evaluation[0], "label": evaluation[1]})
    print(name, result.artifact.inputs[0].shape, len(calibration), len(evaluation[0]), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--samples", type=int, default=CALIBRATION)
    args = parser.parse_args()
    out, count = args.out, args.samples
    out.mkdir(parents=True, exist_ok=True)
    cases = Path(os.environ["CONVERTKIT_CASES"])
    features, words = keywords(cases)
    write("kws", cases / "mlperf-kws" / "saved_model", features[:count], (features, words), out)
    pictures, digits = images(cases)
    unseen = np.concatenate([pictures[:CALIBRATION], pictures[3000 : 3000 + count - CALIBRATION]])
    for name, file in (("mnist_pytorch", "cnn_mnist_pytorch.onnx"), ("mnist_small", "mnist.onnx")):
        write(name, cases / "mnist" / file, unseen, (pictures[1000:3000], digits[1000:3000]), out)
    calibration, test = np.load(DIGITS / "calib.npz"), np.load(DIGITS / "test.npz")
    entry = next(iter(calibration.files))
    write("digits", DIGITS / "model.pt", calibration[entry][:CALIBRATION], (test[entry], test["label"]), out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
