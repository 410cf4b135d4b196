"""torch's two exporters to ONNX: what they are told, and what of their inside is called."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch.onnx import symbolic_helper
from torch.onnx._internal.torchscript_exporter import (
    _type_utils,
    symbolic_opset9,
    symbolic_opset10,
    symbolic_opset11,
    symbolic_opset14,
)

_TRANSLATORS = (
    "torch.onnx._internal.exporter._compat",
    "torch.onnx._internal.exporter._torchlib.ops",
    "onnxscript.function_libs.torch_lib.ops",
)
DECOMPOSED = "torch.ao.quantization.fx._decomposed"
"""The module that registers the operators ``quantized_decomposed::…``."""


def import_translators() -> None:
    """Import what torch.onnx imports on its first use of an exported program, so that forks find it imported.

    By name, because writing a module takes half a second that no fork is spared.  A name that has moved costs the time
    of its import in each fork.
    """
    for name in _TRANSLATORS:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    with suppress(ModuleNotFoundError):
        _tell_domains_at_once(importlib.import_module("onnxscript.function_libs.torch_lib.registration"))


def _tell_domains_at_once(registration: Any) -> None:
    """Let a translator tell its domain without its source, which torch asks of 500 of them for every model.

    The source is read where anything else of it is asked for.  That is 0.8 seconds of every export.
    """
    translators = [each for _, named in registration.default_registry.items() for each in named.overloads]
    for kind in {type(each) for each in translators}:
        read = vars(kind).get("function_ir")
        if isinstance(read, property) and read.fget is not None:
            kind.function_ir = property(partial(_Signature, read.fget))


class _Signature:
    """A translator's, whose domain is that of its opset; read when it is needed."""

    def __init__(self, read: Callable[[Any], Any], translator: Any) -> None:
        self._read, self._translator = read, translator
        self.domain = translator.opset.domain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._read(self._translator), name)


def decompositions(translated: set[Any]) -> dict[Any, Callable[..., Any]]:
    """How torch.onnx takes apart what it has no translation for; ``translated`` are overloads that we add to its own.

    Source: torch/onnx/_internal/exporter/_decomp.py, ``create_onnx_friendly_decomposition_table``.
    """
    from torch.onnx._internal.exporter import _decomp, _registration

    registry = _registration.ONNXRegistry.from_torchlib()
    own = set(_decomp.get_onnx_implemented_overloads(registry))
    table: dict[Any, Callable[..., Any]] = _decomp.create_onnx_friendly_decomposition_table(own | translated)
    return table


def let_masks_be() -> None:
    """Keep torch's Transformer layers from reading the values of a mask, in this process, a fork that exports.

    They compare the values to choose a faster kernel, which no export can follow; without it the mask is added, which
    gives the same result.  Source: torch/nn/modules/transformer.py, ``_detect_is_causal_mask``.
    """
    torch.nn.modules.transformer._detect_is_causal_mask = _said_causal


def _said_causal(mask: torch.Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    return is_causal is True


# --- the TorchScript-based exporter: a symbolic function writes an operator into a graph ``g`` -----------------------


def register(operator: str, symbolic: Callable[..., Any], opset: int) -> None:
    """Let ``symbolic`` write ``operator`` from this opset on."""
    torch.onnx.register_custom_op_symbolic(operator, symbolic, opset)


def taking(*kinds: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For a symbolic function whose arguments are values (``v``) and constants: ``f``, ``i``."""
    decorator: Callable[[Callable[..., Any]], Callable[..., Any]] = symbolic_helper.parse_args(*kinds)
    return decorator


def is_none(value: Any) -> bool:
    """Whether a value of the graph is an optional argument that was left out."""
    return bool(symbolic_helper._is_none(value))


def is_constant(value: Any) -> bool:
    """Whether :func:`constant` can tell what it holds."""
    return bool(symbolic_helper._is_constant(value))


def constant(value: Any) -> torch.Tensor:
    """What a constant of the graph holds."""
    held: torch.Tensor = symbolic_helper._node_get(value.node(), "value")
    return held


def dtype(value: Any) -> torch.dtype:
    """The type of a tensor's elements."""
    found: torch.dtype = _type_utils.JitScalarType.from_value(value).dtype()
    return found


def contains(g: Any, values: Any, element: Any) -> Any:
    """The exporter's own form of ``aten::__contains_``."""
    return symbolic_opset9.__contains_(g, values, element)


def attention(g: Any, *arguments: Any) -> Any:
    """The exporter's own form of ``aten::scaled_dot_product_attention``."""
    return symbolic_opset14.scaled_dot_product_attention(g, *arguments)


def forget_pending_sizes(program: Any) -> None:
    """Drop sizes that depend on data and that an attempt at this program has left unclaimed, in place.

    torch's ONNX exporter runs operators as ``x[mask]`` on shapes alone to find types, and the sizes which that makes
    stop the next decomposition of the same program.
    """
    for node in program.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            mode.shape_env.pending_fresh_unbacked_symbols.clear()
            return


def is_real(value: Any) -> bool:
    """Whether the elements of a value of the graph are known to be floats."""
    return bool(symbolic_helper._is_fp(value))


def text(value: Any) -> str | None:
    """What a constant of the graph that is a word says, None where it is no constant or None."""
    found = symbolic_helper._maybe_get_const(value, "s")
    return found if isinstance(found, str) else None


def remainder(g: Any, x: Any, y: Any) -> Any:
    """The exporter's own form of ``aten::remainder``."""
    return symbolic_opset11.remainder(g, x, y)


def rest(g: Any, x: Any, y: Any) -> Any:
    """The exporter's own form of ``aten::fmod``."""
    return symbolic_opset10.fmod(g, x, y)


def cast(g: Any, value: Any, to: torch.dtype) -> Any:
    """A value of the graph as elements of another type."""
    return g.op("Cast", value, to_i=_type_utils.JitScalarType.from_dtype(to).onnx_type())


def quotient(g: Any, *arguments: Any) -> Any:
    """The exporter's own form of ``aten::div``."""
    return symbolic_opset10.div(g, *arguments)


def shift_right(g: Any, x: Any, places: Any) -> Any:
    """The exporter's own form of ``aten::__rshift__``."""
    return symbolic_opset11.__rshift_(g, x, places)
