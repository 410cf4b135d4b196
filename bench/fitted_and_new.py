"""How alike a compressed model and its original answer, on what it was fitted to and on what is new to it.

    python bench/fitted_and_new.py CASES/NAME MODEL.onnx [MODEL.onnx …]

NAME.onnx is the original, with NAME.calib.npz and NAME.eval.npz (``make_cases.py``, ``compression_models.py``).
*Fitted* are the samples of the calibration data that steps are fitted to, *held out* those by which they choose, and
*counted* those of NAME.eval.npz that are not in it.  Told is the share of samples of the same class, and the divergence
of Kullback and Leibler from the original's classes in nats.  No label is read.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from compression import of_onnx

from convertkit.data.held_out import held_out_positions


def parts(model: Path) -> dict[str, np.ndarray]:
    """Samples by what they were used for."""
    given = np.load(f"{model}.calib.npz")
    name = given.files[0]
    used, others = given[name], np.load(f"{model}.eval.npz")[name]
    held_out = set(held_out_positions(len(used)))
    seen = {sample.tobytes() for sample in used}
    return {
        "fitted": used[[place for place in range(len(used)) if place not in held_out]],
        "held out": used[sorted(held_out)],
        "counted": others[[sample.tobytes() not in seen for sample in others]],
    }


def logs(path: Path, samples: np.ndarray) -> np.ndarray:
    """Logarithms of the classes, (samples, classes), float64; of a model that ends in a softmax, or in front of one."""
    answer = of_onnx(path)
    found = np.stack([answer(sample).ravel() for sample in samples]).astype(np.float64)
    if found.min() >= 0 and np.allclose(found.sum(axis=1), 1, atol=1e-3):
        found = np.log(np.maximum(found, 1e-30))
    found -= found.max(axis=1, keepdims=True)
    return found - np.log(np.exp(found).sum(axis=1, keepdims=True))


def told(one: np.ndarray, other: np.ndarray) -> str:
    same = float((one.argmax(axis=1) == other.argmax(axis=1)).mean())
    apart = float((np.exp(one) * (one - other)).sum(axis=1).mean())
    return f"{100 * same:.1f} %, {apart:.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="without .onnx")
    parser.add_argument("compressed", type=Path, nargs="+")
    args = parser.parse_args()
    samples = parts(args.model)
    wanted = {name: logs(Path(f"{args.model}.onnx"), array) for name, array in samples.items()}
    print("| file | " + " | ".join(f"{name}, {len(array)}" for name, array in samples.items()) + " |")
    print("|---|" + "---|" * len(samples))
    for path in args.compressed:
        cells = [told(wanted[name], logs(path, array)) for name, array in samples.items()]
        print(f"| {path} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
