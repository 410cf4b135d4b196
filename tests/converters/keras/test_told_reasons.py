"""What is told of a model that JAX does not trace."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")
pytest.importorskip("keras")

from convertkit.converters.keras.lower import _sentence

CALL = "Exception encountered when calling Resizing.call()."
PREAMBLE = f"{CALL}\n\n\x1b[1mInvalid interpolation. Received: area\x1b[0m\n\nArguments"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (PREAMBLE, "Exception encountered when calling Resizing.call(). Invalid interpolation. Received: area"),
        ("Shapes differ\nmore", "Shapes differ"),
        ("", "ValueError"),
    ],
)
def test_the_reason_is_behind_the_preamble(said: str, told: str) -> None:
    assert _sentence(ValueError(said)) == told
