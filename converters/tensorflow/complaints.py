"""What TensorFlow says of an error, in one line."""

from __future__ import annotations

import re

_TRACED = "Graph execution error"
_PLACES = re.compile(
    r"Graph execution error|Detected at node|Node: '|<stack traces|\[\[\{\{node |File \"|\d+ root error"
)
_FUNCTION = re.compile(r"^(\(\d+\) )?(\w+: )?\{\{function_node [^}]*\}\}\s*")
"""The function in which an operator failed, which has no name of the user's."""
_LONGEST = 300


def sentence(error: Exception) -> str:
    """The reason in a TensorFlow message: behind the traces, before the place, where it has them."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    behind = [line for line in lines if not _PLACES.match(line)] if lines and lines[0].startswith(_TRACED) else lines
    return _FUNCTION.sub("", (behind or lines)[0])[:_LONGEST] if lines else type(error).__name__
