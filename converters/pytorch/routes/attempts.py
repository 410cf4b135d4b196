"""The routes that were tried, and what is told where none of them was accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.operators.kernels import lacking
from convertkit.errors import ConvertKitError, ParityError, Unsupported

_DONE_BY = {
    "torchscript-exporter": "exporting with the TorchScript exporter",
    "replay": "replaying TorchScript under torch.export",
    "program": "exporting the program of the file",
    "torch.export": "exporting with torch.export",
    "script": "exporting with torch.jit.script",
    "script-replay": "replaying a script under torch.export",
    "trace-replay": "replaying a trace under torch.export",
    "trace": "exporting with torch.jit.trace",
}


def doing(route: str, *, dynamic: bool) -> str:
    """What the user is told while a route is tried."""
    return _DONE_BY[route] if dynamic else f"{_DONE_BY[route]} (fixed sizes)"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One route that was tried; ``failure`` is empty for the one that was accepted."""

    route: str
    dynamic: bool
    seconds: float
    torch_seconds: float = 0.0
    failure: str = ""
    mismatch: bool = False
    location: str = ""
    unknown: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, object]:
        """For the report."""
        return {
            "route": self.route,
            "dynamic": self.dynamic,
            "seconds": round(self.seconds, 3),
            "outcome": self.failure or "accepted",
        }


def defeat(attempts: Sequence[Attempt], unset: Sequence[str] = (), untold: Sequence[Leaf] = ()) -> ConvertKitError:
    """Why no route was accepted: with the numbers where some led to ONNX, else with what stopped each.

    ``unset`` names the state that is None before the first call: zeros, which stand for that, may be something else.
    ``untold`` are inputs of integers of which nobody told the range: a mask may have been tried with a 3.
    """
    lines = [f"  tried {each.route}{'' if each.dynamic else ' (fixed batch)'}: {each.failure}" for each in attempts]
    told = "\n".join(lines)
    if unset and any(each.mismatch for each in attempts):
        return Unsupported(
            f"the state {', '.join(map(repr, unset))} is None before the first call, which gives another result than a"
            f" call with zeros\n{told}",
            ways_out=("a tensor as its start value in __init__",),
        )
    if wrong := [each for each in attempts if each.mismatch]:
        why = "; Python branches or loops that depend on data leave one path in a trace"
        traced = all(each.route.startswith("trace") for each in wrong)
        ways = [f"\n  try   --input '{each.name}::{each.dtype}[0,M)' with what it may be" for each in untold]
        return ParityError(
            f"no route to ONNX gives the results of the model{why if traced else ''}\n{told}{''.join(ways)}"
        )
    unknown = next((each.unknown for each in attempts if each.unknown and each.unknown["location"]), None)
    unknown = unknown or next((each.unknown for each in attempts if each.unknown), None)
    if unknown is not None:
        return Unsupported(
            unknown["reason"],
            subject=unknown["subject"],
            location=unknown["location"],
            ways_out=tuple(unknown["ways_out"]),
        )
    location = next((each.location for each in attempts if each.location), "")
    return Unsupported(f"no route from this model to ONNX works\n{told}", location=location)


def unrunnable(attempt: Attempt, path: Path, told: str) -> Attempt:
    """The attempt whose ONNX does not run, with the operator that ONNX Runtime lacks where that is why."""
    refused = lacking(path, told)
    if refused is None:
        return replace(attempt, failure=told)
    unknown = {
        "reason": refused.reason,
        "subject": refused.subject,
        "location": refused.location,
        "ways_out": refused.ways_out,
    }
    return replace(attempt, failure=str(refused).splitlines()[0], unknown=unknown)


def failed(attempt: Attempt, reply: Mapping[str, Any]) -> Attempt:
    """The attempt that the worker says has led to no ONNX."""
    unknown = reply.get("unknown")
    told = str(reply["failed"]).splitlines()[0] if unknown else reply["failed"]
    return replace(attempt, failure=told, location=reply.get("location", ""), unknown=unknown)
