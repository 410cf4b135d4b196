"""ONNX Runtime ends its process while it loads a float16 product of a transposed value at its usual settings."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import convertkit
from convertkit.errors import ToolError

RNG = np.random.default_rng(0)


def saved(path: Path, kind: str, dtype: str) -> Path:
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]> g ({kind}[1,6,8] x) => ({kind}[6,1,5] y) {{
        t = Transpose <perm=[1,0,2]> (x)
        m = MatMul (t, w)
        y = Tanh (m)
    }}""")
    proto.graph.initializer.append(numpy_helper.from_array(RNG.normal(0, 1, (8, 5)).astype(dtype), "w"))
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize("target", ["coreml", "openvino"])
def test_what_another_runtime_gets_is_judged(tmp_path: Path, target: str) -> None:
    source = saved(tmp_path / "net.onnx", "float", "float32")
    samples = {"x": RNG.normal(0, 1, (24, 1, 6, 8)).astype(np.float32)}
    result = convertkit.export(source, target, fp16=True, calib=samples, output=tmp_path / "out")
    assert float(result.report["quality"]["snr_db"]) > 50


def test_a_file_for_onnxruntime_is_refused(tmp_path: Path) -> None:
    source = saved(tmp_path / "net.onnx", "float16", "float16")
    with pytest.raises(ToolError, match=r"ends its process while it loads model\.onnx, which computes .* in float16"):
        convertkit.export(source, "onnxruntime", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
