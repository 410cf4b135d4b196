"""MLIR types, attributes and constants as plain Python values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
from jaxlib.mlir import ir as mlir

from convertkit.artifact import Array
from convertkit.converters.stablehlo.quantization import is_quantized, parsed
from convertkit.converters.stablehlo.tensor import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Complex,
    Operand,
    Shape,
    constant,
    splat,
)
from convertkit.errors import Unsupported

_DTYPES = {
    "i1": BOOL,
    "i8": I8,
    "i16": I16,
    "i32": I32,
    "i64": I64,
    "ui8": U8,
    "ui16": U16,
    "ui32": U32,
    "ui64": U64,
    "bf16": BF16,
    "f16": F16,
    "f32": F32,
    "f64": F64,
    "index": I64,
}
_COMPLEX = {"complex<f32>": F32, "complex<f64>": F64}
_TOKEN = re.compile(r"0x[0-9A-Fa-f]+|[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+)|true|false")
_DYNAMIC = mlir.ShapedType.get_dynamic_size()


def shape_of(kind: Any) -> Shape:
    """The shape of a ranked tensor type; None where a dimension is dynamic."""
    if not isinstance(kind, mlir.RankedTensorType):
        raise Unsupported(f"a value of type {kind}; only ranked tensors have an ONNX counterpart")
    return tuple(None if size == _DYNAMIC else size for size in mlir.RankedTensorType(kind).shape)


def element(kind: Any) -> str:
    """The element type of a ranked tensor type, as MLIR writes it."""
    if not isinstance(kind, mlir.RankedTensorType):
        raise Unsupported(f"a value of type {kind}; only ranked tensors have an ONNX counterpart")
    return str(mlir.RankedTensorType(kind).element_type)


def is_complex(kind: Any) -> bool:
    """Whether a type is a tensor of complex numbers."""
    return isinstance(kind, mlir.RankedTensorType) and element(kind) in _COMPLEX


def dtype_of(kind: Any) -> ir.DataType:
    """The ONNX element type of a ranked tensor type: that of the parts if complex, of the storage if quantized."""
    name = element(kind)
    if is_quantized(name):
        return parsed(name).storage
    found = _DTYPES.get(name) or _COMPLEX.get(name)
    if found is None:
        raise Unsupported(f"element type {name} has no ONNX Runtime kernel of any operator")
    return found


def ints(attribute: Any, default: Sequence[int] = ()) -> tuple[int, ...]:
    """A dense array or dense elements attribute of integers; ``default`` where it is absent."""
    if attribute is None:
        return tuple(default)
    if isinstance(attribute, mlir.DenseIntElementsAttr):
        return tuple(int(item) for item in np.array(attribute).reshape(-1))
    return tuple(int(item) for item in attribute)


def integer(attribute: Any) -> int:
    """An integer attribute, or what the bindings already made an int."""
    return int(attribute.value) if hasattr(attribute, "value") else int(attribute)


def bools(attribute: Any, default: Sequence[bool]) -> tuple[bool, ...]:
    """A dense array of booleans; ``default`` where it is absent."""
    return tuple(default) if attribute is None else tuple(bool(item) for item in attribute)


def text(attribute: Any) -> str:
    """A string, symbol or enumeration attribute as a bare word."""
    raw = str(attribute)
    found = re.search(r"<(?:[a-z_]+ )?(\w+)>$", raw)
    return found.group(1) if found else raw.strip('"@')


def constant_of(op: Any) -> Operand:
    """The value of ``stablehlo.constant``."""
    kind = op.result.type
    shape = shape_of(kind)
    if None in shape:
        raise Unsupported(f"a constant of dynamic shape {shape}")
    sizes = tuple(size or 0 for size in shape)
    if is_complex(kind):
        pairs = _from_text(op, dtype_of(kind)).reshape(-1, 2)
        if len(pairs) == 1:
            pairs = np.broadcast_to(pairs, (int(np.prod(sizes)), 2))
        parts = [np.asarray(pairs[:, part]).reshape(sizes) for part in (0, 1)]
        return Complex(constant(parts[0]), constant(parts[1]))
    dtype = dtype_of(kind)
    if dtype == BF16:
        values = _from_text(op, dtype)
        return constant(
            np.broadcast_to(values, int(np.prod(sizes))).reshape(sizes) if values.size == 1 else values.reshape(sizes)
        )
    # A view of the module's own memory, which the view keeps alive; a splat is one element of it.
    values = np.asarray(op.attributes["value"])
    if values.dtype == object:
        raise Unsupported("a constant whose values stand outside of the module (dense_resource)")
    if values.size and not any(values.strides):
        return splat(values.reshape(-1)[0].item(), sizes, dtype)
    return constant(values.astype(dtype.numpy(), copy=False).reshape(sizes))


def _from_text(op: Any, dtype: ir.DataType) -> Array:
    """Elements that the bindings cannot hand over, read from what MLIR prints (bits or exact decimals)."""
    printed = op.operation.get_asm(use_local_scope=True, large_elements_limit=None)
    body = printed[printed.index("dense") + 5 : printed.rindex(" : tensor")]
    kind = dtype.numpy()
    packed = re.match(r'<"0x([0-9A-Fa-f]*)"', body)
    if packed:
        return np.frombuffer(bytes.fromhex(packed.group(1)), kind)
    tokens = _TOKEN.findall(body)
    return np.array([_number(token, kind) for token in tokens], kind)


def _number(token: str, kind: np.dtype[Any]) -> Any:
    if not token.startswith("0x"):
        return np.array(float(token)).astype(np.float32 if kind == ml_dtypes.bfloat16 else kind).astype(kind)
    bits = np.array(int(token, 16), {2: np.uint16, 4: np.uint32, 8: np.uint64}[kind.itemsize])
    return bits.view(kind)[()]


_FILE = re.compile(r'"([^"]+\.(?:py|mlir|ipynb))":(\d+)')


def noted(place: str) -> str:
    """What an artifact says of a :func:`location`: no folder of this machine, and nothing of our own files."""
    folder, _, name = place.rpartition("/")
    return "" if "/convertkit/converters/" in f"{folder}/" else name


def location(op: Any) -> str:
    """``file:line`` of the user's code where the module carries it, else empty."""
    places = _FILE.findall(str(op.location))
    user = [place for place in places if "site-packages" not in place[0]] or places
    return f"{user[0][0]}:{user[0][1]}" if user else ""
