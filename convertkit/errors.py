"""Everything convertkit raises on purpose.

    ConvertKitError                  exit 1
    ├── UsageError                   exit 2   flags, recipe or arguments that make no sense
    │   └── RecipeError
    ├── SourceError                  exit 1   a model file that is missing, broken, hostile or of the wrong kind
    │   └── Untrusted                         it holds code; running that takes an explicit ``--trust``
    ├── FeedError                    exit 1   calibration or evaluation data that does not fit the model
    ├── Unsupported                  exit 1   a valid model that a converter or target cannot express exactly
    ├── WorkerError                  exit 1   a worker process crashed, ran out of memory or out of time
    ├── ToolError                    exit 1   a tool that we drive failed
    ├── DeliveryError                exit 1   the output folder cannot be written
    ├── TargetsFailed                exit 1   some or all of several targets failed, the others are delivered
    ├── CellsFailed                  exit 1   some cells of a release failed, and nothing was published
    ├── ParityError                  exit 3   the artifact does not compute what it should
    │   ├── NotProven                         … or the comparison has no power to tell
    │   └── GateError                         … or loses more accuracy than ``--max-drop`` allows
    ├── IntegrityError               exit 3   a release is not what was published, or is not reproduced
    ├── MissingFramework             exit 4   an optional framework is not installed
    │   └── MissingEngine                     … or the environment of an engine
    └── MissingTool                  exit 4   … or a program that is not a Python package

A message names the thing, what was found, what was expected and the next move; it has no traceback.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping

DISTRIBUTION = "convertkit-ml"
"""What pip calls this package: on the public index ``convertkit`` is another project."""


class ConvertKitError(Exception):
    """Base of all errors that a user may see; ``exit_code`` is what the command line returns."""

    exit_code: int = 1


class UsageError(ConvertKitError):
    """Arguments that contradict each other or name something that does not exist."""

    exit_code = 2


class RecipeError(UsageError):
    """A recipe that cannot be read: file, line, key and the closest valid key."""


class SourceError(ConvertKitError):
    """A source model that is missing, empty, truncated, hostile or of an unknown kind."""


class Untrusted(SourceError):
    """A source that only works by executing code stored in it."""


class FeedError(ConvertKitError):
    """Calibration or evaluation data whose names, shapes, dtypes or values do not fit the model."""


class Unsupported(ConvertKitError):
    """A valid model element that cannot be expressed exactly.

    Handlers raise it with ``reason`` alone; the driver that called the handler adds ``subject``
    (for example ``up2 (Resize-18)``), the ``location`` in the user's source and the ``ways_out``
    by :meth:`located`.
    """

    def __init__(
        self,
        reason: str,
        *,
        subject: str = "",
        location: str = "",
        ways_out: tuple[str, ...] = (),
    ) -> None:
        self.reason = reason
        self.subject = subject
        self.location = location
        self.ways_out = ways_out
        super().__init__(str(self))

    def located(self, subject: str, location: str = "", ways_out: tuple[str, ...] = ()) -> Unsupported:
        """Return the same refusal with what only the driver knows; what is already there stays."""
        return Unsupported(
            self.reason,
            subject=self.subject or subject,
            location=self.location or location,
            ways_out=self.ways_out or ways_out,
        )

    def without_ways(self, targets: Collection[str]) -> Unsupported:
        """Return the same refusal without the ways out that are one of these targets, which failed, too."""
        closed = tuple(f"--target {target}{end}" for target in targets for end in (" ", ","))
        ways = tuple(way for way in self.ways_out if not f"{way} ".startswith(closed))
        return Unsupported(self.reason, subject=self.subject, location=self.location, ways_out=ways)

    def __str__(self) -> str:
        lines = [f"{self.subject}: {self.reason}" if self.subject else self.reason]
        if self.location:
            lines.append(f"  from  {self.location}")
        lines += [f"  try   {way}" for way in self.ways_out]
        return "\n".join(lines)


class UnknownSize(Unsupported):
    """A model element that has an exact form for fixed sizes alone: the driver says which ``--static`` fix them."""


class WorkerError(ConvertKitError):
    """A worker process that crashed, was killed, ran out of memory or exceeded ``--timeout``.

    ``ended_by`` is the number of the signal that ended it, 0 where none did.
    """

    def __init__(self, message: str, ended_by: int = 0) -> None:
        super().__init__(message)
        self.ended_by = ended_by


class ToolError(ConvertKitError):
    """A third-party tool that failed or whose output is invalid."""


class DeliveryError(ConvertKitError):
    """An output folder that exists, cannot be written or is full."""


class ParityError(ConvertKitError):
    """An artifact whose outputs differ from the previous artifact or the source beyond the tolerance."""

    exit_code = 3


class NotProven(ParityError):
    """A comparison without power: outputs constant, saturated, not finite or all but zero."""


class GateError(ParityError):
    """An artifact that loses more of the evaluation metric than ``--max-drop`` allows."""


class TargetsFailed(ConvertKitError):
    """Several targets, of which some or all failed; the others are delivered.

    ``failures`` holds each one's error and ``delivered`` each other one's folder, by target.  The exit code is that of
    the failures where they have the same, else 1.  A way out that is a target which failed, too, is not told.
    """

    def __init__(self, failures: Mapping[str, ConvertKitError], delivered: Mapping[str, str]) -> None:
        self.failures = failures
        self.delivered = delivered
        codes = {error.exit_code for error in failures.values()}
        self.exit_code = codes.pop() if len(codes) == 1 else 1
        done = ", ".join(f"{target} in {folder}" for target, folder in delivered.items())
        lines = [f"failed: {', '.join(failures)}; " + (f"delivered: {done}" if delivered else "nothing is delivered")]
        for target, error in failures.items():
            lines.append(f"{target}: {error.without_ways(failures) if isinstance(error, Unsupported) else error}")
        super().__init__("\n".join(lines))


class CellsFailed(ConvertKitError):
    """Some required cells of a release failed, so that it was not published.

    ``failures`` holds each one's sentence and exit code.  The exit code is that of the failures where they have the
    same, else 1.
    """

    def __init__(self, failures: Mapping[str, tuple[str, int]], cells: int, left: str) -> None:
        self.failures = failures
        codes = {code for _, code in failures.values()}
        self.exit_code = codes.pop() if len(codes) == 1 else 1
        told = f"{len(failures)} of {cells} cells failed, nothing was published; their results are in {left}"
        super().__init__("\n".join((told, *(f"{name}: {said}" for name, (said, _) in failures.items()))))


class IntegrityError(ConvertKitError):
    """A release, or a delivered folder, that is not what was published, or is not reproduced."""

    exit_code = 3


class MissingFramework(ConvertKitError):
    """An optional framework is needed for this source or target and is not installed."""

    exit_code = 4

    def __init__(self, framework: str, extra: str) -> None:
        self.framework = framework
        self.extra = extra
        super().__init__(f"{framework} is not installed and this needs it; run: {install_command(extra)}")


class MissingEngine(MissingFramework):
    """The environment of an engine is needed and is not there, or was made for other versions.

    ``costs`` is what installing it takes, and its licence.
    """

    def __init__(self, name: str, *, outdated: bool = False, costs: str = "") -> None:
        self.framework = name
        self.extra = ""
        state = "is installed in other versions than this needs" if outdated else "is not installed and this needs it"
        told = f" ({costs})" if costs else ""
        ConvertKitError.__init__(self, f"the engine {name} {state}; run: {engine_command(name)}{told}")


def engine_command(name: str) -> str:
    """What a shell needs to make the environment of an engine."""
    return f"convertkit engines install {name}"


class MissingTool(ConvertKitError):
    """A program outside of Python that was asked for and is not installed; the message says how to get it."""

    exit_code = 4


def install_command(extra: str) -> str:
    """What a shell needs to add one of our extras, or the core."""
    return f"pip install {DISTRIBUTION}" if extra == "core" else f"pip install '{DISTRIBUTION}[{extra}]'"


_EXTRAS = {
    "torch": "torch",
    "safetensors": "torch",
    "tensorflow": "tensorflow",
    "tf2onnx": "tensorflow",
    "keras": "keras",
    "h5py": "keras",
    "jax": "jax",
    "jaxlib": "jax",
    "ai_edge_litert": "tflite",
    "flatbuffers": "tflite",
    "tflite_micro": "tflite-micro",
    "ethosu": "ethos-u",
    "onnxruntime_qnn": "qnn",
    "executorch": "executorch",
    "coremltools": "coreml",
    "openvino": "openvino",
    "onnxruntime_genai": "genai",
    "MNN": "mnn",
    "litert_lm": "litert-lm",
    "litert_lm_builder": "litert-lm",
    "ncnn": "ncnn",
    "tensorrt_rtx": "tensorrt",
    "PIL": "images",
    "scipy": "audio",
    "distributed": "dask",
}


_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file size limit is reached",
}


def full_disk(error: Exception) -> DeliveryError | None:
    """The refusal for an error of a disk that takes no more, None for any other error."""
    reason = _FULL.get(error.errno or 0) if isinstance(error, OSError) else None
    return None if reason is None else DeliveryError(f"the folder beside the output cannot be written: {reason}")


def missing_framework(module: str | None) -> MissingFramework | None:
    """The refusal for a module that cannot be found, where one of our extras brings it."""
    top = (module or "").partition(".")[0]
    return MissingFramework(top, _EXTRAS[top]) if top in _EXTRAS else None
