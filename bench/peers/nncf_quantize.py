"""NNCF's int8: ``nncf_quantize.py MODEL.onnx OUT.xml CALIB.npz PRESET TYPE``, in an environment of its own.

PRESET is ``performance`` or ``mixed``; TYPE is ``transformer``, or ``none``.  All else is NNCF's default.
"""

from __future__ import annotations

import sys

import nncf
import numpy as np
import openvino


def main() -> int:
    source, out, calibration, preset, kind = sys.argv[1:6]
    arrays = dict(np.load(calibration))
    count = len(next(iter(arrays.values())))
    samples = [{name: array[place : place + 1] for name, array in arrays.items()} for place in range(count)]
    made = nncf.quantize(
        openvino.convert_model(source),
        nncf.Dataset(samples),
        preset=nncf.QuantizationPreset(preset),
        model_type=nncf.ModelType.TRANSFORMER if kind == "transformer" else None,
        subset_size=count,
    )
    openvino.save_model(made, out, compress_to_fp16=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
