"""State that the package itself keeps from call to call, in the buffers that an app asks for with ``makeState()``.

Core ML's states hold float16 and begin at zeros, so a state of another kind stays an input and an output.
Source: coremltools, ``converters/mil/backend/mil/load.py``; Core ML, ``MLModel.makeState()``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from convertkit.artifact import NEXT_STATE_PREFIX, STATE_PREFIX, Array, Artifact, TensorSpec
from convertkit.errors import Unsupported, UsageError
from convertkit.state import initial_state
from convertkit.target_options import flag
from convertkit.targets.coreml.options import Choices

_STATE = flag("coreml", "state")
ROUNDED = "state is rounded to float16 between calls, which is all that Core ML keeps"


def keeping(choices: Choices, source: Artifact) -> tuple[Choices, tuple[str, ...]]:
    """``choices`` with the states of ``source`` that the package keeps, and what there is to say of the others.

    ``UsageError`` for a model without state, ``Unsupported`` where the package could keep none of it.
    """
    if not choices.state:
        return choices, ()
    starts = initial_state(source)
    if not starts:
        raise UsageError(f"{_STATE}: the model has no state")
    against = {name: _against(source.input(name), value) for name, value in starts.items()}
    kept = tuple(name for name, reason in against.items() if not reason)
    if not kept:
        name, reason = next(iter(against.items()))
        raise Unsupported(reason, subject=f"input {name}", ways_out=(f"no {_STATE}: an app carries the state",))
    notes = [f"{name} stays an input and an output: {reason}" for name, reason in against.items() if reason]
    return replace(choices, kept=kept), tuple(notes)


def _against(spec: TensorSpec, start: Array) -> str:
    if spec.dtype not in ("float32", "float16"):
        return f"a state of {spec.dtype}, and Core ML's states are float16"
    return "a state that begins at other values than zeros, as Core ML's do not" if start.any() else ""


def carried_in(output: str, kept: Collection[str]) -> str | None:
    """The state that becomes what the model calls ``output``; None for one that the app gets."""
    state = STATE_PREFIX + output.removeprefix(NEXT_STATE_PREFIX)
    return state if output.startswith(NEXT_STATE_PREFIX) and state in kept else None
