"""The FlatBuffer reader and the registry, on bytes made here."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from convertkit.converters.tflite import converter, flatbuffer, schema
from convertkit.converters.tflite.builder import Builder, Tensor
from convertkit.converters.tflite.convolutions import same_padding
from convertkit.converters.tflite.importer import HANDLERS
from convertkit.converters.tflite.model import parse, read_model
from convertkit.converters.tflite.registry import Registry
from convertkit.converters.tflite.source import TFLiteSource
from convertkit.errors import SourceError, Unsupported
from convertkit.recipe import ExportOptions


def test_schema_is_that_of_the_installed_runtime():
    generated = pytest.importorskip("ai_edge_litert.schema_py_generated")
    numbers = {name: value for name, value in vars(generated.BuiltinOperator).items() if isinstance(value, int)}
    assert {name: index for index, name in enumerate(schema.OPERATORS)} == numbers
    kinds = {name.lower(): value for name, value in vars(generated.TensorType).items() if isinstance(value, int)}
    assert {name: index for index, name in enumerate(schema.DTYPES)} == kinds
    for table in schema.OPTIONS.values():
        family = generated.BuiltinOptions if table.number > 0 else generated.BuiltinOptions2
        assert getattr(family, table.name) == abs(table.number)
        fresh = getattr(generated, f"{table.name}T")()
        names = {name.lower() for name in vars(fresh)}
        assert {field.name.replace("_", "") for field in table.fields} <= names


@pytest.mark.parametrize(
    "data",
    [b"", b"TFL3", b"\x08\0\0\0TFL3", b"\xff\xff\xff\xffTFL3" + bytes(40), struct.pack("<I", 8) + b"TFL3" + bytes(8)],
)
def test_broken_files_are_one_sentence(data: bytes):
    with pytest.raises(SourceError) as caught:
        parse(data)
    assert "\n" not in str(caught.value)


def test_a_field_outside_its_table_is_refused():
    vtable = struct.pack("<HHH", 6, 8, 60)
    table = struct.pack("<i", 6) + bytes(4)
    with pytest.raises(SourceError, match="outside its table"):
        flatbuffer.Table.at(memoryview(vtable + table + bytes(80)), 6)


def test_same_padding_puts_the_odd_element_behind():
    assert same_padding(size=10, kernel=3, stride=2) == (0, 1)
    assert same_padding(size=5, kernel=3, stride=1, dilation=2) == (2, 2)


def test_sniffing_looks_at_the_identifier(tmp_path):
    file = tmp_path / "model.bin"
    file.write_bytes(b"\x1c\0\0\0TFL3rest")
    assert converter.sniff(str(file)) == "tflite"
    file.write_bytes(b"\x1c\0\0\0TFL9")
    assert converter.sniff(str(file)) is None
    assert converter.sniff(str(tmp_path / "absent")) is None


def test_a_handler_that_forgets_an_option_fails_at_import():
    def forgetful(b: Builder, x: Tensor) -> Tensor:
        return x

    with pytest.raises(TypeError, match="alpha"):
        Registry().reads("LEAKY_RELU", "LeakyReluOptions")(forgetful)


def test_the_operators_that_converters_write_are_handled():
    assert len(list(HANDLERS)) > 110
    assert {"CONV_2D", "UNIDIRECTIONAL_SEQUENCE_LSTM", "WHILE", "STRIDED_SLICE", "GELU"} <= set(HANDLERS)


def test_packed_integers_come_low_bits_first():
    from convertkit.converters.tflite.model import _unpacked

    values = _unpacked("w", "int4", (3,), np.array([0x21, 0x0F], np.uint8))
    assert values.astype(np.int8).tolist() == [1, 2, -1]


def test_a_graph_of_constants_is_no_model(tmp_path):
    pytest.importorskip("ai_edge_litert")
    from handmade import T, const, write

    path = write(tmp_path / "m.tflite", "NEG", [const([1, 2])], [T((2,))])
    with pytest.raises(SourceError, match="the graph has no inputs: a model computes outputs from inputs"):
        read_model(path)


def test_an_input_without_a_rank_is_named(tmp_path):
    """Old converters leave the shape of such an input empty."""
    pytest.importorskip("ai_edge_litert")
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema
    from handmade import T, write

    path = write(tmp_path / "m.tflite", "NEG", [T((2,))], [T((2,))])
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    model.subgraphs[0].tensors[0].shape, model.subgraphs[0].tensors[0].hasRank = None, False
    made = flatbuffers.Builder(1024)
    made.Finish(model.Pack(made), b"TFL3")
    path.write_bytes(bytes(made.Output()))
    with pytest.raises(Unsupported, match="does not say how many axes 'in0' has\n  try   the TFLite file again"):
        TFLiteSource(path, ExportOptions(str(path)), tmp_path)
