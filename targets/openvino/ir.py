"""Writing an IR whose bytes depend on the model alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from convertkit.artifact import sha256_of
from convertkit.errors import ToolError
from convertkit.targets.openvino.runtime import openvino, told

_SECTION = "convertkit"
_DIGEST_KEY = "weights_sha256"
_UNKNOWN = "0" * 64
_WRITTEN = re.compile(rf'<{_DIGEST_KEY} value="([0-9a-f]{{64}})"')
_RUNTIME_OPTIONS: Mapping[str, str] = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
"""What the CPU plugin reads from the file: activations that meet integer weights stay float."""


def write_ir(model: Any, path: Path, names: frozenset[str]) -> None:
    """Write ``model`` as ``path`` (``.xml``) with its weights beside it (``.bin``).

    ``names`` are those of the ONNX graph, which stay; others hold a counter of the process, and are made anew.  The
    ``.xml`` has the digest of the ``.bin`` in it, so that two models never have the same one.
    """
    for place, node in enumerate(nodes_of(model)):
        name = node.get_friendly_name()
        if name not in names and name.rpartition("/")[0] not in names:
            node.set_friendly_name(f"{node.get_type_name()}.{place}")
    model.set_friendly_name("model")
    for key, value in _RUNTIME_OPTIONS.items():
        model.set_rt_info(value, ["runtime_options", key])
    model.set_rt_info(_UNKNOWN, [_SECTION, _DIGEST_KEY])
    with told(f"OpenVINO does not write {path.name}"):
        openvino().save_model(model, path, compress_to_fp16=False)
    text = path.read_text(encoding="utf-8")
    assert _WRITTEN.search(text), "the place of the digest is in the file"
    digest = f'<{_DIGEST_KEY} value="{sha256_of(weights_of(path))}"'
    path.write_text(_WRITTEN.sub(digest, text, count=1), encoding="utf-8")


def keep_ties_in_order(model: Any) -> None:
    """Of equal values TopK takes the one with the lower index, as ONNX says; OpenVINO's reader lets it differ.

    That needs a sorted result, which an unsorted one may be as well.
    """
    found = [node for node in nodes_of(model) if node.get_type_name() == "TopK"]
    for node in found:
        if node.get_attributes().get("sort") == "none":
            node.set_attribute("sort", "value")
        node.set_attribute("stable", True)
    if found:
        model.validate_nodes_and_infer_types()


def weights_of(path: Path) -> Path:
    """The weights of the IR at ``path``."""
    return path.with_suffix(".bin")


def check_weights(path: Path) -> None:
    """Raise ``ToolError`` where the weights beside an IR of ours are not those that it was written with."""
    weights = weights_of(path)
    if not weights.is_file():
        raise ToolError(f"{weights.name}, which holds the weights, does not lie beside {path.name}")
    found = _WRITTEN.search(path.read_text(encoding="utf-8", errors="replace"))
    if found and found.group(1) != sha256_of(weights):
        raise ToolError(f"{weights.name} is not the file that was written with {path.name}")


def nodes_of(model: Any) -> Iterator[Any]:
    """All nodes in the order in which they compute, those of bodies behind the node that holds them."""
    for node in model.get_ordered_ops():
        yield node
        for body in _bodies(node):
            yield from nodes_of(body)


def _bodies(node: Any) -> tuple[Any, ...]:
    kind = node.get_type_name()
    if kind == "If":
        return node.get_function(0), node.get_function(1)
    return (node.get_function(),) if kind in ("Loop", "TensorIterator") else ()
