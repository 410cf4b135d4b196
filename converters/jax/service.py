"""The worker's side: JAX reads, exports and executes programs here."""

from __future__ import annotations

import dataclasses
import mmap
import re
import signal
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx_ir as ir
from jax import export

from convertkit.artifact import Array, TensorSpec
from convertkit.converters.jax.callables import exported_callable
from convertkit.converters.jax.ends import BFLOAT16, widen_ends, widened, widened_array
from convertkit.converters.jax.lowered import for_processor
from convertkit.converters.jax.programs import exported_module, specialised
from convertkit.converters.jax.sizes import fitting_sizes
from convertkit.converters.stablehlo.importer import Interface, Names, Parsed, Port, refined
from convertkit.converters.stablehlo.newer import readable
from convertkit.converters.stablehlo.recognise import recognise
from convertkit.errors import SourceError, ToolError, Unsupported
from convertkit.formulas import sizes_of_dims
from convertkit.onnx.canonical import canonicalize, freeze_dims_left
from convertkit.onnx.save import save_model
from convertkit.workers.process import Reply

_BRIEF = 300
_EXPANDED = "quantized types: compared with XLA on the arithmetic into which StableHLO's own passes expand them"
_READING_S, _BYTES_PER_S = 3, 2_000_000
"""What reading a module may take of processor time, far more than it does."""
_BROKEN = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    AssertionError,
    NotImplementedError,
    OverflowError,
    struct.error,
)
"""What reading a flatbuffer with broken offsets leads to."""


class JaxService:
    """Holds one program as a ``jax.export.Exported``."""

    def __init__(self) -> None:
        self._program: Any = None
        self._module: bytes | str = b""
        self._parsed: Parsed | None = None
        self._interface: Interface | None = None
        self._is_quantized = False

    def open(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Load ``source`` and describe its interface."""
        source, kind = params["source"], params["kind"]
        if kind != "jax-callable":
            # Artifacts keep their 64-bit types; a callable is exported under its module's own setting.
            jax.config.update("jax_enable_x64", True)
        notes: list[str] = []
        if kind == "stablehlo":
            notes += self._take_module(_read(source))
        elif kind == "jax-export":
            notes += self._take_program(_deserialized(source))
        else:
            wanted = [(name, shape, dtype) for name, shape, dtype in params["inputs"]]
            self._take_program(*exported_callable(source, wanted))
            notes.append(f"code of {source} was imported and run")
        assert self._interface is not None
        assert self._parsed is not None
        for side, specs in (("takes", self._interface.inputs), ("gives", self._interface.outputs)):
            halves = ", ".join(each.name for each in specs if each.dtype == "bfloat16")
            notes += [f"the artifact {side} float32 where the program {side} bfloat16: {halves}"] if halves else []
        described = {
            "inputs": _listed(self._interface.inputs),
            "outputs": _listed(self._interface.outputs),
            "notes": notes,
            "half_precision": self._parsed.half_precision(),
            "quantized": self._is_quantized,
            "sizes": self._sizes(),
        }
        return Reply(described)

    def _sizes(self) -> dict[str, list[int]]:
        """Of each symbolic dimension two sizes that the program takes."""
        assert self._interface is not None
        assert self._parsed is not None
        if not _free(self._interface.inputs):
            return {}
        with self._parsed.assertions() as assertions:
            return fitting_sizes(self._interface.inputs, assertions)

    def _take_module(self, data: bytes) -> tuple[str, ...]:
        """StableHLO as it is, with notes; what holds quantized types is run in its expanded form."""
        self._module = readable(data) if data.startswith(b"ML\xefR") else _text(data)
        self._parsed = _parsed(self._module)
        changed, notes = for_processor(self._parsed, ())
        self._module = self._module if changed is None else changed
        self._interface = self._parsed.interface()
        self._is_quantized = self._parsed.is_quantized()
        if self._is_quantized:
            self._module = self._parsed.expanded()
        return (*notes, _EXPANDED) if self._is_quantized else notes

    def _take_program(self, program: export.Exported, names: Sequence[str] = ()) -> tuple[str, ...]:
        """What ``jax.export`` made, with notes; a callable's inputs have names."""
        if program.nr_devices != 1:
            raise Unsupported(f"a program for {program.nr_devices} devices; export it for one")
        self._module = readable(program.mlir_module_serialized)
        self._parsed = _parsed(self._module)
        changed, notes = for_processor(self._parsed, program.platforms)
        self._module = self._module if changed is None else changed
        # Whatever platform it was lowered for, StableHLO says the same; custom calls without a meaning are refused.
        self._program = dataclasses.replace(program, platforms=("cpu",), mlir_module_serialized=self._module)
        found = self._parsed.interface(names)
        _agree(found, self._program)
        self._interface = _with_symbols(found, self._program)
        return notes

    def convert(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Write the canonical ONNX model to ``path``, with the dynamic dimensions named in ``sizes`` fixed."""
        assert self._interface is not None
        inputs, outputs = self._interface.inputs, self._interface.outputs
        model = self._imported(params["sizes"])
        widen_ends(model)
        freeze_dims_left(model, params["sizes"])
        # Once more, now that inference has named the dynamic dimensions which the importer leaves open.
        artifact = save_model(recognise(canonicalize(model)), Path(params["path"]), params["made_by"])
        ends = {
            side: [_described(spec, port) for spec, port in zip(specs, ports, strict=True)]
            for side, specs, ports in (("inputs", artifact.inputs, inputs), ("outputs", artifact.outputs, outputs))
        }
        return Reply({**ends, "sha256": artifact.sha256})

    def _imported(self, sizes: dict[str, int]) -> ir.Model:
        """The program as ONNX; read for these very sizes where none is dynamic: fewer operators need then."""
        assert self._interface is not None
        assert self._parsed is not None
        inputs, outputs = self._interface.inputs, self._interface.outputs
        named = [each.name for each in inputs], [each.name for each in outputs]
        free = set(_free(inputs).values())
        known = sizes_of_dims(sizes, free)
        if free and free <= known.keys():
            shapes = [[known[size] if isinstance(size, str) else size for size in each.shape] for each in inputs]
            with suppress(SourceError):  # what StableHLO's passes cannot specialise gets its sizes afterwards
                return Parsed(refined(self._module, shapes)).to_onnx(Names(*named))
        return self._parsed.to_onnx(Names(*named, _free(inputs), _free(outputs)))

    def run(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Execute the program with JAX on CPU."""
        assert self._interface is not None
        kept = iter(arrays[each.name] for each in self._interface.inputs)
        program = self._executable([arrays[each.name] for each in self._interface.inputs])
        chosen = set(program.module_kept_var_idx)
        values = [
            _joined(next(kept), aval)
            if place in chosen
            else np.zeros([1 if not isinstance(d, int) else d for d in aval.shape], aval.dtype)
            for place, aval in enumerate(program.in_avals)
        ]
        arguments, keywords = jax.tree_util.tree_unflatten(program.in_tree, values)
        try:
            results = jax.tree_util.tree_leaves(program.call(*arguments, **keywords))
        except (ValueError, TypeError, RuntimeError) as error:
            raise ToolError(f"JAX fails on the program: {_first_line(error.__cause__ or error)}") from error
        pairs = zip(self._interface.outputs, results, strict=True)
        return Reply(arrays={each.name: _split(np.asarray(value)) for each, value in pairs})

    def _executable(self, feeds: Sequence[Array]) -> Any:
        """The program that JAX runs; a bare module is wrapped as one, for these very shapes where some are dynamic."""
        if self._program is not None:
            return self._program
        assert self._interface is not None
        if any(isinstance(size, str) for each in self._interface.inputs for size in each.shape):
            return specialised(self._module, feeds)
        self._program = exported_module(self._module, self._interface)
        return self._program


def _read(source: str) -> bytes:
    data = Path(source).read_bytes()
    if not data:
        raise SourceError(f"{source} is empty")
    return data


def _parsed(module: bytes | str) -> Parsed:
    """The module, read in bounded time: MLIR's own reader runs for ever on some damaged bytecode.

    SIGPROF ends the worker, since nothing can interrupt that reader; ``JaxSource`` says so in one sentence.
    """
    signal.setitimer(signal.ITIMER_PROF, _READING_S + len(module) / _BYTES_PER_S)
    try:
        return Parsed(module)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise SourceError("the StableHLO file is neither MLIR bytecode nor text") from error


def _deserialized(source: str) -> Any:
    try:
        with Path(source).open("rb") as stream:
            # Not closed by hand: an error's traceback may still hold a slice.
            return export.deserialize(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except _BROKEN as error:
        raise SourceError(f"{source} is not a jax.export artifact, or a damaged one: {_first_line(error)}") from error


def _agree(interface: Interface, program: Any) -> None:
    """Refuse an artifact whose description and module differ, since JAX would then misread what the module gives."""
    kept = [program.in_avals[place] for place in program.module_kept_var_idx]
    for side, ports, avals in (("input", interface.inputs, kept), ("output", interface.outputs, program.out_avals)):
        if len(ports) != len(avals):
            raise SourceError(f"the artifact is damaged: {len(avals)} {side}s described, {len(ports)} in its module")
        for port, aval in zip(ports, avals, strict=True):
            if isinstance(aval.dtype, np.dtype) and _of_parts(aval.dtype) != port.dtype:
                kinds = f"as {aval.dtype}, its module as {port.dtype}"
                raise SourceError(f"the artifact is damaged: it describes {side} {port.name} {kinds}")


def _of_parts(dtype: np.dtype[Any]) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)


def _with_symbols(interface: Interface, program: Any) -> Interface:
    """The names that JAX gave to symbolic dimensions."""
    kept = [program.in_avals[place] for place in program.module_kept_var_idx]
    return Interface(_renamed(interface.inputs, kept), _renamed(interface.outputs, program.out_avals))


def _renamed(specs: Sequence[Any], avals: Sequence[Any]) -> tuple[Any, ...]:
    renamed = []
    for spec, aval in zip(specs, avals, strict=True):
        shape = [size if isinstance(size, int) else str(size) for size in aval.shape]
        renamed.append(dataclasses.replace(spec, shape=(*shape, *spec.shape[len(shape) :])))
    return tuple(renamed)


def _listed(specs: Sequence[Any]) -> list[list[Any]]:
    return [[each.name, list(each.shape), widened(each.dtype), _step(each), _range(each)] for each in specs]


def _described(spec: TensorSpec, port: Port) -> list[Any]:
    return [spec.name, list(spec.shape), spec.dtype, spec.lsb or _step(port), _range(port)]


def _step(port: Port) -> float | None:
    """Between neighbouring values, where they are quantized integers."""
    return None if port.integers is None else 1.0


def _range(port: Port) -> tuple[int, int] | None:
    """Where generated feeds must lie: no feed of sums that overflow at once, so 32 bits say nothing."""
    return None if port.dtype == "int32" else port.integers


def _free(specs: Sequence[Any]) -> dict[tuple[int, int], str]:
    return {
        (index, axis): size
        for index, spec in enumerate(specs)
        for axis, size in enumerate(spec.shape)
        if isinstance(size, str)
    }


def _joined(array: Array, aval: Any) -> Array:
    """Complex inputs arrive with real and imaginary part as a last axis, bfloat16 as float32."""
    if np.issubdtype(aval.dtype, np.complexfloating):
        return (array[..., 0] + 1j * array[..., 1]).astype(aval.dtype)
    return array.astype(BFLOAT16) if aval.dtype == BFLOAT16 else array


def _split(array: Array) -> Array:
    return np.stack([array.real, array.imag], -1) if np.iscomplexobj(array) else widened_array(array)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return re.sub(r"\s+", " ", lines[0])[:_BRIEF] if lines else type(error).__name__
