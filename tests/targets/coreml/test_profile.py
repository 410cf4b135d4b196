"""What ``--int8`` leaves of the weights where activations stay float, and of embeddings."""

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

import convertkit
from convertkit.artifact import files_of

RNG = np.random.default_rng(0)


def saved(text: str, weights: dict[str, tuple[int, ...]], path: Path) -> Path:
    proto = parser.parse_model(text)
    for name, shape in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(RNG.normal(0, 0.1, shape).astype(np.float32), name))
    onnx.save(proto, path)
    return path


def size(result: convertkit.Result) -> int:
    return sum(path.stat().st_size for path in files_of(result.artifact.path))


def test_where_integers_lose_too_much_the_weights_stay_integers(tmp_path: Path) -> None:
    """Samples of very different loudness, which no scale fits; float32 would be 18,432 bytes of weights."""
    text = """<ir_version: 10, opset_import: ["" : 18]> g (float[1,16,8,8] x) => (float[1,16,8,8] y) {
        c = Conv <pads=[1,1,1,1]> (x, w)
        r = Relu (c)
        y = Conv <pads=[1,1,1,1]> (r, v)
    }"""
    source = saved(text, {"w": (16, 16, 3, 3), "v": (16, 16, 3, 3)}, tmp_path / "net.onnx")
    samples = RNG.normal(0, 1, (32, 16, 8, 8)) * np.exp(2.5 * RNG.normal(0, 1, (32, 16, 1, 1)))
    result = convertkit.export(
        source, "coreml", int8=True, calib={"x": samples.astype(np.float32)}, output=tmp_path / "out"
    )
    assert any("weights are int8, all else is float" in note for note in result.report["notes"])
    assert size(result) < 12_000


def test_embeddings_stay_float(tmp_path: Path) -> None:
    """A gather of integers would hold the table as int32, in the program itself."""
    text = """<ir_version: 10, opset_import: ["" : 18]> g (int64[1,7] i) => (float[1,7,96] y) {
        e = Gather (t, i)
        y = MatMul (e, w)
    }"""
    source = saved(text, {"t": (500, 64), "w": (64, 96)}, tmp_path / "net.onnx")
    tokens = RNG.integers(0, 500, (32, 1, 7))
    result = convertkit.export(source, "coreml", w8=True, calib={"i": tokens}, output=tmp_path / "out")
    assert size(result) < 500 * 64 * 4 + 64 * 96 + 8_000
    assert result.report["quality"]["snr_db"] > 43
