"""How the worker with the toolkit is started, so that it writes the same bytes wherever the system lets it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from convertkit.engines.environments import elsewhere
from convertkit.workers.elsewhere import SAME_ADDRESSES, Elsewhere
from convertkit_rknn.engine import engine

SERVICE = "convertkit_rknn.service:RknnService"
FILL = 0xA5
"""The byte that free memory is filled with; memory that is handed out gets its complement (mallopt(3), M_PERTURB)."""
VARIABLES: Mapping[str, str] = MappingProxyType(
    {"MALLOC_PERTURB_": str(FILL), "OMP_NUM_THREADS": "1", SAME_ADDRESSES: "1"}
)
"""The toolkit writes memory that it has not set into its files, addresses among it: both are the same in every run."""


def there() -> Elsewhere:
    """The engine's environment; ``MissingEngine`` where it is not installed."""
    return elsewhere(engine.name)


def runtime_name() -> str:
    """The toolkit with its version."""
    name: str = engine.version("rknn-toolkit2")
    return name
