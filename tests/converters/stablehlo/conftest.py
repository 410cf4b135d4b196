"""The service that holds JAX programs widens JAX for its whole process; here that process is the tests'."""

from collections.abc import Iterator

import pytest

jax = pytest.importorskip("jax")


@pytest.fixture(autouse=True)
def jax_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what a test has set; Keras runs on JAX here, and on what they choose in the processes of other tests."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)
