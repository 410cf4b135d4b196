"""Chips by the names that their vendor has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Soc:
    """``model`` is QNN's number of the chip, ``arch`` the version of its HTP."""

    model: int
    arch: int


SOCS: Mapping[str, Soc] = {
    "sm8350": Soc(30, 68),
    "sm8450": Soc(36, 69),
    "sm8475": Soc(42, 69),
    "sm8550": Soc(43, 73),
    "sm8650": Soc(57, 75),
    "sm8750": Soc(69, 79),
    "sm8850": Soc(87, 81),
}
"""Source: ``QnnTypes.h`` and ``QnnHtpDevice.h`` of Qualcomm's AI runtime."""
