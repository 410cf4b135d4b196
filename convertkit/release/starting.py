"""``convertkit init``: a commented recipe for a model, to begin with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from convertkit import listing, plugins
from convertkit.artifact import TensorSpec
from convertkit.looking.opened import opened
from convertkit.looking.tables import shape_text
from convertkit.stage import PackagingTarget

_NAME = re.compile(r"[^\w.+-]+")


def starting_recipe(model: str, file: Path | None, how: Mapping[str, Any]) -> str:
    """The text of a recipe for ``file``, None where it is not written yet, in the folder that a user is in.

    ``how`` are the flags that say how to open the model.

    The model is opened, so that its inputs stand in it; raises what an export would where it cannot be.
    """
    with opened(model, **how) as found:
        inputs, outputs = found.artifact.inputs, found.artifact.outputs
        notes = found.notes
    return "\n".join(_lines(model, file, inputs, outputs, notes, how)) + "\n"


def _lines(
    model: str,
    file: Path | None,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    notes: Sequence[str],
    how: Mapping[str, Any],
) -> Iterator[str]:
    name = _NAME.sub("-", Path(model.rpartition(":")[2] or model).stem).strip("-.+") or "model"
    yield f"# Make this release with: convertkit run {f'{name}.toml' if file is None else file.name}"
    yield "# All keys, for editors, too: convertkit run --schema"
    yield ""
    yield "[release]"
    yield f"name = {_text(name)}"
    yield 'output = "release"'
    yield '# baseline = "../previous/release"   # for gates and columns that compare'
    yield ""
    yield "[defaults]"
    yield from _targets(model)
    yield 'precisions = ["float32"]           # also: "fp16", "bf16", "w8", "w4"; with calib: "int8", "int16x8", "fp8"'
    yield ""
    yield f"[models.{_text(name)}]"
    yield f"source = {_text(_path(model, Path() if file is None else file.parent))}"
    yield from (f"{key} = {_value(value)}" for key, value in how.items() if value not in (None, (), False))
    for kind, spec in _ends(inputs, outputs):
        yield f"# {kind}  {spec.name}: {spec.dtype} {shape_text(spec.source_shape)}"
    yield from (f"# note: {line}" for note in notes for line in note.splitlines())
    if free := _free(inputs):
        sizes = ", ".join(f"{_text(dim)} = 1" for dim in free)
        yield f"# static = {{ {sizes} }}   # fix dynamic dimensions"
    arrays = ", ".join(spec.name for spec in inputs if not spec.is_state)
    yield f'# calib = "calib.npz"               # samples of real data, arrays: {arrays}'
    yield '# eval = "eval.npz"                 # the same with an array called label'
    yield '# license = "Apache-2.0"            # an SPDX expression'
    yield ""
    yield f"[models.{_text(name)}.gates]"
    yield '# size = "10MB"'
    yield "# max_drop = 0.5                     # points of accuracy; needs eval"
    yield "# latency_ratio = 1.0                # to float32's, of the other precisions"


def _ends(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Iterator[tuple[str, TensorSpec]]:
    yield from (("input ", spec) for spec in inputs)
    yield from (("output", spec) for spec in outputs)


def _free(inputs: Sequence[TensorSpec]) -> list[str]:
    return list(dict.fromkeys(dim for spec in inputs for dim in spec.shape if isinstance(dim, str)))


def _targets(model: str) -> Iterator[str]:
    """What is installed and takes ``model`` and float32, first what runs here; as comments what does not take float32,
    what packages the artifacts of others, and what is missing.
    """
    entries = listing.everything()["targets"]
    there = [each.name for each in entries if each.installed and plugins.takes(plugins.target(each.name), model)]
    there.sort(key=lambda name: not plugins.target(name).runs_here)
    packages = [name for name in there if isinstance(plugins.target(name), PackagingTarget)]
    of_integers = [name for name in there if "float32" not in plugins.target(name).precisions and name not in packages]
    yield f"targets = [{', '.join(_text(name) for name in there if name not in (*packages, *of_integers))}]"
    if of_integers:
        yield f"# of integers alone: {', '.join(of_integers)}"
    if packages:
        yield f"# packages around these: {', '.join(packages)}"
    yield from (f"# {each.name}: {each.install}" for each in entries if not each.installed)


def _path(model: str, beside: Path) -> str:
    """A file as it is from the recipe's folder."""
    if not Path(model).exists():
        return model
    place, folder = Path(model).resolve(), beside.resolve()
    return place.relative_to(folder).as_posix() if folder in place.parents else str(place)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _text(value) if isinstance(value, str) else str(value)


def _text(text: str) -> str:
    """A basic string of TOML: quotes, backslashes and control characters escaped; variables of recipes, too."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04x}", escaped) + '"'
