"""Handlers' signatures are held against ONNX's schemas before they lower anything."""

import pytest

from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.handlers import TFLITE


def test_every_handler_has_the_signature_of_its_schema():
    TFLITE.check()


def no_alpha(b, x):
    return x


def wrong_alpha(b, x, *, alpha: float = 0.1):
    return x


def one_more(b, x, y, *, alpha: float = 0.01):
    return x


@pytest.mark.parametrize(
    ("handler", "fault"),
    [
        (no_alpha, "missing attribute 'alpha' of LeakyRelu-16"),
        (wrong_alpha, "alpha defaults to 0.1"),
        (one_more, "2 inputs, LeakyRelu-16 has 1"),
    ],
)
def test_a_handler_that_departs_from_its_schema_is_never_handed_out(handler, fault):
    registry = Registry()
    registry.lowers("LeakyRelu", since=16)(handler)
    for ask in (lambda: registry.find("LeakyRelu", 18), Registry([registry]).check):
        with pytest.raises(TypeError, match=fault):
            ask()


def test_two_handlers_for_one_meaning_are_refused():
    one, other = Registry(), Registry()
    for each in (one, other):
        each.lowers_custom("Move", domain="own")(no_alpha)
    with pytest.raises(RuntimeError, match="is handled by"):
        Registry([one, other])
