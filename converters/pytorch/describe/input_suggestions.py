"""What to write where a file does not say the shapes of its inputs: flags with which the model was seen to compute.

Only a layer tells what comes in, so what the first layers take is tried on every input, under its own dtype.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from convertkit.artifact import Dim
from convertkit.converters.pytorch.describe.inputs import SCALARS, ShapesUnsaid
from convertkit.converters.pytorch.model.leaves import BATCH
from convertkit.converters.pytorch.model.subject import Parameter, Subject
from convertkit.errors import SourceError, Unsupported, UsageError

Options = Sequence[Mapping[str, Any]]
Takes = Callable[[Options], object]
"""Raises where the model does not compute with such ``--input`` flags."""

_LAYERS = 6
"""First layers that are looked at; later ones take what the model itself made."""
_TRIES = 64
_SIZES = (224, 32, 28, 64, 96, 112, 128, 160, 192, 256, 299, 384, 512)
"""Of images, for models that take one size only."""
INNER: Mapping[int, tuple[str, ...]] = {1: ("LENGTH",), 2: ("HEIGHT", "WIDTH"), 3: ("DEPTH", "HEIGHT", "WIDTH")}
_IDS = re.compile(r"(^|_)(ids?|tokens?|index|indices|words?|items?|users?|categor\w*)(_|\d*$)")
_MASK = re.compile(r"mask|padding|valid|attend")
_TABLE = re.compile(r"emb|wte|token")
_LENGTHS = re.compile(r"len(gth)?s?$")


@dataclass(frozen=True, slots=True)
class Flag:
    """What one ``--input`` says."""

    shape: tuple[Dim, ...]
    dtype: str | None = None
    value_range: tuple[int, int] | None = None

    def option(self, name: str) -> dict[str, Any]:
        """The flag as the command line makes it."""
        return {"name": name, "shape": self.shape, "dtype": self.dtype, "range": self.value_range}

    def text(self, name: str) -> str:
        """The flag as a shell takes it."""
        bounds = "" if self.value_range is None else "[{},{})".format(*self.value_range)
        kind = f":{self.dtype or ''}{bounds}" if self.dtype or bounds else ""
        said = f"{name}:{','.join(map(str, self.shape))}{kind}"
        return f"--input {shlex.quote(said)}"


_ANYTHING = (Flag((BATCH, "SIZE")), Flag((BATCH, "LENGTH", "SIZE")), Flag((BATCH,)))
"""For models without layers."""


def request(subject: Subject, unsaid: ShapesUnsaid, given: Options, takes: Takes) -> UsageError:
    """The sentence that asks for flags, with those that ``takes`` lets pass where some do."""
    kinds = {name: _candidates(subject, each) for each in unsaid.parameters for name in _parts(each)}
    parts = tuple(kinds)
    for chosen in itertools.islice(_combinations(parts, kinds), _TRIES):
        try:
            takes((*given, *(flag.option(name) for name, flag in chosen.items())))
        except (SourceError, Unsupported, UsageError):
            continue
        return UsageError(f"{unsaid}; the model computes with this\n  try   {_line(chosen)}")
    first = {name: kinds[name][0] for name in parts}
    return UsageError(
        f"{unsaid}; a start, after its first layers, with which it does not compute yet\n  try   {_line(first)}"
    )


def _line(chosen: Mapping[str, Flag]) -> str:
    return " ".join(flag.text(name) for name, flag in chosen.items())


def _parts(parameter: Parameter) -> tuple[str, ...]:
    """The inputs of a parameter: of lists and tuples each, of which two are tried."""
    kind = parameter.type.removeprefix("typing.").removeprefix("Optional[").lower()
    several = kind.startswith(("list[", "tuple["))
    return (f"{parameter.name}_0", f"{parameter.name}_1") if several else (parameter.name,)


def _combinations(parts: Sequence[str], kinds: Mapping[str, Sequence[Flag]]) -> Iterator[dict[str, Flag]]:
    """The likeliest first: the sum of the places at which candidates stand says how likely they are together.

    Dynamic sizes go before fixed ones, which are only tried for an input alone.
    """
    places = itertools.product(*(range(len(kinds[name])) for name in parts))
    for chosen in sorted(places, key=sum):
        yield {name: kinds[name][place] for name, place in zip(parts, chosen, strict=True)}


def _candidates(subject: Subject, parameter: Parameter) -> tuple[Flag, ...]:
    if parameter.type in SCALARS:
        return (Flag((), SCALARS[parameter.type]),)
    layers = tuple(itertools.islice(_first_layers(subject), _LAYERS))
    every = tuple(flag for _, flag in layers)
    if _MASK.search(parameter.name):
        likely: Sequence[Flag] = _masks()
    elif _LENGTHS.search(parameter.name):
        likely = (Flag((BATCH,), "int64", (1, 3)),)
    elif _IDS.search(parameter.name.lower()):
        likely = _tables(layers, parameter.name)
    else:
        likely = ()
    return tuple(dict.fromkeys((*likely, *every, *_ANYTHING, *_of_one_size(every))))


def _tables(layers: Sequence[tuple[str, Flag]], name: str) -> tuple[Flag, ...]:
    """Rows of embeddings, the one first whose layer is called as the input is; in sequences, then alone."""
    words = set(name.lower().split("_"))
    tables = [(len(words & set(re.split(r"[._]", where))), flag) for where, flag in layers if flag.value_range]
    ranked = [flag for _, flag in sorted(tables, key=lambda each: -each[0])]
    return tuple(each for flag in ranked for each in (flag, replace(flag, shape=(BATCH,))))


def tables(subject: Subject, name: str) -> tuple[Flag, ...]:
    """The same of a model's first layers, for an input called ``name``."""
    return _tables(tuple(itertools.islice(_first_layers(subject), _LAYERS)), name)


def _masks() -> tuple[Flag, ...]:
    """Over positions, as most tokenizers make it first."""
    shapes: tuple[tuple[Dim, ...], ...] = ((BATCH, "LENGTH"), ("LENGTH", "LENGTH"), (BATCH, 1, "HEIGHT", "WIDTH"))
    kinds = (Flag((), "int64", (0, 2)), Flag((), "bool"), Flag((), "float32"))
    return tuple(replace(kind, shape=shape) for shape in shapes for kind in kinds)


def _of_one_size(layers: Sequence[Flag]) -> Iterator[Flag]:
    """Images of the usual sizes, for models that take no other."""
    for flag in layers:
        if flag.shape[2:] == INNER[2]:
            yield from (replace(flag, shape=(*flag.shape[:2], size, size)) for size in _SIZES)


def _first_layers(subject: Subject) -> Iterator[tuple[str, Flag]]:
    """What layers take, with their names, in their order; frozen archives hold their weights in the code."""
    named = dict(subject.module.named_parameters())
    modules = dict(subject.module.named_modules())
    for name, weight in named.items():
        owner, _, kind = name.rpartition(".")
        if "weight" not in kind or "weight_hh" in kind or "norm" in name:
            continue
        layer = modules[owner]
        embedding = str(getattr(layer, "original_name", type(layer).__name__)).startswith("Embedding")
        if embedding or (weight.dim() == 2 and _TABLE.search(name)):
            yield owner, Flag((BATCH, "LENGTH"), "int64", (0, weight.shape[0]))
        else:
            yield from ((owner, flag) for flag in _taken_by(weight, recurrent="weight_ih" in kind))
    if not named and subject.kind == "torchscript":
        for node in subject.module.forward.graph.findAllNodes("prim::Constant"):
            if node.hasAttribute("value") and node.kindOf("value") == "t":
                yield from (("", flag) for flag in _taken_by(node.t("value"), recurrent=False))


def _taken_by(weight: torch.Tensor, *, recurrent: bool) -> tuple[Flag, ...]:
    """Shapes that a layer with this weight takes."""
    if weight.dim() == 2:
        of_sequences = Flag((BATCH, "LENGTH", weight.shape[1]))
        return (of_sequences,) if recurrent else (Flag((BATCH, weight.shape[1])), of_sequences)
    inner = INNER.get(weight.dim() - 2)
    return () if inner is None else (Flag((BATCH, weight.shape[1], *inner)),)
