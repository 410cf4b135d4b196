"""onnxruntime.quantization.quantize_static: ``ort_qdq.py MODEL.onnx OUT.onnx CALIB.npz`` (QDQ, per channel, S8S8)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime.quantization as quantization
from onnxruntime.quantization.shape_inference import quant_pre_process


class Reader(quantization.CalibrationDataReader):
    """The samples of an .npz, one at a time."""

    def __init__(self, path: str) -> None:
        self.arrays = dict(np.load(path))
        self.position = 0

    def get_next(self) -> dict[str, np.ndarray] | None:
        i = self.position
        if i >= len(next(iter(self.arrays.values()))):
            return None
        self.position += 1
        return {name: array[i : i + 1] for name, array in self.arrays.items()}


def main() -> int:
    model, out, calibration = sys.argv[1:4]
    prepared = Path(out).with_suffix(".pre.onnx")
    quant_pre_process(model, str(prepared), skip_symbolic_shape=True)
    quantization.quantize_static(
        str(prepared),
        out,
        Reader(calibration),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    prepared.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
