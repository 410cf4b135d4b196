"""What a framework does not promise is named in one package of its converter, ``compat``, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTORCH = ROOT / "converters" / "pytorch"
PUBLIC_BUT_GOING = {"symbolic_helper", "register_custom_op_symbolic"}
"""Of torch's TorchScript-based exporter, which is deprecated."""
OF_OBJECTS = {"_schema", "_c", "_buffers", "_parameters", "_modules"}
"""Private attributes of torch's objects, which no import shows."""


def private(tree: ast.AST) -> Iterator[str]:
    """Names of torch that begin with an underscore, whether imported or looked up; operators are called as they are."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
            if node.attr in OF_OBJECTS:
                yield names[0]
        for name in names:
            first, *rest = name.split(".")
            hidden = [each for each in rest if each.startswith("_") and not each.startswith("__")]
            if first in ("torch", "onnxscript") and rest[:1] != ["ops"] and (hidden or PUBLIC_BUT_GOING & set(rest)):
                yield name


@pytest.mark.parametrize("path", sorted(PYTORCH.rglob("*.py")), ids=lambda path: str(path.relative_to(PYTORCH)))
def test_torch_s_own_are_named_in_compat_alone(path: Path) -> None:
    if path.parent.name != "compat":
        assert not list(private(ast.parse(path.read_text(encoding="utf-8"))))


def test_they_are_seen() -> None:
    code = (
        "import torch._dynamo\nfrom torch.utils import _pytree\nfrom torch.onnx import symbolic_helper\n"
        "torch._C.parse_schema(x)\noverload._schema\ntorch.ops.aten._softmax\ntorch.nn.Module.__init__"
    )
    found = {name.removeprefix("torch.").partition(".")[0] for name in private(ast.parse(code))}
    assert found == {"_dynamo", "utils", "onnx", "_C", "overload"}
