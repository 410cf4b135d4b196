"""From a file or a factory to a :class:`Subject` (runs in the worker)."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.utils.parametrize

from convertkit.converters.pytorch import operators
from convertkit.converters.pytorch.subject import Parameter, Subject
from convertkit.errors import ConvertKitError, SourceError, Untrusted, UsageError

_STATE_KEYS = ("state_dict", "model_state_dict", "model", "net", "module", "weights", "ema", "params")
_PREFIXES = ("module.", "model.", "_orig_mod.", "net.")


def load(path: str, kind: str, factory: str | None) -> Subject:
    """The model in ``path``, or made by ``factory``, in evaluation mode.

    Raises ``SourceError`` where the file cannot be read, ``UsageError`` where the factory does not fit it.
    """
    warnings.simplefilter("ignore")
    if kind != "pickled-module":
        # torch.export.load falls back to pickles that run code (torch/_export/serde/serialize.py); this forbids it
        os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    if kind in ("torchscript", "pt2"):
        if factory is not None:
            _imported(factory)  # which may register operators that the file needs
        operators.registered()
    if kind == "torchscript":
        return _scripted(_torchscript(path))
    if kind == "torchscript-twin":
        return _eager(_twin(path, str(factory)))
    if kind == "pt2":
        return _exported(path)
    if kind == "torch-factory":
        return _eager(_made(path))
    if kind == "pickled-module":
        return _eager(_pickled(path))
    if factory is None:
        raise UsageError(
            f"{Path(path).name} holds weights only; the module that they belong to is missing\n"
            "  try   --model pkg.mod:factory, a function or class that returns the module"
        )
    module = _made(factory)
    _fill(module, _weights(path, kind), Path(path).name, factory)
    return _eager(module)


def _torchscript(path: str) -> Any:
    try:
        return torch.jit.load(path, map_location="cpu").eval()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        if "torchvision::" in str(error) and _define_torchvision():
            return _torchscript(path)
        if (refusal := operators.refusal(error)) is not None:
            raise refusal from error
        raise SourceError(f"{Path(path).name}: torch cannot read this TorchScript archive: {brief(error)}") from error


def _define_torchvision() -> bool:
    """Make torchvision's operators known; False where they were."""
    if hasattr(torch.ops.torchvision, "nms"):
        return False
    from convertkit.converters.pytorch import detection  # it imports onnxscript, which few models need here

    detection.define()
    return True


def _twin(path: str, factory: str) -> torch.nn.Module:
    """The module that an archive was made from, with the archive's weights."""
    module = _made(factory)
    _fill(module, dict(_torchscript(path).state_dict()), Path(path).name, factory)
    return module


def _scripted(module: Any) -> Subject:
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    parameters = tuple(
        Parameter(argument.name, str(argument.type), not argument.has_default_value())
        for argument in module.forward.schema.arguments[1:]
    )
    return Subject(module, parameters, "torchscript")


def _exported(path: str) -> Subject:
    try:
        program = torch.export.load(path)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, AssertionError, OSError) as error:
        if _define_torchvision():  # torch does not say which operator it lacks
            return _exported(path)
        raise SourceError(f"{Path(path).name}: torch cannot read this exported program: {brief(error)}") from error
    module = program.module()
    names = list(program.module_call_graph[0].signature.forward_arg_names or ())
    args, kwargs = program.example_inputs or ((), {})
    if not names:
        names = [f"input_{place}" for place in range(len(args))] + list(kwargs)
    return Subject(module, tuple(Parameter(name, "", True) for name in names), "pt2", program)


def _eager(module: torch.nn.Module) -> Subject:
    module.eval()
    _bake_parametrizations(module)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    found = []
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        found.append(Parameter(parameter.name, _annotation(parameter.annotation), parameter.default is parameter.empty))
    return Subject(module, tuple(found), "eager")


def _bake_parametrizations(module: torch.nn.Module) -> None:
    """Compute parametrized weights (weight_norm, orthogonal, …) once: in evaluation they do not change any more."""
    for each in module.modules():
        if torch.nn.utils.parametrize.is_parametrized(each):
            for name in list(each.parametrizations):
                torch.nn.utils.parametrize.remove_parametrizations(each, name, leave_parametrized=True)


def _annotation(annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return text.removeprefix("torch.")


def _made(reference: str) -> torch.nn.Module:
    """Call ``pkg.mod:factory``; the current folder is importable, as it is for ``python -m``."""
    try:
        made: Any = _imported(reference)
        for part in reference.partition(":")[2].split("."):
            made = getattr(made, part)
        torch.manual_seed(0)  # weights that a factory draws at random are the same in every fork
        module = made if isinstance(made, torch.nn.Module) else made()
    except ConvertKitError:
        raise
    except Exception as error:
        raise UsageError(f"{reference} failed with {type(error).__name__}: {brief(error)}") from error
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{reference} returned a {type(module).__name__}; expected a torch.nn.Module")
    return module


def _imported(reference: str) -> Any:
    """The module of ``pkg.mod:factory``."""
    name, _, attribute = reference.partition(":")
    if not name or not attribute:
        raise UsageError(f"{reference}: expected pkg.mod:factory")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise UsageError(f"{name} cannot be imported: {type(error).__name__}: {brief(error)}") from error


def _pickled(path: str) -> torch.nn.Module:
    sys.path.insert(0, os.getcwd())
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:
        raise SourceError(
            f"{Path(path).name}: unpickling failed with {type(error).__name__}: {brief(error)}"
        ) from error
    if isinstance(loaded, Mapping):
        loaded = next((value for value in loaded.values() if isinstance(value, torch.nn.Module)), loaded)
    if not isinstance(loaded, torch.nn.Module):
        raise SourceError(f"{Path(path).name} holds a {type(loaded).__name__}, no module")
    return loaded


def _weights(path: str, kind: str) -> dict[str, torch.Tensor]:
    import pickle

    try:
        if kind == "safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise Untrusted(f"{Path(path).name} holds more than weights: {brief(error)}") from error
    except (RuntimeError, ValueError, EOFError, KeyError, OSError) as error:
        raise SourceError(f"{Path(path).name}: torch cannot read these weights: {brief(error)}") from error
    weights = _state_dict(stored)
    if weights is None:
        raise SourceError(f"{Path(path).name} holds no state_dict")
    return weights


def _state_dict(stored: object) -> dict[str, torch.Tensor] | None:
    """The mapping of names to tensors, in a checkpoint under one of the usual keys."""
    if not isinstance(stored, Mapping):
        return None
    tensors = {str(name): value for name, value in stored.items() if isinstance(value, torch.Tensor)}
    if tensors and len(tensors) == len(stored):
        return tensors
    for key in _STATE_KEYS:
        if key in stored and (found := _state_dict(stored[key])) is not None:
            return found
    return tensors or None


def _fill(module: torch.nn.Module, weights: dict[str, torch.Tensor], file: str, factory: str) -> None:
    """Load the weights; a prefix that wrappers add to every name is taken off."""
    wanted = set(module.state_dict())
    for prefix in _PREFIXES:
        if wanted.isdisjoint(weights) and all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): value for name, value in weights.items()}
    missing, surplus = sorted(wanted - set(weights)), sorted(set(weights) - wanted)
    if missing or surplus:
        raise UsageError(f"{file} does not fit {factory}: {_difference(missing, surplus)}")
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:] if line.strip()]
        raise UsageError(f"{file} does not fit {factory}: {lines[0] if lines else brief(error)}") from error


def _difference(missing: list[str], surplus: list[str]) -> str:
    parts = []
    if missing:
        parts.append(
            f"it lacks {', '.join(missing[:3])}" + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        )
    if surplus:
        more = f" and {len(surplus) - 3} more" if len(surplus) > 3 else ""
        parts.append(f"the module has no {', '.join(surplus[:3])}{more}")
    return ", ".join(parts)


def brief(error: BaseException) -> str:
    """The first telling line of an error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not re.match(r"(File |Traceback|The above|During handling|\^|~|<--)", line)]
    return (telling or lines or [type(error).__name__])[0][:300]
