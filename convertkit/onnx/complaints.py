"""What ONNX Runtime says of a failure, in one sentence without its own places in C++.

Its messages hold a code, a file and line of its source, the C++ signature and the condition that was false; what a
reader needs is the node and what follows.
"""

from __future__ import annotations

import re

_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_NODE = re.compile(r"^Non-zero status code returned while running (\w+) node\. Name:'([^']*)' Status Message: ")
_BEGINNING = re.compile(r"^Exception during initialization: ")
_PLACE = re.compile(r"^\S*\.(?:cc|cpp|cu|h|hpp):\d+ ")
_CONDITION = re.compile(r"^.* was false\. (?=\S)")
_FUNCTION = re.compile(r"^\w+ (?=[A-Z])")
_LOADING = re.compile(r"^Load model from .+? failed: ?")
MIXED_TYPES = re.compile(
    r"Type Error: Type parameter \(\w+\) of Optype \((\w+)\) bound to different types "
    r"\((\S+) and (\S+) in node \((.*?)\)"
)
"""What no valid model has: inputs of two types, of which ONNX says that they are of one."""
_LONGEST = 400


def complaint(error: Exception) -> str:
    """The first line of ``error``, which names the node where ONNX Runtime does; at most 400 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said, node = _CODE.sub("", lines[0]) if lines else type(error).__name__, ""
    if found := _NODE.match(said):
        node, said = f"node {found[2]} ({found[1]}): ", said[found.end() :]
    said = _LOADING.sub("", _BEGINNING.sub("", said))
    if mixed := MIXED_TYPES.match(said):
        kind, one, other, name = mixed.groups()
        said = f"node {name} ({kind}) takes {one} and {other}, where ONNX has one type for both: that is not valid ONNX"
    if placed := _PLACE.match(said):
        said = said[placed.end() :]
        said = _CONDITION.sub("", said) if _CONDITION.match(said) else _FUNCTION.sub("", said)
    return f"{node}{said}"[:_LONGEST]
