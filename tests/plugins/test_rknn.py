"""``convertkit-rknn``, a wheel installed beside convertkit: what it says without the toolkit, and with it."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.engines import environments
from convertkit.errors import ToolError
from tests.command_line import apart, check_refusal, everything_below

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "examples" / "convertkit-rknn"
NETWORK, CALIBRATION, TEST = (f"fixtures/digits/{name}" for name in ("model.pt", "calib.npz", "test.npz"))
INT8 = (NETWORK, "--target", "rknn", "--int8", "--calib", CALIBRATION)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it would be published."""
    place = tmp_path_factory.mktemp("wheel")
    shutil.copytree(PACKAGE, place / "tree", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-build-isolation"]
    subprocess.run([*pip, "--no-deps", "--no-index", "-w", place, place / "tree"], check=True)
    return next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def variables(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A process in which the wheel is installed."""
    installed = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", installed, wheel], check=True)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture
def without(variables: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The same where no engine is installed."""
    return {**variables, environments.VARIABLE: str(tmp_path / "engines")}


def test_the_wheel_holds_its_own_modules_alone(wheel):
    with zipfile.ZipFile(wheel) as archive:
        files = {Path(name) for name in archive.namelist()}
        (metadata,) = (archive.read(str(each)).decode() for each in files if each.name == "METADATA")
    own = {path.relative_to(PACKAGE) for path in (PACKAGE / "convertkit_rknn").glob("*.*")}
    assert {each for each in files if "dist-info" not in each.parts[0]} == own
    assert re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE) == ["convertkit-ml<1,>=0.1"]


def test_it_imports_what_plugins_may_rely_on():
    page = (ROOT / "docs" / "reference" / "versioning.md").read_text(encoding="utf-8")
    public = set(re.findall(r"^\| `(convertkit\.[\w.]+)` \|", page, re.MULTILINE))
    imported = set()
    for file in (PACKAGE / "convertkit_rknn").glob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    ours = {name for name in imported if name.startswith("convertkit.")}
    assert ours
    assert ours <= public


def test_only_the_service_imports_the_toolkit():
    holders = [
        file.name for file in PACKAGE.rglob("*.py") if re.search(r"^\s*(from|import) rknn\b", file.read_text(), re.M)
    ]
    assert holders == ["service.py"]


def test_an_output_that_the_simulator_does_not_give_is_told(module):
    shaped, spec = module("runner").shaped, TensorSpec("y", (1, 3, 2, 2), "float32")
    assert shaped(spec, np.zeros((3, 4), np.float32)).shape == (1, 3, 2, 2)
    with pytest.raises(ToolError, match=r"gives output y as \(1, 3, 1, 1\), and the model says \(1, 3, 2, 2\)"):
        shaped(spec, np.zeros((1, 3, 1, 1), np.float32))
    with pytest.raises(ToolError, match="gives no output y"):
        shaped(spec, None)


def test_without_the_toolkit_one_sentence_says_what_to_install(without, tmp_path):
    said = apart("export", *INT8, "-o", tmp_path / "out", env=without)
    check_refusal(said, 4, "the engine rknn is not installed and this needs it; run: convertkit engines install rknn")
    assert not any(tmp_path.iterdir())


def test_it_is_listed_with_what_it_takes(without):
    targets = {each["name"]: each for each in json.loads(apart("targets", "--json", env=without).out)["targets"]}
    assert (targets["rknn"]["installed"], targets["rknn"]["install"]) == (False, "convertkit engines install rknn")
    engines = {
        each["name"]: each for each in json.loads(apart("engines", "list", "--json", env=without).out)["engines"]
    }
    assert engines["rknn"]["state"] == "absent"
    assert "proprietary" in engines["rknn"]["licence"]
    assert engines["rknn"]["packages"]["numpy"].startswith("1.")


def test_the_licence_is_told_before_anything_is_fetched(without, tmp_path):
    said = apart("engines", "install", "rknn", env=without)
    check_refusal(said, 2, "--yes")
    assert "proprietary" in said.err
    assert everything_below(tmp_path) == set()


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--rknn-chip", "rk1"), 2, "rk3588"),
        (("--rknn-level", "4"), 2, "--rknn-level"),
        (("--opset", "19"), 2, "--opset does nothing for rknn"),
    ],
)
def test_what_does_not_fit_ends_it_before_any_work(without, tmp_path, flags, code, said):
    check_refusal(apart("export", *INT8, *flags, "-o", tmp_path / "out", env=without), code, said)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("flags", [(), ("--w8",), ("--fp16",)], ids=["float", "w8", "fp16"])
def test_other_precisions_are_refused(without, tmp_path, flags):
    said = apart("export", NETWORK, "--target", "rknn", *flags, "-o", tmp_path / "out", env=without)
    check_refusal(said, 2, "rknn", "int8")


def test_its_profile_is_what_the_toolkit_reads(module):
    found = module("profile").profile(None)
    assert (found.activation, found.symmetric, found.bias) == ("int8", False, "float32")


def test_a_build_is_told_nothing_of_the_length_of_paths(module, tmp_path):
    """What lies behind a path in memory moves with it, and a rebuilt file was not the delivered one."""
    stage, files = module("stage"), module("files")
    told, folders = [], []

    class Worker:
        def call(self, method: str, params: dict) -> None:
            model = Path(params["model"])
            assert (method, model.read_bytes()) == ("build", b"graph")
            model.with_name(params["rknn"]).write_bytes(b"made")
            told.append(json.dumps(params))
            folders.append(model.parent)

    for parent in (tmp_path / "a", tmp_path / "a much longer name"):
        parent.mkdir()
        (parent / "model.onnx").write_bytes(b"graph")
        artifact = Artifact(parent / "model.rknn", "rknn", "", (TensorSpec("x", (1,), "float32"),), ())
        with stage.build_folder() as folder:
            made = stage.build_in(Path(folder), Worker(), artifact, files.Build("rk3588", 2))
            assert made.read_bytes() == b"made"
    assert len(told[0]) == len(told[1])
    assert not any(folder.exists() for folder in folders)


def sealed(module, folder: Path, data: bytes, *, chip: str = "rk3588") -> Path:
    files = module("files")
    (folder / "model.onnx").write_bytes(b"the graph")
    path = folder / "model.rknn"
    path.write_bytes(data + files.seal(folder / "model.onnx", files.Build(chip, 2)).encode())
    return path


def test_a_file_tells_the_graph_and_the_build(module, tmp_path):
    path = sealed(module, tmp_path, b"RKNN" * 5, chip="rk3566")
    assert module("files").build_of(path) == module("files").Build("rk3566", 2)
    (tmp_path / "model.onnx").write_bytes(b"another")
    with pytest.raises(ToolError, match=r"model.rknn is not the file that was compiled from model.onnx"):
        module("files").build_of(path)
    (tmp_path / "model.onnx").unlink()
    with pytest.raises(ToolError, match=r"needs model.onnx beside it"):
        module("files").build_of(path)


@pytest.mark.parametrize(
    ("delivered", "again", "others", "same"),
    [
        ([1, 2, 3], [1, 2, 3], None, True),
        ([1, 7, 3], [1, 2, 3], [[1, 4, 3], [1, 5, 3]], True),
        ([1, 7, 9], [1, 2, 3], [[1, 4, 3], [1, 5, 3]], False),
        ([1, 7, 3], [1, 0xA5A5A5A5, 3], [[1, 0xA5A5A5A5, 3]] * 2, True),
        ([1, 0x5A5A5A5A, 3], [1, 2, 3], [[1, 2, 3]] * 2, True),
        ([1, 7, 9], [1, 0xA5A5A5A5, 3], [[1, 0xA5A5A5A5, 3]] * 2, False),
        ([1, 0xA5A5A5A6, 3], [1, 2, 3], [[1, 2, 3]] * 2, False),
        ([1, 2, 9], [1, 2, 3], [[1, 2, 3], [1, 2, 3]], False),
        ([1, 2, 3, 4], [1, 2, 3], [[1, 2, 3], [1, 2, 3]], False),
    ],
    ids=["equal", "memory", "memory-and-more", "unset", "unset-here", "unset-and-more", "no-fill", "other", "longer"],
)
def test_two_builds_are_the_same_but_for_memory(module, tmp_path, delivered, again, others, same):
    def written(name: str, words: list[int]) -> Path:
        (tmp_path / name).write_bytes(np.array(words, np.uint32).tobytes() + b"?")
        return tmp_path / name

    def more():
        assert others is not None, "not asked for where the bytes are equal"
        return [written(str(number), words) for number, words in enumerate(others)]

    check = module("files").check_same
    given = written("delivered", delivered), written("again", again), more
    if same:
        check(*given)
    else:
        with pytest.raises(ToolError, match="is not what the toolkit makes of"):
            check(*given)


@pytest.mark.parametrize(("ranks", "layouts"), [((2, 3), None), ((4,), ["nchw"]), ((2, 4, 1), ["nchw"] * 3)], ids=str)
def test_the_simulator_is_told_a_layout_for_every_input_or_none(module, monkeypatch, ranks, layouts):
    """It fails where it is told one for some alone."""
    for name in ("rknn", "rknn.api"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(RKNN=None))
    told = []

    def inference(inputs: list[np.ndarray], data_format: list[str] | None) -> list[np.ndarray]:
        told.append(data_format)
        return inputs

    service = module("service").RknnService()
    service._built, service._inputs = SimpleNamespace(inference=inference), [str(place) for place in range(len(ranks))]
    given = {str(place): np.zeros([1] * rank, np.float32) for place, rank in enumerate(ranks)}
    assert [value.ndim for value in service.run({}, given).arrays.values()] == list(ranks)
    assert told == [layouts]


@pytest.fixture
def toolkit(module) -> None:
    """Skips where the engine is not installed: 178 MB under a licence that nobody accepts for others."""
    if environments.installed(module("engine").engine) is None:
        pytest.skip("the engine rknn is not installed: convertkit engines install rknn")


def exported(folder: Path, variables: dict[str, str], *flags: str) -> dict:
    said = apart("export", *INT8, "-o", folder, *flags, env=variables)
    assert said.code == 0, said.err
    return json.loads((folder / "report.json").read_text())


@pytest.mark.nightly
def test_what_is_delivered_was_simulated(toolkit, variables, tmp_path):
    report = exported(tmp_path / "out", variables, "--eval", TEST, "--max-drop", "0.3")
    assert (report["execution"], report["latency"]) == ("simulated", None)
    assert "simulator" in report["steps"][-1]["artifact"]["runtime"]
    assert float(report["quality"]["snr_db"]) > 33
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "model.rknn", "model.onnx", "README.md", "manifest.json", "report.json", "report.html"
    }  # fmt: skip


RUN = """
import dataclasses, sys
from pathlib import Path
import convertkit, numpy
from convertkit import plugins
delivered = convertkit.load(sys.argv[1]).artifact
with plugins.runner(dataclasses.replace(delivered, path=Path(sys.argv[2]))) as runner:
    runner.run({"input": numpy.zeros((1, 1, 8, 8), "float32")})
"""


def run_file(file: Path, like: Path, variables: dict[str, str]) -> str:
    """What running a file with the interface of a delivered folder says on stderr, empty where it runs."""
    command = [sys.executable, "-P", "-c", RUN, like, file]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(done.stderr.strip())
    return done.stderr


@pytest.mark.nightly
def test_the_runner_knows_its_file(toolkit, variables, tmp_path):
    """One that another export of the same model wrote, too."""
    one, another = tmp_path / "one", tmp_path / "another"
    for folder in (one, another):
        exported(folder, variables)
    assert sha256_of(one / "model.onnx") == sha256_of(another / "model.onnx")
    shutil.copy(another / "model.rknn", one / "model.rknn")
    assert not run_file(one / "model.rknn", another, variables)
    data = bytearray((one / "model.rknn").read_bytes())
    middle = len(data) // 2  # among the weights
    data[middle : middle + 64] = bytes(byte ^ 0x55 for byte in data[middle : middle + 64])
    (one / "model.rknn").write_bytes(data)
    assert "model.rknn is not what the toolkit makes of model.onnx" in run_file(one / "model.rknn", another, variables)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", ["rk3562", "rk3566", "rk3568", "rk3576"])
def test_every_chip_gets_a_file_that_runs(toolkit, variables, tmp_path, chip):
    report = exported(tmp_path / "out", variables, "--rknn-chip", chip)
    assert report["target_options"]["chip"] == chip


WITHOUT_MOVING = """
import sys
import convertkit, convertkit_rknn.stage as stage
if sys.argv[4] == "patched":
    stage.move_zero_points = lambda model: 0
made = convertkit.export(sys.argv[1], "rknn", int8=True, calib=sys.argv[2], output=sys.argv[3])
print(made.report["steps"][-1]["parity"]["versus_previous"]["tensors"][0]["mean_abs"])
"""


def convolution(folder: Path) -> Path:
    """A convolution between int8 values whose zero points are 0, as TensorRT's form has it."""
    rng = np.random.default_rng(0)
    ports = [
        helper.make_tensor_value_info("x", 1, [1, 8, 12, 12]),
        helper.make_tensor_value_info("y", 1, [1, 16, 12, 12]),
    ]
    constants = {
        "w": rng.integers(-127, 128, (16, 8, 3, 3)).astype(np.int8), "ws": np.float32(0.002), "z": np.int8(0),
        "xs": np.float32(0.03), "ys": np.float32(0.05), "b": rng.normal(0, 0.2, 16).astype(np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "z"], ["xq"], "xq"),
        helper.make_node("DequantizeLinear", ["xq", "xs", "z"], ["xd"], "xd"),
        helper.make_node("DequantizeLinear", ["w", "ws", "z"], ["wd"], "wd"),
        helper.make_node("Conv", ["xd", "wd", "b"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("QuantizeLinear", ["c", "ys", "z"], ["cq"], "cq"),
        helper.make_node("DequantizeLinear", ["cq", "ys", "z"], ["y"], "yd"),
    ]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), folder / "conv.onnx")
    np.savez(folder / "calib.npz", x=rng.normal(0, 1, (20, 8, 12, 12)).astype(np.float32))
    return folder / "conv.onnx"


@pytest.mark.nightly
def test_moved_zero_points_are_nearer_to_the_graph(toolkit, variables, tmp_path):
    """Of zero points of 0 the toolkit makes other scales; the mean difference is three times as large."""
    source = convolution(tmp_path)

    def difference(way: str) -> float:
        words = [source, tmp_path / "calib.npz", tmp_path / way, way]
        command = [sys.executable, "-P", "-c", WITHOUT_MOVING, *words]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
        return float(done.stdout.splitlines()[-1])

    assert difference("moved") < difference("patched") / 2


def transformer(folder: Path) -> None:
    """Patches of 8 × 8 with a stored token and stored positions, attention, and a layer norm of what need not vary."""
    width, tokens = 16, 17
    rng = np.random.default_rng(6)
    sizes = {
        "patch": (width, 3, 8, 8), "token": (1, 1, width), "position": (1, tokens, width), "head": (width, 5),
        **dict.fromkeys(("wq", "wk", "wv", "wo"), (width, width)),
    }  # fmt: skip
    stored = [
        numpy_helper.from_array(rng.normal(0, 0.2, size).astype(np.float32), name) for name, size in sizes.items()
    ]
    stored += [numpy_helper.from_array(np.full(width, value, np.float32), name) for name, value in (("g", 1), ("h", 0))]
    body = """{
        image = Conv<strides = [8, 8]>(x, patch)
        flat = Reshape(image, places)
        rows = Transpose<perm = [0, 2, 1]>(flat)
        all = Concat<axis = 1>(token, rows)
        placed = Add(all, position)
        normal = LayerNormalization<axis = -1>(placed, g, h)
        q = MatMul(normal, wq)
        k = MatMul(normal, wk)
        v = MatMul(normal, wv)
        turned = Transpose<perm = [0, 2, 1]>(k)
        scores = MatMul(q, turned)
        shares = Softmax(scores)
        seen = MatMul(shares, v)
        out = MatMul(seen, wo)
        sum = Add(placed, out)
        again = LayerNormalization<axis = -1>(sum, g, h)
        y = MatMul(again, head)
    }"""
    head = '<ir_version: 9, opset_import: ["": 18]> g (float[1, 3, 32, 32] x) => (float[1, 17, 5] y)'
    model = onnx.parser.parse_model(f"{head} <int64[3] places = {{1, {width}, {tokens - 1}}}> {body}")
    model.graph.initializer.extend(stored)
    onnx.save(onnx.shape_inference.infer_shapes(model, strict_mode=True), folder / "transformer.onnx")
    np.savez(folder / "calib.npz", x=rng.normal(size=(24, 3, 32, 32)).astype(np.float32))


@pytest.mark.nightly
def test_a_vision_transformer_is_delivered(toolkit, variables, tmp_path):
    """Each of its patches, positions and scores crashed the toolkit as they were."""
    transformer(tmp_path)
    flags = ("--target", "rknn", "--int8", "--calib", tmp_path / "calib.npz", "-o", tmp_path / "out")
    said = apart("export", tmp_path / "transformer.onnx", *flags, env=variables)
    assert said.code == 0, said.err
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert float(report["quality"]["snr_db"]) > 25
