"""What compiles and runs libraries: its name, its version, and the worker that holds it."""

from __future__ import annotations

from convertkit.targets.tvm.engine import engine

SERVICE = "convertkit.targets.tvm.service:TvmService"


def runtime_name() -> str:
    """The runtime with its version."""
    return f"TVM {engine.packages['apache-tvm']}"
