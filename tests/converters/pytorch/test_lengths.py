"""What a loop appends to, which begins empty and does not stay so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import convertkit
from convertkit.converters.pytorch.routes.lengths import forget_growth

pytestmark = pytest.mark.filterwarnings("ignore")

LOOP = """
<ir_version: 8, opset_import: ["": 18]>
agraph (int64[1,1] x, int64[1,0] none, bool go) => (int64[1,n] y) {
   y, last = Loop (, go, none, x) <body = turn (int64 i, bool on, int64[1,0] sofar, int64[1,1] kept)
      => (bool next, int64[a,b] more, int64[1,1] same) {
      next = Not (on)
      both = Concat <axis = 1> (sofar, kept)
      more = Identity (both)
      same = Concat <axis = 0> (kept)
   }>
}
"""


def test_what_is_appended_to_has_no_size_along_that_axis() -> None:
    model = ir.from_onnx_text(LOOP)
    forget_growth(model)
    (loop,) = (node for node in model.graph if node.op_type == "Loop")
    grown = loop.attributes["body"].as_graph().inputs[2].shape
    assert grown is not None
    assert grown[0] == 1
    assert not isinstance(grown[1], int)


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_greedy_decoding_until_an_end(tmp_path: Path, target: str) -> None:
    import torch
    from odd_models import Decoded

    module = Decoded().eval()
    torch.jit.script(module).save(str(tmp_path / "model.pt"))
    result = convertkit.export(tmp_path / "model.pt", target, input=["h:N,8"], output=tmp_path / "out")
    lengths = set()
    for seed in range(6):
        h = np.random.default_rng(seed).standard_normal((1, 8)).astype(np.float32) * 3
        expected = module(torch.from_numpy(h)).numpy()
        lengths.add(expected.shape[1])
        np.testing.assert_array_equal(result.run({"h": h})["output"], expected)
    assert len(lengths) > 1
