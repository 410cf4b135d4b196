"""Arm cores that artifacts are executed on, as QEMU emulates them and as Linux tells of them."""

from __future__ import annotations

from dataclasses import dataclass

_COMMON = "fp asimd evtstrm aes pmull sha1 sha2 crc32"


@dataclass(frozen=True, slots=True)
class Core:
    """A core by QEMU's name of it; ``part`` and ``features`` are what ``/proc/cpuinfo`` says, which chooses kernels."""

    name: str
    part: str
    features: str
    story: str

    @property
    def cpuinfo(self) -> str:
        """``/proc/cpuinfo`` of a machine with one of them.

        Runtimes read that file, and without it the host's: kernels for features that are not there end the program.
        """
        lines = (
            "processor\t: 0",
            "BogoMIPS\t: 38.40",
            f"Features\t: {self.features}",
            "CPU implementer\t: 0x41",
            "CPU architecture: 8",
            "CPU variant\t: 0x1",
            f"CPU part\t: {self.part}",
            "CPU revision\t: 0",
        )
        return "\n".join(lines) + "\n\n"


CORES = {
    core.name: core
    for core in (
        Core("cortex-a72", "0xd08", f"{_COMMON} cpuid", "Armv8.0, without dot products of bytes"),
        Core(
            "cortex-a76",
            "0xd0b",
            f"{_COMMON} atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp",
            "Armv8.2, with dot products of bytes and float16 arithmetic",
        ),
    )
}
"""By name.  Never QEMU's ``max``: its emulation of SVE and SME gives wrong integers in XNNPACK's kernels (QEMU 7.2)."""
