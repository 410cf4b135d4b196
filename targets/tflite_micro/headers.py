"""``model.h`` and ``resolver.h``: what firmware includes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from convertkit.errors import SourceError
from convertkit.targets.tflite_micro.file import FileGraph, FileTensor
from convertkit.targets.tflite_micro.operators import kernels

NAMESPACE = "convertkit_model"
_ARENA = re.compile(r"constexpr unsigned int kTensorArenaSize = (\d+);")


_ARENA_LINES = """\
// Bytes of the tensor arena, which has to be aligned to 16 bytes: enough for the reference kernels where pointers have
// 64 bits, and so where they have 32. Optimised kernels may want more: see MicroInterpreter::arena_used_bytes().
constexpr unsigned int kTensorArenaSize = {};

"""


def model_header(main: FileGraph, arena_bytes: int) -> str:
    """``model.h``: the array, the arena and the interface, with the scales of integers."""
    return _header(main, _ARENA_LINES.format(arena_bytes))


def interface_header(main: FileGraph) -> str:
    """The same where the arena is not known."""
    return _header(main, "")


def _header(main: FileGraph, arena: str) -> str:
    ports = [*_ports("Input", main, main.inputs), *_ports("Output", main, main.outputs)]
    return f"""#ifndef CONVERTKIT_MODEL_H_
#define CONVERTKIT_MODEL_H_

namespace {NAMESPACE} {{

// The model, a TensorFlow Lite file.
extern const unsigned char kModel[];
extern const unsigned int kModelSize;

{arena}// Of integers, (value - zero point) * scale is the real number.
constexpr int kInputCount = {len(main.inputs)};
constexpr int kOutputCount = {len(main.outputs)};
{chr(10).join(ports)}
}}  // namespace {NAMESPACE}

#endif  // CONVERTKIT_MODEL_H_
"""


def _ports(kind: str, graph: FileGraph, indices: Sequence[int]) -> Iterator[str]:
    for place, index in enumerate(indices):
        yield _port(f"k{kind}{place}", f"{kind} {place}", graph.tensors[index])


def _port(prefix: str, title: str, tensor: FileTensor) -> str:
    shape = " x ".join(map(str, tensor.shape)) or "scalar"
    lines = [f"// {title}, {comment_text(tensor.name)}: {tensor.dtype}, {shape}"]
    lines += [f"constexpr unsigned int {prefix}Bytes = {tensor.size_bytes};"]
    if tensor.channels:
        lines += [f"constexpr float {prefix}Scale = {tensor.scale!r}f;"]
        lines += [f"constexpr int {prefix}ZeroPoint = {tensor.zero_point};"]
    return "\n".join(lines) + "\n"


def comment_text(name: str) -> str:
    """A model's own text for the inside of a comment: one line, and no backslash that would join the next one."""
    return re.sub(r"[^\x20-\x5b\x5d-\x7e]+", "?", name)


def resolver_header(codes: Sequence[str]) -> str:
    """``resolver.h``: exactly the operators of the model."""
    added = "\n".join(f"  TF_LITE_ENSURE_STATUS(resolver.{kernels()[code].add}());" for code in codes)
    return f"""#ifndef CONVERTKIT_RESOLVER_H_
#define CONVERTKIT_RESOLVER_H_

#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"

namespace {NAMESPACE} {{

using OpResolver = tflite::MicroMutableOpResolver<{max(len(codes), 1)}>;

// Registers the operators of the model, and no other.
inline TfLiteStatus RegisterOperators(OpResolver& resolver) {{
{added}
  return kTfLiteOk;
}}

}}  // namespace {NAMESPACE}

#endif  // CONVERTKIT_RESOLVER_H_
"""


def read_arena(path: Path) -> int:
    """The arena in bytes that ``model.h`` states; ``SourceError`` where it states none."""
    try:
        found = _ARENA.search(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SourceError(f"{path.name} cannot be read: {error.strerror}") from error
    if found is None:
        raise SourceError(f"{path.name} states no kTensorArenaSize")
    return int(found[1])
