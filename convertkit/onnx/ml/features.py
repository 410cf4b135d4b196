"""Operators that prepare features: scales, gaps, categories, columns."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.fusion import Fusion, Results
from convertkit.onnx.ml.words import words

_FLOAT = (ir.AttrInt64("to", int(ir.DataType.FLOAT)),)
_LAST = (ir.AttrInt64("axis", -1),)


def real(f: Fusion, x: ir.Value) -> ir.Value:
    """``x`` as float32."""
    return (
        x if x.dtype == ir.DataType.FLOAT else f.op("Cast", x, attributes=[ir.AttrInt64("to", int(ir.DataType.FLOAT))])
    )


def floats(f: Fusion, name: str) -> Array:
    """An attribute of floats as float32; empty where it is left out."""
    return np.array(f.node.attributes.get_floats(name, ()), np.float32)


def scaler(f: Fusion) -> Results:
    """``(x - offset) * scale``, computed in the input's own type where that is a float; the result is float32."""
    x = f.input(0)
    if x.dtype != ir.DataType.DOUBLE:
        x = real(f, x)
    kind = np.float64 if x.dtype == ir.DataType.DOUBLE else np.float32
    offset, scale = floats(f, "offset").astype(kind), floats(f, "scale").astype(kind)
    if max(offset.size, scale.size) > 1 and f.rank(f.input(0)) > 2:
        return None  # ONNX Runtime repeats the numbers along another axis than the text says
    moved = f.op("Sub", x, f.tensor(_scalar(offset))) if offset.size else x
    return [real(f, f.op("Mul", moved, f.tensor(_scalar(scale)))) if scale.size else real(f, moved)]


def _scalar(values: Array) -> Array:
    return values.reshape(()) if values.size == 1 else values


def normalizer(f: Fusion) -> Results:
    """Rows divided by their norm; a row whose norm is 0 stays."""
    x = real(f, f.input(0))
    norm = f.node.attributes.get_string("norm", "MAX")
    if f.rank(f.input(0)) > 2 or norm not in ("MAX", "L1", "L2"):
        return None
    zero, keep = f.tensor(np.array(0, np.float32)), [ir.AttrInt64("keepdims", 1)]
    if norm == "L2":
        squares = f.op("Mul", x, x)
        total = f.op("ReduceSum", squares, f.ints(-1), attributes=keep)
        size = f.op("Sqrt", f.op("Div", squares, total))
        divided = f.op("Where", f.op("Less", x, zero), f.op("Neg", size), size)
    else:
        total = f.op("ReduceMax", x, f.ints(-1), attributes=keep) if norm == "MAX" else (
            f.op("ReduceSum", f.op("Abs", x), f.ints(-1), attributes=keep)
        )  # fmt: skip
        divided = f.op("Div", x, total)
    return [f.op("Where", f.op("Equal", total, zero), x, divided)]


def binarizer(f: Fusion) -> Results:
    """1 above the threshold, else 0."""
    x = f.input(0)
    above = f.op("Greater", x, f.number(f.real("threshold", 0.0)))
    return [f.op("Cast", above, attributes=[ir.AttrInt64("to", int(x.dtype or ir.DataType.FLOAT))])]


def imputer(f: Fusion) -> Results:
    """What stands for a missing value replaced, by one number or one for each column."""
    x, whole = f.input(0), f.node.attributes.get_ints("imputed_value_int64s", ())
    given: Array = np.array(whole, np.int64) if whole else floats(f, "imputed_value_floats")
    if not given.size or (given.size > 1 and f.rank(x) > 2):
        return None
    if whole:
        missing = f.op("Equal", x, f.scalar(f.whole("replaced_value_int64")))
    elif math.isnan(f.real("replaced_value_float", 0.0)):
        missing = f.op("IsNaN", x)
    else:
        missing = f.op("Equal", x, f.number(f.real("replaced_value_float", 0.0)))
    kind = ir.DataType.FLOAT if x.dtype is None else x.dtype
    return [f.op("Where", missing, f.tensor(_scalar(given).astype(kind.numpy())), x)]


def one_hot_encoder(f: Fusion) -> Results:
    """A 1 in the place of the category, zeros for an unknown one; a float counts as the integer that it begins with."""
    categories = np.array(f.node.attributes.get_ints("cats_int64s", ()), np.int64)
    if not categories.size or len(set(categories.tolist())) < categories.size:
        return None
    whole = f.op("Cast", f.input(0), attributes=[ir.AttrInt64("to", int(ir.DataType.INT64))])
    found = f.op("Equal", f.op("Unsqueeze", whole, f.ints(-1)), f.tensor(categories))
    return [f.op("Cast", found, attributes=_FLOAT)]


def label_encoder(f: Fusion) -> Results:
    """Numbers or words for numbers: the first key that is equal, NaN being equal to NaN; else the default."""
    keys, values, default = (_table(f, name) for name in ("keys", "values", "default"))
    names = tuple(f.node.attributes.get_strings("values_strings", ()))
    if names:
        values = np.arange(len(names))
        default = np.array(len(names))
    if keys is None or values is None or keys.size != values.size or not keys.size:
        return None
    result = _encoded(f, keys, values, default)
    others = f.node.attributes.get_string("default_string", "_Unused")
    return [f.op("Gather", f.text([*names, others]), result)] if names else [result]


def _encoded(f: Fusion, keys: Array, values: Array, default: Array | None) -> ir.Value:
    """The value of each element's key."""
    if default is None:
        number = f.whole("default_int64", -1) if values.dtype == np.int64 else f.real("default_float", -0.0)
        default = np.array(number, values.dtype)
    column = f.op("Unsqueeze", f.input(0), f.ints(-1))
    same = f.op("Equal", column, f.tensor(keys))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        same = f.op("Or", same, f.op("And", f.op("IsNaN", column), f.tensor(np.isnan(keys))))
    votes = f.op("Cast", same, attributes=[ir.AttrInt64("to", int(ir.DataType.INT32))])
    place = f.op("ArgMax", votes, attributes=[*_LAST, ir.AttrInt64("keepdims", 0)])
    chosen = f.op("Gather", f.tensor(values), place)
    known = f.op("ReduceMax", votes, f.ints(-1), attributes=[ir.AttrInt64("keepdims", 0)])
    one = f.tensor(np.array(1, np.int32))
    return f.op("Where", f.op("Equal", known, one), chosen, f.tensor(default.reshape(()).astype(values.dtype)))


def _table(f: Fusion, name: str) -> Array | None:
    """Keys, values or the default as numbers; None where they are left out or strings."""
    attributes = f.node.attributes
    stored = attributes.get(f"{name}_tensor")
    if stored is not None:
        array = stored.as_tensor().numpy()
        return array.reshape(-1) if array.dtype.kind in "fi" else None
    if name == "default":
        return None
    if f"{name}_int64s" in attributes:
        return np.array(attributes.get_ints(f"{name}_int64s", ()), np.int64)
    return floats(f, f"{name}_floats") if f"{name}_floats" in attributes else None


def feature_vectorizer(f: Fusion) -> Results:
    """Columns of all inputs side by side, each cut or filled with zeros to its stated number of columns."""
    sizes = f.node.attributes.get_ints("inputdimensions", ())
    if len(sizes) != len(f.node.inputs):
        return None
    parts = []
    for place, size in enumerate(sizes):
        x = real(f, f.input(place))
        if f.rank(f.input(place)) > 2:
            return None
        rows = f.op("Unsqueeze", x, f.ints(0)) if f.rank(f.input(place)) == 1 else x
        shape = f.input(place).shape
        if shape is None or shape[-1] != size:
            padded = f.op("Pad", rows, f.ints(0, 0, 0, size))
            rows = f.op("Slice", padded, f.ints(0), f.ints(size), f.ints(1))
        parts.append(rows)
    return [parts[0] if len(parts) == 1 else f.op("Concat", *parts, attributes=[ir.AttrInt64("axis", 1)])]


def array_feature_extractor(f: Fusion) -> Results:
    """Columns by their numbers; a vector counts as one row."""
    x, places = f.input(0), f.op("Reshape", f.input(1), f.ints(-1))
    if x.dtype == ir.DataType.STRING and x.const_value is not None:  # names of classes: one list, looked up last
        if x.const_value.size != x.const_value.shape[-1]:
            return None
        return [f.op("Unsqueeze", f.op("Gather", f.text(words(x.const_value)), places), f.ints(0))]
    rows = f.op("Unsqueeze", x, f.ints(0)) if f.rank(x) == 1 else x
    return [f.op("Gather", rows, places, attributes=_LAST)]
