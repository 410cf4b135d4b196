"""Refusing files that are damaged, hostile or need code of their own, before torch sees them."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from convertkit.converters.pytorch.files.shards import shards
from convertkit.converters.pytorch.files.sniff import Found, examine
from convertkit.errors import SourceError, Untrusted

_MAX_RATIO = 200
_RATIO_MATTERS_ABOVE_BYTES = 64 << 20
_MAX_ENTRIES = 1_000_000
_MAX_JSON_BYTES = 256 << 20
_ARITHMETIC = re.compile(r"""[\w\s+*/%(),<>=!&|~.'"-]*""")
_SYMBOL = re.compile(r"(zuf|zf|zuif|uif|[suz])\d+")
_FUNCTIONS = frozenset(
    {"FloorDiv", "ModularIndexing", "Mod", "PythonMod", "CleanDiv", "CeilToInt", "CeilDiv", "FloorToInt"}
    | {"TruncToInt", "IntTrueDiv", "FloatTrueDiv", "RoundToInt", "ToFloat", "Max", "Min", "PowByNatural"}
    | {"Identity", "Integer", "Rational", "Float", "precision", "Add", "Mul", "Pow", "Abs", "floor", "ceiling"}
    | {"Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan"}
    | {"GreaterThan", "And", "Or", "Not", "true", "false", "True", "False", "Symbol", "oo", "int_oo", "Where"}
    | {"Piecewise", "ExprCondPair", "positive", "integer", "nonnegative", "negative", "nonzero", "real"}
    | {"finite", "commutative"}
)
"""What torch writes into sizes: torch/utils/_sympy/functions.py and sympy's relations and assumptions."""
_TARGET = re.compile(
    r"torch\.ops(\.[A-Za-z]\w*|\._[A-Za-z]\w*){2,3}|torch\.ops\.aten\.__i?(and|or|xor|lshift|rshift)__\.\w+|math\.[a-z]\w*|torch\._?sym_\w+|#\w[\w.]*|"
    r"_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|lt|le|gt|ge|eq|ne|and_|or_|xor|not_|getitem|[lr]shift)"
)
"""Functions that nodes of a ``.pt2`` may call; torch resolves any ``torch.…`` path, ``torch.os.system`` included."""


def check(path: Path, found: Found, *, trust_pickle: bool) -> None:
    """Raise ``SourceError`` for a damaged or hostile file, ``Untrusted`` for one that needs its code executed."""
    if found.kind == "damaged":
        raise SourceError(
            f"{path.name} is a PyTorch file that is truncated or damaged; get it again from where it came"
        )
    if found.kind == "sharded":
        for shard in shards(path):
            check(shard, examine(shard) or Found("damaged"), trust_pickle=False)
        return
    if zipfile.is_zipfile(path):
        _check_zip(path)
    if found.kind == "pt2":
        _check_program(path)
    if found.kind == "torchscript" and found.foreign:
        raise Untrusted(f"{path.name}: this TorchScript archive names {few(found.foreign)}, which no TorchScript needs")
    if found.kind == "pickled-module" and not trust_pickle:
        raise Untrusted(
            f"{path.name} is a pickle that runs code when it is loaded (it needs {few(found.foreign)})\n"
            "  try   --model pkg.mod:factory, which makes the module: the file's tensors alone are read then\n"
            "  try   torch.export.save(torch.export.export(model, inputs), 'model.pt2')\n"
            "  try   --trust pickle, if you know who made the file"
        )


def _check_program(path: Path) -> None:
    """Sizes in a ``.pt2`` are texts that torch hands to ``sympy.sympify``, which evaluates them as Python."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if not entry.filename.endswith(".json"):
                continue
            if entry.file_size > _MAX_JSON_BYTES:
                raise SourceError(f"{path.name}: {entry.filename} has {entry.file_size:,} bytes, more than any program")
            try:
                content = json.loads(archive.read(entry))
            except (ValueError, RecursionError, zipfile.BadZipFile) as error:
                raise SourceError(f"{path.name}: {entry.filename} is damaged: {error}") from error
            if (text := next((text for key, text in _evaluated(content) if _is_code(key, text)), None)) is not None:
                raise SourceError(
                    f"{path.name} would run {text[:60]!r}, which no exported program needs; it is hostile"
                )


def _evaluated(content: object) -> Iterator[tuple[str, str]]:
    """Every text that torch evaluates or looks up: sizes (``expr_str``, keys of ``range_constraints``) and targets."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key, item in value.items():
                if key in ("expr_str", "target") and isinstance(item, str):
                    yield key, item
                elif key == "range_constraints" and isinstance(item, dict):
                    yield from (("expr_str", name) for name in item)
                waiting.append(item)
        elif isinstance(value, list):
            waiting += value


def _is_code(key: str, text: str) -> bool:
    if key == "target":
        return "." in text and not _TARGET.fullmatch(text)
    names = set(re.findall(r"[^\W\d]\w*", text))
    known = all(name in _FUNCTIONS or _SYMBOL.fullmatch(name) for name in names)
    return not (known and _ARITHMETIC.fullmatch(text))


def few(names: tuple[str, ...]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _check_zip(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    if len(entries) > _MAX_ENTRIES:
        raise SourceError(f"{path.name} has {len(entries)} entries, more than any model")
    seen: set[str] = set()
    for entry in entries:
        parts = PurePosixPath(entry.filename.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or ":" in entry.filename.partition("/")[0]:
            raise SourceError(f"{path.name}: the entry {entry.filename!r} points outside the archive")
        if entry.filename in seen:
            raise SourceError(f"{path.name}: the entry {entry.filename!r} is there twice")
        seen.add(entry.filename)
    size, stored = sum(entry.file_size for entry in entries), path.stat().st_size
    if size > _RATIO_MATTERS_ABOVE_BYTES and size > _MAX_RATIO * stored:
        raise SourceError(f"{path.name} unpacks from {stored:,} to {size:,} bytes: a zip bomb, no model")
