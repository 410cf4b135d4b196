"""What in a ``.pt2`` torch would run, import or unpickle as it reads the file, found before torch sees it.

The program is JSON, and several of its texts are code to torch: sizes go through ``sympy.sympify``, guards through
``exec`` (torch/export/_unlift.py), targets are looked up by any path, trees of containers import the module of an
enumeration or of a default factory (torch/utils/_pytree.py).  Constants may be plain pickles, and compiled code is
loaded where there is some (torch/export/pt2_archive/_package.py).  So each kind of text has its own narrow grammar.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from convertkit.errors import SourceError

_NO_JSON = frozenset({"serialized_state_dict.json", "serialized_constants.json"})
"""What torch 2.1 to 2.4 called files that ``torch.save`` had written."""
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
_GUARD_WORDS = _FUNCTIONS | frozenset(
    {"L", "size", "stride", "storage_offset", "max", "min", "abs", "float", "int", "round", "math", "ceil", "sqrt"}
    | {"trunc", "and", "or", "not", "if", "else", "None", "is", "in"}
)
_INPUT = re.compile(r"""\bL(\['[^'\\]*'\]|\["[^"\\]*"\]|\[\d+\]|\.[a-zA-Z]\w*\b(?!\s*\())+""")
"""An input of the model in a guard, as ``L['x'][0]``; a call on it is not part of it."""
_INDEX = re.compile(r"\[\d+\]")
_TARGET = re.compile(
    r"torch\.ops(\.[A-Za-z]\w*|\._[A-Za-z]\w*){2,3}|torch\.ops\.aten\.__i?(and|or|xor|lshift|rshift)__\.\w+|math\.[a-z]\w*|torch\._?sym_\w+|#\w[\w.]*|"
    r"torch\._functorch\.predispatch\.(_(add|remove)_batch_dim|_vmap_(in|de)crement_nesting|lazy_load_decompositions)|"
    r"_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|lt|le|gt|ge|eq|ne|and_|or_|xor|not_|getitem|[lr]shift)"
)
"""Functions that nodes of a ``.pt2`` may call; torch resolves any ``torch.…`` path, ``torch.os.system`` included."""
_OUTSIDE = re.compile(r"torch\.ops\.(aten\.(save|from_file)|prim\.rpc_\w+|debugprims\.\w+)(\.|$)")
"""Operators that read or write files, or ask other machines."""
_FACTORIES = frozenset(
    {"builtins.list", "builtins.dict", "builtins.int", "builtins.float", "builtins.set", "builtins.tuple"}
    | {"collections.OrderedDict"}
)


def check_program(path: Path) -> None:
    """Raise ``SourceError`` where reading the program would run code of the file."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        folder, slash, _ = entries[0].filename.lower().partition("/")  # so torch finds the folder of all others
        root = folder + slash if slash else ""
        for entry in entries:
            name = entry.filename.lower().removeprefix(root)  # torch finds entries whatever their case
            if "data/aotinductor/" in entry.filename.lower():
                raise SourceError(
                    f"{path.name} holds machine code that AOTInductor has compiled, and reading the file runs it\n"
                    "  try   torch.export.save(torch.export.export(model, inputs), 'model.pt2')"
                )
            is_json = name.endswith(".json") and entry.filename not in _NO_JSON
            if (is_json or name.startswith("models/")) and not name.startswith(("extra/", "extra_files/")):
                check_content(f"{path.name}: {entry.filename}", _parsed(path, archive, entry))


def _parsed(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> object:
    if entry.file_size > _MAX_JSON_BYTES:
        raise SourceError(f"{path.name}: {entry.filename} has {entry.file_size:,} bytes, more than any program")
    try:
        return json.loads(archive.read(entry))
    except (ValueError, RecursionError, zipfile.BadZipFile) as error:
        raise SourceError(f"{path.name}: {entry.filename} is damaged: {error}") from error


def check_content(entry: str, content: object) -> None:
    """Raise ``SourceError`` where a text in the JSON of one entry is code."""
    try:
        text = next((text for is_code, text in _evaluated(content) if is_code(text)), None)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{entry} is damaged: {error}") from error
    if text is not None:
        raise SourceError(f"{entry} would run {text[:60]!r}, which no exported program needs; it is hostile")


def _evaluated(content: object) -> Iterator[tuple[Callable[[str], bool], str]]:
    """Every text that torch evaluates, looks up, imports or unpickles, and what tells whether it is code."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key, item in value.items():
                if key in _CHECKS:
                    yield from ((_CHECKS[key], text) for text in _texts(item))
                if key in ("in_spec", "out_spec"):
                    yield from ((_is_import, name) for name in _imported(item))
                waiting.append(item)
        elif isinstance(value, list):
            waiting += value


def _texts(item: object) -> Iterator[str]:
    """The text, the texts of a list, or the keys of a mapping."""
    if isinstance(item, str):
        yield item
    elif isinstance(item, list | dict):
        yield from (text for text in item if isinstance(text, str))


def _imported(spec: object) -> Iterator[str]:
    """What a tree of containers imports: JSON in texts of JSON."""
    waiting = [spec]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and value[:1] in ("{", "["):
            waiting.append(json.loads(value))
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            if "__enum__" in value:
                yield str(value.get("fqn"))
            if "default_factory_module" in value:
                yield f"{value['default_factory_module']}.{value.get('default_factory_name')}"
            waiting += value.values()


def _is_import(name: str) -> bool:
    return name not in _FACTORIES


def _is_foreign_target(text: str) -> bool:
    return "." in text and (not _TARGET.fullmatch(text) or _OUTSIDE.match(text) is not None)


def _is_foreign_size(text: str) -> bool:
    return not (_words(text) <= _FUNCTIONS and _ARITHMETIC.fullmatch(text))


def _is_foreign_guard(text: str) -> bool:
    plain = _INDEX.sub("", _INPUT.sub("L", text))
    return not (_words(plain) <= _GUARD_WORDS and _ARITHMETIC.fullmatch(plain))


def _words(text: str) -> set[str]:
    """The names in an expression but for those of sizes."""
    return {name for name in re.findall(r"[^\W\d]\w*", text) if not _SYMBOL.fullmatch(name)}


def _is_pickle(text: str) -> bool:
    """Whether a constant is kept as Python's own pickle, which torch unpickles without a limit."""
    return text.startswith("opaque_obj")


_CHECKS: dict[str, Callable[[str], bool]] = {
    "expr_str": _is_foreign_size,
    "range_constraints": _is_foreign_size,
    "guards_code": _is_foreign_guard,
    "target": _is_foreign_target,
    "as_operator": _is_foreign_target,
    "path_name": _is_pickle,
}
