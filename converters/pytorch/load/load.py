"""From a file or a factory to a :class:`Subject` (runs in the worker)."""

from __future__ import annotations

import inspect
import os
import pickle
import sys
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.utils.parametrize

from convertkit.converters.pytorch.compat import files, scripts
from convertkit.converters.pytorch.load import (
    autocasting,
    configured,
    devices,
    inner_tensors,
    io_ops_check,
    registered_operators,
)
from convertkit.converters.pytorch.load.weights import fill, stored_weights
from convertkit.converters.pytorch.load.wrappers import unwrapped
from convertkit.converters.pytorch.model import containers
from convertkit.converters.pytorch.model.failures import brief, way_without_gpu
from convertkit.converters.pytorch.model.programs import arguments_of
from convertkit.converters.pytorch.model.provenance import python_trace, user_line
from convertkit.converters.pytorch.model.subject import Constant, Parameter, Subject
from convertkit.errors import ConvertKitError, SourceError, Unsupported, Untrusted, UsageError
from convertkit.references import closest, imported


def load(path: str, kind: str, factory: str | None) -> Subject:
    """The model in ``path``, or made by ``factory``, in evaluation mode.

    Raises ``SourceError`` where the file cannot be read, ``UsageError`` where the factory does not fit it.
    """
    warnings.simplefilter("ignore")
    if kind in ("torchscript", "pt2"):
        files.forbid_pickles()
    if kind in ("torchscript", "pt2"):
        if factory is not None:
            _imported(factory)  # which may register operators that the file needs
        registered_operators.registered()
    if kind == "torchscript":
        code = _code(path)
        return _scripted(_torchscript(path, code), code)
    if kind == "torchscript-twin":
        return _eager(_twin(path, str(factory)))
    if kind == "pt2":
        return _exported(path)
    if kind == "torch-factory":
        return _eager(_made(path))
    if kind == "pickled-module":
        return _eager(_pickled(path))
    if factory is None:
        raise configured.missing(Path(path))
    module = _made(factory, Path(path))
    fill(module, stored_weights(path, kind), Path(path).name, factory)
    return _eager(module)


def _torchscript(path: str, code: bytes) -> Any:
    io_ops_check.check_code(code, Path(path).name)
    try:
        named = devices.code_on_processor(code) != code
        module = torch.jit.load(devices.archive_on_processor(path) if named else path, map_location="cpu").eval()
        devices.attributes_to_processor(module, code)
        if io_ops_check.is_suspect(code):
            io_ops_check.check_graph(module, Path(path).name)
        if b"ops.quantized." in code:
            raise _quantized(module)
        for each in module.modules():
            for graph in scripts.method_graphs(each):
                scripts.numbers_of_traces(graph)
        return module
    except (RuntimeError, ValueError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        if "torchvision::" in str(error) and _define_torchvision():
            return _torchscript(path, code)
        if (refusal := registered_operators.refusal(error)) is not None:
            raise refusal from error
        if b"prim.ConstantMKLDNNTensor()" in code:  # torch writes tensors of oneDNN without their values
            raise SourceError(
                f"{Path(path).name} holds no weights: torch.jit.optimize_for_inference has moved them into a layout of"
                " oneDNN that torch does not save\n"
                "  try   saving the module as it was before: torch.jit.freeze(scripted).save(…)"
            ) from error
        raise SourceError(f"{Path(path).name}: torch cannot read this TorchScript archive: {brief(error)}") from error


def _code(path: str) -> bytes:
    """The archive's code, all files of it."""
    with zipfile.ZipFile(path) as archive:
        return b"\n".join(archive.read(name) for name in archive.namelist() if name.endswith(".py"))


def _quantized(module: Any) -> Unsupported:
    """The refusal of torch's own integer kernels, whose packed weights and roundings no other runtime has."""
    graph = scripts.inlined(module.forward.graph)
    found = next((node for node in _nodes(graph) if node.kind().startswith("quantized::")), None)
    return Unsupported(
        "torch's own integer kernels, with weights packed for them, have no counterpart in ONNX",
        subject="quantized" if found is None else found.kind(),
        location="" if found is None else user_line(python_trace(str(found.sourceRange()))),
        ways_out=(
            "the float module, and --int8 with --calib: scales are chosen here",
            "torch.export.export of a module that torchao's pt2e has quantized: its scales are kept",
        ),
    )


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _define_known() -> bool:
    """Make operators known that an exported program may call; False where they were."""
    from convertkit.converters.pytorch.operators import experts, quantized  # as below

    before = hasattr(torch.ops.quantized_decomposed, "quantize_per_tensor")
    quantized.define()
    return any([_define_torchvision(), experts.define(), not before])


def _define_torchvision() -> bool:
    """Make torchvision's operators known; False where they were."""
    if hasattr(torch.ops.torchvision, "nms"):
        return False
    from convertkit.converters.pytorch.operators import detection  # it imports onnxscript, which few models need here

    detection.define()
    return True


def _twin(path: str, factory: str) -> torch.nn.Module:
    """The module that an archive was made from, with the archive's weights."""
    module = _made(factory)
    fill(module, dict(_torchscript(path, _code(path)).state_dict()), Path(path).name, factory)
    return module


def _scripted(module: Any, code: bytes) -> Subject:
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    parameters = tuple(
        Parameter(argument.name, str(argument.type), not argument.has_default_value())
        for argument in module.forward.schema.arguments[1:]
    )
    return Subject(module, parameters, "torchscript", code=code)


def _exported(path: str) -> Subject:
    files.read_on_processor()
    try:
        program = torch.export.load(path)
    except pickle.UnpicklingError as error:
        if inner_tensors.stand_in(str(error)):
            return _exported(path)
        raise Untrusted(
            f"{Path(path).name}: a pickle that runs code lies beside the exported program; it is hostile"
        ) from error
    except files.invalid_program() as error:
        raise SourceError(
            f"{Path(path).name}: torch has saved this exported program, and does not take it back: {brief(error)}\n"
            "  try   exporting the model again without torch.no_grad() in its forward, and torch.export.load before you"
            " hand it on"
        ) from error
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, AssertionError, OSError) as error:
        if (version := _version(path)) not in ("", str(files.program_version())):
            raise SourceError(
                f"{Path(path).name} is an exported program of version {version}, which an older torch has written;"
                f" this one reads {files.program_version()}\n"
                f"  try   exporting the model again, with torch {torch.__version__.partition('+')[0]}"
            ) from error
        if _define_known() or containers.define_unknown(path):  # torch does not say which operator or class it lacks
            return _exported(path)
        if (unknown := registered_operators.unknown_in(path)) is not None:
            raise unknown from error
        raise SourceError(f"{Path(path).name}: torch cannot read this exported program: {brief(error)}") from error
    inner_tensors.write_plainly(program)
    devices.program_on_processor(program)
    autocasting.write_casts(program)
    module, batch, follows, fixed = _of_any_batch(program)
    names = list(program.module_call_graph[0].signature.forward_arg_names or ())
    positional, keywords = arguments_of(program, lambda node: node)
    if not names:
        names = [f"input_{place}" for place in range(len(positional))] + list(keywords)
    given = {**dict(zip(names, positional, strict=False)), **keywords}
    constants = {name: value for name, value in given.items() if isinstance(value, Constant)}
    parameters = tuple(
        Parameter(name, "", name not in constants, name in keywords, constants.get(name)) for name in names
    )
    return Subject(module, parameters, "pt2", program, batch, follows, fixed)


def _version(path: str) -> str:
    """The major version of a program in the layout of torch 2.1 to 2.7, empty for a newer one, which says it inside."""
    with zipfile.ZipFile(path) as archive:
        old = {"version", "serialized_exported_program.json"} <= set(archive.namelist())
        return archive.read("version").decode(errors="replace").partition(".")[0][:9] if old else ""


def _of_any_batch(program: Any) -> tuple[Any, int, tuple[bool, ...], str]:
    """The program's module; where it takes other batches, its own and which inputs follow; why it takes none."""
    from convertkit.converters.pytorch.load import rebatching  # which imports sympy, and archives do without

    if not rebatching.is_static(program):
        return program.module(), 0, (), ""
    try:
        made = rebatching.rebatched(program)
    except rebatching.Fixed as reason:
        return program.module(), 0, (), str(reason)
    return made.module, made.batch, made.follows, ""


def _eager(module: torch.nn.Module) -> Subject:
    module = unwrapped(module).eval()
    _bake_parametrizations(module)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    found = []
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        required, keyword = parameter.default is parameter.empty, parameter.kind is parameter.KEYWORD_ONLY
        found.append(Parameter(parameter.name, _annotation(parameter.annotation), required, keyword))
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
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return text.replace("typing.", "").replace("torch.", "")


def _made(reference: str, weights: Path | None = None) -> torch.nn.Module:
    """Call ``pkg.mod:factory``; one of transformers' classes gets the settings that lie beside ``weights``."""
    try:
        made = _named(_imported(reference), reference)
        torch.manual_seed(0)  # weights that a factory draws at random are the same in every fork
        if isinstance(made, torch.nn.Module):
            return unwrapped(made)
        module = None if weights is None else configured.module(made, weights)
        if module is None:
            module = _called(made, reference)
    except ConvertKitError:
        raise
    except Exception as error:
        told = brief(error)
        raise UsageError(f"{reference} failed with {type(error).__name__}: {told}{way_without_gpu(told)}") from error
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{reference} returned {type(module).__name__}; expected a torch.nn.Module")
    return unwrapped(module)


def _named(module: Any, reference: str) -> Any:
    """The function or class of ``pkg.mod:factory``, which may lie in a class."""
    found, where = module, reference.partition(":")[0]
    for part in reference.partition(":")[2].split("."):
        if not hasattr(found, part):
            own = [name for name in dir(found) if not name.startswith("_")]
            raise UsageError(f"{where} has no {part!r}{closest(part, own)}")
        found, where = getattr(found, part), f"{where}.{part}"
    return found


def _called(factory: Any, reference: str) -> Any:
    """What the factory returns; one that needs arguments is refused with what to write."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # of a builtin
        return factory()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each.name for each in parameters if each.default is each.empty and each.kind not in variadic]
    if needed:
        name = reference.partition(":")[2]
        call = f"{name}({', '.join(f'{each}=…' for each in needed)})"
        raise UsageError(
            f"{reference} needs {', '.join(needed)}, and a factory is called without arguments\n"
            f"  try   a function beside it: def made(): return {call}"
        )
    return factory()


def _imported(reference: str) -> Any:
    """The module of ``pkg.mod:factory``."""
    name, _, attribute = reference.partition(":")
    if not name or not attribute:
        raise UsageError(f"{reference}: expected pkg.mod:factory or file.py:factory")
    try:
        return imported(name)
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
        raise SourceError(
            f"{Path(path).name} holds {type(loaded).__name__}, no module\n"
            "  try   --model pkg.mod:factory, which makes the module: its weights need no trust"
        )
    return loaded
