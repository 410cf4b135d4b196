"""Dynamic dimensions that are known as a formula of others: ``16*H``, ``T + 1``, ``floordiv(W, 2)``.

``--static`` may name what they are made of.  Source of the spelling: ``str`` of a dimension of ``jax.export``, and of
``torch.export``, which writes ``//`` and ``**``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType

from convertkit.errors import UsageError
from convertkit.syntax import parsed

_FUNCTIONS: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "max": max, "min": min}
)
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = MappingProxyType(
    {
        ast.Add: lambda a, b: a + b,
        ast.Sub: lambda a, b: a - b,
        ast.Mult: lambda a, b: a * b,
        ast.FloorDiv: lambda a, b: a // b,
        ast.Mod: lambda a, b: a % b,
        ast.Pow: lambda a, b: a**b,
    }
)
_GREATEST_POWER = 8
_WRITTEN = re.compile(r"[\w\s*+\-/%^(),]{1,200}")
_NAME_OF_DIGITS = re.compile(r"\b\d+_|^\s*\d+\s*$")
"""``1_2`` is a name, of the third dimension of an input called 1, though Python reads the number 12; so is ``7``."""


def sizes_of_dims(given: Mapping[str, int], dims: Iterable[str]) -> dict[str, int]:
    """The sizes that ``given`` names, and those of all ``dims`` whose formula follows from them.

    ``{"H": 4}`` gives ``16*H`` the size 64, and ``{"16*H": 64}`` gives ``8*H`` 32.  Raises ``UsageError`` for a size
    that no whole number leads to, for two that disagree, and for one that leaves a dimension without elements.
    """
    known = dict(given)
    for name, size in given.items():
        for atom, number in _solved(name, size).items():
            if known.setdefault(atom, number) != number:
                raise UsageError(f"--static {name}={size}: {atom} is {number} here and {known[atom]} elsewhere")
    for dim in dims:
        value = _value(dim, known)
        if value is None:
            continue
        if dim in given and given[dim] != value:
            raise UsageError(f"--static {dim}={given[dim]}: it is {value} where {_listed(dim, known)}")
        if value < 1:
            raise UsageError(f"--static: {dim} is {value} where {_listed(dim, known)}; a size is at least 1")
        known[dim] = value
    return known


def names_in(dim: str) -> tuple[str, ...]:
    """What a dimension is made of: itself, where it is not a formula."""
    tree = _tree(dim)
    if tree is None:
        return (dim,)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called]
    return tuple(dict.fromkeys(names))


def _solved(dim: str, size: int) -> dict[str, int]:
    """The one name of a formula that grows evenly with it; nothing for a plain name and for other formulas."""
    names = names_in(dim)
    if len(names) != 1 or names[0] == dim:
        return {}
    (name,) = names
    first, second, third = (_value(dim, {name: value}) for value in (1, 2, 3))
    if first is None or second is None or third is None or second - first != third - second or second == first:
        return {}
    turns, rest = divmod(size - first, second - first)
    if rest or turns < 0:
        raise UsageError(f"--static {dim}={size}: no whole {name} gives that size")
    return {name: turns + 1}


def size_of(dim: str, sizes: Mapping[str, int]) -> int | None:
    """The number that a name or a formula is, None where a name of it has no size or it cannot be computed."""
    return sizes[dim] if dim in sizes else _value(dim, sizes)


def _value(dim: str, sizes: Mapping[str, int]) -> int | None:
    """The number that a formula is, None where a name of it has no size or it cannot be computed."""
    tree = _tree(dim)
    if tree is None or any(name not in sizes for name in names_in(dim)):
        return None
    try:
        return _computed(tree.body, sizes)
    except ArithmeticError:
        return None


def _computed(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(int() as number):
            return number
        case ast.Name(name):
            return sizes[name]
        case ast.UnaryOp(ast.USub(), inner):
            return -_computed(inner, sizes)
        case ast.BinOp(left, operator, right):
            return _OPERATORS[type(operator)](_computed(left, sizes), _computed(right, sizes))
        case ast.Call(ast.Name(name), [left, right]):
            return _FUNCTIONS[name](_computed(left, sizes), _computed(right, sizes))
        case _:
            raise ArithmeticError(f"{ast.dump(node)} is not a formula of sizes")


@cache
def _tree(dim: str) -> ast.Expression | None:
    """The formula as a tree of what is allowed in one; None for a plain name and anything else."""
    if not _WRITTEN.fullmatch(dim) or dim.isidentifier() or _NAME_OF_DIGITS.search(dim):
        return None
    try:
        tree = parsed(dim.replace("^", "**"), "eval")
    except (SyntaxError, ValueError):
        return None
    return tree if isinstance(tree, ast.Expression) and _is_formula(tree.body) else None


def _is_formula(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value):
            return type(value) is int
        case ast.Name():
            return True
        case ast.UnaryOp(ast.USub(), inner):
            return _is_formula(inner)
        case ast.BinOp(left, ast.Pow(), ast.Constant(int() as power)):
            return 0 <= power <= _GREATEST_POWER and _is_formula(left)
        case ast.BinOp(left, operator, right):
            allowed = type(operator) in _OPERATORS and not isinstance(operator, ast.Pow)
            return allowed and _is_formula(left) and _is_formula(right)
        case ast.Call(ast.Name(name), [left, right], []):
            return name in _FUNCTIONS and _is_formula(left) and _is_formula(right)
        case _:
            return False


def _listed(dim: str, sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {sizes[name]}" for name in names_in(dim))
