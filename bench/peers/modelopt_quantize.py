"""ModelOpt's int8 for TensorRT: ``modelopt_quantize.py MODEL.onnx OUT.onnx CALIB.npz``, in an environment of its own.

Symmetric QDQ, its default method (entropy), calibrated on the CPU; all else is its default, too.
"""

from __future__ import annotations

import sys

import numpy as np
from modelopt.onnx.quantization import quantize


def main() -> int:
    model, out, calibration = sys.argv[1:4]
    samples = dict(np.load(calibration))
    quantize(model, quantize_mode="int8", calibration_data=samples, calibration_eps=["cpu"], output_path=out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
