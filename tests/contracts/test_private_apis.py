"""What a framework does not promise is named in one module for it, ``compat``, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TREES = ("convertkit", "converters", "quantization", "targets")
FRAMEWORKS = (
    "torch", "tensorflow", "tf2onnx", "keras", "jax", "jaxlib", "flax", "ai_edge_litert", "onnxruntime", "h5py",
    "onnx_ir", "onnxscript", "safetensors", "tensorrt_rtx", "executorch",
)  # fmt: skip
UNPROMISED = {
    "torch.onnx": ("symbolic_helper", "register_custom_op_symbolic"),  # of the deprecated exporter
    "tensorflow": ("python", "compiler", "core", "lite"),
    "tf2onnx": ("handler", "onnx_opset", "utils", "graph", "tf_loader", "tf_utils", "tfonnx", "optimizer"),
    "keras": ("src",),
    "onnxruntime": ("capi",),
}
"""Public names that are not for users."""
OF_OBJECTS = {"_schema", "_c", "_buffers", "_parameters", "_modules"}
"""Private attributes of torch's objects, which no import shows."""
COMPAT: Mapping[str, str | tuple[str, ...]] = {
    "torch": ("converters/pytorch/compat/", "targets/executorch/compat.py"),
    "tensorflow": ("converters/tensorflow/compat.py", "targets/tf_serving/compat.py"),
    "tf2onnx": "converters/tensorflow/compat.py",
    "keras": "converters/keras/compat.py",
    "jaxlib": ("converters/stablehlo/compat.py", "targets/stablehlo/compat.py"),
    "onnxruntime": "convertkit/onnx/onnxruntime_compat.py",
    "onnxscript": "convertkit/onnx/onnxscript_compat.py",
}
"""Where the names of a framework may stand; other frameworks need none."""


def private(tree: ast.AST) -> Iterator[str]:
    """Names of frameworks that begin with an underscore or are unpromised, imported, looked up or in a text.

    Operators of torch are called as they are; a text that begins with ``torch.`` is what files of torch hold.
    """
    aliases = _aliases(tree)
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            names = [node.value] if node.value.count(".") > 1 and not node.value.startswith("torch.") else []
        elif isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            names = [f"{aliases.get(first, first)}.{rest}"]
            if node.attr in OF_OBJECTS:
                yield f"torch.{names[0]}"
        yield from (name for name in names if _is_private(name))


def _is_private(name: str) -> bool:
    first, *rest = name.split(".")
    if first not in FRAMEWORKS or rest[:1] == ["ops"]:
        return False
    hidden = any(each.startswith("_") and not each.startswith("__") for each in rest)
    return hidden or any(
        name.startswith(f"{package}.") and set(rest) & set(words) for package, words in UNPROMISED.items()
    )


def _aliases(tree: ast.AST) -> Mapping[str, str]:
    """What a framework is called in a module: ``ort`` for ``onnxruntime``."""
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    return {alias.asname: alias.name for node in imports for alias in node.names if alias.asname}


def files() -> list[Path]:
    found = [path for tree in TREES for path in (ROOT / tree).rglob("*.py")]
    return sorted(path for path in found if not path.relative_to(ROOT).parent.is_symlink())


@pytest.mark.parametrize("tree", TREES)
def test_what_is_not_promised_is_named_in_compat_alone(tree: str) -> None:
    wrong = []
    for path in files():
        place = path.relative_to(ROOT).as_posix()
        if place.startswith(f"{tree}/"):
            names = private(ast.parse(path.read_text(encoding="utf-8")))
            wrong += [
                f"{place}: {each}" for each in names if not place.startswith(COMPAT.get(_package(each), "nowhere"))
            ]
    assert not wrong


def _package(name: str) -> str:
    return name.partition(".")[0]


PLACES = {place for each in COMPAT.values() for place in ((each,) if isinstance(each, str) else each)}


@pytest.mark.parametrize("place", sorted(PLACES))
def test_compat_says_what_breaks(place: str) -> None:
    """Each has a test beside those of its area, which its docstring names."""
    module = ROOT / place
    text = (module / "__init__.py" if module.is_dir() else module).read_text(encoding="utf-8")
    assert list(private(ast.parse(text))) or module.is_dir()
    (test,) = {word.strip("`.,") for word in text.split() if word.startswith("``tests/")}
    assert (ROOT / test).is_file()


def test_they_are_seen() -> None:
    code = (
        "import torch._dynamo\nimport onnxruntime as ort\nfrom torch.utils import _pytree\n"
        "from torch.onnx import symbolic_helper\ntorch._C.parse_schema(x)\noverload._schema\ntorch.ops.aten._softmax\n"
        "torch.nn.Module.__init__\nort.capi.onnxruntime_pybind11_state.Fail\nfrom keras.src.utils import python_utils\n"
        "names = 'keras.src.ops'\nfrom tensorflow.python.framework import ops\nfrom tf2onnx.handler import tf_op\n"
        "from jaxlib import _jax\nimport tensorflow as tf\ntf.raw_ops.Add\ntf2onnx.convert.x\nkeras.ops.add"
    )
    found = {name.partition(".")[0] for name in private(ast.parse(code))}
    assert found == {"torch", "onnxruntime", "keras", "tensorflow", "tf2onnx", "jaxlib"}
    assert "torch.ops.aten._softmax" not in set(private(ast.parse(code)))
