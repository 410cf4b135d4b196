"""A service of tests that fails in every way a worker can."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

from convertkit.errors import ToolError
from convertkit.workers.process import Reply


class Sabotage:
    """Its methods tell of the process that serves, or end it."""

    def pid(self, params: Mapping[str, Any], arrays: Mapping[str, Any]) -> Reply:
        """This process and the one that has started it."""
        return Reply({"pid": os.getpid(), "parent": os.getppid()})

    def variable(self, params: Mapping[str, Any], arrays: Mapping[str, Any]) -> Reply:
        """A variable of the environment."""
        return Reply(os.environ.get(params["name"]))

    def say(self, params: Mapping[str, Any], arrays: Mapping[str, Any]) -> Reply:
        """Print a line."""
        print(params["text"], flush=True)
        return Reply()

    def refuse(self, params: Mapping[str, Any], arrays: Mapping[str, Any]) -> Reply:
        """Fail on purpose."""
        raise ToolError("the tool said no")

    def crash(self, params: Mapping[str, Any], arrays: Mapping[str, Any]) -> Reply:
        """End by a signal."""
        os.kill(os.getpid(), signal.SIGABRT)
        return Reply()
