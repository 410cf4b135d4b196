"""What an error says, in one line."""

from __future__ import annotations

import re

_PASSED_ON = re.compile(
    r"failed in the TorchScript interpreter\.(?s:.*)^(?:[\w.]*(?:Error|Exception)): (.+)", re.MULTILINE
)


def brief(error: BaseException) -> str:
    """The first telling line of an error's text; of one that TorchScript's interpreter passes on, what was raised."""
    if raised := _PASSED_ON.findall(str(error)):
        return str(raised[-1])[:300]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not re.match(r"(File |Traceback|The above|During handling|\^|~|<--)", line)]
    return (telling or lines or [type(error).__name__])[0][:300]


def way_without_gpu(text: str) -> str:
    """What to try where code asked for a GPU, which a worker does not see; empty for other errors."""
    if "CUDA" not in text and "NVIDIA" not in text:
        return ""
    return "\n  try   the device of an input (x.device) where the code names a GPU: models are run on the CPU here"


def innermost(error: BaseException) -> BaseException:
    """What an error was raised from in the end: torch's exporters wrap the cause in sentences about themselves."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
