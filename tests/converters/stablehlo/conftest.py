"""The service that holds JAX programs widens JAX for its whole process; here that process is the tests'."""

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")  # as in the service, where Keras is not imported yet
jax = pytest.importorskip("jax")


@pytest.fixture(autouse=True)
def jax_as_it_was() -> Iterator[None]:
    """Undo what a test has set."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)
