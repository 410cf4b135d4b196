"""What ONNX Runtime says of a failure, in one sentence without its own places in C++.

Its messages hold a code, a file and line of its source, the C++ signature and the condition that was false; what a
reader needs is the node and what follows.
"""

from __future__ import annotations

import re

from convertkit.errors import Unsupported

_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_NODE = re.compile(r"^Non-zero status code returned while running (\w+) node\. Name:'([^']*)' Status Message: ")
_BEGINNING = re.compile(r"^Exception during initialization: ")
_PLACE = re.compile(r"^\S*\.(?:cc|cpp|cu|h|hpp):\d+ ")
_CONDITION = re.compile(r"^.* was false\. (?=\S)")
_FUNCTION = re.compile(r"^\w+ (?=[A-Z])")
_LOADING = re.compile(r"^Load model from .+? failed: ?")
AGAINST_RULES = re.compile(r"\[ShapeInferenceError\] (?!Neither 'split')")
"""What no runtime has to take; a Split that does not say into how many parts has as many as it has outputs."""
MIXED_TYPES = re.compile(
    r"Type Error: Type parameter \(\w+\) of Optype \((\w+)\) bound to different types "
    r"\((\S+) and (\S+) in node \((.*?)\)"
)
"""What no valid model has: inputs of two types, of which ONNX says that they are of one."""
UNREGISTERED = re.compile(r"([\w.]+):(\w+)\(-?\d+\) is not a registered function/op")
"""An operator of a domain that ONNX Runtime has from a library alone."""
_OWN_DOMAINS = frozenset({"ai.onnx", "ai.onnx.ml", "com.microsoft"})
_LONGEST = 400


def of_a_library(error: Exception) -> Unsupported | None:
    """The refusal of a model with operators that a library adds to ONNX Runtime; None for another error."""
    found = UNREGISTERED.search(str(error))
    if found is None or found[1] in _OWN_DOMAINS:
        return None
    return Unsupported(
        f"{found[2]} is an operator of {found[1]}, which ONNX Runtime has from a library alone",
        ways_out=("onnx.utils.extract_model, which cuts the model out between inner values: the app does the rest",),
    )


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
