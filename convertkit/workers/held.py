"""The worker's side of :class:`.running.PlacedRunner`: inputs by their places, kept between calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convertkit.artifact import Array
from convertkit.workers.process import Reply


class HeldCalls(ABC):
    """Methods that take JSON-able parameters and arrays by name."""

    _given: Sequence[Any] = ()

    def place(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Keep ``arrays``, whose names in order are ``inputs``, for the next calls."""
        self._given = [self._held(np.array(arrays[name])) for name in params["inputs"]]
        return Reply()

    def compute(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Run the program on what was placed, and keep the outputs here."""
        self._outputs()
        return Reply()

    def run(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """All outputs for one call, by their places."""
        self.place(params, arrays)
        return Reply(arrays={str(place): self._array(each) for place, each in enumerate(self._outputs())})

    def _held(self, value: Array) -> Any:
        """``value`` as the runtime takes it."""
        return value

    def _array(self, value: Any) -> Array:
        """A result of the runtime as an array of its own."""
        return np.array(value)

    @abstractmethod
    def _outputs(self) -> Sequence[Any]:
        """What the program makes of what is held; ``ToolError`` where it fails."""


def brief(error: Exception) -> str:
    """The first line of what a runtime raises, or the error's kind."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
