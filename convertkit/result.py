"""A delivered export as a value: what it is, how it was judged, and running it."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit import plugins
from convertkit.artifact import Array, Artifact, Quantization, TensorSpec, sha256_of
from convertkit.errors import SourceError
from convertkit.stage import Feed, Outputs
from convertkit.text import NOT_VERIFIED, size_text

MANIFEST, REPORT = "manifest.json", "report.json"


@dataclass(frozen=True, slots=True)
class Interface:
    """What a model takes and returns, in its own layout and dtypes."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def rows(self) -> list[tuple[str, ...]]:
        """A row for each tensor: whether it goes in or out, name, dtype, shape, and what else a caller must know."""
        named = [("input", spec) for spec in self.inputs] + [("output", spec) for spec in self.outputs]
        return [(kind, spec.name, spec.dtype, _shape(spec.shape), _remarks(spec)) for kind, spec in named]

    def __repr__(self) -> str:
        from convertkit.text import aligned

        return "\n".join(aligned(self.rows()))


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """A delivered export: ``path`` is its folder, ``artifact`` the model in it, ``report`` report.json."""

    path: Path
    artifact: Artifact
    report: Mapping[str, Any]

    @property
    def target(self) -> str:
        """What it was exported for."""
        return str(self.report["target"])

    @property
    def precision(self) -> str:
        """What was asked for: ``float32``, ``int8``, …"""
        return str(self.report["precision"])

    @property
    def passed(self) -> bool:
        """Whether every step was verified; an export that is delivered was."""
        return bool(self.report["passed"])

    @property
    def verified(self) -> bool:
        """Whether it passed and is verified: false for what ``--allow-unverified`` let pass."""
        return self.passed and not any(note.startswith(NOT_VERIFIED) for note in self.notes)

    @property
    def size(self) -> int:
        """Bytes of the model."""
        return self.artifact.size_bytes

    @property
    def latency(self) -> float | None:
        """Milliseconds of one call on the machine that exported it; None where that was not measured."""
        measured = self.report["latency"]
        return None if measured is None else float(measured["artifact_ms"])

    @property
    def notes(self) -> tuple[str, ...]:
        """What one should know about it."""
        return tuple(self.report["notes"])

    @property
    def interface(self) -> Interface:
        """What the model takes and returns."""
        return Interface(self.artifact.inputs, self.artifact.outputs)

    def run(self, feed: Feed | Array) -> Outputs:
        """Execute the model on one call's inputs, in the source's layout and dtype; outputs by name.

        ``feed`` maps names to arrays; a model with one input takes the array alone.  State that is left out begins at
        its start values.  Raises ``FeedError`` where names, shapes or dtypes do not fit, ``ToolError`` where the
        runtime fails.
        """
        from convertkit.data.feeds import fitted
        from convertkit.state import with_state

        given = fitted("run()", self.artifact.inputs, feed)
        with plugins.runner(self.artifact) as runner:
            return runner.run(with_state(self.artifact, given))

    def facts(self) -> list[tuple[str, str]]:
        """The export in a few words, by what they are about."""
        found = [("target", self.target), ("precision", self.precision), ("size", size_text(self.size))]
        failure = self.report["failure"] or "--allow-unverified"
        found.append(("verified", "yes" if self.verified else f"NO: {failure}"))
        if self.latency is not None:
            found.append(("latency", f"{self.latency:.3f} ms"))
        return [*found, ("model", str(self.artifact.path))]

    def __repr__(self) -> str:
        latency = "" if self.latency is None else f", {self.latency:.3f} ms"
        verified = "verified" if self.verified else "NOT verified"
        facts = f"{self.target} {self.precision}, {size_text(self.size)}, {verified}{latency}"
        return f"<Result {facts}: {self.artifact.path}>"

    def _repr_html_(self) -> str:
        rows = [*self.facts(), *(("note", note) for note in self.notes)]
        cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in rows)
        tensors = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.interface.rows()
        )
        return f"<table>{cells}</table><table>{tensors}</table>"


def delivered_in(path: Path) -> Path:
    """The folder of the export that ``path`` is the model of, a file or a package; else ``path`` itself."""
    if path.is_file():
        return path.parent
    try:
        described = json.loads((path.parent / MANIFEST).read_text(encoding="utf-8"))
        is_model = "convertkit" in described and described["artifact"]["path"] == path.name
    except (OSError, ValueError, KeyError, TypeError):  # none, or somebody else's
        return path
    return path.parent if is_model else path


def load(folder: str | Path) -> Result:
    """Come back to what an export has delivered: its folder, or the model in it.

    Raises ``SourceError`` where there is no complete export, or the model is not the one that was delivered.
    """
    path = Path(folder).expanduser()
    place = delivered_in(path)
    if not (place / MANIFEST).is_file():
        raise SourceError(_not_delivered(place))
    manifest, report = read_json(place / MANIFEST), read_json(place / REPORT)
    try:
        artifact = _artifact(place, manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(f"{place / MANIFEST} is not the manifest of an export: {error}") from error
    if not artifact.path.exists():
        raise SourceError(f"{artifact.path} is gone, which {MANIFEST} lists")
    if sha256_of(artifact.path) != artifact.sha256:
        raise SourceError(f"{artifact.path} is not the file that was delivered: its sha256 has changed")
    return Result(place, artifact, report)


def _not_delivered(place: Path) -> str:
    if not place.is_dir():
        return f"{place} does not exist"
    below = [child.name for child in sorted(place.iterdir()) if (child / MANIFEST).is_file()]
    if below:
        return f"{place} holds several exports; load one of them: {', '.join(str(place / name) for name in below)}"
    if (place / REPORT).is_file():
        return f"{place} holds the report of an export that failed, and no model to load"
    return f"{place} is not a folder that an export has delivered: it has no {MANIFEST}"


def read_json(path: Path) -> Any:
    """The object in a file that an export has written; ``SourceError`` where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise SourceError(f"{path} is not what an export writes")
    return found


def _artifact(place: Path, manifest: Mapping[str, Any]) -> Artifact:
    described = manifest["artifact"]
    name = Path(described["path"]).name  # never out of the folder
    state = {entry["file"] for entry in manifest["initial_state"].values()}
    return Artifact(
        place / name,
        described["format"],
        tuple(map(_spec, described["inputs"])),
        tuple(map(_spec, described["outputs"])),
        described["sha256"],
        made_by=f"convertkit {manifest['convertkit']}",
        initial_state=place / Path(state.pop()).name if state else None,
    )


def _spec(described: Mapping[str, Any]) -> TensorSpec:
    quantized = described["quantization"]
    return TensorSpec(
        described["name"],
        tuple(described["shape"]),
        described["dtype"],
        tuple(described["perm"]),
        None if quantized is None else Quantization(float(quantized["scale"]), int(quantized["zero_point"])),
        labels=tuple(described.get("labels", ())),
    )


def _shape(shape: tuple[int | str, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _remarks(spec: TensorSpec) -> str:
    remarks = []
    if spec.perm:
        remarks.append(f"the source's {_shape(spec.source_shape)} transposed by {spec.perm}")
    if spec.quantization is not None:
        remarks.append(f"real = (x - {spec.quantization.zero_point}) * {spec.quantization.scale:.6g}")
    if spec.labels and spec.dtype != "string":
        remarks.append(f"places in the list of {list(spec.labels)}")
    return "; ".join(remarks)
