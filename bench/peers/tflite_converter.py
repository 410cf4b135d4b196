"""TFLiteConverter on a SavedModel: ``tflite_converter.py SAVED_MODEL OUT.tflite full|fallback|dynamic CALIB.npz``.

``full`` is integer only, ``fallback`` leaves what has no integer kernel in float, ``dynamic`` has integer weights only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from layouts import fit


def samples(folder: str, calibration: Path) -> Iterator[dict[str, tf.Tensor] | list[tf.Tensor]]:
    """The samples by the signature's names, in its layouts."""
    signature = tf.saved_model.load(folder).signatures["serving_default"].structured_input_signature[1]
    arrays = dict(np.load(calibration))
    names = list(arrays)
    for i in range(len(arrays[names[0]])):
        sources = {name: arrays.get(name, arrays[names[place]])[i : i + 1] for place, name in enumerate(signature)}
        feed = {name: tf.cast(fit(sources[name], spec.shape.as_list()), spec.dtype) for name, spec in signature.items()}
        # A single input goes by its place: the converter may know it by another name than the signature.
        yield feed if len(feed) > 1 else list(feed.values())


def main() -> int:
    folder, out, kind, calibration = sys.argv[1:5]
    converter = tf.lite.TFLiteConverter.from_saved_model(folder)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind != "dynamic":
        converter.representative_dataset = lambda: samples(folder, Path(calibration))
    if kind == "full":
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    Path(out).write_bytes(converter.convert())
    return 0


if __name__ == "__main__":
    sys.exit(main())
