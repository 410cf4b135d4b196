"""Files that were saved on a GPU: the devices that they name become the processor, where a worker computes.

An archive names devices in its code and in attributes, a program in the kernels of attention that torch chose for the
GPU.  What else a program names, ``compat.files.read_on_processor`` sees to as it is read.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import torch

from convertkit.converters.pytorch.compat import overloads, scripts

_DEVICE = re.compile(rb'torch\.device\("(?!cpu\b|meta\b)\w+(:\d+)?"\)')
_MOVED = re.compile(rb"\btorch\.cuda\(")
_ATTRIBUTE = re.compile(rb"^\s+(\w+) : (?:Optional\[)?Device\b", re.MULTILINE)
_ATTENTION = frozenset(f"aten::_scaled_dot_product_{kernel}_attention" for kernel in ("flash", "efficient", "cudnn"))
"""Kernels that GPUs alone have; the first of their results is attention."""
_ATTENDED = ("query", "key", "value", "attn_bias", "dropout_p", "is_causal", "scale")
"""What of their arguments decides it: native_functions.yaml of torch."""


def code_on_processor(code: bytes) -> bytes:
    """The code of an archive with its devices as the processor, every text as long as it was.

    So the places of lines that the archive has beside its code stay right.
    """
    named = _DEVICE.sub(lambda found: b'torch.device("cpu"' + b" " * (len(found[0]) - 19) + b")", code)
    return _MOVED.sub(b"torch.cpu (", named)


def archive_on_processor(path: str) -> io.BytesIO:
    """The archive with its code so changed."""
    made = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(made, "w") as changed:
        for entry in archive.infolist():
            content = archive.read(entry)
            changed.writestr(entry, code_on_processor(content) if entry.filename.endswith(".py") else content)
    made.seek(0)
    return made


def attributes_to_processor(module: Any, code: bytes) -> None:
    """Let every attribute that is a device say the processor; ``code`` tells their names."""
    names = {name.decode() for name in _ATTRIBUTE.findall(code)}
    for each in module.modules() if names else ():
        scripts.set_devices(each, names, torch.device("cpu"))


def program_on_processor(program: Any) -> None:
    """Let a program that was decomposed for a GPU call the attention that every device has."""
    for node in [node for graph in _graphs(program) for node in graph.nodes if overloads.is_overload(node.target)]:
        kernel = overloads.name_of(node.target) in _ATTENTION
        if kernel and all(user.args[1] == 0 or not user.users for user in node.users):
            _attend(node)


def _graphs(program: Any) -> Iterator[Any]:
    return (each.graph for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule))


def _attend(node: Any) -> None:
    """One tensor instead of a tuple, whose first element alone is read."""
    names = [each.name for each in overloads.arguments_of(node.target)]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    known = {("attn_mask" if name == "attn_bias" else name): given[name] for name in _ATTENDED if name in given}
    heads = [node.args[place].meta["val"].shape[-3] for place in (0, 1)]
    known |= {"enable_gqa": True} if heads[0] != heads[1] else {}  # several heads of queries to one of keys
    with node.graph.inserting_before(node):
        plain = node.graph.call_function(torch.ops.aten.scaled_dot_product_attention.default, (), known)
    plain.meta = {**node.meta, "val": node.meta["val"][0]}
    for user in list(node.users):
        user.replace_all_uses_with(plain)
        node.graph.erase_node(user)
    node.graph.erase_node(node)
