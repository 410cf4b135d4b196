"""What a failed verification on generated inputs advises."""

from __future__ import annotations

import pytest

from convertkit.errors import ParityError
from convertkit.steps.session import hinted
from convertkit.text import NOT_VERIFIED

NOT_A_NUMBER = 'verification failed after tflite: output "y" is not NaN or infinite where the reference is, on input 1'
APART = 'verification failed after tflite: output "y" max_abs 0.31, relative 2.00e-02 on input 1'


@pytest.mark.parametrize(
    ("said", "way"),
    [(NOT_A_NUMBER, "--input 'NAME::DTYPE[LOW,HIGH)' with the range of real inputs"), (APART, "--calib")],
)
def test_the_way_out_fits_the_fault(said: str, way: str) -> None:
    text = str(hinted(ParityError(said)))
    assert text.startswith(f"{said}\n  try   {way}")


def test_no_data_is_advised_where_the_model_draws() -> None:
    notes = ("a note", f"{NOT_VERIFIED}: node (Dropout): it draws random numbers")
    text = str(hinted(ParityError(APART), notes))
    assert text.startswith(f"{APART}\n  try   the random tensor as an input of the model")
    assert "--calib" not in text


def test_advice_is_given_once() -> None:
    failed = ParityError(f"{APART}\n  try   --calib with samples")
    assert hinted(failed) is failed
