"""The stages of an export, and where a task finds one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Protocol

from convertkit import plugins
from convertkit.artifact import Artifact, sha256_of
from convertkit.defects import blamed
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext, PackagingTarget, Stage, Target
from convertkit.steps import live
from convertkit.steps.describe import with_sizes
from convertkit.target_options import for_passes, values
from convertkit.tasks.task import Context

_NO_CONTENT = frozenset(
    {"source", "targets", "output", "keep_failed", "force", "verbose", "timeout_s", "calib", "eval", "metric", "strict",
     "label_file", "allow_unverified", "jobs", "cache", "scheduler", "target_options"}
)  # fmt: skip
"""Options that decide nothing about a file, or whose content counts and not their name."""


_ASKED_OF_STAGES = ("name", "version", "accepts", "produces", "tolerance", "options", "run")


class StageRef(Protocol):
    """Where a task finds its stage, in whatever process it runs."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str:
        """How a defect names the stage and whose it is."""
        ...

    @property
    def plugins(self) -> tuple[object, ...]:
        """Who may be at fault."""
        ...

    @property
    def packages(self) -> tuple[str, ...]:
        """Whose code the stage is."""
        ...

    def decides(self) -> Mapping[str, object] | None:
        """What besides the artifact decides what the stage makes, JSON-able; None where that cannot be told."""
        ...

    def opened(self, context: Context) -> AbstractContextManager[Stage]: ...


@dataclass(frozen=True, slots=True)
class OfStage:
    """A stage that is at hand."""

    stage: Stage

    @property
    def name(self) -> str:
        return self.stage.name

    @property
    def title(self) -> str:
        return f"stage {self.name}"

    @property
    def plugins(self) -> tuple[object, ...]:
        return (self.stage,)

    @property
    def packages(self) -> tuple[str, ...]:
        return (live.package_of(self.stage),)

    def decides(self) -> Mapping[str, object] | None:
        return {"stage": self.stage.name, "version": self.stage.version, "options": dict(self.stage.options)}

    def opened(self, context: Context) -> AbstractContextManager[Stage]:
        return nullcontext(self.stage)


@dataclass(frozen=True, slots=True)
class OfPlugin:
    """The pass of that name, or the step of the target at that place, built anew where it runs."""

    name: str
    options: ExportOptions
    target: str
    source: Artifact
    place: int | str

    def decides(self) -> Mapping[str, object] | None:
        chosen = choices(self.options, self.target, whole=isinstance(self.place, int))
        return {"stage": self.name, "place": self.place, **chosen}

    @property
    def title(self) -> str:
        return f"stage {self.name} of target {self.target}" if isinstance(self.place, int) else f"pass {self.place}"

    @property
    def plugins(self) -> tuple[object, ...]:
        passes = {each.name: each for each in plugins.passes()}
        target = plugins.target(self.target)
        return (passes[str(self.place)], target) if str(self.place) in passes else (target,)

    @property
    def packages(self) -> tuple[str, ...]:
        return (live.package_of(self.plugins[0]),)

    @contextmanager
    def opened(self, context: Context) -> Iterator[Stage]:
        inputs = with_sizes(self.source, self.options).inputs
        data = live.calibration(self.options, inputs, context.resources)
        target = plugins.target(self.target)
        built = BuildContext(self.options, target, self.source.sha256, data, context.progress, context.once)
        with blamed(self.title, *self.plugins):
            stages = steps_of(built, target)
        yield stages[self.place]


def _content(options: ExportOptions, target: Target, *, whole: bool) -> object:
    """What a step gets of the target's own options, all of them or those of passes; files by their content."""
    given = values(target, options if whole else for_passes(target, options))
    return {name: _by_content(value) for name, value in given.items()}


def _by_content(value: object) -> object:
    if isinstance(value, tuple):
        return [_by_content(each) for each in value]
    return sha256_of(value) if isinstance(value, Path) else str(value)


def choices(options: ExportOptions, target: str, *, whole: bool) -> dict[str, object]:
    """What the stages of a target (or, not ``whole``, passes for it) are built from, JSON-able; files by content."""
    chosen = live.chosen(options, frozenset(each.name for each in fields(options)) - _NO_CONTENT)
    labels = None if options.label_file is None else sha256_of(Path(options.label_file))
    plugin = plugins.target(target)
    engine = live.engine_of(plugin) if whole else {}
    own = _content(options, plugin, whole=whole)
    return {"target": target, "labels": labels, **chosen, "target_options": own, **engine}


def steps_of(context: BuildContext, target: Target) -> dict[int | str, Stage]:
    """The stages of one target in order: passes by their names, its own by their places.

    The passes of a target that packages another's artifact are that one's.  Raises ``BrokenPlugin`` where a stage lacks
    something that ``Stage`` asks for.
    """
    found: dict[int | str, Stage] = {}
    of_passes = replace(context, options=for_passes(target, context.options))
    for each in () if isinstance(target, PackagingTarget) else plugins.passes():
        if (stage := each.stage(of_passes)) is not None:
            found[each.name] = _whole(stage, f"pass {each.name}")
    return found | {place: _whole(each, f"target {target.name}") for place, each in enumerate(target.stages(context))}


def _whole(stage: Stage, of: str) -> Stage:
    lacking = [name for name in _ASKED_OF_STAGES if not hasattr(stage, name)]
    if lacking:
        raise plugins.BrokenPlugin(
            f"{of}: its stage {type(stage).__name__} lacks {', '.join(lacking)}; see convertkit.stage.Stage"
        )
    return stage
