"""``convertkit verify ARTIFACT --arm64``: whether an artifact computes on arm64 what it computes here."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from os import PathLike, fspath
from typing import Any

from convertkit import plugins
from convertkit.artifact import Artifact
from convertkit.compare.agreement import Verification, reference, samples
from convertkit.compare.tolerance import precisions
from convertkit.emulation.cores import CORES, Core
from convertkit.emulation.root import RUNTIMES, emulator, root
from convertkit.emulation.runner import ProcessorRunner
from convertkit.errors import ConvertKitError, ParityError, Unsupported
from convertkit.looking.opened import Opened, opened
from convertkit.looking.tables import Shown, Table
from convertkit.parity.replay import compare_recordings, record
from convertkit.parity.truth import AskTruth, Truth
from convertkit.parity.values import ParityReport
from convertkit.progress import Progress, Silent
from convertkit.stage import Feed, Portable, PortableRunner, Runner, Tolerance
from convertkit.twins import Twins

INTEGERS = Tolerance("the same integers on every processor", relative=1e-6)
"""Of what computes in integers throughout: they are equal, and so is what is made of them, but for its last bits."""
FLOATS = Tolerance("the same float32 arithmetic in another order", relative=1e-6)
"""Of anything with floats: an integer that is made of them may be rounded to its neighbour, as the twin tells."""
ON_THE_FLY = Tolerance("activations become integers in every call, where a last bit decides about a step", snr_db=40.0)
"""Of dynamic quantization: a step is 1/127 of the range, and 40 dB are 1/100 of the output."""
_WHOLE = frozenset({"int8", "uint8", "int16", "int16x8"})


@dataclass(frozen=True, slots=True, repr=False)
class OnArm(Shown):
    """What :func:`verify_arm64` has found: a verification for each core."""

    artifact: str
    cores: tuple[Verification, ...]

    @property
    def passed(self) -> bool:
        """Whether every core computes the same."""
        return all(each.passed for each in self.cores)

    @property
    def failure(self) -> ParityError | None:
        """The first core's that does not; None where all do."""
        return next((found for each in self.cores if (found := each.failure) is not None), None)

    @property
    def headline(self) -> str:
        """The verdict of each core, in a line each."""
        return "\n".join(each.headline for each in self.cores)

    def tables(self) -> tuple[Table, ...]:
        """Those of each core."""
        return tuple(
            replace(table, title=f"{each.second}: {table.title}") for each in self.cores for table in each.tables()
        )

    def remarks(self) -> tuple[str, ...]:
        """What one should know of each core's."""
        return tuple(dict.fromkeys(text for each in self.cores for text in each.remarks()))


def verify_arm64(
    artifact: str | PathLike[str],
    cores: Sequence[str] = tuple(CORES),
    *,
    timeout: float | None = None,
    progress: Progress | None = None,
    **how: Any,
) -> OnArm:
    """Whether an artifact computes on arm cores, under emulation, what it computes on this processor.

    The same program runs the same version of the runtime on both.  Integers have to be equal, floats within 1e-6 of the
    largest; the model's float64 twin decides beyond that, where it is one of floats.  Raises ``MissingTool`` without
    the emulator or the root, ``Unsupported`` for what neither LiteRT nor ONNX Runtime executes.

    Args:
        artifact: a ``.tflite``, ``.onnx`` or ``.ort`` file, or the folder of an export that holds one.
        cores: names of cores, of :data:`~convertkit.emulation.cores.CORES`.
        timeout: longest time for one call, in seconds.
        progress: told of what is being done.
        how: ``calib``, ``input`` and what else says how a model is opened and fed, as in ``convertkit.verify``.

    """
    told = progress or Silent()
    told.status("opening")
    chosen = [CORES[name] for name in dict.fromkeys(cores)]
    given = {name: value for name, value in how.items() if value is not None and value != ()}
    with opened(fspath(artifact), told, **given) as model, _portable(model) as portable, Twins() as twins:
        emulator()  # before anything runs
        root(portable.runtime)
        tolerance, truth = _judging(model, twins)
        own = _On(portable, model.artifact, None, timeout)
        told.status("running here")
        onnx = model.onnx() if model.is_onnx else None
        before = reference(model, own, onnx, model.options, samples(model.options, model.artifact))
        found = []
        for core in chosen:
            told.status(f"running on {core.name}")
            with _On(portable, model.artifact, core, timeout).runner() as runner:
                after = record(core.name, model.artifact, runner, before.feeds, before.edges)
            report = compare_recordings(before, after, tolerance, truth)
            found.append(_verification(model.title, portable, core, report))
    return OnArm(fspath(artifact), tuple(found))


@dataclass(frozen=True, slots=True)
class _On:
    """Where a model runs: on a core, or on this processor."""

    portable: Portable
    artifact: Artifact
    core: Core | None
    timeout: float | None

    def runner(self) -> Runner:
        """A process there."""
        return ProcessorRunner(self.portable, self.artifact, self.core, self.timeout)


@contextmanager
def _portable(model: Opened) -> Iterator[Portable]:
    """The file and its runtime, taken out of its package where it lies in one."""
    try:
        runner = model.runner()
    except plugins.BrokenPlugin as error:
        raise _refusal(model) from error
    if not isinstance(runner, PortableRunner):
        raise _refusal(model)
    with runner:
        yield runner.portable()


def _refusal(model: Opened) -> Unsupported:
    return Unsupported(
        f"{model.artifact.format} is not executed by LiteRT or ONNX Runtime, which are what --arm64 has for arm64",
        subject=model.title,
        ways_out=("an export for tflite, onnxruntime, ort-mobile or android",),
    )


def _judging(model: Opened, twins: Twins) -> tuple[Tolerance, AskTruth | None]:
    """What may differ, and what decides beyond it: nothing does where all is integers."""
    computed = precisions(model)
    if computed and all(each in _WHOLE for each in computed):
        return INTEGERS, None
    if any(each.endswith("on the fly") for each in computed):
        return ON_THE_FLY, None

    def truth(feed: Feed) -> Truth | None:
        try:
            return twins.ask(model.onnx())(feed)
        except ConvertKitError:  # what cannot be converted has no twin, and the tolerance alone decides
            return None

    return FLOATS, truth


def _verification(title: str, portable: Portable, core: Core, report: ParityReport) -> Verification:
    distribution = RUNTIMES[portable.runtime]
    program = f"{distribution} {version(distribution)}"
    return Verification(
        f"{title} on {platform.machine()}",
        f"{title} on {core.name}",
        (program, f"{program} for arm64, QEMU with {core.story}"),
        report,
        (f"{core.name} is emulated: numbers count, times do not, and nothing was run on a phone",),
    )
