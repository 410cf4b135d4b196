"""onnxruntime.quantization: ``ort_qdq.py MODEL.onnx OUT.onnx WAY CALIB.npz``.

WAY is MinMax, Entropy or Percentile for quantize_static (QDQ, per channel, s8×s8), ``dynamic`` for quantize_dynamic
(int8 weights, per channel) or ``nbits`` for int4 weights of matrices in blocks of 32.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime.quantization as quantization
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
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


def static(prepared: Path, out: str, way: str, calibration: str) -> None:
    quantization.quantize_static(
        str(prepared),
        out,
        Reader(calibration),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
        calibrate_method=quantization.CalibrationMethod[way],
    )


def dynamic(prepared: Path, out: str) -> None:
    # Shapes that preprocessing wrote down are wrong for the weights that the tool transposes.
    model = onnx.load(prepared)
    del model.graph.value_info[:]
    onnx.save(model, prepared)
    quantization.quantize_dynamic(str(prepared), out, per_channel=True, weight_type=quantization.QuantType.QInt8)


def nbits(prepared: Path, out: str) -> None:
    tool = MatMulNBitsQuantizer(onnx.load(prepared), bits=4, block_size=32, is_symmetric=True)
    tool.process()
    tool.model.save_model_to_file(out)


def main() -> int:
    model, out, way, calibration = sys.argv[1:5]
    prepared = Path(out).with_suffix(".pre.onnx")
    quant_pre_process(model, str(prepared), skip_symbolic_shape=True)
    if way == "dynamic":
        dynamic(prepared, out)
    elif way == "nbits":
        nbits(prepared, out)
    else:
        static(prepared, out, way, calibration)
    prepared.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
