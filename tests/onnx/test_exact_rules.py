"""Each rewriting rule alone, on graphs that it is meant for and on graphs that are nearly those: nothing changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnx_ir.passes.common as common
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxscript import rewriter

from convertkit.onnx.exact_rules import AUDITED, LEFT_OUT, title
from convertkit.onnx.optimizer import RULES
from tests.onnx.rule_rows import EDGES, FINITE, ROWS, Known, Row

_KINDS = {"float": np.float32, "double": np.float64}
_ROWS = [(name, number) for name, rows in ROWS.items() for number in range(len(rows))]


def _model(graph: str, kind: str, known: Known) -> ir.Model:
    typed = re.sub(r"\bT\b", kind, graph)
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {typed}')
    read = {name for node in proto.graph.node for name in node.input}
    made = {name for node in proto.graph.node for name in node.output}
    for name in (read - made) & set(known):
        array = np.asarray(known[name])
        array = array.astype(_KINDS[kind]) if array.dtype.kind == "f" else array
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    model: ir.Model = ir.from_proto(proto)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.ShapeInferencePass()(model)
    return model


def _inputs(model: ir.Model, row: Row) -> dict[str, NDArray[np.generic]]:
    """The edge inputs, as many as each input takes."""
    made = dict[str, NDArray[np.generic]]()
    for place, value in enumerate(value for value in model.graph.inputs if value.name not in model.graph.initializers):
        assert value.shape is not None
        assert value.dtype is not None
        sizes = [size if isinstance(size, int) else 1 for size in tuple(value.shape)]
        kind = value.dtype.numpy()
        edges = (FINITE if row.finite else EDGES) if kind.kind == "f" else (3, 0, 1, 2, 7, 100)
        if kind.kind == "i" and kind.itemsize == 8 and len(sizes) == 1 and sizes[0] > 1:
            edges = (0, 1, -1, 2**53 + 1, -(2**62), 5)
        array = np.resize(np.roll(np.array(edges, kind), place), sizes)
        made[str(value.name)] = np.asarray(row.inputs.get(str(value.name), array), kind)
    return made


def _outputs(model: ir.Model, inputs: dict[str, NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    with np.errstate(all="ignore"):
        return [np.asarray(each) for each in ReferenceEvaluator(ir.to_proto(model)).run(None, inputs)]


def _assert_same(row: Row, before: NDArray[np.generic], after: NDArray[np.generic]) -> None:
    assert before.shape == after.shape
    assert before.dtype == after.dtype
    if row.rounds and before.dtype.kind == "f":
        with np.errstate(all="ignore"):
            unit = np.spacing(np.abs(before).max())
            np.testing.assert_allclose(after, before, rtol=0, atol=row.rounds * unit)
        return
    if before.dtype.kind == "f" and not row.either_zero:
        both = ~(np.isnan(before) & np.isnan(after))
        assert np.array_equal(np.signbit(before)[both], np.signbit(after)[both])
    np.testing.assert_array_equal(after, before)


def _compared(name: str, row: Row, kind: str, graph: str, known: Known) -> int:
    """How often the rule alone fires on ``graph``, after which the model says the same."""
    rule = next(rule for rule in RULES if rule.title == name)
    model = _model(graph, kind, known)
    with np.errstate(over="ignore"):
        inputs = _inputs(model, row)
    before = _outputs(model, inputs)
    fired: int = rewriter.RewriteRuleSet([rule]).apply_to_model(model)
    for one, other in zip(before, _outputs(model, inputs), strict=True):
        _assert_same(row, one, other)
    return fired


def _kinds(row: Row) -> Iterator[str]:
    return iter(_KINDS if "T" in row.graph else ["float"])


@pytest.mark.parametrize(("name", "number"), _ROWS)
def test_a_rule_fires_where_it_is_exact(name: str, number: int) -> None:
    row = ROWS[name][number]
    for kind in _kinds(row):
        assert _compared(name, row, kind, row.graph, row.known) == 1


@pytest.mark.parametrize(("name", "number"), _ROWS)
def test_nothing_changes_where_a_rule_nearly_fits(name: str, number: int) -> None:
    row = ROWS[name][number]
    for kind in _kinds(row):
        for known in row.near:
            _compared(name, row, kind, row.graph, known)
        for graph in row.others:
            _compared(name, row, kind, graph, row.known)


def test_each_rule_of_the_library_has_been_looked_at() -> None:
    """A version that brings another rule, or another form of one, fails here: add its question and its row."""
    installed = [title(rule) for rule in rewriter._DEFAULT_REWRITE_RULES]
    assert sorted(installed) == sorted({*AUDITED, *LEFT_OUT})
    assert [rule.title for rule in RULES] == [name for name in installed if name in AUDITED]
    assert set(ROWS) == set(AUDITED)
