"""One worker with coremltools for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from convertkit.targets.coreml.stage import SERVICE
from convertkit.workers.process import Worker


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """A process that has imported coremltools once."""
    with Worker(SERVICE, timeout_s=120) as started:
        yield started
