"""Opening a source: recognised by content, read, described."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from convertkit import plugins
from convertkit.artifact import STATE_FILE, Artifact, sha256_of
from convertkit.formulas import sizes_of_dims
from convertkit.processing.words import anchors_file
from convertkit.recipe import ExportOptions
from convertkit.stage import Converter, FilesConverter, FreedSource
from convertkit.steps import live
from convertkit.tasks.task import Context, Task


@dataclass(frozen=True, slots=True)
class Described:
    """A source as it was opened: its interface and what the user should know of it.

    ``implied_sizes`` are those of dimensions that the source left open although the model does not name them.
    ``shared`` says that it may be executed while it is converted.
    """

    artifact: Artifact
    notes: tuple[str, ...] = ()
    implied_sizes: Mapping[str, int] | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Describe(Task[Described]):
    """The interface of ``options.source``, and what the user should know of it."""

    options: ExportOptions
    kept: bool = False
    """Whether the result may serve other exports, so that the content of files counts and not their names."""
    keeps = Described

    @property
    def title(self) -> str:
        return "opening"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return ()

    def decides(self) -> Mapping[str, object] | None:
        """The file's content and name; None where code of the user's is executed, which may read anything."""
        path = Path(self.options.source)
        chosen = live.chosen(self.options, live.SOURCE_OPTIONS - {"source", "timeout_s"})
        if not self.kept:
            return {"source": self.options.source, **chosen}
        if self.options.model is not None or self.options.trust or not path.exists():
            return None
        generated = self.options.calib is None and not self.options.static  # then a conversion may be judged on those
        converter = plugins.converter_for(self.options.source)
        beside = {file.name: sha256_of(file) for file in _beside(path, converter)}
        if (anchors := anchors_file(self.options.postprocess)) is not None:
            beside["anchors"] = sha256_of(Path(anchors).expanduser())
        return {
            "source": path.name,
            "sha256": sha256_of(path),
            "beside": beside,
            "generated": generated,
            **chosen,
        }

    @property
    def packages(self) -> tuple[str, ...]:
        """The converter's."""
        return (live.package_of(plugins.converter_for(self.options.source)),)

    def run(self, given: tuple[object, ...], context: Context) -> Described:
        """Open the source; it stays open for the tasks that convert and run it."""
        with live.source(self.options, context.resources, context.progress) as source:
            sizes = source.implied_sizes if isinstance(source, FreedSource) else None
            return Described(source.artifact, tuple(source.notes), sizes, live.is_shared(source))

    def restored(self, result: Described) -> Described:
        """The source lies where this export found it, whoever opened its equal before."""
        return replace(result, artifact=lying_at(result.artifact, self.options.source))


def lying_at(artifact: Artifact, source: str) -> Artifact:
    """A source's interface with the place of ``source``, an equal file or folder of the same name.

    One kept from an earlier export names the place of its source, which may be gone or hold another model by now.
    """
    before, path = artifact.path, Path(source)
    if before.name != path.name or before == path:
        return artifact
    state = artifact.initial_state
    if state is not None and state.parent == before.parent:
        state = path.parent / state.name
    return replace(artifact, path=path, initial_state=state)


def with_sizes(artifact: Artifact, options: ExportOptions) -> Artifact:
    """The source's interface with the sizes of ``--static``: what samples must fit."""
    names = [dim for spec in artifact.inputs for dim in spec.shape if isinstance(dim, str)]
    sizes = sizes_of_dims(dict(options.static), names)
    inputs = tuple(
        replace(spec, shape=tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape))
        for spec in artifact.inputs
    )
    return replace(artifact, inputs=inputs)


def source_bytes(artifact: Artifact) -> int:
    """Bytes of a source's file, and of the weights that it names in others."""
    if artifact.format != "onnx" or not artifact.path.is_file():
        return artifact.size_bytes
    converter = plugins.converter_for(str(artifact.path))
    beside = converter.files_beside(str(artifact.path)) if isinstance(converter, FilesConverter) else ()
    return sum(file.stat().st_size for file in (artifact.path, *beside))


def _beside(path: Path, converter: Converter) -> Iterator[Path]:
    """Files that may belong to the source: what its converter says, its state, and what begins with its name."""
    if isinstance(converter, FilesConverter):
        yield from converter.files_beside(str(path))
    if path.is_file():
        for file in sorted(path.parent.iterdir()):
            is_named = file.name.startswith((f"{path.stem}.", f"{path.name}")) or file.name == STATE_FILE
            if file != path and is_named and file.is_file():
                yield file
