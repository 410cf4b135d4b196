"""Accelerators, chips and memory modes by the names that Vela has for them, and what fits together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convertkit.errors import UsageError
from convertkit.recipe import ExportOptions
from convertkit.target_options import values

ACCELERATORS = (
    "ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256", "ethos-u65-256", "ethos-u65-512",
    "ethos-u85-128", "ethos-u85-256", "ethos-u85-512", "ethos-u85-1024", "ethos-u85-2048",
)  # fmt: skip
SYSTEM_CONFIGS = (
    "Ethos_U55_Deep_Embedded", "Ethos_U55_High_End_Embedded", "Ethos_U65_Embedded", "Ethos_U65_Mid_End",
    "Ethos_U65_High_End", "Ethos_U65_Client_Server", "Ethos_U85_SYS_Flash_Low", "Ethos_U85_SYS_Flash_High",
    "Ethos_U85_SYS_DRAM_Low", "Ethos_U85_SYS_DRAM_Mid", "Ethos_U85_SYS_DRAM_High",
)  # fmt: skip
MEMORY_MODES = (
    "Sram_Only", "Shared_Sram", "Dedicated_Sram", "Dedicated_Sram_256KB", "Dedicated_Sram_384KB",
    "Dedicated_Sram_512KB",
)  # fmt: skip
CONFIG_FILE = "Arm/vela.ini"
"""Where Vela's package has the chips and the memory modes."""

_DEFAULTS: Mapping[str, tuple[str, str]] = {
    "u55": ("Ethos_U55_High_End_Embedded", "Shared_Sram"),
    "u65": ("Ethos_U65_Client_Server", "Dedicated_Sram_384KB"),
    "u85": ("Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram_384KB"),
}
"""Source: Vela 5.2.0, ``architecture_features.py``."""


@dataclass(frozen=True, slots=True)
class Device:
    """What is compiled for."""

    accelerator: str
    system_config: str
    memory_mode: str


def chosen(target: object, options: ExportOptions) -> Device:
    """From flags, keywords or a recipe; ``UsageError`` for a chip that has another NPU."""
    given = values(target, options)
    accelerator = str(given["accelerator"])
    family = accelerator.split("-")[1]
    system, memory = _DEFAULTS[family]
    asked = given["system-config"] or system
    if not asked.startswith(f"Ethos_{family.upper()}_"):
        fitting = ", ".join(name for name in SYSTEM_CONFIGS if name.startswith(f"Ethos_{family.upper()}_"))
        raise UsageError(f"--ethos-u-system-config {asked} has no {accelerator}; for that there are {fitting}")
    return Device(accelerator, asked, given["memory-mode"] or memory)
