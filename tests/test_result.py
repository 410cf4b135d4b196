"""What Python gets: short to look at, complete to ask, and to come back to."""

import inspect
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import types

import numpy as np
import onnx_ir
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit import errors
from convertkit.watching import Calls, NotebookBar, watched
from tests import onnx_models

X = np.random.default_rng(0).standard_normal((64, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("result")


@pytest.fixture(scope="module")
def result(folder):
    """An int8 export for TFLite, whose interface differs from the source's in every way that it can."""
    source = onnx_models.write(folder, onnx_models.mlp(), "mlp.onnx")
    flags = {"int8": True, "io_dtype": "int8", "full_integer": True, "static": {"N": 1}}
    return convertkit.export(source, "tflite", calib={"x": X}, output=folder / "out", **flags)


def test_what_it_says_of_itself(result, folder):
    assert repr(result).startswith(f"<Result tflite int8, {result.size / 1000:.1f} kB, verified, ")
    assert len(repr(result)) < 200 + len(str(folder))
    assert str(folder / "out" / "model.tflite") in repr(result)
    assert (result.target, result.precision, result.passed) == ("tflite", "int8", True)
    assert result.size == (folder / "out" / "model.tflite").stat().st_size
    assert 0 < result.latency < 1000
    assert result.notes == tuple(json.loads((folder / "out" / "report.json").read_text())["notes"])


def test_a_notebook_shows_a_table_and_escapes_what_is_in_it(result):
    page = result._repr_html_()
    assert page.count("<table>") == page.count("</table>") == 2
    assert "<th>verified</th><td>yes</td>" in page
    hostile = convertkit.Result(result.path, result.artifact, {**result.report, "notes": ["<script>"]})
    assert "<script>" not in hostile._repr_html_()


def test_the_interface(result):
    (x,), (y,) = result.interface.inputs, result.interface.outputs
    assert (x.name, x.shape, x.dtype, y.name, y.shape) == ("x", (1, 5), "int8", "y", (1, 3))
    shown = repr(result.interface).splitlines()
    assert re.match(r"input\s+x\s+int8\s+\[1, 5\]\s+real = \(x - -?\d+\) \* 0\.\d+$", shown[0])
    assert shown[1].startswith("output")


def test_running_it(result):
    assert result.run(X[:1])["y"].shape == (1, 3)
    np.testing.assert_array_equal(result.run(X[:1])["y"], result.run({"x": X[:1]})["y"])
    np.testing.assert_array_equal(result.run(X[:1].astype(np.float64))["y"], result.run(X[:1])["y"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, r"run\(\) gives nothing; the model's inputs are 'x'"),
        ({"y": X[:1]}, r"run\(\) gives 'y'; the model's inputs are 'x'"),
        (X[:2], r"run\(\): x has samples of shape 2×5, the model takes 1×5"),
        (X[:1].T, r"run\(\): x has samples of shape 5×1, the model takes 1×5"),
        (X[:1].astype(str), r"run\(\): x is <U\d+, the model takes float32"),
    ],
)
def test_what_does_not_fit_is_said_in_our_words(result, given, says):
    with pytest.raises(errors.FeedError, match=says):
        result.run(given)


def test_coming_back_to_it(result, folder):
    for place in (folder / "out", str(folder / "out"), folder / "out" / "model.tflite"):
        again = convertkit.load(place)
        assert (repr(again), again.report) == (repr(result), result.report)
        assert repr(again.interface) == repr(result.interface)
        np.testing.assert_array_equal(again.run(X[:1])["y"], result.run(X[:1])["y"])


def test_what_is_not_an_export_is_not_loaded(result, folder, tmp_path):
    with pytest.raises(errors.SourceError, match="does not exist"):
        convertkit.load(tmp_path / "gone")
    with pytest.raises(errors.SourceError, match="has no manifest"):
        convertkit.load(tmp_path)
    shutil.copytree(folder / "out", tmp_path / "several" / "tflite")
    with pytest.raises(errors.SourceError, match=r"holds several exports; load one of them: .*several/tflite"):
        convertkit.load(tmp_path / "several")
    model = tmp_path / "several" / "tflite" / "model.tflite"
    model.write_bytes(model.read_bytes() + b"\0")
    with pytest.raises(errors.SourceError, match="its sha256 has changed"):
        convertkit.load(model)
    model.unlink()
    with pytest.raises(errors.SourceError, match="is gone"):
        convertkit.load(model.parent)
    (model.parent / "manifest.json").write_text('{"artifact": {}}')
    with pytest.raises(errors.SourceError, match="is not the manifest of an export"):
        convertkit.load(model.parent)
    (model.parent / "manifest.json").unlink()
    (model.parent / "model.tflite").touch()
    with pytest.raises(errors.SourceError, match="the report of an export that failed"):
        convertkit.load(model.parent)


def test_state_begins_at_its_start_values(tmp_path):
    nodes = [
        helper.make_node("Add", ["frame", "state.sum"], ["next_state.sum"]),
        helper.make_node("Tanh", ["next_state.sum"], ["y"]),
    ]
    ends = {"frame": ["N", 3], "state.sum": ["N", 3]}
    made = onnx_models.model(nodes, ends, {"y": ["N", 3], "next_state.sum": ["N", 3]})
    source = onnx_models.write(tmp_path, made)
    start = np.array([[0.5, -1.0, 2.0]], np.float32)
    np.savez(tmp_path / "initial_state.npz", **{"state.sum": start})
    result = convertkit.export(source, output=tmp_path / "out")
    frame = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(result.run(frame)["next_state.sum"], frame + start)
    np.testing.assert_allclose(convertkit.load(tmp_path / "out").run(frame)["next_state.sum"], frame + start)


# --- the function ------------------------------------------------------------------------------------


def test_every_keyword_has_its_line():
    listed = re.findall(
        r"^        (\w+): ", inspect.cleandoc(convertkit.export.__doc__).replace("\n    ", "\n        "), re.M
    )
    assert listed == list(inspect.signature(convertkit.export).parameters)


def test_tab_offers_what_there_is():
    code = "import convertkit, sys; print(dir(convertkit)); print('numpy' in sys.modules)"
    said = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    names, numpy = said.splitlines()
    assert {"export", "export_all", "load", "Result", "Interface", "ExportOptions", "errors"} <= set(eval(names))
    assert numpy == "False"


def test_a_recipe_and_what_is_given_beside_it(tmp_path):
    onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")
    (tmp_path / "recipe.toml").write_text('source = "mlp.onnx"\ntarget = "tflite"\nstatic = ["N=1"]\n')
    assert convertkit.export(recipe=tmp_path / "recipe.toml", output=tmp_path / "a").target == "tflite"
    result = convertkit.export(recipe=tmp_path / "recipe.toml", target="tensorrt", output=tmp_path / "b")
    assert result.target == "tensorrt"
    with pytest.raises(errors.UsageError, match="needs a source"):
        convertkit.export(output=tmp_path / "c")


# --- progress ------------------------------------------------------------------------------------------


def test_progress_is_called_and_logged(tmp_path, caplog):
    source = onnx_models.write(tmp_path, onnx_models.mlp())
    calls = []
    with caplog.at_level(logging.DEBUG, "convertkit"):
        convertkit.export(
            source,
            int8=True,
            calib={"x": np.zeros((1, 5), np.float32) + X[:1]},
            output=tmp_path / "out",
            progress=lambda *call: calls.append(call),
        )
    titles = {title for title, _, _ in calls}
    assert {"canonical-onnx", "quantize", "onnxruntime"} <= titles
    assert all(total is None or 0 <= done <= total for _, done, total in calls)
    logged = {record.levelname: record.getMessage() for record in caplog.records if record.name == "convertkit"}
    assert "one sample only" in logged["WARNING"]
    assert logged["INFO"].startswith("onnxruntime: onnxruntime, ")
    assert set(logged) == {"DEBUG", "INFO", "WARNING"}


def test_nothing_is_shown_off_a_terminal_and_a_bar_where_it_is_asked_for(tmp_path, capfd):
    source = onnx_models.write(tmp_path, onnx_models.mlp())
    convertkit.export(source, output=tmp_path / "a")
    assert capfd.readouterr() == ("", "")
    convertkit.export(source, output=tmp_path / "b", progress=True)
    assert "ok   onnxruntime" in capfd.readouterr().err


def test_a_bar_in_a_notebook(monkeypatch):
    drawn = []

    class Handle:
        def update(self, data, raw):
            drawn.append(data)

    def display(data, *, raw, display_id):
        return Handle()

    shell = types.SimpleNamespace(get_ipython=object)
    shown = types.SimpleNamespace(display=display)
    for name, module in {"ipykernel": object(), "IPython": shell, "IPython.display": shown}.items():
        monkeypatch.setitem(sys.modules, name, module)
    with watched(None, verbose=False) as (progress, _):
        assert list(progress.track([1, 2], 2, "a < b")) == [1, 2]
    assert drawn[1] == {"text/plain": "a < b 1/2", "text/html": '<progress value="1" max="2"></progress> a &lt; b 1/2'}
    assert drawn[-1]["text/plain"] == "done 1/1"
    assert isinstance(progress._shown, Calls)
    assert isinstance(progress._shown._told, NotebookBar)


def test_a_bar_on_a_terminal(tmp_path):
    onnx_models.write(tmp_path, onnx_models.mlp())
    master, end = os.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    code = "import convertkit; convertkit.export('model.onnx', output='out')"
    run = [sys.executable, "-P", "-c", code]
    with subprocess.Popen(run, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=end, env=environment) as process:
        os.close(end)
        said = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            said += part
    os.close(master)
    assert process.returncode == 0
    assert b"opening" in said
    assert said.count(b"ok   onnxruntime") == 1


# --- live models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["proto", "onnx_ir"])
def test_a_live_onnx_model(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    proto = onnx_models.mlp()
    before = proto.SerializeToString()
    live = proto if kind == "proto" else onnx_ir.from_proto(proto)
    result = convertkit.export(live, "tflite", static={"N": 1})
    assert result.path.name == "test-tflite"
    assert os.listdir(tmp_path) == ["test-tflite"]
    assert proto.SerializeToString() == before
    assert result.run(X[:1])["y"].shape == (1, 3)


def test_a_live_model_larger_than_a_message_goes_with_its_weights_beside(tmp_path, monkeypatch):
    from convertkit.converters.onnx import live

    monkeypatch.setattr(live, "_MOST_IN_ONE_FILE", 1000)
    weights = numpy_helper.from_array(np.arange(1000, dtype=np.float32), "w")
    ends = {"x": [1000]}, {"y": [1000]}
    proto = onnx_models.model([helper.make_node("Add", ["x", "w"], ["y"])], *ends, [weights])
    before = proto.SerializeToString()
    path = live.saved_live(proto, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["test.data", "test.onnx"]
    assert path.stat().st_size < 1000 < len(before)
    assert proto.SerializeToString() == before
    assert convertkit.export(proto, output=tmp_path / "out").run(np.zeros(1000, np.float32))["y"][-1] == 999


TORCH = """
import torch
class small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(5, 3)
    def forward(self, x):
        return torch.tanh(self.dense(x))
module = small().eval()
t = torch.from_numpy(x)
expected = module(t).detach().numpy()
"""
FRAMEWORKS = {
    "torch": TORCH + "live, example = module, t",
    "torch-script": TORCH + "live, example = torch.jit.trace(module, t), None",
    "torch-exported": TORCH + "live, example = torch.export.export(module, (t,)), None",
    "keras": """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras
live = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, activation="tanh")], name="small")
expected = live(x).__array__()
example = None
""",
    "jax": """
import jax
import jax.numpy as jnp
def small(x):
    return jnp.tanh(x @ jnp.arange(15.0).reshape(5, 3) / 15)
live, example = small, x
expected = small(x).__array__()
""",
}
SCRIPT = """
import numpy as np
x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
{make}
import convertkit
result = convertkit.export(live, "onnxruntime", example=example)
found, = result.run(x).values()
np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
print(result.path)
"""


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.timeout(300)
def test_a_live_model_of_a_framework(tmp_path, framework):
    script = SCRIPT.format(make=FRAMEWORKS[framework])
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (folder,) = os.listdir(tmp_path)
    assert done.stdout.strip() == folder
    assert folder.endswith("-onnxruntime")


def test_what_is_not_a_model(tmp_path):
    with pytest.raises(errors.UsageError, match=r"builtins\.list is not a model that convertkit takes"):
        convertkit.export([1, 2], output=tmp_path / "out")
    source = onnx_models.write(tmp_path, onnx_models.mlp())
    with pytest.raises(errors.UsageError, match="example goes with a live model"):
        convertkit.export(source, example=X, output=tmp_path / "out")
    with pytest.raises(errors.UsageError, match="takes one target"):
        convertkit.export(source, "tflite,onnxruntime")
