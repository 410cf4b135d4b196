"""Types of values: onnx_ir lets clones, and values that are made like others, share them; so none changes in place."""

from __future__ import annotations

import ast
from pathlib import Path

import onnx_ir as ir
import pytest

from convertkit.onnx.halves import widen_halves

ROOT = Path(__file__).resolve().parents[2]
TREES = ("convertkit", "converters", "quantization", "targets")


def changed_in_place(text: str) -> list[int]:
    """The lines that assign to an attribute ``dtype``: of a value, that of all who share its type."""
    targets = [node for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Assign) for node in each.targets]
    single = [each for node in targets for each in (node.elts if isinstance(node, ast.Tuple) else (node,))]
    return [each.lineno for each in single if isinstance(each, ast.Attribute) and each.attr == "dtype"]


@pytest.mark.parametrize("tree", TREES)
def test_a_new_type_is_a_new_object(tree: str) -> None:
    files = [path for path in (ROOT / tree).rglob("*.py") if "onnx_ir" in path.read_text(encoding="utf-8")]
    assert files
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in changed_in_place(path.read_text())]
    assert not found, "say value.type = ir.TensorType(dtype)"


def test_the_rule_sees_both_ways_to_write_it() -> None:
    assert changed_in_place("value.dtype = FLOAT\nvalue.name, value.dtype = 'x', FLOAT\nvalue.type = FLOAT\n") == [1, 2]


def test_widening_a_clone_leaves_the_model_as_it_was() -> None:
    half = ir.TensorType(ir.DataType.FLOAT16)
    x, y = (ir.Value(name=name, type=half, shape=ir.Shape([2, 3])) for name in "xy")
    double = ir.Node("", "Add", [x, x], outputs=[y], name="double")
    model = ir.Model(ir.Graph([x], [y], nodes=[double], opset_imports={"": 21}, name="g"), ir_version=10)
    assert widen_halves(model.clone())
    assert {x.dtype, y.dtype} == {ir.DataType.FLOAT16}
