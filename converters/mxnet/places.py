"""Which files belong together: ``NAME-symbol.json`` and ``NAME-0012.params``."""

from __future__ import annotations

import re
from pathlib import Path

from convertkit.converters.mxnet.arrays import MAGIC
from convertkit.errors import SourceError

_SYMBOL = "-symbol.json"
_EPOCH = re.compile(r"(.+)-\d{4,}\.params")


def files_of(path: Path) -> tuple[Path, Path]:
    """The graph and its weights, of either; ``SourceError`` where the other one is lacking or not the only one."""
    if is_parameters(path):
        match = _EPOCH.fullmatch(path.name)
        symbol = path.with_name(f"{match[1] if match else path.stem}{_SYMBOL}")
        if not symbol.is_file():
            raise SourceError(f"{path.name} holds weights of MXNet; its graph {symbol.name} is not beside it")
        return symbol, path
    stem = path.name.removesuffix(_SYMBOL)
    epochs = sorted(
        each for each in path.parent.iterdir() if (match := _EPOCH.fullmatch(each.name)) and match[1] == stem
    )
    if not epochs and (alone := path.with_name(f"{stem}.params")).is_file():
        epochs = [alone]
    if len(epochs) != 1:
        what = (
            "there are none" if not epochs else f"there are {', '.join(each.name for each in epochs)}: name one of them"
        )
        raise SourceError(f"{path.name} is a graph of MXNet; of weights {stem}-0000.params beside it {what}")
    return path, epochs[0]


def is_parameters(path: Path) -> bool:
    """Whether a file holds a list of MXNet's arrays."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
