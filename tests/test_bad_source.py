"""Bad sources: one sentence, the right exit code, nothing on the disk, nothing executed, never a traceback."""

import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import onnx_models
from tests.command_line import Trap, guarded, refused

CUTS = 20


@pytest.fixture
def place(tmp_path):
    """An empty folder to export into."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def test_missing_file(place):
    refused(place, 1, ["nowhere.pt does not exist"], "nowhere.pt", "--target", "onnxruntime")


def test_a_pipe_is_not_waited_for(place, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(place, 1, ["pipe or a device", "expected a file or a folder"], tmp_path / "pipe")


@pytest.mark.parametrize(
    "name", ["model.pt", "model.onnx", "model.keras", "model.h5", "model.tflite", "model.mlir", "model"]
)
def test_empty_file(place, tmp_path, name):
    (tmp_path / name).touch()
    refused(place, 1, [name, "empty"], tmp_path / name)


@pytest.mark.parametrize("files", [(), ("notes.txt",), ("variables/x", "assets/y")])
def test_folder_that_is_no_model(place, tmp_path, files):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("some text")
    refused(place, 1, ["folder"], folder)


@pytest.mark.parametrize(
    "name", ["model.pt", "model.pth", "model.pt2", "model.onnx", "model.safetensors", "model.keras"]
)
def test_text_with_a_model_name(place, tmp_path, name):
    (tmp_path / name).write_text("import torch\nthis is not a model\n" * 20)
    refused(place, 1, [name], tmp_path / name)


@pytest.mark.parametrize("part", range(CUTS))
def test_truncated_torchscript(place, tmp_path, digits, part):
    whole = digits.model.read_bytes()
    path = tmp_path / "cut.pt"
    path.write_bytes(whole[: 1 + part * (len(whole) - 2) // (CUTS - 1)])
    refused(place, 1, ["cut.pt"], path)


@pytest.mark.parametrize("part", range(CUTS))
def test_truncated_onnx(place, tmp_path, part):
    whole = onnx_models.mlp().SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(whole[: 1 + part * (len(whole) - 2) // (CUTS - 1)])
    refused(place, 1, ["cut.onnx"], path)


@pytest.fixture(scope="module")
def torch_files(tmp_path_factory):
    """Files that only PyTorch writes, made in a process of its own."""
    folder = tmp_path_factory.mktemp("torch")
    script = """
import sys, torch
from torch import nn
folder = sys.argv[1]
net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
torch.save(net, folder + "/module.pt")
torch.save(net, folder + "/module-legacy.pt", _use_new_zipfile_serialization=False)
torch.save(net.state_dict(), folder + "/weights.pth")
torch.save(net.state_dict(), folder + "/weights-legacy.pth", _use_new_zipfile_serialization=False)
torch.save({"epoch": 3, "optimizer": {}}, folder + "/no-model.pt")
"""
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True)
    return folder


@pytest.mark.parametrize("name", ["module.pt", "module-legacy.pt"])
def test_pickled_module_needs_trust(place, torch_files, name):
    refused(place, 1, [name, "--trust pickle"], torch_files / name)


@pytest.mark.parametrize("name", ["weights.pth", "weights-legacy.pth"])
def test_state_dict_needs_a_factory(place, torch_files, name):
    refused(place, 2, [name, "--model"], torch_files / name)


def test_checkpoint_without_weights(place, torch_files):
    refused(place, 2, ["no-model.pt"], torch_files / "no-model.pt")


def test_pickle_is_never_executed(place, tmp_path):
    sprung = tmp_path / "sprung"
    plain, zipped = tmp_path / "plain.pt", tmp_path / "zipped.pt"
    plain.write_bytes(pickle.dumps(Trap(sprung), protocol=2))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("zipped/data.pkl", pickle.dumps(Trap(sprung), protocol=2))
        archive.writestr("zipped/version", "3")
    for path in (plain, zipped):
        refused(place, 1, [path.name], path)
    assert not sprung.exists()


def test_source_that_cannot_be_read(place, tmp_path):
    folder = tmp_path / "loop.onnx"
    folder.symlink_to(folder)
    refused(place, 1, ["loop.onnx"], folder)


def test_source_in_a_closed_folder(place, tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    refused(place, 1, ["closed/model.onnx cannot be read: "], tmp_path / "closed" / "model.onnx", run=guarded)


def test_external_data_that_must_not_be_read(place, tmp_path):
    (tmp_path / "data.bin").write_bytes(np.arange(5, dtype=np.float32).tobytes())
    (tmp_path / "data.bin").chmod(0)
    path = onnx_models.write(tmp_path, onnx_models.add(onnx_models.external("data.bin")))
    refused(place, 1, ["data.bin", "cannot be read"], path, run=guarded)


def test_source_module_that_does_not_exist(place):
    refused(place, 1, ["no_such_package"], "no_such_package.module:factory")


# --- hostile ONNX --------------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["../secret.bin", "link.bin", "deep/../../secret.bin", "no-such.bin", ""])
def test_external_data_stays_in_its_folder(place, tmp_path, location):
    (tmp_path / "secret.bin").write_bytes(np.arange(5, dtype=np.float32).tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    path = onnx_models.write(folder, onnx_models.add(onnx_models.external(location)))
    refused(place, 1, ["model.onnx"], path)


@pytest.mark.parametrize("location", ["data\0.bin", "loop.bin", "x" * 300], ids=["zero-byte", "loop", "long"])
def test_external_data_at_a_place_that_cannot_be(place, tmp_path, location):
    (tmp_path / "loop.bin").symlink_to(tmp_path / "loop.bin")
    path = onnx_models.write(tmp_path, onnx_models.add(onnx_models.external(location)))
    refused(place, 1, ["model.onnx"], path)


@pytest.mark.parametrize("text", [b"data.bin", b"NAME"], ids=["location", "size"])
def test_text_that_is_none(place, tmp_path, text):
    """Protobuf hands out bytes where a text is not UTF-8."""
    (tmp_path / "data.bin").write_bytes(np.arange(5, dtype=np.float32).tobytes())
    made = onnx_models.add(onnx_models.external("data.bin"))
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "NAME"
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString().replace(text, b"\xff" * len(text)))
    refused(place, 1, ["model.onnx", "UTF-8"], path)


def test_external_data_at_an_absolute_path(place, tmp_path):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(np.arange(5, dtype=np.float32).tobytes())
    refused(place, 1, ["model.onnx"], onnx_models.write(tmp_path, onnx_models.add(onnx_models.external(str(secret)))))


@pytest.mark.parametrize(("length", "offset"), [(20, 4), (40, 0), (20, 1 << 62), (-1, 0), (20, -4), (1 << 62, 0)])
def test_external_data_beyond_its_file(place, tmp_path, length, offset):
    (tmp_path / "data.bin").write_bytes(np.arange(5, dtype=np.float32).tobytes())
    stored = onnx_models.external("data.bin", length, offset)
    refused(place, 1, ["model.onnx"], onnx_models.write(tmp_path, onnx_models.add(stored)))


@pytest.mark.parametrize(
    "dims",
    [(1 << 29,), (1 << 62, 4), (1 << 31, 1 << 31), (-5,), (5, -1), (0, 1 << 40), (5,)],
    ids=lambda dims: "x".join(map(str, dims)),
)
def test_declared_sizes_are_not_believed(place, tmp_path, dims):
    path = onnx_models.write(tmp_path, onnx_models.add(onnx_models.declared(*dims)))
    assert path.stat().st_size < 1024
    refused(place, 1, ["model.onnx"], path)


def chain(*links):
    return [helper.make_node("Add", [a, b], [out]) for a, b, out in links]


@pytest.mark.parametrize(
    "nodes",
    [
        chain(("x", "b", "a"), ("x", "a", "b"), ("a", "b", "y")),
        chain(("x", "y", "y")),
        chain(("x", "nothing", "y")),
        chain(("x", "x", "a")),
        chain(("x", "x", "y"), ("x", "y", "y")),
        [helper.make_node("NoSuchOperator", ["x"], ["y"])],
        [helper.make_node("Relu", ["x"], ["y"], domain="no.such.domain")],
        [helper.make_node("Relu", ["x", "x"], ["y"])],
        [helper.make_node("Relu", ["x"], ["y"], alpha=0.5)],
        [helper.make_node("Softmax", ["x"], ["y"], axis="last")],
    ],
    ids=[
        "cycle", "self-loop", "missing-input", "missing-output", "assigned-twice", "no-operator", "no-domain", "arity",
        "no-attribute", "attribute-type",
    ],
)  # fmt: skip
def test_graphs_that_make_no_sense(place, tmp_path, nodes):
    path = onnx_models.write(tmp_path, onnx_models.model(nodes, {"x": ["N", 5]}, {"y": ["N", 5]}))
    refused(place, 1, [], path)


@pytest.mark.parametrize("opset", [0, -1, 9999, 1 << 40])
def test_opsets_that_do_not_exist(place, tmp_path, opset):
    stored = numpy_helper.from_array(np.ones(5, np.float32), "w")
    refused(place, 1, ["opset"], onnx_models.write(tmp_path, onnx_models.add(stored, opset=opset)))


def test_no_opset_at_all(place, tmp_path):
    made = onnx_models.mlp()
    del made.opset_import[:]
    refused(place, 1, ["opset"], onnx_models.write(tmp_path, made))


@pytest.mark.parametrize("change", ["nothing", "no-graph", "no-outputs", "bytes-left-over"])
def test_onnx_with_parts_missing(place, tmp_path, change):
    made = onnx_models.mlp()
    if change == "nothing":
        made = onnx.ModelProto(ir_version=10)
    if change == "no-graph":
        made.ClearField("graph")
    if change == "no-outputs":
        del made.graph.output[:]
    path = onnx_models.write(tmp_path, made)
    if change == "bytes-left-over":
        path.write_bytes(path.read_bytes() + b"\xff" * 40)
    refused(place, 1, ["model.onnx"], path)


def test_subgraphs_nested_without_end(place, tmp_path):
    inner = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["z"])], "g", [], [helper.make_tensor_value_info("z", 1, None)]
    )
    for level in range(200):
        node = helper.make_node("If", ["c"], [f"z{level}"], then_branch=inner, else_branch=inner)
        if node.ByteSize() > 1 << 20:
            break
        inner = helper.make_graph([node], "g", [], [helper.make_tensor_value_info(f"z{level}", 1, None)])
    condition = TensorProto(name="c", data_type=TensorProto.BOOL, raw_data=b"\x01")
    made = onnx_models.model([], {"x": ["N", 5]}, {"y": ["N", 5]}, [condition])
    last = inner.output[0].name
    made.graph.node.extend(inner.node)
    made.graph.node.append(helper.make_node("NoSuchOperator", [last], ["y"]))
    refused(place, 1, [], onnx_models.write(tmp_path, made))
