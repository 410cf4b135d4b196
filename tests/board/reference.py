"""What a framework says of its functions on the edge inputs, in float32 and in double precision, in one process.

``python -m tests.board.reference torch FOLDER`` writes FOLDER/torch-GROUP.npz, and TensorFlow's SavedModels beside it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.board.edges import Arrays, edges

Runner = Callable[[Any, np.ndarray[Any, Any]], np.ndarray[Any, Any]]


def _torch(function: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import torch

    return np.asarray(function(torch.tensor(x)).numpy())


def _jax(function: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import jax

    with jax.enable_x64(x.dtype == np.float64):
        return np.asarray(jax.jit(function)(jax.numpy.asarray(x)))


def _tensorflow(function: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import tensorflow as tf

    return np.asarray(function(tf.constant(x)).numpy())


RUNNERS: dict[str, Runner] = {"torch": _torch, "jax": _jax, "tensorflow": _tensorflow}


def _said(run: Runner, function: Any, name: str) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    for edge, x in edges().items():
        for kind in (np.float32, np.float64):
            yield f"{name}|{edge}|{kind.__name__}", run(function, x.astype(kind))


def main(framework: str, to: Path) -> None:
    """Write what every group of ``framework`` says."""
    module = importlib.import_module(f"tests.board.{framework}_functions")
    for group, functions in module.GROUPS.items():
        said: Arrays = {}
        for name, function in functions.items():
            said |= _said(RUNNERS[framework], function, name)
        np.savez(to / f"{framework}-{group}.npz", **said)  # type: ignore[arg-type] # numpy's stub lacks names
        if framework == "tensorflow":
            module.saved(group, str(to / f"{framework}-{group}"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
