"""What files store in ways of their own: sparse constants, variables that never change, options of custom operators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import flatbuffers
import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

from ai_edge_litert import schema_py_generated as schema
from handmade import T, const, litert, ours, write

from convertkit.converters.tflite.flexbuffer import numbers
from convertkit.converters.tflite.importer import to_onnx
from convertkit.converters.tflite.model import TFLiteModel, read_model
from convertkit.errors import SourceError, Unsupported

WEIGHTS = np.array([[0, 2, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0], [3, 0, -1, 0, 0, 0], [0, 0, 0, 0, 0, 5]], "f")


def dimension(size: int = 0, segments: list[int] | None = None, indices: list[int] | None = None) -> object:
    made = schema.DimensionMetadataT()
    made.denseSize = size
    if segments is not None:
        made.format = schema.DimensionType.SPARSE_CSR
        for name, values in (("arraySegments", segments), ("arrayIndices", indices)):
            vector = schema.Int32VectorT()
            vector.values = values
            setattr(made, name, vector)
            setattr(made, f"{name}Type", schema.SparseIndexVector.Int32Vector)
    return made


def rows() -> T:
    """``WEIGHTS`` row by row, each row's values with their columns."""
    found = schema.SparsityParametersT()
    found.traversalOrder = [0, 1]
    found.dimMetadata = [dimension(4), dimension(0, [0, 2, 2, 4, 5], [1, 4, 0, 2, 5])]
    return replace(const([2.0, 1.0, 3.0, -1.0, 5.0]), shape=(4, 6), sparsity=found)


def blocks() -> T:
    """A matrix of blocks of one row and four columns, of which two are not zero."""
    found = schema.SparsityParametersT()
    found.traversalOrder, found.blockMap = [0, 1, 2], [1]
    found.dimMetadata = [dimension(2), dimension(0, [0, 1, 2], [1, 0]), dimension(4)]
    return replace(const(np.arange(1, 9)), shape=(2, 8), sparsity=found)


def layer(path: Path, weights: T) -> Path:
    out, width = weights.shape
    return write(
        path / "sparse.tflite", "FULLY_CONNECTED", [T((1, width)), weights, const(np.zeros(out))], [T((1, out))],
        {}, "FullyConnectedOptions",
    )  # fmt: skip


@pytest.mark.parametrize("make", [rows, blocks])
def test_sparse_weights_are_read(tmp_path: Path, make):
    weights = make()
    path = layer(tmp_path, weights)
    x = np.random.default_rng(0).standard_normal((1, weights.shape[1])).astype("f")
    got = ours(path, [x])
    np.testing.assert_allclose(got[0], litert(path, [x])[0], atol=1e-6)
    if make is rows:
        np.testing.assert_allclose(got[0], x @ WEIGHTS.T, atol=1e-6)


def densified(path: Path) -> Path:
    """The layer in ``path`` with an operator that makes its weights dense before they are used."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(bytearray(path.read_bytes())))
    code, op, main = schema.OperatorCodeT(), schema.OperatorT(), model.subgraphs[0]
    code.builtinCode, code.version = schema.BuiltinOperator.DENSIFY, 1
    code.deprecatedBuiltinCode = code.builtinCode
    weights = main.tensors[main.operators[0].inputs[1]]
    dense = schema.TensorT()
    dense.name, dense.shape, dense.type, dense.hasRank = b"dense", weights.shape, weights.type, True
    dense.buffer = 0
    op.opcodeIndex, op.inputs, op.outputs = 1, [main.operators[0].inputs[1]], [len(main.tensors)]
    main.operators[0].inputs[1] = len(main.tensors)
    main.tensors.append(dense)
    main.operators.insert(0, op)
    model.operatorCodes.append(code)
    made = flatbuffers.Builder(1024)
    made.Finish(model.Pack(made), b"TFL3")
    path.write_bytes(bytes(made.Output()))
    return path


@pytest.mark.parametrize("make", [rows, blocks])
def test_densify_gives_the_stored_constant(tmp_path: Path, make):
    weights = make()
    path = densified(layer(tmp_path, weights))
    x = np.random.default_rng(0).standard_normal((1, weights.shape[1])).astype("f")
    got = ours(path, [x])
    np.testing.assert_allclose(got[0], litert(path, [x])[0], atol=1e-6)
    if make is rows:
        np.testing.assert_allclose(got[0], x @ WEIGHTS.T, atol=1e-6)


def test_broken_sparsity_is_refused(tmp_path: Path):
    weights = rows()
    weights.sparsity.dimMetadata[1].arrayIndices.values = [1, 9, 0, 2, 5]
    with pytest.raises(SourceError, match="values outside"):
        read_model(layer(tmp_path, weights))


def variable_file(path: Path, *, assigned: bool) -> Path:
    """y = x + v, where v is set once; with ``assigned``, the sum then becomes v."""
    model = schema.ModelT()
    value = schema.BufferT()
    value.data = np.frombuffer(np.array([1, -2, 4], "f").tobytes(), np.uint8)
    model.version, model.buffers, model.operatorCodes, model.subgraphs = 3, [schema.BufferT(), value], [], []
    names = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ADD", "ASSIGN_VARIABLE")
    for name in names:
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
        model.operatorCodes.append(code)

    def tensor(name: str, shape: list[int], kind: str = "FLOAT32", buffer: int = 0) -> object:
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = name.encode(), shape, getattr(schema.TensorType, kind), buffer
        made.hasRank = True
        return made

    def operator(name: str, inputs: list[int], outputs: list[int], table: str = "", **options: object) -> object:
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = names.index(name), inputs, outputs
        if table:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, table)
            made.builtinOptions = getattr(schema, f"{table}T")()
            for key, each in options.items():
                setattr(made.builtinOptions, key, each)
        return made

    main, init = schema.SubGraphT(), schema.SubGraphT()
    handle = {"table": "VarHandleOptions", "sharedName": b"v", "container": b""}
    main.tensors = [tensor("x", [3]), tensor("handle", [], "RESOURCE"), tensor("read", [3]), tensor("y", [3])]
    main.inputs, main.outputs, main.name = [0], [3], b"main"
    main.operators = [
        operator("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1),
        operator("VAR_HANDLE", [], [1], **handle),
        operator("READ_VARIABLE", [1], [2]),
        operator("ADD", [0, 2], [3], "AddOptions"),
        *([operator("ASSIGN_VARIABLE", [1, 3], [])] if assigned else []),
    ]
    init.tensors = [tensor("h", [], "RESOURCE"), tensor("start", [3], buffer=1)]
    init.inputs, init.outputs, init.name = [], [], b"init"
    init.operators = [operator("VAR_HANDLE", [], [0], **handle), operator("ASSIGN_VARIABLE", [0, 1], [])]
    model.subgraphs = [main, init]
    made = flatbuffers.Builder(1024)
    made.Finish(model.Pack(made), b"TFL3")
    path.write_bytes(bytes(made.Output()))
    return path


def onnx_of(model: TFLiteModel) -> object:
    return to_onnx(model, model.signatures[0])


def test_a_variable_that_never_changes_is_a_constant(tmp_path: Path):
    from single_ops import session

    from convertkit.onnx.canonical import canonicalize

    path = variable_file(tmp_path / "v.tflite", assigned=False)
    x = np.array([1, 2, 3], "f")
    got = session(canonicalize(onnx_of(read_model(path)))).run(None, {"x": x})
    np.testing.assert_array_equal(got[0], litert(path, [x])[0])
    np.testing.assert_array_equal(got[0], [2, 0, 7])


def test_a_variable_that_changes_is_refused(tmp_path: Path):
    with pytest.raises(Unsupported, match="call to call"):
        onnx_of(read_model(variable_file(tmp_path / "v.tflite", assigned=True)))


def test_custom_options_are_read_and_checked():
    from test_operators import flex

    data = flex(steps=300, scale=0.25, name=7)
    assert numbers(data) == {"steps": 300.0, "scale": 0.25, "name": 7.0}
    for cut in range(len(data)):
        broken = bytearray(data)
        broken[cut] ^= 0x55
        for each in (data[cut:], bytes(broken)):
            try:
                numbers(each)
            except SourceError:
                continue
