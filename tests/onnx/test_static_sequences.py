"""Sequences of known contents become the tensors in them; the numbers stay."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from convertkit.onnx.canonical import canonicalize

A = np.arange(6, dtype=np.float32).reshape(2, 3)
_HEAD = '<ir_version: 8, opset_import: ["": 18]> f (float[2,3] a, float[2,3] b)'
APPENDED = """
    s0 = SequenceConstruct(a)
    s1 = SequenceInsert(s0, b)
    c = ConcatFromSequence <axis: int = 1> (s1)
    s2 = SequenceInsert(s1, c)
    y = ConcatFromSequence <axis: int = -1> (s2)
"""
ROWS = [
    ("float[2,12] y", APPENDED, ["Concat", "Concat"]),
    (
        "float[2,2,3] y",
        """
        place = Constant <value: tensor = int64 {0}> ()
        s0 = SequenceConstruct(a)
        s1 = SequenceInsert(s0, b, place)
        y = ConcatFromSequence <axis: int = 1, new_axis: int = 1> (s1)
        """,
        ["Unsqueeze", "Unsqueeze", "Concat"],
    ),
    (
        "float[2,3] y, int64 n",
        """
        last = Constant <value: tensor = int64 {-1}> ()
        first = Constant <value: tensor = int64 {0}> ()
        e = SequenceEmpty()
        s0 = SequenceInsert(e, a)
        s1 = SequenceInsert(s0, b)
        s2 = SequenceInsert(s1, a)
        s3 = SequenceErase(s2, first)
        s4 = Identity(s3)
        n = SequenceLength(s4)
        item = SequenceAt(s4, last)
        y = Neg(item)
        """,
        ["Constant", "Neg"],
    ),
    (
        "float[2,3] y",
        """
        one = Constant <value: tensor = int64[1] {1}> ()
        two = Constant <value: tensor = int64[1] {2}> ()
        place = Sub(one, two)
        at = Squeeze(place)
        s0 = SequenceConstruct(a, b)
        item = SequenceAt(s0, at)
        y = Neg(item)
        """,
        ["Neg"],
    ),
]


@pytest.mark.parametrize(("outputs", "body", "left"), ROWS)
def test_known_sequences_are_written_out(outputs: str, body: str, left: list[str]) -> None:
    proto = onnx.parser.parse_model(f"{_HEAD} => ({outputs}) {{ {body} }}")
    feed = {"a": A, "b": -A}
    expected = ReferenceEvaluator(proto).run(None, feed)
    model = canonicalize(ir.from_proto(proto))
    assert [node.op_type for node in model.graph] == left
    for got, want in zip(ReferenceEvaluator(ir.to_proto(model)).run(None, feed), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_place_that_the_input_tells_stays_a_sequence() -> None:
    text = f"""{_HEAD.removesuffix(")")}, int64 place) => (float[2,3] y) {{
        s0 = SequenceConstruct(a, b)
        y = SequenceAt(s0, place)
    }}"""
    model = canonicalize(ir.from_proto(onnx.parser.parse_model(text)))
    assert [node.op_type for node in model.graph] == ["SequenceConstruct", "SequenceAt"]
