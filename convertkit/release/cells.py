"""From a recipe's tables to cells: one model for one target in one precision, with all that is chosen for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from convertkit import plugins
from convertkit.errors import RecipeError, UsageError
from convertkit.options import of_targets
from convertkit.options.flags import options_from
from convertkit.options.recipe_files import Tables, Written
from convertkit.options.toml_lines import Keys
from convertkit.recipe import ExportOptions
from convertkit.references import closest
from convertkit.release.gates import GATES, misfits
from convertkit.release.reading import read_tables
from convertkit.release.recipe import GOLDEN, PRECISIONS, Model, Recipe, Table
from convertkit.stage import FlagReader

_QUANTIZED = ("int8", "int16x8")
_INTEGERS = (*_QUANTIZED, "w8", "w4")
_FOR = {
    "full_integer": _QUANTIZED,
    "calib_method": _QUANTIZED,
    "io_dtype": _QUANTIZED,
    "accept_loss": _INTEGERS,
    "size_first": ("w4",),
    "strict": (*_INTEGERS, "fp16", "bf16"),
}
"""Options that mean something to some precisions alone: those of a table for many cells go to these."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One artifact of a release: ``model:target:precision`` is its name, ``folder`` its place in the release."""

    model: Model
    target: str
    precision: str
    options: ExportOptions
    gates: Mapping[str, Any]
    required: bool
    keywords: Mapping[str, Any]
    """What :func:`convertkit.export` is given for the same."""

    @property
    def name(self) -> str:
        """How it is called."""
        return f"{self.model.name}:{self.target}:{self.precision}"

    @property
    def folder(self) -> str:
        """Its folder below the release's."""
        return f"{self.model.name}/{self.target}-{self.precision}"


def load(path: Path, variables: Mapping[str, str] | None = None) -> Recipe:
    """The recipe in a TOML file; raises ``RecipeError`` where it cannot be read or names no model."""
    written = read_tables(path, variables)
    return from_written(written, path.expanduser().absolute().parent, path.stem)


def from_written(written: Written, root: Path, stem: str) -> Recipe:
    """The recipe that tables with absolute paths say."""
    tables = written.tables
    release = tables.get("release", {})
    if not tables.get("models"):
        raise RecipeError(f"{written.title} has no model\n  try   [models.NAME] with source = …")
    reader = _Reader(written)
    defaults = reader.table(("defaults",), tables.get("defaults", {}))
    models = tuple(reader.model(name, each) for name, each in tables["models"].items())
    golden = release.get("golden", GOLDEN)
    if not isinstance(golden, int) or isinstance(golden, bool) or not 0 <= golden <= 100:
        said = f"[release] golden = {golden!r}: expected a number of samples from 0 to 100"
        raise written.error(("release", "golden"), said)
    for key in ("name", "version", "output", "baseline"):
        if key in release and not (isinstance(release[key], str) and release[key]):
            raise written.error(("release", key), f"[release] {key} = {release[key]!r}: expected text")
    output = Path(release.get("output", root / "release"))
    baseline = Path(release["baseline"]) if "baseline" in release else None
    return Recipe(
        root, release.get("name", stem), release.get("version"), output, baseline, golden, defaults, models, written
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Makes values of tables; what is wrong is refused at its line."""

    written: Written

    def model(self, name: str, values: Tables) -> Model:
        own = {key: values.get(key) for key in ("source", "license", "license_file")}
        for key, value in own.items():
            if value is not None and not (isinstance(value, str) and value):
                raise self.written.error(("models", name, key), f"[models.{name}] {key} = {value!r}: expected text")
        if own["source"] is None:
            raise self.written.error(("models", name), f"[models.{name}] names no source")
        table = self.table(("models", name), {key: value for key, value in values.items() if key not in own})
        return Model(name, str(own["source"]), table, own["license"], own["license_file"])

    def table(self, at: Keys, values: Tables) -> Table:
        options, title = dict(values), ".".join(map(str, at))
        cells = {
            pattern: self.table((*at, "cells", pattern), each) for pattern, each in options.pop("cells", {}).items()
        }
        for pattern in cells:
            if pattern.count(":") != 1:
                said = f'[{title}.cells."{pattern}"]: write TARGET:PRECISION, as in "tflite:*"'
                raise self.written.error((*at, "cells", pattern), said)
        named = {key: self._names((*at, key), options.pop(key, [])) for key in ("targets", "precisions")}
        for number, name in enumerate(named["precisions"]):
            if name not in PRECISIONS:
                said = f"[{title}] precisions: {name!r} is not one{closest(name, PRECISIONS)}"
                raise self.written.error((*at, "precisions", number), f"{said}; there are: {', '.join(PRECISIONS)}")
        given = options.pop("target", {})
        if not isinstance(given, dict):
            raise self.written.error((*at, "target"), f'[{title}] target = {given!r}: write targets = ["tflite"]')
        flagged = {key: options.pop(key, None) for key in ("required", "skip")}
        for key, value in flagged.items():
            if value is not None and not isinstance(value, bool):
                raise self.written.error((*at, key), f"[{title}] {key} = {value!r}: expected true or false")
        gates = options.pop("gates", {})
        for name, sentence in misfits(gates):
            raise self.written.error((*at, "gates", name), f"[{title}]: {sentence}")
        options = {**options, **({"target_options": given} if given else {})}
        targets = tuple(plugins.usual_name(name) for name in named["targets"])
        return Table(targets, named["precisions"], options, gates, flagged["required"], flagged["skip"], cells)

    def _names(self, at: Keys, value: Any) -> tuple[str, ...]:
        names = [value] if isinstance(value, str) else value
        title, key = ".".join(map(str, at[:-1])), at[-1]
        if not isinstance(names, list) or not all(isinstance(each, str) and each for each in names):
            raise self.written.error(at, f"[{title}] {key}: expected a list of names")
        if len(set(names)) < len(names):
            raise self.written.error(at, f"[{title}] {key} names one twice")
        return tuple(names)


def cells_of(recipe: Recipe) -> tuple[Cell, ...]:
    """Every cell, in the order of the recipe; raises ``UsageError`` for what contradicts or would do nothing."""
    return tuple(cell for model in recipe.models for cell in _Expansion(recipe, model).cells())


class _Expansion:
    """The cells of one model; notes which options and patterns came to be used."""

    def __init__(self, recipe: Recipe, model: Model) -> None:
        self._written = recipe.written
        self._defaults = recipe.defaults
        self._model = model
        self._at = ("models", model.name)
        self._used: set[str] = set()

    def cells(self) -> Iterator[Cell]:
        """Each cell that is not skipped."""
        table = self._model.table
        targets = table.targets or self._defaults.targets or ("onnxruntime",)
        precisions = table.precisions or self._defaults.precisions or ("float32",)
        title = f"[models.{self._model.name}]"
        made = [cell for target in targets for precision in precisions if (cell := self._cell(target, precision))]
        if unmatched := [pattern for pattern in table.cells if f"pattern {pattern}" not in self._used]:
            said = f'{title} cells."{unmatched[0]}" matches none of its cells'
            raise self._written.error((*self._at, "cells", unmatched[0]), said)
        options = [((*self._at, key), key) for key in table.options]
        gates = [((*self._at, "gates", key), key) for key in table.gates]
        for at, key in (*options, *gates) if made else ():
            if key not in self._used:
                raise self._written.error(at, f"{title} {key} does nothing for any of its cells")
        yield from made

    def _cell(self, target: str, precision: str) -> Cell | None:
        options, gates, required = dict[str, Any](), dict[str, Any](), True
        for table in (self._defaults, self._model.table):
            for key, value in table.options.items():
                if self._applies(key, target, precision):
                    options[key] = value
                    self._used.add(key)
            for key, value in table.gates.items():
                if precision != "float32" or not GATES[key].lossy:
                    gates[key] = value
                    self._used.add(key)
            required = required if table.required is None else table.required
        for pattern, each in self._matching(target, precision):
            self._used.add(f"pattern {pattern}")
            if each.skip:
                return None
            options |= each.options
            gates |= each.gates
            required = required if each.required is None else each.required
        gates = {name: limit for name, limit in gates.items() if limit is not False}
        keywords = self._keywords(options, gates, target, precision)
        return Cell(self._model, target, precision, self._chosen(keywords), gates, required, keywords)

    def _matching(self, target: str, precision: str) -> Iterator[tuple[str, Table]]:
        for table in (self._defaults, self._model.table):
            for pattern, each in table.cells.items():
                if fnmatchcase(f"{target}:{precision}", pattern):
                    yield pattern, each

    def _applies(self, key: str, target: str, precision: str) -> bool:
        """Whether an option that is said for many cells means something to this one."""
        if precision not in _FOR.get(key, PRECISIONS):
            return False
        reads = _flags_that_some_read()
        flag = "--" + key.replace("_", "-")
        return flag not in reads or reads[flag](target)

    def _keywords(self, options: Tables, gates: Mapping[str, Any], target: str, precision: str) -> dict[str, Any]:
        values = {key: value for key, value in options.items() if key != "target_options"}
        all_given = options.get("target_options", {})
        used = of_targets.reached((target,), all_given)
        reaching = {name: given for name, given in all_given.items() if name in used}
        values |= {"target_options": reaching} if reaching else {}
        values |= {"source": self._model.source, "target": target}
        values |= {} if precision == "float32" else {precision: True}
        return values | ({"max_drop": gates["max_drop"]} if "max_drop" in gates else {})

    def _chosen(self, keywords: Mapping[str, Any]) -> ExportOptions:
        try:
            return options_from(keywords)
        except UsageError as error:
            precision = next((name for name in PRECISIONS if keywords.get(name)), "float32")
            said = f"{self._model.name}:{keywords['target']}:{precision}: {error}"
            raise self._written.error(self._at, said) from error


def _flags_that_some_read() -> Mapping[str, Any]:
    """Flags that only some targets have a use for, and who of them has."""

    def readers(flag: str) -> Any:
        def reads(name: str) -> bool:
            target = plugins.target(name)
            return not isinstance(target, FlagReader) or flag in target.reads

        return reads

    flags = ("--opset", "--io-dtype", "--input-layout", "--description", "--label-file", "--compress")
    return {flag: readers(flag) for flag in flags}


def chosen(cells: Sequence[Cell], only: Sequence[str]) -> tuple[Cell, ...]:
    """The cells that a pattern ``MODEL:TARGET:PRECISION`` names, whose parts may be left out from the right.

    Raises ``UsageError`` for a pattern that names none.
    """
    if not only:
        return tuple(cells)
    for pattern in only:
        if not any(matches(cell, pattern) for cell in cells):
            names = ", ".join(cell.name for cell in cells[:5])
            raise UsageError(f"--only {pattern} names none of the cells: {names}{', …' if len(cells) > 5 else ''}")
    return tuple(cell for cell in cells if any(matches(cell, pattern) for pattern in only))


def matches(cell: Cell, pattern: str) -> bool:
    """Whether ``pattern`` names the cell; ``*`` in the model's part stands for slashes, too."""
    parts = re.split(r":", pattern)
    have = (cell.model.name, cell.target, cell.precision)
    return len(parts) <= len(have) and all(fnmatchcase(name, part) for name, part in zip(have, parts))
