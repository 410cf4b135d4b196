"""The weights in a compiled file, decoded out of its streams: all that the NPU multiplies by has to be in them.

A command stream is words of 32 bits: a command with 16 bits of its own, or one that another word follows.  Convolutions
read weights where registers point to: in the read-only tensor, or in memory that a DMA command filled from there.
Source: ``ethosu/vela/ethos_u55_regs`` of Vela 5.2.0.  An Ethos-U85 has another format, which is not read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from convertkit.artifact import Array
from convertkit.errors import ToolError

_WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"})
_WEIGHT_INPUT = 1
_MOST = 255
"""Weights in a stream have nine bits and a sign."""
_OP_CONV, _OP_DEPTHWISE, _OP_DMA = 0x002, 0x003, 0x010
_WEIGHT_REGION, _DMA_FROM_REGION, _DMA_TO_REGION = 0x128, 0x130, 0x131
_FOLLOWED = 0x4000
_STREAMS = ((_FOLLOWED | 0x20, _FOLLOWED | 0x21), (_FOLLOWED | 0x90, _FOLLOWED | 0x91))
"""Base and length of a stream for each of the cores that an accelerator may have."""
_DMA_FROM, _DMA_TO, _DMA_LENGTH = (_FOLLOWED | number for number in (0x30, 0x31, 0x32))
_ACTION_CONFIG, _ACTION_COMMANDS, _ACTION_NOTHING = 0x01, 0x02, 0x05
_READ_ONLY = 0

Stream = tuple[int, int]
"""Where it begins in the read-only tensor, and its bytes."""


def check_weights(before: bytes, after: bytes, on_npu: frozenset[str]) -> int:
    """How many weights other than 0 the operators ``on_npu`` (by first output) have, all of them in ``after``, too.

    Compared as a multiset: their order in a stream is the hardware's.  ``ToolError`` where some are lacking.
    """
    ours, found = _weights(before, on_npu), _decoded(after)
    lacking = int(np.maximum(ours - found, 0).sum())
    if lacking:
        raise ToolError(f"{lacking:,} of {int(ours.sum()):,} weights are not in what Vela wrote")
    return int(ours.sum())


def _weights(model: bytes, on_npu: frozenset[str]) -> Array:
    """How often each weight occurs, from -255 to 255; a buffer that several operators read counts once."""
    root = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model, 0))
    names = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    codes = [names[max(each.builtinCode, each.deprecatedBuiltinCode)] for each in root.operatorCodes]
    buffers = set[int]()
    for graph in root.subgraphs:
        for operator in graph.operators:
            is_ours = bytes(graph.tensors[operator.outputs[0]].name).decode() in on_npu
            if is_ours and codes[operator.opcodeIndex] in _WEIGHTED:
                buffers.add(graph.tensors[operator.inputs[_WEIGHT_INPUT]].buffer)
    stored = [root.buffers[each].data for each in sorted(buffers)]
    return _histogram([np.asarray(data, np.uint8).view(np.int8) for data in stored if data is not None])


def _decoded(model: bytes) -> Array:
    """The same of all streams of all ``ethos-u`` operators."""
    from ethosu import mlw_codec

    root = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model, 0))
    found = []
    for graph in root.subgraphs:
        for operator in graph.operators:
            if root.operatorCodes[operator.opcodeIndex].customCode == b"ethos-u":
                commands, constants = (_data(root, graph, index) for index in operator.inputs[:2])
                streams = dict.fromkeys(_streams(_commands(np.frombuffer(commands, "<u4"))))
                found += [mlw_codec.decode(bytearray(constants[at : at + size])) for at, size in streams]
    return _histogram([np.asarray(each, np.int16) for each in found])


def _histogram(values: Sequence[Array]) -> Array:
    """Of all numbers but 0, which also fills streams up."""
    counts = [np.bincount(each.astype(np.int64) + _MOST, minlength=2 * _MOST + 1) for each in values]
    total = np.sum([np.zeros(2 * _MOST + 1, np.int64), *counts], axis=0)
    total[_MOST] = 0
    return np.asarray(total)


def _data(root: Any, graph: Any, index: int) -> bytes:
    data = root.buffers[graph.tensors[index].buffer].data
    return b"" if data is None else bytes(data)


def _commands(words: Array) -> Sequence[int]:
    """The register commands among the driver's actions; ``ToolError`` where there are none."""
    place = 1  # behind the format's name
    while place < len(words):
        word = int(words[place])
        if word & 0xFF == _ACTION_COMMANDS:
            length = word >> 16 | (word >> 8 & 0xFF) << 16
            return [int(each) for each in words[place + 1 : place + 1 + length]]
        if word & 0xFF not in (_ACTION_CONFIG, _ACTION_NOTHING):
            break
        place += 3 if word & 0xFF == _ACTION_CONFIG else 1
    raise ToolError("the file that Vela wrote has no command stream")


def _streams(commands: Sequence[int]) -> Iterator[Stream]:
    """What convolutions read, traced through DMA to where it lies in the read-only tensor."""
    registers: dict[int, int] = {}
    moved: dict[tuple[int, int], Stream] = {}
    place = 0
    while place < len(commands):
        word = commands[place]
        code, parameter = word & 0x43FF, word >> 16
        follows = bool(word & _FOLLOWED)
        registers[code] = commands[place + 1] | parameter << 32 if follows else parameter
        place += 1 + follows
        if code == _OP_DMA and registers.get(_DMA_FROM_REGION) == _READ_ONLY:
            target = registers[_DMA_TO_REGION], registers[_DMA_TO]
            moved.pop(target, None)  # so that the last one is the last
            moved[target] = registers[_DMA_FROM], registers[_DMA_LENGTH]
        elif code in (_OP_CONV, _OP_DEPTHWISE):
            for base, length in _STREAMS:
                if size := registers.get(length):
                    yield _origin(registers[_WEIGHT_REGION], registers[base], size, moved), size


def _origin(region: int, address: int, size: int, moved: dict[tuple[int, int], Stream]) -> int:
    """Where ``size`` bytes lay before DMA moved them; the last that was moved there counts."""
    if region == _READ_ONLY:
        return address
    for (kind, start), (source, length) in reversed(moved.items()):
        if kind == region and start <= address and address + size <= start + length:
            return source + address - start
    raise ToolError("weights in the file that Vela wrote come from nowhere")
