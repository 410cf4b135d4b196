"""PyTorch modules as exported programs (or traces), with what they answer themselves, for ``bench/outside.py``."""

from __future__ import annotations

import copy
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from outside import floats
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

REFUSALS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, torch.jit.Error)
"""What torch.export raises for a model that it does not take, or not with a dynamic batch."""
MASK = 2
"""Integers below two are a mask: its samples end at different places."""
Rows = dict[str, list[np.ndarray]]


@dataclass(frozen=True)
class Given:
    """One input: float32, or int64 below ``below``; ``name`` is the keyword of forward, empty by position."""

    shape: tuple[int, ...]
    below: int = 0
    name: str = ""


@dataclass(frozen=True)
class Made:
    """A module and its inputs; ``fixed`` keeps the batch, ``single`` leaves float64 out, ``traced`` torch.export."""

    model: nn.Module
    inputs: Sequence[Given]
    fixed: bool = False
    single: bool = False
    flags: tuple[str, ...] = ()
    traced: bool = False


def rows(inputs: Sequence[Given], seed: int = 5) -> Rows:
    """Inputs of each kind: floats as for all models, ids at random, all 0, all 1, and half of them 0."""
    found, rng = floats([each.shape for each in inputs], seed), np.random.default_rng(seed)
    return {
        kind: [_integers(each, kind, rng) if each.below else array for each, array in zip(inputs, arrays, strict=True)]
        for kind, arrays in found.items()
    }


def _integers(each: Given, kind: str, rng: np.random.Generator) -> np.ndarray:
    drawn = rng.integers(0, each.below, each.shape)
    place = np.arange(each.shape[-1])
    if each.below == MASK:
        lengths = rng.integers(1, each.shape[-1] + 1, (*each.shape[:-1], 1))
        drawn = (place < lengths) if kind in ("noise", "half zeros") else np.ones(each.shape)
    elif kind in ("zeros", "ones"):
        drawn = np.full(each.shape, kind == "ones")
    elif kind == "half zeros":
        drawn = drawn * (place < each.shape[-1] // 2)
    return drawn.astype(np.int64)


def prepared(model: nn.Module) -> nn.Module:
    """A module that has seen something: statistics of batch norms, and no parameter of equal numbers."""
    generator = torch.Generator().manual_seed(3)
    for module in model.modules():
        mean, var = getattr(module, "running_mean", None), getattr(module, "running_var", None)
        if isinstance(mean, Tensor) and isinstance(var, Tensor):
            mean.copy_(torch.randn(mean.shape, generator=generator) * 0.3)
            var.copy_(torch.rand(var.shape, generator=generator) * 2 + 0.05)
    for each in model.parameters():
        if each.is_floating_point() and each.numel() > 1 and bool((each == each.flatten()[0]).all()):
            each.add_(torch.randn(each.shape, generator=generator) * 0.1)
    return model.eval()


def called(made: Made, arrays: Sequence[np.ndarray], kind: torch.dtype) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Arguments by position and by name."""
    tensors = [torch.from_numpy(array) for array in arrays]
    tensors = [each.to(kind) if each.is_floating_point() else each for each in tensors]
    named = {each.name: tensor for each, tensor in zip(made.inputs, tensors, strict=True) if each.name}
    return tuple(tensor for each, tensor in zip(made.inputs, tensors, strict=True) if not each.name), named


def program(made: Made, arrays: Sequence[np.ndarray]) -> tuple[Any, bool]:
    """The exported program, and whether its batch is dynamic."""
    args, named = called(made, arrays, torch.float32)
    if not made.fixed:
        try:
            batch = torch.export.Dim("batch", min=1, max=64)
            shapes: Any = {name: {0: batch} for name in named} if named else tuple({0: batch} for _ in args)
            return torch.export.export(made.model, args, named, dynamic_shapes=shapes, strict=False), True
        except REFUSALS as error:
            print(f"  fixed batch: {type(error).__name__}: {str(error)[:100]!r}")
    return torch.export.export(made.model, args, named, strict=False), False


def saved(made: Made, arrays: Sequence[np.ndarray], path: Path) -> tuple[Callable[..., Any], bool]:
    """NAME.pt2, else NAME.pt as a trace: what was saved, and whether the batch is dynamic."""
    try:
        if not made.traced:
            found, dynamic = program(made, arrays)
            torch.export.save(found, path.with_name(path.name + ".pt2"))
            return found.module(), dynamic
    except REFUSALS as error:
        print(f"  traced: {type(error).__name__}: {str(error)[:200]!r}")
    args, named = called(made, arrays, torch.float32)
    traced = torch.jit.trace(made.model, args or None, example_kwarg_inputs=named or None, strict=False)
    traced.save(str(path.with_name(path.name + ".pt")))
    return traced, False


class LowerFirst(TorchDispatchMode):
    """Of equal elements TopK takes the one with the lower index, as ONNX has it; PyTorch promises no order.

    An embedding of padding is zero, so all experts of a mixture score the same there.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.aten.topk.default:
            return func(*args, **(kwargs or {}))
        x, count, axis, largest = (*args, *(-1, True)[len(args) - 2 :])[:4]
        found = torch.sort(x, dim=axis, descending=largest, stable=True)
        return tuple(each.narrow(axis, 0, count) for each in found)


def answers(model: Callable[..., Any], made: Made, arrays: Sequence[np.ndarray], kind: torch.dtype) -> list[np.ndarray]:
    """The model's outputs; constants that it makes are of the same precision."""
    args, named = called(made, arrays, kind)
    torch.set_default_dtype(kind)
    try:
        with LowerFirst():
            found = model(*args, **named)
    finally:
        torch.set_default_dtype(torch.float32)
    return [each.numpy(force=True) for each in torch.utils._pytree.tree_leaves(found) if isinstance(each, Tensor)]


def doubled(made: Made, data: Rows) -> nn.Module | None:
    """The module in float64, or None where it does not run so."""
    if made.single:
        return None
    double = copy.deepcopy(made.model).double()
    try:
        answers(double, made, data["noise"], torch.float64)
    except REFUSALS as error:
        print(f"  float32 alone: {str(error)[:100]!r}")
        return None
    return double


def answered(
    made: Made, arrays: Sequence[np.ndarray], source: Callable[..., Any], double: nn.Module | None
) -> dict[str, Any]:
    """An input and what the module gives; what was saved where that gives another: it holds what tracing fixed."""
    outs, held = (answers(each, made, arrays, torch.float32) for each in (made.model, source))
    if any(
        np.abs(a - b).max() > 0.01 * np.abs(a).max() for a, b in zip(outs, held, strict=True) if a.dtype.kind == "f"
    ):
        print("  the saved one gives something else")
        return {"inputs": arrays, "outs": held, "double": None}
    return {"inputs": arrays, "outs": outs, "double": answers(double, made, arrays, torch.float64) if double else None}


def one(folder: Path, name: str, maker: Callable[[], Made]) -> None:
    """The source and NAME.pkl."""
    torch.manual_seed(sum(map(ord, name)))
    made = maker()
    prepared(made.model)
    data = rows(made.inputs)
    source, dynamic = saved(made, data["noise"], folder / name)
    if dynamic:
        for n in (1, 3):
            other = [Given((n, *each.shape[1:]), each.below, each.name) for each in made.inputs]
            data[f"batch {n}"] = rows(other, n)["noise"]
    double = doubled(made, data)
    told = {kind: answered(made, arrays, source, double) for kind, arrays in data.items()}
    (folder / f"{name}.pkl").write_bytes(pickle.dumps({"rows": told, "flags": list(made.flags)}))
    print(f"{name}: {[each.shape for each in told['noise']['outs']]}", flush=True)


def stand_ins() -> list[Any]:
    """Operators of torchvision's library, where it does not load; to be kept while modules are made."""
    from convertkit.converters.pytorch.operators import detection

    detection.define()
    quantized = torch.library.Library("torchvision", "FRAGMENT")
    quantized.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return [quantized]


def make(folder: Path, names: Iterable[str], makers: Mapping[str, Callable[[], Made]]) -> None:
    """Each model that is not there, until 400 s are over; what torch refuses is said in NAME.no."""
    torch.set_num_threads(1)
    began, wanted = time.perf_counter(), set(names)
    with torch.no_grad():
        for name, maker in makers.items():
            if (wanted and name not in wanted) or any((folder / f"{name}{end}").exists() for end in (".pkl", ".no")):
                continue
            if time.perf_counter() - began > 400:
                sys.exit(75)
            try:
                one(folder, name, maker)
            except REFUSALS as error:
                (folder / f"{name}.no").write_text(f"{type(error).__name__}: {error}")
                print(f"{name}: {type(error).__name__}: {str(error)[:200]!r}", flush=True)
