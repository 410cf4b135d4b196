"""Every handler and every attribute is in some row: a handler that nobody tries fails here.

Rows are the tables of ``test_handlers.py`` and ONNX's own cases of ``tests/conformance``.
"""

from __future__ import annotations

import collections
import json
import warnings
from pathlib import Path

import onnx
import pytest
from onnx import defs

from convertkit.targets.tflite.annotations import OWN
from convertkit.targets.tflite.handlers import TFLITE
from tests.targets.tflite.test_handlers import RECURRENT, REFUSALS, ROWS

ELIGIBLE = Path(__file__).parents[2] / "conformance" / "eligible.json"
Seen = dict[str, dict[str, set[str]]]

VALUES = {
    ("auto_pad", ("Conv", "ConvTranspose", "AveragePool", "MaxPool", "LpPool")): ["VALID", "SAME_UPPER", "SAME_LOWER"],
    ("direction", ("LSTM", "GRU", "RNN")): ["reverse", "bidirectional"],
    ("direction", ("BitShift",)): ["LEFT", "RIGHT"],
    ("mode", ("Resize",)): ["nearest", "linear", "cubic"],
    ("mode", ("Pad",)): ["constant", "reflect", "edge", "wrap"],
    ("mode", ("GridSample",)): ["linear", "nearest", "cubic"],
    ("mode", ("DepthToSpace",)): ["DCR", "CRD"],
    ("mode", ("RoiAlign",)): ["max"],
    ("mode", ("TensorScatter",)): ["linear", "circular"],
    ("padding_mode", ("GridSample",)): ["zeros", "border", "reflection"],
    ("nearest_mode", ("Resize",)): ["round_prefer_ceil", "floor", "ceil"],
    ("keep_aspect_ratio_policy", ("Resize",)): ["not_larger", "not_smaller"],
    ("coordinate_transformation_mode", ("Resize",)): [
        *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"),
        *("align_corners", "asymmetric", "tf_crop_and_resize"),
    ],
    ("coordinate_transformation_mode", ("RoiAlign",)): ["half_pixel", "output_half_pixel"],
    ("approximate", ("Gelu",)): ["tanh"],
    ("reduction", ("ScatterElements", "ScatterND")): ["add", "mul", "max", "min"],
}
"""Values of enumerated attributes, from the text of each operator's schema; defaults are left out."""

UNREACHABLE = {
    "Constant": {
        "value_strings",
        "value_string",
        "value_floats",
        "value_float",
        "value_ints",
        "value_int",
        "sparse_value",
    },
    "Cast": {"saturate", "round_mode"},  # eight-bit floats, which TFLite has no tensors of
    "CastLike": {"saturate", "round_mode"},
    "Range": {"stash_type"},
    "LayerNormalization": {"stash_type"},  # float32 is the only one that there are cases of
    "RMSNormalization": {"stash_type"},
    "QuantizeLinear": {"saturate", "precision", "output_dtype"},  # eight-bit floats, which TFLite has no tensors of
    "DequantizeLinear": {"output_dtype"},
    **{f"Reduce{name}": {"noop_with_empty_axes"} for name in ("L1", "L2", "LogSum", "LogSumExp", "SumSquare")},
}
"""Attributes without a row, with the reason: constants are initializers before lowering; ONNX Runtime and ONNX's
reference disagree on what a reduction of no axes does to each element."""


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Operator → attribute → values that rows have."""
    found: Seen = collections.defaultdict(lambda: collections.defaultdict(set))
    for rows, place in ((ROWS, 4), (REFUSALS, 3), (RECURRENT, 1)):
        for param in rows:
            _note(found, str(param.values[0]), dict(param.values[place]))
    names = {case["name"] for case in json.loads(ELIGIBLE.read_text())["cases"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        for case in collect_testcases(None):
            if case.name in names and case.model is not None:
                _walk(found, case.model.graph)
    return found


def _note(found: Seen, op: str, attributes: dict[str, object]) -> None:
    found[op][""].add("")
    for name, value in attributes.items():
        found[op][name].add(str(value))


def _walk(found: Seen, graph: onnx.GraphProto) -> None:
    for node in graph.node:
        values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        _note(found, node.op_type, {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()})
        for value in values.values():
            if isinstance(value, onnx.GraphProto):
                _walk(found, value)


OPERATORS = sorted({key.op for key in TFLITE if key.domain != OWN and defs.has(key.op)})


@pytest.mark.parametrize("op", OPERATORS)
def test_every_attribute_has_a_row(op: str, seen: Seen) -> None:
    assert op in seen, f"{op} has a handler and no row in test_handlers.py, and ONNX has no case of it"
    schema = defs.get_schema(op)
    missing = {name for name in schema.attributes if not seen[op][name]} - UNREACHABLE.get(op, set())
    assert not missing, f"{op}: no row sets {sorted(missing)}"
    assert not UNREACHABLE.get(op, set()) - set(schema.attributes)


@pytest.mark.parametrize(
    ("name", "operators"), VALUES, ids=lambda value: "-".join([value] if isinstance(value, str) else value)
)
def test_every_value_has_a_row(name: str, operators: tuple[str, ...], seen: Seen) -> None:
    for op in operators:
        missing = set(VALUES[name, operators]) - seen[op][name]
        assert not missing, f"{op}: no row has {name} {sorted(missing)}"
