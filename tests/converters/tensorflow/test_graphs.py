"""SavedModels and frozen graphs as bytes made here: what is read, and refused, without TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from convertkit import wire
from convertkit.converters.tensorflow import converter
from convertkit.converters.tensorflow.graph import read_graph_def, read_saved_model
from convertkit.converters.tensorflow.safety import refuse_dangerous, refuse_inexpressible
from convertkit.converters.tensorflow.source import chosen
from convertkit.errors import SourceError, Unsupported, Untrusted, UsageError


def varint(value: int) -> bytes:
    out = b""
    while True:
        out, value = out + bytes([value & 0x7F | (0x80 if value > 0x7F else 0)]), value >> 7
        if not value:
            return out


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def node(name: str, op: str, *inputs: str, calls: str = "") -> bytes:
    attr = field(5, field(1, "f") + field(2, field(10, field(1, calls)))) if calls else b""
    return field(1, name) + field(2, op) + b"".join(field(3, each) for each in inputs) + attr


def graph_def(nodes: list[bytes], functions: dict[str, list[bytes]] | None = None) -> bytes:
    bodies = [field(1, field(1, name)) + b"".join(field(3, each) for each in body)
              for name, body in (functions or {}).items()]  # fmt: skip
    library = field(2, b"".join(field(1, body) for body in bodies)) if bodies else b""
    return b"".join(field(1, each) for each in nodes) + library


def signature(key: str, dtype: int = 1) -> bytes:
    ends = [field(n, field(1, k) + field(2, field(1, f"{t}:0") + field(2, dtype) + field(3, field(2, field(1, 3)))))
            for n, k, t in ((1, "x", "in"), (2, "y", "out"))]  # fmt: skip
    return field(5, field(1, key) + field(2, b"".join(ends)))


def saved_model(folder: Path, graph: bytes, *signatures: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    meta = field(1, field(4, "serve")) + field(2, graph) + b"".join(signatures)
    (folder / "saved_model.pb").write_bytes(field(1, 1) + field(2, meta))
    return folder


PLAIN = graph_def([node("in", "Placeholder"), node("out", "Relu", "in")])


def test_a_saved_model_is_read_without_tensorflow(tmp_path: Path):
    path = saved_model(tmp_path / "m", PLAIN, signature("serving_default"))
    saved = read_saved_model(path)
    assert saved.tags == ("serve",)
    (found,) = saved.signatures
    assert (found.key, found.inputs[0].key, found.inputs[0].dtype, found.inputs[0].shape) == (
        "serving_default", "x", "float32", (3,),
    )  # fmt: skip
    module = "from convertkit.converters.tensorflow.graph import read_saved_model"
    read = f"import sys, pathlib; {module}; read_saved_model(pathlib.Path({str(path)!r}))"
    read += "; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", read], check=False).returncode == 0


@pytest.mark.parametrize("op", ["WriteFile", "ReadFile", "PyFunc", "EagerPyFunc", "SqlDataset"])
def test_operators_that_reach_out_are_refused_even_in_uncalled_functions(tmp_path: Path, op: str):
    graph = graph_def([node("in", "Placeholder"), node("out", "Relu", "in")], {"hidden": [node("n", op)]})
    saved = read_saved_model(saved_model(tmp_path / "m", graph, signature("s")))
    with pytest.raises(Untrusted, match="--trust pyfunc") as caught:
        refuse_dangerous(tmp_path, saved.graph, ["out:0"], trusted=False)
    assert op in str(caught.value)
    assert refuse_dangerous(tmp_path, saved.graph, ["out:0"], trusted=True) == [op]


def prints(value: bytes) -> bytes:
    return field(1, "n") + field(2, "PrintV2") + field(5, field(1, "output_stream") + field(2, value))


@pytest.mark.parametrize("made", [node("n", "PrintV2"), prints(field(2, "stdout")), prints(field(2, "log(info)"))])
def test_printing_to_the_terminal_is_let_pass(tmp_path: Path, made: bytes):
    graph = graph_def([node("in", "Placeholder"), made, node("out", "Relu", "in", "^n")])
    saved = read_saved_model(saved_model(tmp_path / "m", graph, signature("s")))
    assert refuse_dangerous(tmp_path, saved.graph, ["out:0"], trusted=False) == []


@pytest.mark.parametrize(
    "value",
    [field(2, "file:///tmp/x"), field(9, "T"), field(2, "stderr") + field(9, "T"), b""],
    ids=["a file", "what a caller fills in", "both", "nothing"],
)
def test_printing_to_a_file_is_refused(tmp_path: Path, value: bytes):
    graph = graph_def([node("in", "Placeholder"), node("out", "Relu", "in")], {"hidden": [prints(value)]})
    saved = read_saved_model(saved_model(tmp_path / "m", graph, signature("s")))
    with pytest.raises(Untrusted, match="PrintV2"):
        refuse_dangerous(tmp_path, saved.graph, ["out:0"], trusted=False)


def test_checkpoint_operators_belong_to_the_saver_only(tmp_path: Path):
    nodes = [node("in", "Placeholder"), node("out", "StatefulPartitionedCall", "in", calls="f"),
             node("restore", "StatefulPartitionedCall", calls="r")]  # fmt: skip
    safe = graph_def(nodes, {"f": [node("n", "Relu")], "r": [node("n", "RestoreV2")]})
    saved = read_saved_model(saved_model(tmp_path / "m", safe, signature("s")))
    assert refuse_dangerous(tmp_path, saved.graph, ["out:0"], trusted=False) == []
    hostile = graph_def(nodes, {"f": [node("n", "PartitionedCall", calls="g")], "g": [node("n", "SaveV2")]})
    saved = read_saved_model(saved_model(tmp_path / "m", hostile, signature("s")))
    with pytest.raises(Untrusted, match="SaveV2"):
        refuse_dangerous(tmp_path, saved.graph, ["out:0"], trusted=False)


def test_strings_and_tables_are_refused_by_name(tmp_path: Path):
    saved = read_saved_model(saved_model(tmp_path / "m", PLAIN, signature("s", dtype=7)))
    with pytest.raises(Unsupported, match="'x' of signature 's' holds string"):
        refuse_inexpressible(saved.signatures[0], [])
    graph = graph_def(
        [node("in", "Placeholder"), node("t", "HashTableV2"), node("out", "LookupTableFindV2", "t", "in")]
    )
    saved = read_saved_model(saved_model(tmp_path / "m", graph, signature("s")))
    with pytest.raises(Unsupported, match=r"lookup table"):
        refuse_inexpressible(saved.signatures[0], saved.graph.behind(iter(["out:0"])))


def test_several_signatures_are_listed(tmp_path: Path):
    saved = read_saved_model(saved_model(tmp_path / "m", PLAIN, signature("train", 9), signature("predict")))
    with pytest.raises(UsageError, match="--signature") as caught:
        chosen(tmp_path, saved, None)
    assert "predict  (x: float32)" in str(caught.value)
    assert chosen(tmp_path, saved, "train").key == "train"
    twins = read_saved_model(saved_model(tmp_path / "m", PLAIN, signature("serve"), signature("serving_default")))
    assert chosen(tmp_path, twins, None).key == "serving_default"


def test_sniffing_goes_by_content(tmp_path: Path):
    assert converter.sniff(str(saved_model(tmp_path / "m", PLAIN))) == "savedmodel"
    assert converter.sniff(str(tmp_path / "m" / "saved_model.pb")) == "savedmodel"
    frozen = tmp_path / "frozen.bin"
    frozen.write_bytes(PLAIN)
    assert converter.sniff(str(frozen)) == "graphdef"
    assert [each.op for each in read_graph_def(frozen).nodes.values()] == ["Placeholder", "Relu"]
    frozen.write_bytes(b"\x08\x07\x12\x04onnx")
    assert converter.sniff(str(frozen)) is None


def test_broken_bytes_are_one_sentence(tmp_path: Path):
    whole = (saved_model(tmp_path / "m", PLAIN, signature("s")) / "saved_model.pb").read_bytes()
    rng = np.random.default_rng(0)
    said: list[str] = []
    for _ in range(300):
        data = bytearray(whole)
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        (tmp_path / "m" / "saved_model.pb").write_bytes(bytes(data[: int(rng.integers(1, len(data) + 1))]))
        try:
            saved = read_saved_model(tmp_path / "m")
            list(saved.graph.behind(iter(["out:0"])))
        except SourceError as error:
            said.append(str(error))
    assert 100 < len(said) < 300
    assert all(len(sentence.splitlines()) == 1 for sentence in said)


def test_numbers_of_too_many_bytes_end():
    with pytest.raises(SourceError, match="ten bytes"):
        wire.varint(memoryview(b"\xff" * 20), 0)
