"""What Vela made of a file: all of it on the NPU but what may stay on the CPU, and the interface as it was."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from convertkit.errors import Unsupported
from convertkit.targets.tflite_micro.file import FileGraph
from convertkit.targets.tflite_micro.placed import check_interface, on_the_cpu, told

NPU = "CUSTOM ethos-u"
"""The operator that Vela writes."""


def check_placement(before: Sequence[FileGraph], after: Sequence[FileGraph], allowed: Collection[str]) -> None:
    """``Unsupported`` for operators on the CPU that nobody allowed, and where nothing is left for the NPU."""
    refused = tuple((kind, name) for kind, name in on_the_cpu(after, NPU) if kind not in allowed)
    if refused:
        first, others = told(refused)
        kinds = dict.fromkeys(kind for kind, _ in refused)
        raise Unsupported(
            f"Vela leaves it to the CPU{others}",
            subject=first,
            ways_out=(" ".join(f"--ethos-u-allow-cpu {kind}" for kind in kinds), "--target tflite-micro"),
        )
    if not any(each.code == NPU for graph in after for each in graph.operators):
        raise Unsupported("Vela places no operator on the NPU", ways_out=("--target tflite-micro",))
    check_interface(before[0], after[0], "Vela")
