"""Bytes of one scale as bytes of another: whether LiteRT's fast kernel rounds them as a float does.

XNNPACK's conversion from bytes to bytes multiplies by ``round (256 ratio)`` and rounds ties up, so that up to a tenth
of the bytes is another one; source: ``init_qs8_cvt`` and ``qs8-vcvt`` of XNNPACK, and all 256 bytes in LiteRT 2.3.0.
"""

from __future__ import annotations

import numpy as np

from convertkit.targets.tflite.tensor import QuantParams


def are_bytes_equal(given: QuantParams, wanted: QuantParams) -> bool:
    """Whether the kernel that multiplies by 256ths gives for every byte what dequantizing and quantizing gives."""
    before, after = np.float32(given.scale[0]), np.float32(wanted.scale[0])
    steps = np.arange(-128, 128) - given.zero_point[0]
    multiplier = int(np.rint(np.float32(256) * (before / after)))
    by_256ths = ((steps * multiplier + 128) >> 8) + wanted.zero_point[0]
    by_floats = np.rint(steps.astype(np.float32) * before / after) + wanted.zero_point[0]
    return bool((np.clip(by_256ths, -128, 127) == np.clip(by_floats, -128, 127)).all())
