"""What is told of a model that Keras does not compute, load or trace."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")
pytest.importorskip("keras")

from convertkit.converters.keras.lower import sentence

CALL = "Exception encountered when calling Resizing.call()."
PREAMBLE = f"{CALL}\n\n\x1b[1mInvalid interpolation. Received: area\x1b[0m\n\nArguments"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (PREAMBLE, "Exception encountered when calling Resizing.call(). Invalid interpolation. Received: area"),
        ("<Dense> could not be deserialized.\n\nException encountered: No axis\nConfig={}", "No axis"),
        ("Shapes differ\nmore", "Shapes differ"),
        ("", "ValueError"),
    ],
)
def test_the_reason_is_behind_the_preamble(said: str, told: str) -> None:
    assert sentence(ValueError(said)) == told
