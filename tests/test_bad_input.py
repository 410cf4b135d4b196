"""Bad input: one sentence, the right exit code, nothing on the disk, never a traceback."""

import io
import os
import pickle
import resource
import subprocess
import sys
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import onnx_models
from tests.command_line import apart, check_refusal, everything_below, here

CUTS = 20


@pytest.fixture
def place(tmp_path):
    """An empty folder to export into."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.fixture
def mlp(tmp_path):
    return onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")


def refused(place, code, words, source, *arguments, run=here):
    """Export into ``place``, which must stay as it is."""
    before = everything_below(place)
    said = run("export", source, "-o", place / "out", *arguments)
    check_refusal(said, code, *words)
    assert everything_below(place) == before


# --- sources -------------------------------------------------------------------------------------


def test_missing_file(place):
    refused(place, 1, ["nowhere.pt does not exist"], "nowhere.pt", "--target", "onnxruntime")


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
    (tmp_path / name).write_text("import torch\nthis is no model\n" * 20)
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


class Trap:
    """Unpickling this creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


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


# --- calibration and evaluation data -------------------------------------------------------------


GOOD = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)


def with_nan(value):
    bad = GOOD.copy()
    bad[3, 2] = value
    return bad


@pytest.mark.parametrize("flag", ["--calib", "--eval"])
@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": GOOD}, ["'y'", "'x'"]),
        ({"x": GOOD, "z": GOOD}, ["'z'"]),
        ({"x": GOOD[:, :4]}, ["4", "5"]),
        ({"x": GOOD[..., None]}, ["5×1"]),
        ({"x": np.float32(3.0)}, ["x"]),
        ({"x": GOOD.astype(np.complex64)}, ["complex64", "float32"]),
        ({"x": (100 * GOOD).astype(np.int32)}, ["int32", "float32"]),
        ({"x": with_nan(np.nan)}, ["NaN"]),
        ({"x": with_nan(np.inf)}, ["infinity"]),
        ({"x": GOOD[:0]}, ["no sample"]),
        ({"x": np.array([{"a": 1}] * 5, dtype=object)}, ["x"]),
        ({}, []),
    ],
    ids=["name", "extra", "shape", "rank", "scalar", "complex", "integer", "nan", "inf", "none", "object", "empty"],
)
def test_data_that_does_not_fit(place, tmp_path, mlp, flag, arrays, words):
    label = (
        {"label": np.zeros(len(next(iter(arrays.values()), ())) if "none" else 0)}
        if flag == "--eval" and arrays and np.ndim(next(iter(arrays.values())))
        else {}
    )
    np.savez(tmp_path / "data.npz", **arrays, **label)
    refused(place, 1, ["data.npz", *words], mlp, "--target", "onnxruntime", flag, tmp_path / "data.npz")


def test_evaluation_without_labels(place, tmp_path, mlp):
    np.savez(tmp_path / "data.npz", x=GOOD)
    refused(place, 1, ["label"], mlp, "--eval", tmp_path / "data.npz")


def test_labels_of_another_length(place, tmp_path, mlp):
    np.savez(tmp_path / "data.npz", x=GOOD, label=np.zeros(5, np.int64))
    refused(place, 1, ["label", "5", "8"], mlp, "--eval", tmp_path / "data.npz")


@pytest.mark.parametrize("flag", ["--calib", "--eval"])
@pytest.mark.parametrize("content", [b"", b"this is no archive", b"PK\x03\x04" + b"\0" * 40, b"\x93NUMPY\x01\x00"])
@pytest.mark.parametrize("name", ["data.npz", "data.npy"])
def test_data_files_that_are_broken(place, tmp_path, mlp, flag, name, content):
    (tmp_path / name).write_bytes(content)
    refused(place, 1, [name], mlp, flag, tmp_path / name)


@pytest.mark.parametrize("flag", ["--calib", "--eval"])
def test_data_that_is_missing(place, mlp, flag):
    refused(place, 1, ["nowhere.npz"], mlp, flag, "nowhere.npz")
    refused(place, 1, ["no_such_package"], mlp, flag, "no_such_package:feeds")


def test_data_cut_off(place, tmp_path, mlp):
    buffer = io.BytesIO()
    np.savez(buffer, x=GOOD)
    (tmp_path / "data.npz").write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    refused(place, 1, ["data.npz"], mlp, "--calib", tmp_path / "data.npz")


def test_pickled_data_is_never_executed(place, tmp_path, mlp):
    sprung = tmp_path / "sprung"
    np.savez(tmp_path / "data.npz", x=np.array([Trap(sprung)], dtype=object))
    refused(place, 1, ["data.npz"], mlp, "--calib", tmp_path / "data.npz")
    assert not sprung.exists()


def test_integers_without_calibration(place, mlp):
    refused(place, 2, ["--calib"], mlp, "--target", "onnxruntime", "--int8")


# --- flags and recipes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--target", "tflit"], ["unknown target 'tflit'", "did you mean 'tflite'"]),
        (["--target", "toaster"], ["unknown target 'toaster'", "onnxruntime"]),
        (["--no-such-flag"], ["--no-such-flag"]),
        (["--int8", "--fp16"], ["--int8 and --fp16"]),
        (["--target", "onnxruntime", "--target", "onnxruntime"], ["twice"]),
        (["--max-drop", "0.5"], ["--eval"]),
        (["--metric", "top1"], ["--eval"]),
        (["--io-dtype", "int8"], ["--int8"]),
        (["--full-integer"], ["--int8"]),
        (["--calib-samples", "0"], ["--calib-samples"]),
        (["--calib-samples", "many"], ["--calib-samples"]),
        (["--calib-method", "guess"], ["--calib-method"]),
        (["--io-dtype", "int3", "--int8"], ["--io-dtype"]),
        (["--input-layout", "nhcw"], ["--input-layout"]),
        (["--static", "N"], ["--static"]),
        (["--static", "N=0"], ["--static"]),
        (["--static", "N=-3"], ["--static"]),
        (["--input", "x"], ["--input"]),
        (["--input", "x:1,5:float32[a,b)"], ["--input"]),
        (["--trust", "everything"], ["--trust"]),
        (["--timeout", "0"], ["--timeout"]),
        (["--timeout", "-1"], ["--timeout"]),
        (["--timeout", "nan"], ["--timeout"]),
        (["--opset", "3"], ["--opset"]),
        (["--opset", "99"], ["--opset"]),
        (["--prune", "1.5"], ["--prune"]),
        (["--prune", "some"], ["--prune"]),
        (["--prune", "5:4"], ["--prune"]),
        (["--prune-channels", "-0.1"], ["--prune-channels"]),
        (["--seed", "-1"], ["--seed"]),
    ],
    ids=lambda value: "_".join(value) if value and value[0].startswith("--") else "",
)
def test_flags_that_make_no_sense(place, mlp, flags, words):
    refused(place, 2, words, mlp, *flags)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('targett = "tflite"', [":1", "targett", "target"]),
        ("int8 = true\ncalibb = 'x'", [":2", "calibb", "calib"]),
        ("int8 = ", ["recipe.toml"]),
        ("target = 3", ["target"]),
        ("calib_samples = 'many'", ["calib_samples"]),
        ("max_drop = 'little'\neval = 'x'", ["max_drop"]),
        ("[nested]\nint8 = true", ["nested"]),
        ("timeout = true", ["timeout"]),
        ("int8 = 'yes'", ["int8"]),
        ("\0", ["recipe.toml"]),
    ],
    ids=["key", "second-line", "toml", "target", "samples", "drop", "table", "timeout", "flag", "zero"],
)
def test_recipes_that_make_no_sense(place, tmp_path, mlp, text, words):
    (tmp_path / "recipe.toml").write_text(text)
    refused(place, 2, words, mlp, "--recipe", tmp_path / "recipe.toml")


def test_recipe_that_is_missing(place, mlp):
    refused(place, 2, ["nowhere.toml"], mlp, "--recipe", "nowhere.toml")


def test_no_source_at_all():
    check_refusal(here("export", "--target", "onnxruntime"), 2, "SOURCE")


def test_unknown_command():
    check_refusal(here("exprot"), 2, "exprot")


# --- the output folder ---------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["keep.txt", "sub/keep.txt"])
def test_output_that_is_not_empty(tmp_path, mlp, content):
    kept = tmp_path / "place" / "out" / content
    kept.parent.mkdir(parents=True)
    kept.write_text("precious")
    refused(tmp_path / "place", 1, ["not empty", "--force"], mlp)
    assert kept.read_text() == "precious"


def test_output_that_is_a_file(place, mlp):
    (place / "out").write_text("precious")
    refused(place, 1, ["no folder"], mlp)
    assert (place / "out").read_text() == "precious"


def test_output_below_a_file(place, tmp_path, mlp):
    (tmp_path / "file").write_text("precious")
    check_refusal(here("export", mlp, "-o", tmp_path / "file" / "out"), 1, "cannot be written")
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_that_is_not_writable(place, mlp):
    place.chmod(0o555)
    refused(place, 1, ["permission denied"], mlp)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux")
def test_output_where_nobody_can_write(mlp):
    check_refusal(here("export", mlp, "-o", "/proc/self/out"), 1, "cannot be written")


def test_output_name_that_is_too_long(place, mlp, monkeypatch):
    monkeypatch.chdir(place)
    check_refusal(here("export", mlp, "-o", "x" * 300), 1, "too long")
    assert not everything_below(place)


@pytest.mark.parametrize("limit", [1, 100, 500, 5_000])
def test_disk_full(place, mlp, limit):
    """A file size limit fails a write where a full disk does; the limits hit the model and the reports."""

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    def run(*arguments):
        return apart(*arguments, preexec_fn=small_disk)

    refused(place, 1, ["cannot be written"], mlp, run=run)


# --- what is not installed -----------------------------------------------------------------------


def test_missing_framework_names_the_command(place, tmp_path, digits):
    (tmp_path / "hidden" / "torch").mkdir(parents=True)
    (tmp_path / "hidden" / "torch" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "hidden")}

    def run(*arguments):
        return apart(*arguments, env=environment)

    refused(place, 4, ["pip install 'convertkit[torch]'"], digits.model, run=run)


def test_missing_runtime_names_the_command(place, tmp_path, mlp):
    (tmp_path / "hidden" / "ai_edge_litert").mkdir(parents=True)
    (tmp_path / "hidden" / "ai_edge_litert" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'ai_edge_litert'\", name='ai_edge_litert')"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "hidden")}

    def run(*arguments):
        return apart(*arguments, env=environment)

    refused(place, 4, ["pip install 'convertkit[tflite]'"], mlp, "--target", "tflite", "--static", "N=1", run=run)
