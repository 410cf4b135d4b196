"""convertkit: a trained model in, a verified artifact out.

    import convertkit
    result = convertkit.export("model.pt", target="tflite", int8=True, calib="calib.npz", output="out")

Importing this package loads no framework and no runtime; ``export`` does so on first use.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    _REFUSAL = f"convertkit needs Python 3.11 or newer; this is Python {sys.version.split()[0]}"
    if sys.argv[:1] == ["-m"]:  # python -m convertkit
        sys.exit(_REFUSAL)
    raise ImportError(_REFUSAL)

from typing import TYPE_CHECKING, Any

from convertkit import errors

if TYPE_CHECKING:
    from convertkit.api import export
    from convertkit.compare.agreement import Verification, verify
    from convertkit.compare.bisection import Bisection, bisect
    from convertkit.compare.differences import Difference, diff
    from convertkit.job import export_all
    from convertkit.looking.benchmark import Bench, bench
    from convertkit.looking.checking import check
    from convertkit.looking.doctor import Diagnosis, doctor
    from convertkit.looking.inspection import Inspection, inspect
    from convertkit.looking.verdicts import Checked
    from convertkit.recipe import ExportOptions, ImageOptions, InputSpec, MeasuredDevice, Normalization, WavOptions
    from convertkit.release.api import run
    from convertkit.release.reproduce import Reproduction, reproduce
    from convertkit.release.result import Release
    from convertkit.release.verify import Integrity, verify_release
    from convertkit.result import Interface, Result, load

__version__ = "0.1.0"
CONVERTKIT_PLUGIN_API = "1.1"  # what plugins may rely on, MAJOR.MINOR: docs/reference/versioning.md
__all__ = [
    "Bench",
    "Bisection",
    "Checked",
    "Diagnosis",
    "Difference",
    "ExportOptions",
    "ImageOptions",
    "InputSpec",
    "Inspection",
    "Integrity",
    "Interface",
    "MeasuredDevice",
    "Normalization",
    "Release",
    "Reproduction",
    "Result",
    "Verification",
    "WavOptions",
    "bench",
    "bisect",
    "check",
    "diff",
    "doctor",
    "errors",
    "export",
    "export_all",
    "inspect",
    "load",
    "reproduce",
    "run",
    "verify",
    "verify_release",
]

_HOMES = {
    "Bisection": "convertkit.compare.bisection",
    "bisect": "convertkit.compare.bisection",
    "Bench": "convertkit.looking.benchmark",
    "bench": "convertkit.looking.benchmark",
    "Checked": "convertkit.looking.verdicts",
    "check": "convertkit.looking.checking",
    "Difference": "convertkit.compare.differences",
    "diff": "convertkit.compare.differences",
    "Diagnosis": "convertkit.looking.doctor",
    "doctor": "convertkit.looking.doctor",
    "ExportOptions": "convertkit.recipe",
    "ImageOptions": "convertkit.recipe",
    "InputSpec": "convertkit.recipe",
    "Inspection": "convertkit.looking.inspection",
    "Interface": "convertkit.result",
    "MeasuredDevice": "convertkit.recipe",
    "Normalization": "convertkit.recipe",
    "Verification": "convertkit.compare.agreement",
    "WavOptions": "convertkit.recipe",
    "Result": "convertkit.result",
    "export": "convertkit.api",
    "export_all": "convertkit.job",
    "inspect": "convertkit.looking.inspection",
    "load": "convertkit.result",
    "verify": "convertkit.compare.agreement",
    "Integrity": "convertkit.release.verify",
    "Release": "convertkit.release.result",
    "Reproduction": "convertkit.release.reproduce",
    "reproduce": "convertkit.release.reproduce",
    "run": "convertkit.release.api",
    "verify_release": "convertkit.release.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'convertkit' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
