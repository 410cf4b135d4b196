"""The worker that holds JAX: executes portable artifacts with XLA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.targets.stablehlo.compat import UNREADABLE, compiled
from convertkit.workers.held import HeldCalls, brief
from convertkit.workers.process import Reply

_MAGIC = b"ML\xefR"


class RunningService(HeldCalls):
    """Methods that take JSON-able parameters and arrays by name."""

    def __init__(self) -> None:
        jax.config.update("jax_enable_x64", True)  # an artifact keeps its 64-bit types
        self._device = jax.devices("cpu")[0]
        self._program: Any = None

    def load(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Compile ``artifact``; ``ToolError`` where it is not one."""
        path = Path(params["artifact"])
        artifact = path.read_bytes()
        if not artifact.startswith(_MAGIC):
            raise ToolError(f"{path.name} is not a StableHLO artifact: it does not begin as one")
        try:
            self._program = compiled(self._device.client, self._device, artifact)
        except UNREADABLE as error:
            raise ToolError(f"XLA does not load {path.name}: {brief(error)}") from error
        return Reply()

    def _held(self, value: Array) -> Any:
        return jax.device_put(value, self._device)

    def _outputs(self) -> list[Any]:
        """XLA answers before it is done, so a call ends when its results are there."""
        try:
            made = self._program.execute_sharded(list(self._given)).disassemble_into_single_device_arrays()
            return [each[0].block_until_ready() for each in made]
        except UNREADABLE as error:
            raise ToolError(f"XLA fails: {brief(error)}") from error
