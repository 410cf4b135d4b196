"""A ``.tflite`` file becomes a package that firmware builds with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import Unsupported
from convertkit.stage import FLOAT32, FeedSource, Stage, Tolerance
from convertkit.targets.tflite.metadata import labels_behind, with_labels
from convertkit.targets.tflite.writer import with_note
from convertkit.targets.tflite_micro import golden
from convertkit.targets.tflite_micro.arena import measured_arena
from convertkit.targets.tflite_micro.c_array import model_source
from convertkit.targets.tflite_micro.file import FileGraph, read_graphs, read_origins
from convertkit.targets.tflite_micro.footprint import Arena, foretold_arena
from convertkit.targets.tflite_micro.headers import NAMESPACE, model_header, resolver_header
from convertkit.targets.tflite_micro.offline import plan_note
from convertkit.targets.tflite_micro.operators import check, used
from convertkit.targets.tflite_micro.readme import Facts, readme
from convertkit.targets.tflite_micro.runtime import MicroInterpreter, runtime_name
from convertkit.targets.tflite_micro.sources import MAIN, skeleton
from convertkit.targets.tflite_micro.tolerance import tolerance_of

OFFLINE = "offline"
"""Value of ``--tflite-micro-plan`` that lays the places of values down in the file."""


class PackageMicro:
    """Writes the C++ around the file, and runs it in TensorFlow Lite Micro for its arena and its golden vectors."""

    name = "tflite-micro"
    version = "1"
    accepts = frozenset({"tflite"})
    produces = "tflite-micro"

    def __init__(
        self,
        seed: int,
        calibration: FeedSource | None,
        most_bytes: int | None = None,
        skeleton: str = "cmake",
        plan: str = "greedy",
    ) -> None:
        self._seed, self._calibration = seed, calibration
        self._most_bytes, self._skeleton, self._plan = most_bytes, skeleton, plan
        self._tolerance = FLOAT32
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def tolerance(self) -> Tolerance:
        """By what the last model computes in."""
        return self._tolerance

    @property
    def options(self) -> Mapping[str, object]:
        return {"seed": self._seed, "arena": self._most_bytes, "skeleton": self._skeleton, "plan": self._plan}

    def foretell(self, source: Artifact) -> tuple[str, ...]:
        """What :meth:`run` refuses ``source`` for, and how large its arena will be; the runtime is not asked."""
        _, graphs = self._planned(source.path.read_bytes())
        self._tolerance = tolerance_of(graphs)
        arena = foretold_arena(graphs)
        self._check_arena(arena.size)
        return (f"the tensor arena takes {arena.told()}",)

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Package ``source``.

        ``Unsupported`` for operators, types and sizes that the runtime does not have, and for too large an arena.
        """
        model, graphs = self._planned(source.path.read_bytes())
        self._tolerance = tolerance_of(graphs)
        path = workdir / "model.tflite"
        path.write_bytes(model)
        arena = measured_arena(path, graphs)
        self._check_arena(arena.size)
        vectors = self._vectors(source, model, graphs[0], arena)
        foretold = foretold_arena(graphs)
        self.diagnosis = {
            "arena": {"bytes": arena.size, "head": arena.head, "tail": arena.tail, "foretold": foretold.size}
        }
        codes = used(graphs)
        flash = sum(each.size_bytes for each in vectors)
        facts = Facts(codes, arena, len(model), len(vectors), flash, runtime_name())
        texts = {
            "model.cc": model_source(model, NAMESPACE),
            "model.h": model_header(graphs[0], arena.size),
            "resolver.h": resolver_header(codes),
            "golden.h": golden.golden_header(vectors, NAMESPACE),
            "golden.cc": golden.golden_source(vectors, NAMESPACE),
            "main.cc": MAIN,
            **skeleton(self._skeleton),
            "README.md": readme(facts, self._skeleton),
        }
        for name, text in texts.items():
            (workdir / name).parent.mkdir(exist_ok=True)
            (workdir / name).write_text(text, encoding="utf-8")
        made_by = f"{self.name} {self.version}"
        return replace(source, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by)

    def _check_arena(self, arena_bytes: int) -> None:
        if self._most_bytes is not None and arena_bytes > self._most_bytes:
            raise Unsupported(
                f"the tensor arena takes {arena_bytes:,} bytes, --tflite-micro-arena allows {self._most_bytes:,}",
                ways_out=("--int8 --full-integer, whose values take a quarter",) if self._tolerance is FLOAT32 else (),
            )

    def _planned(self, model: bytes) -> tuple[bytes, tuple[FileGraph, ...]]:
        """The file, with places of its values where they were asked for, and what is in it."""
        graphs = _checked_graphs(model)
        if self._plan != OFFLINE:
            return model, graphs
        planned = with_note(model, *plan_note(graphs))
        behind = labels_behind(model)
        return with_labels(planned, behind) if behind else planned, read_graphs(planned)

    def _vectors(self, source: Artifact, model: bytes, main: FileGraph, arena: Arena) -> tuple[golden.Vector, ...]:
        interpreter = MicroInterpreter(model, arena.size)
        return golden.vectors(interpreter, source, main, self._calibration, self._seed)


def _checked_graphs(model: bytes) -> tuple[FileGraph, ...]:
    graphs = read_graphs(model)
    check(graphs, read_origins(model))
    _check_sizes(graphs)
    return graphs


def _check_sizes(graphs: tuple[FileGraph, ...]) -> None:
    for graph in graphs:
        for tensor in graph.tensors:
            if tensor.is_dynamic:
                raise Unsupported(
                    "its size depends on the values of an input, and TensorFlow Lite Micro allocates all memory before "
                    "the first call",
                    subject=f"tensor {tensor.name}",
                    ways_out=("--target tflite",),
                )


_: type[Stage] = PackageMicro
