"""What an export keeps for the next one: the same files, made again only where something they hang on has changed."""

import ast
import dataclasses
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch

import convertkit
from convertkit import plugins
from convertkit.artifact import Artifact
from convertkit.engines.engine import Engine
from convertkit.progress import Silent
from convertkit.recipe import ExportOptions
from convertkit.release.keys import Keys
from convertkit.steps import live
from convertkit.steps.describe import Describe
from convertkit.steps.make import Convert, Make
from convertkit.steps.stages import OfPlugin
from convertkit.tasks.resources import Resources
from convertkit.tasks.task import Context, key
from convertkit.tasks.versions import code_version
from tests import onnx_models
from tests.command_line import here
from tests.installed import needs
from tests.tasks.test_dask import running


@pytest.fixture
def network(tmp_path):
    return onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")


@pytest.fixture
def samples(tmp_path):
    rows = np.random.default_rng(3).standard_normal((40, 5)).astype(np.float32)
    np.savez(tmp_path / "calib.npz", x=rows)
    return tmp_path / "calib.npz"


def exported(network, folder, *flags, cache):
    said = here("export", network, "-o", folder, "--cache", cache, *flags)
    assert said.code == 0, said.err
    report = json.loads((folder / "report.json").read_text())
    return {step["stage"]: step["cached"] for step in report["steps"]}


def files(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    return {name: (file["sha256"], (folder / name).read_bytes()) for name, file in manifest["files"].items()}


def test_the_second_run_makes_nothing(tmp_path, network, samples):
    flags = ["--target", "tflite", "--int8", "--calib", samples]
    first = exported(network, tmp_path / "a", *flags, cache=tmp_path / "cache")
    second = exported(network, tmp_path / "b", *flags, cache=tmp_path / "cache")
    assert not any(first.values())
    assert list(second) == ["canonical-onnx", "quantize", "tflite"]
    assert all(second.values())
    assert files(tmp_path / "a") == files(tmp_path / "b")
    reports = [json.loads((tmp_path / name / "report.json").read_text()) for name in "ab"]
    for report in reports:
        for step in report["steps"]:
            del step["cached"]
        del report["command"]
    assert reports[0] == reports[1]


FIXTURES = Path(__file__).parents[1] / "fixtures"
HEAVY = {
    "numpy",
    "onnx",
    "onnx_ir",
    "onnxscript",
    "onnxruntime",
    "jinja2",
    "torch",
    "tensorflow",
    "flatbuffers",
    "rich",
}
AGAIN = """
import sys
from convertkit.cli import main
main(sys.argv[1:])
print(sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize(
    ("source", "flags", "framework", "needed"),
    [
        ("brackets/model.onnx", (), "onnx", set()),
        ("brackets/model.onnx", ("--target", "tflite", "--w8"), "onnx", set()),
        ("brackets/model.onnx", ("--calib", FIXTURES / "brackets" / "calib.npz"), "onnx", {"numpy"}),
        ("digits/model.pt", (), "torch", set()),
        ("detector/saved_model", (), "tensorflow", set()),
    ],
)
def test_the_second_run_imports_nothing_heavy(tmp_path, source, flags, framework, needed):
    """What takes longer to import than to look up; only the user's own samples are read by NumPy."""
    needs(framework)
    words = ["export", FIXTURES / source, "-o", tmp_path / "out", "--force", "--cache", tmp_path / "cache", *flags]
    assert here(*words).code == 0
    done = subprocess.run(
        [sys.executable, "-P", "-c", AGAIN, *map(str, words)], capture_output=True, text=True, check=True
    )
    assert HEAVY & set(ast.literal_eval(done.stdout.splitlines()[-1])) == needed
    assert done.stderr.count("cached") >= 2


def test_a_changed_flag_makes_again_what_hangs_on_it(tmp_path, network, samples):
    flags = ["--target", "tflite", "--int8", "--calib", samples]
    exported(network, tmp_path / "a", *flags, cache=tmp_path / "cache")
    again = exported(network, tmp_path / "b", *flags, "--calib-method", "minmax", cache=tmp_path / "cache")
    assert again == {"canonical-onnx": True, "quantize": False, "tflite": False}
    fixed = exported(network, tmp_path / "c", *flags, "--static", "N=1", cache=tmp_path / "cache")
    assert fixed == {"canonical-onnx": True, "static-dims": False, "quantize": False, "tflite": False}
    other = exported(network, tmp_path / "d", "--target", "onnxruntime", "--calib", samples, cache=tmp_path / "cache")
    assert other == {"canonical-onnx": True, "onnxruntime": False}


def test_a_changed_file_is_another_source(tmp_path, network, samples):
    exported(network, tmp_path / "a", cache=tmp_path / "cache")
    model = onnx.load(network)
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0]) * 2
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, model.graph.initializer[0].name))
    onnx.save(model, network)
    assert not any(exported(network, tmp_path / "b", cache=tmp_path / "cache").values())


def test_changed_external_weights_are_another_source(tmp_path, network):
    model = onnx.load(network)
    onnx.save_model(model, tmp_path / "split.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    exported(tmp_path / "split.onnx", tmp_path / "a", cache=tmp_path / "cache")
    assert all(exported(tmp_path / "split.onnx", tmp_path / "b", cache=tmp_path / "cache").values())
    weights = bytearray((tmp_path / "weights").read_bytes())
    weights[2] ^= 1
    (tmp_path / "weights").write_bytes(weights)
    assert not any(exported(tmp_path / "split.onnx", tmp_path / "c", cache=tmp_path / "cache").values())


def test_changed_code_of_a_plugin_makes_anew(tmp_path, network, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "strange_target.py").write_text("class Target:\n    number = 1\n")
    import strange_target

    monkeypatch.setattr(plugins, "target", lambda name: strange_target.Target())
    options = ExportOptions(str(network))
    source = Artifact(network, "onnx", (), (), "0")

    def decided():
        code_version.cache_clear()
        return key(Make(OfPlugin("", options, "strange", source, 0), Describe(options, kept=True)))

    before = decided()
    assert before == decided()
    (tmp_path / "strange_target.py").write_text("class Target:\n    number = 2\n")
    assert before != decided()


@pytest.mark.parametrize("changed", ["packages", "machine"])
def test_another_engine_or_machine_makes_anew(network, monkeypatch, changed):
    """A compiler in an environment of its own is none of the libraries here, and compiles for its own processor."""
    options, source = ExportOptions(str(network)), Artifact(network, "onnx", (), (), "0")
    cell = SimpleNamespace(target="iree", options=ExportOptions(str(network), targets=("iree",)), gates={})

    def decided(target="iree"):
        return key(Make(OfPlugin("", options, target, source, 0), Describe(options, kept=True)))

    before, other, of_cell = decided(), decided("onnxruntime"), Keys(3).of(cell)
    if changed == "packages":
        monkeypatch.setattr(Engine, "packages", {"iree-base-compiler": "0"})
    else:
        monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert decided() != before
    assert decided("onnxruntime") == other
    assert Keys(3).of(cell) != of_cell


def test_an_equal_source_elsewhere_takes_no_file_from_where_the_first_lay(tmp_path, network):
    exported(network, tmp_path / "a", cache=tmp_path / "cache")
    moved = tmp_path / "moved"
    moved.mkdir()
    network.rename(moved / network.name)
    assert all(exported(moved / network.name, tmp_path / "b", cache=tmp_path / "cache").values())
    network.write_bytes(b"another model by now")
    exported(moved / network.name, tmp_path / "c", cache=tmp_path / "cache")
    sources = [json.loads((tmp_path / name / "report.json").read_text())["source"] for name in "abc"]
    assert sources[0] == sources[1] == sources[2]


def test_a_live_module_is_looked_up_although_its_file_is_gone(tmp_path):
    layer = torch.nn.Linear(3, 2)
    results = [
        convertkit.export(layer, example=torch.ones(1, 3), output=tmp_path / name, cache=tmp_path / "cache")
        for name in "ab"
    ]
    assert files(results[0].path) == files(results[1].path)


def test_changed_samples_are_measured_again(tmp_path, network, samples):
    flags = ["--target", "tflite", "--int8", "--calib", samples]
    exported(network, tmp_path / "a", *flags, cache=tmp_path / "cache")
    rows = np.random.default_rng(4).standard_normal((40, 5)).astype(np.float32)
    np.savez(samples, x=rows)
    again = exported(network, tmp_path / "b", *flags, cache=tmp_path / "cache")
    assert again["quantize"] is False


def test_nothing_is_kept_where_nobody_asks_for_it(tmp_path, network, monkeypatch):
    monkeypatch.setenv("CONVERTKIT_CACHE", str(tmp_path / "cache"))
    convertkit.export(network, output=tmp_path / "a", no_cache=True)
    assert not (tmp_path / "cache").exists()
    convertkit.export(network, output=tmp_path / "b")
    result = convertkit.export(network, output=tmp_path / "c")
    assert all(step["cached"] for step in result.report["steps"])


def test_what_is_delivered_is_not_the_file_of_the_cache(tmp_path, network):
    exported(network, tmp_path / "a", cache=tmp_path / "cache")
    (tmp_path / "a" / "model.onnx").write_bytes(b"changed")
    assert all(exported(network, tmp_path / "b", cache=tmp_path / "cache").values())
    assert onnx.load(tmp_path / "b" / "model.onnx").graph.node


def test_code_of_the_users_is_executed_each_time(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "nets.py").write_text("import torch\ndef net():\n    return torch.nn.Linear(3, 2)\n")
    flags = ["--input", "input:N,3"]
    for name in ("a", "b"):
        cached = exported(f"{tmp_path}/nets.py:net", tmp_path / name, *flags, cache=tmp_path / "cache")
        assert not any(cached.values())


@dataclasses.dataclass(frozen=True)
class Watched(ExportOptions):
    """Options that note which of them are read."""

    def __getattribute__(self, name):
        noted = object.__getattribute__(self, "__dict__").get("_noted")
        if noted is not None and name in {field.name for field in dataclasses.fields(ExportOptions)}:
            noted.add(name)
        return object.__getattribute__(self, name)


def watched(**chosen):
    options = Watched(**chosen)
    object.__setattr__(options, "_noted", set())
    return options


def context(tmp_path, resources, name):
    (tmp_path / name).mkdir()
    return Context(tmp_path / name, Silent(), resources)


@pytest.mark.parametrize("kind", ["onnx", "pt"])
def test_a_converter_reads_no_option_that_its_key_does_not_have(tmp_path, network, kind):
    source = str(network)
    if kind == "pt":
        torch = pytest.importorskip("torch")
        source = str(tmp_path / "net.pt")
        torch.jit.trace(torch.nn.Linear(3, 2), torch.ones(1, 3)).save(source)
    options = watched(source=source)
    with Resources(tmp_path) as resources:
        describe = Describe(options)
        opened = describe.run((), context(tmp_path, resources, "a"))
        Convert(describe, options).run((opened,), context(tmp_path, resources, "b"))
    judged = {"calib", "static"}  # whether generated inputs judge the conversion, which the key says
    assert options._noted <= live.SOURCE_OPTIONS | judged


@pytest.mark.parametrize("target", ["tflite", "onnxruntime", "tensorrt"])
@pytest.mark.parametrize("precision", ["float32", "int8", "w8"])
def test_a_stage_reads_no_option_that_its_key_does_not_have(tmp_path, network, samples, target, precision):
    options = watched(source=str(network), targets=(target,), precision=precision, calib=str(samples))
    with Resources(tmp_path) as resources:
        describe = Describe(options)
        opened = describe.run((), context(tmp_path, resources, "a"))
        made = Convert(describe, options).run((opened,), context(tmp_path, resources, "b"))
        known = set(OfPlugin("", options, target, opened.artifact, 0).decides())
        options._noted.clear()
        places = ["quantize", 0] if precision != "float32" else [0]
        for number, place in enumerate(places):
            ref = OfPlugin(str(place), options, target, opened.artifact, place)
            work = context(tmp_path, resources, f"{number}")
            with ref.opened(work) as stage:
                artifact = stage.run(made.artifact, work.folder)
            made = dataclasses.replace(made, artifact=artifact)
    unknown = options._noted - known - {"calib", "label_file", "timeout_s"}
    assert not unknown, "the data and the labels count by their content, and a timeout ends a worker without a file"


def test_two_exports_at_once_share_one_cache(tmp_path, network):
    def run(name):
        exported(network, tmp_path / name, cache=tmp_path / "cache")

    threads = [threading.Thread(target=run, args=(name,)) for name in "abc"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert files(tmp_path / "a") == files(tmp_path / "b") == files(tmp_path / "c")


def test_a_killed_export_leaves_a_cache_that_the_next_one_uses(tmp_path, network, samples):
    flags = ["--target", "tflite", "--int8", "--calib", str(samples), "--cache", str(tmp_path / "cache")]
    command = [sys.executable, "-P", "-m", "convertkit", "export", str(network), *flags, "-o"]
    for seconds in np.random.default_rng(0).uniform(0.3, 3.0, 5):
        process = subprocess.Popen(
            [*command, str(tmp_path / "killed")],
            env=dict(os.environ),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    exported(network, tmp_path / "a", *flags[:-2], cache=tmp_path / "cache")
    assert all(exported(network, tmp_path / "b", *flags[:-2], cache=tmp_path / "cache").values())
    plain = here("export", network, *flags[:-2], "-o", tmp_path / "plain", "--no-cache")
    assert plain.code == 0
    assert files(tmp_path / "a") == files(tmp_path / "plain")


def test_a_cluster_delivers_the_same_files(tmp_path, network, samples):
    flags = ["--target", "tflite", "--int8", "--calib", samples]
    assert here("export", network, *flags, "-o", tmp_path / "here").code == 0
    with running("--local-directory", str(tmp_path / "workers")) as cluster:
        said = here("export", network, *flags, "-o", tmp_path / "there", "--scheduler", cluster.address)
    assert said.code == 0, said.err
    assert files(tmp_path / "here") == files(tmp_path / "there")


def test_no_scheduler_at_the_address_is_one_sentence(tmp_path, network, monkeypatch):
    monkeypatch.setattr("convertkit.tasks.dask._CONNECT_S", 2)
    said = here("export", network, "-o", tmp_path / "out", "--scheduler", "tcp://127.0.0.1:1")
    assert said.code == 1
    assert "there is no Dask scheduler at tcp://127.0.0.1:1" in said.err
    assert not (tmp_path / "out").exists()


def test_a_file_is_no_cache(tmp_path, network):
    (tmp_path / "file").write_text("mine")
    said = here("export", network, "-o", tmp_path / "out", "--cache", tmp_path / "file")
    assert said.code == 2
    assert said.err.endswith(f"{tmp_path / 'file'} is a file; a cache is a folder\n")
    assert sorted(os.listdir(tmp_path)) == ["file", "mlp.onnx"]
