"""The ONNX file around a context binary: what is in it, and that the binary beside it is its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx

from convertkit.artifact import sha256_of
from convertkit.errors import ToolError, Unsupported

NODE = "EPContext"
_DIGEST_KEY, _SOC_KEY = "convertkit.context_sha256", "convertkit.soc"
_CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_SHOWN = 8


def sealed(path: Path, soc: str) -> None:
    """Write the digest of the binary and the chip into the file at ``path``, so that two models never have the same."""
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {_DIGEST_KEY: sha256_of(binary_of(path)), _SOC_KEY: soc})
    onnx.save(model, path)


def binary_of(path: Path) -> Path:
    """The binary that the file at ``path`` names; ``ToolError`` where it names none in its own folder."""
    names = {_text(node, "ep_cache_context") for node in onnx.load(path).graph.node if node.op_type == NODE}
    if len(names) != 1 or Path(name := names.pop()).name != name or not (path.parent / name).is_file():
        raise ToolError(f"{path.name} names no context binary that lies beside it")
    return path.parent / name


def checked_soc(path: Path) -> str:
    """The chip that an artifact is for; ``ToolError`` where the binary is not the one that was written with it."""
    props = {each.key: each.value for each in onnx.load(path).metadata_props}
    binary = binary_of(path)
    if props.get(_DIGEST_KEY) != sha256_of(binary):
        raise ToolError(f"{binary.name} is not the file that was written with {path.name}")
    return str(props[_SOC_KEY])


def refuse_fallback(path: Path) -> None:
    """``Unsupported`` where a node of the file is not for the NPU, with the names of all of them."""
    left = [node for node in onnx.load(path).graph.node if node.op_type != NODE]
    named = _named([node for node in left if node.op_type not in _CONVERSIONS] or left)
    if named:
        others = "" if len(named) == 1 else f", and {len(named) - 1} more: {', '.join(named[1:_SHOWN])}"
        ways = ("--target onnxruntime", "--target tflite")
        raise Unsupported(f"the NPU does not take it in this form{others}", subject=named[0], ways_out=ways)


def _named(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    return [f"{node.name or node.output[0]} ({node.op_type})" for node in nodes]


def _text(node: onnx.NodeProto, attribute: str) -> str:
    return next((each.s.decode() for each in node.attribute if each.name == attribute), "")
