"""Fourier transforms as products: their middle bin, and lengths that stay transforms."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from convertkit.converters.pytorch.operators.spectra import exact_transforms


def _model(text: str) -> ir.Model:
    head = '<ir_version: 9, opset_import: ["": 20]>'
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(head + text), data_prop=True))


def _short_time(size: int) -> str:
    window = ", ".join(f"{value:.9f}" for value in np.hanning(size))
    return (
        f"g (float[2,4096,1] x) => (float[2,f,b,2] y) <int64 step = {{{size // 2}}}, float[{size}] w = {{{window}}}>"
        "{ y = STFT <onesided = 1> (x, step, w) }"
    )


def _axis(size: int) -> str:
    return f"g (float[2,{size},1] x) => (float[2,b,2] y) <int64 axis = {{1}}>{{ y = DFT <onesided = 1> (x, , axis) }}"


@pytest.mark.parametrize("size", [16, 30, 64, 512])
@pytest.mark.parametrize("written", [_short_time, _axis])
def test_the_middle_bin_is_a_real_number(written, size: int) -> None:
    model = _model(written(size))
    before = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    assert exact_transforms(model)
    assert not {"STFT", "DFT"} & {node.op_type for node in model.graph}
    after = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    (given,) = after.get_inputs()
    x = np.random.default_rng(2).standard_normal(given.shape).astype(np.float32)
    ((was,), (found,)) = (session.run(None, {"x": x}) for session in (before, after))
    np.testing.assert_allclose(found, was, atol=2e-5 * np.abs(was).max())
    assert not found[..., [0, -1], 1].any()
    assert not np.signbit(found[..., -1, 1]).any()


@pytest.mark.parametrize("written", [_short_time, _axis])
def test_long_powers_of_two_stay_transforms(written) -> None:
    assert not exact_transforms(_model(written(1024)))
