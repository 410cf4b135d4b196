"""The tape that handlers write ONNX nodes to.

Values enter and leave as :class:`Tensor`.  The tape makes constants into initializers, expands
broadcasts where an operator needs the whole, and routes element types without a kernel through one
that has it (``kernels``).  Handlers never see names or the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import ml_dtypes
import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.converters.stablehlo import kernels
from convertkit.converters.stablehlo.tensor import (
    BOOL,
    F32,
    F64,
    U64,
    Shape,
    Tensor,
    broadcast,
    constant,
    is_float,
    size_of,
)

Attribute = int | float | str | Sequence[int] | Sequence[float] | ir.Graph | ir.DataType | ir.TensorProtocol
_NO_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType({})
_SMALL_BYTES = 4096
_FOLDED_BYTES = 1 << 18
BASE_OPSET = 18
_NEWER: Mapping[str, int] = MappingProxyType({"BitCast": 26, "CumProd": 26})

_TYPED_INPUTS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "Where": (1, 2),
        "Gather": (0,),
        "GatherElements": (0,),
        "GatherND": (0,),
        "ScatterElements": (0, 2),
        "ScatterND": (0, 2),
        "Pad": (0, 2),
        "Reshape": (0,),
        "Expand": (0,),
        "Tile": (0,),
        "Slice": (0,),
        "TopK": (0,),
        "CumSum": (0,),
        "CumProd": (0,),
        "ReduceSum": (0,),
        "ReduceMax": (0,),
        "ReduceMin": (0,),
        "ReduceProd": (0,),
        "Unsqueeze": (0,),
        "Squeeze": (0,),
        "Trilu": (0,),
        "DFT": (0,),
    }
)
"""Inputs that share the operator's main type, where not all of them do."""

_PREDICATES = frozenset({"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "IsNaN", "IsInf"})
"""Their output is bool whatever the input is."""


@dataclass(frozen=True, slots=True)
class Out:
    """Shape and dtype of one output of a node."""

    shape: Shape
    dtype: ir.DataType


@dataclass(frozen=True, slots=True)
class Splice:
    """How a value came about: ``source`` with ``update`` written over it from ``first`` on along ``axis``."""

    source: Tensor
    update: Tensor
    axis: int
    first: Tensor
    nodes: tuple[ir.Node, ...]


class Tape:
    """Records the nodes of one graph; subgraphs are tapes of their own that see the outer values."""

    def __init__(self, parent: Tape | None = None) -> None:
        self.nodes: list[ir.Node] = []
        self._parent = parent
        self._root: Tape = parent._root if parent else self
        self._opset = BASE_OPSET
        self._initializers: dict[object, ir.Value] = {}
        self._alive: list[Array] = []
        self._counter = 0
        self._casts: dict[tuple[int, ir.DataType], Tensor] = {}
        self._ranges: dict[int, tuple[int, int]] = {}
        self._splices: dict[int, Splice] = {}
        self._turns: dict[int, tuple[ir.Value | Array, bool]] = {}
        self.origin: str = parent.origin if parent else ""

    @property
    def opset(self) -> int:
        """The opset that the recorded nodes need."""
        return self._root._opset

    @property
    def initializers(self) -> tuple[ir.Value, ...]:
        """Constants in use by this tape and its subgraphs; they all live in the outermost graph."""
        return tuple(self._root._initializers.values())

    def child(self) -> Self:
        """A tape for the body of a subgraph."""
        return type(self)(self)

    # --- values ---------------------------------------------------------------------------------

    def value(self, tensor: Tensor) -> ir.Value:
        """The ONNX value of a tensor's core; a constant becomes an initializer here."""
        return tensor.core if isinstance(tensor.core, ir.Value) else self._initializer(tensor.core)

    def full(self, tensor: Tensor) -> Tensor:
        """The tensor with every broadcast carried out."""
        if tensor.is_full:
            return tensor
        if not isinstance(tensor.core, ir.Value) and None not in tensor.shape:
            whole = np.broadcast_to(tensor.core, tuple(size or 0 for size in tensor.shape))
            return Tensor(np.array(whole, order="C"), tensor.shape, tensor.shape, tensor.dtype)
        if None not in (*tensor.shape, *tensor.core_shape) and size_of(tensor.core_shape) == size_of(tensor.shape) > 0:
            sizes = constant(np.array(tensor.shape, np.int64))
            return self.op("Reshape", [_as_is(tensor), sizes], tensor.shape, tensor.dtype)
        return self.op("Expand", [_as_is(tensor), self._extent(tensor)], tensor.shape, tensor.dtype)

    def _extent(self, tensor: Tensor) -> Tensor:
        padded = (1,) * (tensor.rank - len(tensor.core_shape)) + tensor.core_shape
        # Expand broadcasts both ways, so 1 stands for "as the core has it".
        sizes = [1 if have == want else want for have, want in zip(padded, tensor.shape, strict=True)]
        if None not in sizes:
            return constant(np.array(sizes, np.int64))
        assert tensor.extent is not None, "a dynamic broadcast carries its extent"
        return tensor.extent

    def _initializer(self, array: Array) -> ir.Value:
        known = self._root._initializers
        small = array.nbytes <= _SMALL_BYTES
        key: object = (array.dtype.name, array.shape, array.tobytes()) if small else id(array)
        if key not in known:
            name = f"const_{len(known)}"
            tensor = ir.tensor(np.asarray(array, order="C"), name=name)
            value = ir.Value(
                name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
            )
            known[key] = value
            self._root._alive.append(array)  # so that no other array gets its id
        return known[key]

    def fresh(self, shape: Shape, dtype: ir.DataType, stem: str = "v") -> Tensor:
        """A new value that no node of this tape produces: an input of the graph or a subgraph."""
        value = ir.Value(name=self._name(stem), shape=_ir_shape(shape), type=ir.TensorType(dtype))
        return Tensor(value, shape, shape, dtype)

    def _name(self, stem: str) -> str:
        self._root._counter += 1
        return f"{stem}_{self._root._counter}"

    # --- nodes ----------------------------------------------------------------------------------

    def op(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        shape: Shape,
        dtype: ir.DataType,
        attributes: Mapping[str, Attribute] = _NO_ATTRIBUTES,
    ) -> Tensor:
        """One node with one output; inputs are taken whole."""
        return self.ops(op, inputs, (Out(shape, dtype),), attributes)[0]

    def ops(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Out],
        attributes: Mapping[str, Attribute] = _NO_ATTRIBUTES,
    ) -> tuple[Tensor, ...]:
        """One node with any number of outputs, in a dtype that has a kernel."""
        whole = [None if each is None else self.full(each) for each in inputs]
        typed = _TYPED_INPUTS.get(op, tuple(range(len(whole))))
        main = next((each.dtype for index in typed if (each := whole[index]) is not None), None)
        rule = kernels.REDUCING_SCATTER if "reduction" in attributes else op
        if main is None or op == "Cast":
            return self.raw(op, whole, outputs, attributes)
        way = kernels.detour(rule, main)
        if way.dtype == main:
            return self.raw(op, whole, outputs, attributes)
        moved = [self._enter(each, way) if each is not None and i in typed else each for i, each in enumerate(whole)]
        follows = [out.dtype == main and op not in _PREDICATES for out in outputs]
        wide = [Out(out.shape, way.dtype) if typed_ else out for out, typed_ in zip(outputs, follows, strict=True)]
        results = zip(self.raw(op, moved, wide, attributes), follows, strict=True)
        return tuple(self._leave(result, main, way) if typed_ else result for result, typed_ in results)

    def raw(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Out],
        attributes: Mapping[str, Attribute] = _NO_ATTRIBUTES,
    ) -> tuple[Tensor, ...]:
        """Record a node exactly as given."""
        self._root._opset = max(self._root._opset, _NEWER.get(op, BASE_OPSET))
        values = [
            ir.Value(name=self._name("v"), shape=_ir_shape(out.shape), type=ir.TensorType(out.dtype)) for out in outputs
        ]
        node = ir.Node(
            "",
            op,
            [None if each is None else self.value(each) for each in inputs],
            [_attribute(name, value) for name, value in attributes.items()],
            outputs=values,
            name=self._name(op),
        )
        if self.origin:
            node.metadata_props["source"] = self.origin
        self.nodes.append(node)
        return tuple(Tensor(v, out.shape, out.shape, out.dtype) for v, out in zip(values, outputs, strict=True))

    def elementwise(
        self,
        op: str,
        *inputs: Tensor,
        dtype: ir.DataType | None = None,
        attributes: Mapping[str, Attribute] = _NO_ATTRIBUTES,
    ) -> Tensor:
        """A broadcasting operator: works on the cores, so that the result stays as small as they are."""
        inputs = tuple(_scalar_core(each) for each in inputs)
        core_shape = broadcast(*(each.core_shape for each in inputs))
        shape = broadcast(*(each.shape for each in inputs))
        folded = _folded(op, inputs)
        if folded is not None:
            return Tensor(folded, core_shape, shape, dtype or inputs[-1].dtype)
        extent = next((each.extent for each in inputs if each.extent is not None and each.shape == shape), None)
        result = self.op(op, [_as_is(each) for each in inputs], core_shape, dtype or inputs[-1].dtype, attributes)
        return Tensor(result.core, core_shape, shape, result.dtype, extent)

    def cast(self, x: Tensor, dtype: ir.DataType) -> Tensor:
        """ONNX ``Cast`` as ONNX Runtime does it: integers wrap, floats round to nearest even."""
        if x.dtype == dtype:
            return x
        if not isinstance(x.core, ir.Value):
            folded = _cast_array(x.core, dtype)
            return Tensor(folded, x.core_shape, x.shape, dtype, x.extent)
        key = (id(x.core), dtype)
        if key not in self._casts:
            self._casts[key] = self.raw("Cast", [_as_is(x)], (Out(x.core_shape, dtype),), {"to": dtype})[0]
        return Tensor(self._casts[key].core, x.core_shape, x.shape, dtype, x.extent)

    # --- what is known of values ----------------------------------------------------------------

    def counter(self, x: Tensor, dtype: ir.DataType, first: int, last: int) -> Tensor:
        """An int64 value that lies between ``first`` and ``last``, in another integer dtype that holds these."""
        self._root._ranges[id(x.core)] = (first, last)
        narrow = self.cast(x, dtype)
        self._root._ranges[id(narrow.core)] = (first, last)
        self._casts[(id(narrow.core), x.dtype)] = x
        return narrow

    def lies_between(self, x: Tensor, low: int, high: int) -> bool:
        """Whether all values are known to be at least ``low`` and at most ``high``."""
        known = self._root._ranges.get(id(x.core))
        return known is not None and low <= known[0] and known[1] <= high

    def numbers_turn(self, index: Tensor, turn: Tensor, *, backward: bool) -> None:
        """Remember that ``index`` is the number of a loop's ``turn``, or how many turns are left behind it."""
        self._root._turns[id(index.core)] = (turn.core, backward)

    def turn_of(self, index: Tensor) -> tuple[ir.Value | Array, bool] | None:
        """Which loop's turn an index is the number of, and whether it counts from the last one."""
        return self._root._turns.get(id(index.core))

    def spliced(self, result: Tensor, splice: Splice) -> None:
        """Remember how ``result`` came about."""
        self._root._splices[id(result.core)] = splice

    def splice_of(self, x: Tensor) -> Splice | None:
        """How a value came about, where it is another with a part written over."""
        return self._root._splices.get(id(x.core)) if x.is_full else None

    def _enter(self, x: Tensor, way: kernels.Detour) -> Tensor:
        if way.flipped:
            top = constant(np.array(1 << 63, np.uint64))
            x = self.op("BitwiseXor", [x, top], x.shape, U64)
        return self.cast(x, way.dtype)

    def _leave(self, x: Tensor, dtype: ir.DataType, way: kernels.Detour) -> Tensor:
        x = self.cast(x, dtype)
        if not way.flipped:
            return x
        return self.op("BitwiseXor", [x, constant(np.array(1 << 63, np.uint64))], x.shape, U64)


_EXACT: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "Add": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Div": np.divide,
        "Neg": np.negative,
        "Sqrt": np.sqrt,
        "Reciprocal": lambda x: np.divide(np.ones((), x.dtype), x),
        "Equal": np.equal,
        "Less": np.less,
        "LessOrEqual": np.less_equal,
        "Greater": np.greater,
        "GreaterOrEqual": np.greater_equal,
        "Where": np.where,
    }
)
"""Operators whose result IEEE 754 leaves no choice about."""


def _folded(op: str, inputs: Sequence[Tensor]) -> Array | None:
    """The result on small constants of float32 or float64, None for anything else."""
    arrays = [each.core for each in inputs if not isinstance(each.core, ir.Value)]
    if op not in _EXACT or len(arrays) < len(inputs) or sum(each.nbytes for each in arrays) > _FOLDED_BYTES:
        return None
    if any(None in each.shape for each in inputs) or any(each.dtype not in (F32, F64) for each in inputs[-1:]):
        return None
    with np.errstate(all="ignore"):
        return np.asarray(_EXACT[op](*arrays))


def _as_is(x: Tensor) -> Tensor:
    """The core alone, as a tensor of its own shape."""
    return x if x.is_full else Tensor(x.core, x.core_shape, x.core_shape, x.dtype)


def _scalar_core(x: Tensor) -> Tensor:
    """A constant of one element without axes: optimizers take a Max of a scalar and a [1] for a Clip."""
    if isinstance(x.core, ir.Value) or x.core.size != 1 or not x.core_shape:
        return x
    return Tensor(x.core.reshape(()), (), x.shape, x.dtype, x.extent)


def _ir_shape(shape: Shape) -> ir.Shape:
    return ir.Shape(list(shape))


def _attribute(name: str, value: Attribute) -> ir.Attr:
    if isinstance(value, ir.DataType):
        return ir.AttrInt64(name, int(value))
    if isinstance(value, ir.Graph):
        return ir.AttrGraph(name, value)
    if isinstance(value, str):
        return ir.AttrString(name, value)
    if isinstance(value, int):
        return ir.AttrInt64(name, int(value))
    if isinstance(value, float):
        return ir.AttrFloat32(name, value)
    if isinstance(value, ir.TensorProtocol):
        return ir.AttrTensor(name, value)
    return ir.AttrInt64s(name, [int(item) for item in value])


def _cast_array(array: Array, dtype: ir.DataType) -> Array:
    """Like the Cast node; integers narrower than 64 bits pass through int64 so that they wrap."""
    if dtype == BOOL:
        truth: Array = array != 0
        return truth
    target = dtype.numpy()
    if array.dtype.kind in "biu" and not is_float(dtype):
        wrapped: Array = array.astype(np.int64 if array.dtype != np.uint64 else np.uint64).astype(target)
        return wrapped
    if array.dtype == ml_dtypes.bfloat16:
        array = array.astype(np.float32)
    folded: Array = array.astype(target)
    return folded
