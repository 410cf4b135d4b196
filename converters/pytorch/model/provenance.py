"""Where in the user's Python an operator came from, in the form that the rest of convertkit reads."""

from __future__ import annotations

import re

TRACE_KEY = "pkg.torch.onnx.stack_trace"
"""Metadata of an ONNX node that holds its Python frames, innermost last; torch's own exporter writes it."""

_TRACED = re.compile(r"^\s*(?P<file>\S+\.py)\((?P<line>\d+)\): (?P<name>\S+)", re.MULTILINE)
_SCRIPTED = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>\S+))?')
_SHORT = re.compile(r"#\s*(?P<file>\S+\.py):(?P<line>\d+):\d+")
_TORCH = re.compile(
    r"(^|/)torch/(_\w+|ao|autograd|export|fx|jit|nn|onnx|utils|functional|library|overrides|random|serialization)(/|\.py$)"
)
"""A module of torch; somebody's own folder may be called ``torch``, too."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def python_trace(source_range: str) -> str:
    """Frames of a TorchScript source range as a Python traceback writes them, innermost last.

    A trace prints the innermost frame first, a script the outermost; lines of the archive's own
    generated code (``code/__torch__/…``) say nothing to a user and are left out.
    """
    frames = list(_TRACED.finditer(source_range))[::-1] or list(_SCRIPTED.finditer(source_range))
    frames = frames or list(_SHORT.finditer(source_range))
    return "".join(
        f'  File "{frame["file"]}", line {frame["line"]}, in {frame.groupdict().get("name") or "forward"}\n'
        for frame in frames
        if not frame["file"].startswith("code/")
    )


def user_trace(trace: str) -> str:
    """The frames of a traceback that are the user's own, with file names in place of folders.

    Folders would make the artifact depend on where the model's source lies.
    """
    return "".join(
        f'  File "{file.rpartition("/")[2]}", line {line}, in {name}\n'
        for file, line, name in _FRAME.findall(trace)
        if not _is_foreign(file)
    )


def _is_foreign(file: str) -> bool:
    """Whether a frame is torch's, which writes some of its own without the folder it lies in, a package's or ours."""
    return bool(_TORCH.search(file)) or "site-packages" in file or "convertkit/converters/pytorch/" in file


def user_line(trace: str) -> str:
    """The innermost line of a traceback that is not torch's own: ``model.py:41, in forward``; empty where none is."""
    own = [frame for frame in _FRAME.findall(trace) if not _is_foreign(frame[0])]
    if not own:
        return ""
    file, line, name = own[-1]
    return f"{file.rpartition('/')[2]}:{line}, in {name}"
