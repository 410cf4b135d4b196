"""What runs in the worker: Keras on its JAX backend loads, executes and exports a model.

Imports Keras and JAX, therefore only ever imported in a worker process whose environment says
``KERAS_BACKEND=jax``.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from convertkit.artifact import Array
from convertkit.converters.keras import archive, legacy
from convertkit.converters.keras.compat import (
    give_tensorflow_to_stored_code,
    module_of_operation,
    resize_pictures_by,
)
from convertkit.converters.keras.free_sizes import Input
from convertkit.converters.keras.lower import Program, compiled, exported, sentence
from convertkit.converters.keras.operations import Keras2Operation, computes, hard_sigmoid
from convertkit.converters.keras.pictures import resized
from convertkit.converters.stablehlo.importer import to_onnx
from convertkit.errors import SourceError, Unsupported, UsageError
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.save import save_model
from convertkit.references import imported
from convertkit.workers.process import Reply

_LOAD_ERRORS = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, OSError, ImportError, RuntimeError,
    NotImplementedError, AssertionError, SyntaxError, NameError, OverflowError, ZeroDivisionError,
)  # fmt: skip
"""What Keras raises for files that contradict themselves; it promises no type of its own."""


class KerasService:
    """One opened model."""

    def __init__(self) -> None:
        self._model: Any = None
        self._compiled: Callable[[list[Any]], list[Any]] | None = None
        self._programs: dict[tuple[Input, ...], Program | Unsupported] = {}

    def open(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Load ``path``; gives inputs and outputs as [name, shape, dtype], and notes."""
        path = Path(params["path"])
        if keras.backend.backend() == "jax":
            resize_pictures_by(resized)
        given = _given(params["model"])
        if callable(given) and not inspect.isclass(given):
            self._model = _weights_into(given, path)
        else:
            objects = given if isinstance(given, dict) else {given.__name__: given} if given is not None else {}
            self._model = _load(path, objects, params["trust"], Path(params["workdir"]))
        return Reply({"inputs": self._inputs(), "outputs": self._outputs()})

    def run(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """All outputs for one feed."""
        flat = [arrays[name] for name, _, _ in self._inputs()]
        try:
            results = self._results(flat)
        except _LOAD_ERRORS as error:
            raise SourceError(f"the model does not run: {sentence(error)}") from error
        names = [name for name, _, _ in self._outputs()]
        return Reply(arrays={name: np.asarray(value) for name, value in zip(names, results, strict=True)})

    def sizes(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """The inputs' ``shapes`` with one name for sizes that have to be the same, and sizes that the model takes.

        Both as they are where the model cannot be traced, which its conversion tells.
        """
        try:
            found = self._program(params["shapes"]).sizes
        except Unsupported:
            return Reply({"shapes": params["shapes"], "known": {}})
        return Reply({"shapes": {name: list(shape) for name, shape, _ in found.inputs}, "known": found.known()})

    def convert(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Write canonical ONNX to ``to``; ``shapes`` has a name where a dimension stays free."""
        program = self._program(params["shapes"])
        model = to_onnx(
            program.module,
            input_names=[name for name, _, _ in self._inputs()],
            output_names=[name for name, _, _ in self._outputs()],
            dims=program.dims,
            output_dims=program.output_dims,
        )
        save_model(canonicalize(model), Path(params["to"]), params["made_by"])
        sizes = program.sizes
        return Reply({"factor": sizes.factor, "least": sizes.least * sizes.factor, "bounds": sizes.told_bounds()})

    def save(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Write a SavedModel to ``to``; only where Keras computes by TensorFlow."""
        try:
            self._model.export(params["to"], verbose=False)
        except _LOAD_ERRORS as error:
            raise SourceError(f"Keras writes no SavedModel of it: {sentence(error)}") from error
        return Reply()

    def _program(self, shapes: dict[str, list[int | str]]) -> Program:
        """The model traced at these shapes, which is done once, also where JAX refuses it."""
        inputs = tuple((name, tuple(shapes[name]), dtype) for name, _, dtype in self._inputs())
        if inputs not in self._programs:
            try:
                program = exported(self._model, self._packed, inputs)
                self._programs = {inputs: program, program.sizes.inputs: program}
            except Unsupported as error:
                self._programs = {inputs: error}
        found = self._programs[inputs]
        if isinstance(found, Unsupported):
            raise found
        return found

    def _results(self, flat: list[Any]) -> list[Any]:
        """Outputs of the compiled model, or of the model step by step where it cannot be compiled."""
        if self._compiled is None:
            self._compiled = compiled(self._model, self._packed)
        try:
            return self._compiled(flat)
        except _LOAD_ERRORS:
            self._compiled = lambda given: list(keras.tree.flatten(self._model(self._packed(given), training=False)))
            return self._compiled(flat)

    def _packed(self, flat: list[Any]) -> Any:
        structure = getattr(self._model, "input", None) if getattr(self._model, "inputs", None) else None
        if structure is None:
            return flat[0] if len(flat) == 1 else flat
        return keras.tree.pack_sequence_as(structure, flat)

    def _inputs(self) -> list[tuple[str, list[int | None], str]]:
        tensors = getattr(self._model, "inputs", None)
        if tensors:
            names = _distinct([tensor.name.partition(":")[0] for tensor in tensors], "input")
            return [(name, list(x.shape), str(x.dtype)) for name, x in zip(names, tensors, strict=True)]
        shapes = (self._model.get_build_config() or {}).get("input_shape")
        if not isinstance(shapes, list | tuple) or any(isinstance(each, list | tuple | dict) for each in shapes):
            raise Unsupported("the model does not say what its inputs are; expected a functional or sequential one")
        return [("input", list(shapes), "float32")]

    def _outputs(self) -> list[tuple[str, list[int | None], str]]:
        specs = [keras.KerasTensor(shape, dtype=dtype) for _, shape, dtype in self._inputs()]
        tensors = getattr(self._model, "outputs", None)
        if not tensors:
            tensors = keras.tree.flatten(self._model.compute_output_spec(self._packed(specs), training=False))
        names = list(getattr(self._model, "output_names", ()) or ())
        if len(names) != len(tensors):
            names = [f"output_{index}" for index in range(len(tensors))]
        names = _distinct(names, "output")
        return [(name, list(x.shape), str(x.dtype)) for name, x in zip(names, tensors, strict=True)]


def _given(spec: str | None) -> Any:
    """The object behind ``--model pkg.mod:name``; it is the user's own code, so importing it is meant."""
    if spec is None:
        return None
    module, _, name = spec.partition(":")
    try:
        found = imported(module)
    except ImportError as error:
        raise UsageError(f"--model {spec}: {error}") from error
    if not name or not hasattr(found, name):
        raise UsageError(f"--model {spec}: {module} has no {name or 'name after the colon'}")
    return getattr(found, name)


def _weights_into(factory: Any, path: Path) -> Any:
    model = factory()
    if not isinstance(model, keras.Model):
        raise UsageError(f"--model: {factory.__name__} gives {type(model).__name__}, expected a Keras model")
    try:
        model.load_weights(path)
    except _LOAD_ERRORS as error:
        raise SourceError(f"{path}: its weights do not fit the model that --model gives: {sentence(error)}") from error
    return model


def _load(path: Path, objects: dict[str, Any], trust: list[str], workdir: Path) -> Any:
    described = archive.describe(path)
    trusted = "lambda" in trust
    archive.refuse_code(path, described.config, trusted)
    archive.refuse_tables(described.config)
    known = {*objects, *keras.saving.get_custom_objects()}
    archive.refuse_unknown(path, described.config, lambda name: name in known)
    _allow_64_bit(described.config)
    try:
        with _code_allowed(trusted):
            if described.kind == "keras" and described.assets:
                return keras.saving.load_model(path, objects, compile=False, safe_mode=not trusted)
            if described.kind == "keras":
                return _with_tuples(_from_archive(path, described, objects, trusted, workdir))
            return _from_hdf5(path, described, objects, workdir)
    except _LOAD_ERRORS as error:
        raise SourceError(f"{path}: Keras does not load it: {sentence(error)}") from error


def _from_hdf5(path: Path, described: archive.Described, objects: dict[str, Any], workdir: Path) -> Any:
    """The model that the configuration describes, then the weights in the order of its layers."""
    keras2 = not described.version.startswith("3")
    ours = {legacy.OPERATION: Keras2Operation, legacy.HARD_SIGMOID: hard_sigmoid}
    custom = {**keras.saving.get_custom_objects(), **objects}
    rules = legacy.Rules(_is_layer, _accepts, module_of_operation, lambda name: name in custom, computes, keras2)
    config = legacy.translated(described.config, rules)
    model = keras.saving.deserialize_keras_object(config, custom_objects={**objects, **ours}, safe_mode=False)
    model.load_weights(path if path.suffix == ".hdf5" else _named(path, workdir, ".h5"))
    return model


def _from_archive(
    path: Path, described: archive.Described, objects: dict[str, Any], trusted: bool, workdir: Path
) -> Any:
    """What ``load_model`` does, in a fraction of the time."""
    config = {**archive.without_random_weights(described.config), "compile_config": None}
    model = keras.saving.deserialize_keras_object(config, custom_objects=objects, safe_mode=not trusted)
    if not isinstance(model, keras.Model):
        raise SourceError(f"{path} holds a {type(model).__name__}, expected a model")
    model.load_weights(_named(path, workdir, ".keras"))
    return model


def _with_tuples(model: Any) -> Any:
    """``model`` with its operations' axes as tuples; a file has lists, which JAX does not take as static arguments."""
    for each in getattr(model, "operations", ()):
        for name in ("axis", "axes"):
            if not isinstance(each, keras.Layer) and isinstance(held := getattr(each, name, None), list):
                setattr(each, name, tuple(tuple(part) if isinstance(part, list) else part for part in held))
        _with_tuples(each)
    return model


def _named(path: Path, workdir: Path, suffix: str) -> Path:
    """The file under a name by which Keras knows its format."""
    if path.suffix == suffix:
        return path
    link = workdir / f"weights{suffix}"
    link.symlink_to(path.resolve())
    return link


@contextlib.contextmanager
def _code_allowed(trusted: bool) -> Iterator[None]:
    if trusted:
        keras.config.enable_unsafe_deserialization()
        if keras.backend.backend() == "tensorflow":
            give_tensorflow_to_stored_code()
    yield


def _is_layer(name: str) -> bool:
    return inspect.isclass(getattr(keras.layers, name, None))


def _accepts(layer: str, option: str) -> bool:
    """Whether the layer's constructor, or one of a base class that the rest is passed on to, takes ``option``."""
    for each in getattr(keras.layers, layer).__mro__:
        if option in inspect.signature(each.__init__).parameters:
            return True
        if each is keras.layers.Layer:
            return False
    return False


def _allow_64_bit(config: Any) -> None:
    """JAX narrows 64-bit inputs unless told not to."""
    if any(name in json.dumps(config) for name in ('"int64"', '"float64"', '"uint64"')):
        jax.config.update("jax_enable_x64", True)


def _distinct(names: list[str], role: str) -> list[str]:
    if len(set(names)) == len(names) and all(names):
        return names
    return [f"{name or role}_{index}" for index, name in enumerate(names)]
