"""Attention becomes products and a Softmax that have integer kernels, where everything has to be integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import convertkit
from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.quantization.prepare.attention import attention_in_parts
from convertkit.recipe import ExportOptions
from tests.quantization.conftest import TARGETS
from tests.quantization.models import artifact_of, model_of

SPLIT = {"q": [2, 4, 5, 8], "k": [2, 4, 6, 8], "v": [2, 4, 6, 3]}
GROUPED = {"q": [2, 4, 5, 8], "k": [2, 2, 6, 8], "v": [2, 2, 6, 3]}
PACKED = {"q": [2, 5, 32], "k": [2, 6, 32], "v": [2, 6, 12]}
PACKED_GROUPED = {"q": [2, 5, 32], "k": [2, 6, 16], "v": [2, 6, 6]}
HEADS = {"q_num_heads": 4, "kv_num_heads": 4}


CACHE = {"past_key": [2, 4, 3, 8], "past_value": [2, 4, 3, 3]}
PRESENT = {"present_key": [2, 4, 9, 8], "present_value": [2, 4, 9, 3]}


def attention(
    shapes: dict[str, list[int]],
    attributes: dict[str, float],
    stored: dict[str, np.ndarray],
    kept: dict[str, list[int]] | None = None,
):
    """One Attention; a result of packed heads has them packed, too.  ``kept`` are outputs beside it."""
    inputs = [name if name in shapes or name in stored else "" for name in ("q", "k", "v", "mask", *CACHE)]
    q, v = shapes["q"], shapes["v"]
    width = v[-1] if len(q) == 4 else v[-1] // int(attributes["kv_num_heads"]) * int(attributes["q_num_heads"])
    outputs = {"y": [*q[:-1], width], **(kept or {})}
    node = helper.make_node("Attention", inputs, list(outputs), "attention", **attributes)
    windows = any("window" in name for name in attributes)
    return model_of([node], stored, shapes, outputs, opset=25 if windows else 24)


def written(proto, tmp_path: Path, target: str = "tflite"):
    """The model before and after, as artifacts."""
    before = artifact_of(proto, tmp_path)
    model = load_model(before.path)
    attention_in_parts(model, TARGETS[target].profile(ExportOptions(source="x", precision="int8", full_integer=True)))
    return before, save_model(model, tmp_path / "parts.onnx", "test")


def kinds(artifact) -> set[str]:
    return {node.op_type for node in ir.load(artifact.path).graph}


@pytest.mark.parametrize(
    ("shapes", "attributes", "mask"),
    [
        (SPLIT, {}, None),
        (SPLIT, {"scale": 0.3, "softcap": 2.0}, None),
        (SPLIT, {}, [5, 6]),
        (SPLIT, {}, [2, 1, 5, 6]),
        (SPLIT, {"softcap": 2.0}, [5, 6]),
        (GROUPED, {}, None),
        (PACKED, HEADS, None),
        (PACKED, {**HEADS, "scale": 0.3}, [2, 4, 5, 6]),
        (PACKED_GROUPED, {"q_num_heads": 4, "kv_num_heads": 2}, None),
        (GROUPED, {}, [5, 6]),
        (GROUPED, {"softcap": 2.0}, [2, 1, 5, 6]),
        ({**GROUPED, "q": [2, 4, 1, 8]}, {}, [1, 6]),
        (PACKED_GROUPED, {"q_num_heads": 4, "kv_num_heads": 2}, [2, 1, 5, 6]),
    ],
)
@pytest.mark.parametrize("target", ["tflite", "qnn"])
def test_parts_compute_the_same(tmp_path, target, shapes, attributes, mask) -> None:
    rng = np.random.default_rng(0)
    stored = {"mask": rng.normal(size=mask).astype("f4")} if mask else {}
    before, after = written(attention(shapes, attributes, stored), tmp_path, target)
    assert "Attention" not in kinds(after)
    feed = {name: rng.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    with OnnxRunner(before) as one, OnnxRunner(after) as other:
        np.testing.assert_allclose(other.run(feed)["y"], one.run(feed)["y"], rtol=1e-5, atol=1e-6)


CAUSAL = {"is_causal": 1}


@pytest.mark.parametrize(
    ("shapes", "attributes", "stored"),
    [
        (SPLIT, {}, {}),
        (SPLIT, CAUSAL, {}),
        (SPLIT, {**CAUSAL, "left_window_size": 2}, {}),
        (SPLIT, {}, {"mask": np.linspace(-1, 1, 45, dtype="f4").reshape(5, 9)}),
        (PACKED, {**HEADS, **CAUSAL}, {}),
    ],
)
def test_a_cache_stands_in_front_of_the_keys(tmp_path, shapes, attributes, stored) -> None:
    before, after = written(attention({**shapes, **CACHE}, attributes, stored, PRESENT), tmp_path)
    assert "Attention" not in kinds(after)
    rng = np.random.default_rng(0)
    feed = {name: rng.normal(size=shape).astype("f4") for name, shape in {**shapes, **CACHE}.items()}
    with OnnxRunner(before) as one, OnnxRunner(after) as other:
        expected, found = one.run(feed), other.run(feed)
    assert list(found) == ["y", *PRESENT]
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "attributes",
    [
        {"left_window_size": 2},
        {"right_window_size": 1},
        {"left_window_size": 1, "right_window_size": 2},
        {"left_window_size": 1, "right_window_size": 2, **CAUSAL},
    ],
)
def test_windows_are_choices_in_front_of_the_softmax(tmp_path, attributes) -> None:
    before, after = written(attention(GROUPED, attributes, {}), tmp_path)
    assert "Attention" not in kinds(after)
    rng = np.random.default_rng(0)
    feed = {name: rng.normal(size=shape).astype("f4") for name, shape in GROUPED.items()}
    with OnnxRunner(before) as one, OnnxRunner(after) as other:
        np.testing.assert_allclose(other.run(feed)["y"], one.run(feed)["y"], rtol=1e-5, atol=1e-6)


FLAGS = np.tri(5, 6, 1, dtype=bool)
INFINITE = np.where(FLAGS, 0, -np.inf).astype("f4")


@pytest.mark.parametrize(
    ("shapes", "attributes", "stored"),
    [
        (SPLIT, {"is_causal": 1}, {}),
        (GROUPED, {"is_causal": 1}, {}),
        (GROUPED, {}, {"mask": FLAGS}),
        (PACKED, {**HEADS, "is_causal": 1}, {"mask": FLAGS}),
        (SPLIT, {}, {"mask": INFINITE}),
        (SPLIT, {}, {"mask": FLAGS}),
        (SPLIT, {"softcap": 2.0}, {"mask": FLAGS}),
    ],
)
def test_masks_are_choices_in_front_of_the_softmax(tmp_path, shapes, attributes, stored) -> None:
    before, after = written(attention(shapes, attributes, stored), tmp_path)
    assert "Attention" not in kinds(after)
    rng = np.random.default_rng(0)
    feed = {name: rng.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    with OnnxRunner(before) as one, OnnxRunner(after) as other:
        np.testing.assert_allclose(other.run(feed)["y"], one.run(feed)["y"], rtol=1e-5, atol=1e-6)


def test_a_stored_mask_of_rows_that_all_read_something_needs_no_guard(tmp_path) -> None:
    _, after = written(attention(GROUPED, CAUSAL, {"mask": FLAGS}), tmp_path)
    assert "IsNaN" not in kinds(after)


EMPTY = np.vstack([FLAGS[:4], np.zeros((1, 6), bool)])


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    ("shapes", "attributes"), [(SPLIT, {}), (GROUPED, CAUSAL), (PACKED, {**HEADS, "softcap": 2.0})]
)
def test_a_row_that_reads_no_place_is_nothing(tmp_path, shapes, attributes, stored) -> None:
    proto = attention(shapes, attributes, {"mask": EMPTY})
    if not stored:
        del proto.graph.initializer[:]
        proto.graph.input.append(helper.make_tensor_value_info("mask", TensorProto.BOOL, EMPTY.shape))
    before, after = written(proto, tmp_path)
    rng = np.random.default_rng(0)
    feed = {name: rng.normal(size=shape).astype("f4") for name, shape in shapes.items()} | {"mask": EMPTY}
    with OnnxRunner(before) as one, OnnxRunner(after) as other:
        expected, found = one.run(feed)["y"], other.run(feed)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not found[..., 4, :].any()


WHOLE = {
    "a mask of fewer places": (SPLIT, {}, {"mask": np.zeros((5, 4), "f4")}, {}),
    "a mask of each head of a group": (GROUPED, {}, {"mask": np.zeros((4, 5, 6), "f4")}, {}),
    "keys that are kept without a cache": (SPLIT, {}, {}, {"present_key": SPLIT["k"]}),
    "products that are read": ({**SPLIT, **CACHE}, {}, {}, {**PRESENT, "products": [2, 4, 5, 9]}),
}


@pytest.mark.parametrize("why", WHOLE)
def test_others_stay_whole(why: str) -> None:
    shapes, attributes, stored, kept = WHOLE[why]
    model = canonicalize(ir.from_proto(attention(shapes, attributes, stored, kept)))
    attention_in_parts(model, TARGETS["tflite"].profile(ExportOptions(source="x", precision="int8", full_integer=True)))
    assert "Attention" in {node.op_type for node in model.graph}


def test_a_target_without_the_parts_keeps_it(tmp_path) -> None:
    _, after = written(attention(SPLIT, {}, {}), tmp_path, "onnxruntime")
    assert "Attention" in kinds(after)


@pytest.mark.parametrize("attributes", [HEADS, {**HEADS, "is_causal": 1}])
def test_all_of_it_is_integers(tmp_path, attributes) -> None:
    rng = np.random.default_rng(0)
    proto = attention(PACKED, attributes, {})
    path = artifact_of(proto, tmp_path).path
    data = {name: rng.normal(size=(48, *shape[1:])).astype("f4") for name, shape in PACKED.items()}
    result = convertkit.export(path, "tflite", int8=True, full_integer=True, calib=data, output=tmp_path / "out")
    assert result.report["quality"]["snr_db"] > 25


def test_what_stays_whole_is_told_by_name(tmp_path) -> None:
    shapes, attributes, stored, kept = WHOLE["a mask of each head of a group"]
    path = artifact_of(attention(shapes, attributes, stored, kept), tmp_path).path
    data = {name: np.random.default_rng(0).normal(size=(48, *size[1:])).astype("f4") for name, size in shapes.items()}
    with pytest.raises(Unsupported, match="attention \\(Attention\\): tflite int8 has no integer kernel"):
        convertkit.export(path, "tflite", int8=True, full_integer=True, calib=data, output=tmp_path / "out")
