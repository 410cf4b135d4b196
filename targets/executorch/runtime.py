"""What compiles and runs programs: its name, its version, and the worker that holds it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

SERVICE = "convertkit.targets.executorch.service:ExecuTorchService"
COMPILER, RUNTIME = "executorch.exir", "executorch.runtime"
"""What a worker imports before all else: the compiler imports parts of sympy, which has to be whole by then."""
_BACKEND = "XNNPACK"


def runtime_name() -> str:
    """The runtime with its version, and whose kernels it calls."""
    try:
        return f"ExecuTorch {version('executorch')}, {_BACKEND}"
    except PackageNotFoundError:  # built from source
        return f"ExecuTorch, {_BACKEND}"
