"""Chips, whose they are, and how LiteRT's compilers and Google Play call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convertkit.targets.qnn.devices import SOCS


@dataclass(frozen=True, slots=True)
class Vendor:
    """A maker of chips.

    ``manufacturer`` is its name for LiteRT's compiler, ``folder`` where the package ai-edge-litert has its plug-in, and
    ``kit`` what the libraries come with that the plug-in loads.  ``played`` are its names at Google Play, of which the
    first begins the group of devices; none where Google Play delivers to no such device.
    """

    manufacturer: str
    folder: str
    kit: str
    played: tuple[str, ...] = ()


HTP = "libQnnHtp.so"
"""What a folder of Qualcomm's libraries is known by."""
QUALCOMM = Vendor("Qualcomm", "qualcomm", "Qualcomm's AI Runtime SDK", ("Qualcomm", "QTI"))
MEDIATEK = Vendor("MediaTek", "mediatek", "MediaTek's NeuroPilot SDK", ("Mediatek",))
GOOGLE = Vendor("Google", "google_tensor", "Google's Tensor SDK", ("Google",))
INTEL = Vendor("IntelOpenVINO", "intel_openvino", "Intel's OpenVINO")


@dataclass(frozen=True, slots=True)
class Chip:
    """``asked`` is the chip's name for LiteRT's compiler, ``flags`` what its plug-in has to be told besides."""

    vendor: Vendor
    model: str
    asked: str
    flags: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The group of devices in an AI pack."""
        return f"{self.vendor.played[0]}_{self.model}"


def _several(vendor: Vendor, *models: str) -> dict[str, Chip]:
    return {model.lower().replace("_", "-"): Chip(vendor, model, model) for model in models}


_MEDIATEK = (6853, 6877, 6878, 6879, 6886, 6893, 6895, 6897, 6983, 6985, 6989, 6991)
CHIPS: Mapping[str, Chip] = {
    **_several(QUALCOMM, *(name.upper() for name in SOCS)),
    **{f"mt{number}": Chip(MEDIATEK, f"MT{number}", f"mt{number}") for number in _MEDIATEK},
    "mt6993": Chip(MEDIATEK, "MT6993", "mt6993", ("--mediatek_sdk_version_type=version9",)),
    **_several(GOOGLE, "Tensor_G3", "Tensor_G4", "Tensor_G5", "Tensor_G6"),
    **_several(INTEL, "LNL", "PTL"),
}
"""By our names.  Source: ``aot/vendors`` and ``aot/ai_pack`` of ai-edge-litert 2.3.0.

Its plug-in for Samsung's chips loads nowhere: it lacks a symbol of FlatBuffers, which no library that it names has.
"""
