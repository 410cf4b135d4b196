"""Who may import whom: the architecture as tests."""

import graphlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

FRAMEWORKS = {"torch", "tensorflow", "keras", "tf_keras", "tf2onnx", "jax", "jaxlib", "flax", "tensorrt"}
FRAMEWORKS |= {"tensorrt_rtx", "ai_edge_litert", "openvino", "safetensors", "h5py", "ethosu", "onnxruntime_qnn"}
FRAMEWORKS |= {"executorch", "iree", "tvm", "onnxruntime_genai", "paddle", "paddle2onnx", "MNN", "ncnn"}
FRAMEWORKS |= {"litert_lm", "litert_lm_builder"}
TORCH_GRAPH = "convertkit.torch_graph"
"""What workers of several trees share."""
ANSWERING = "convertkit.emulation.answering"
"""The program that runs a file in a process of its own, on this processor and on emulated ones."""
OF_ITS_OWN = {TORCH_GRAPH: {"torch"}, ANSWERING: {"ai_edge_litert"}}
"""The packages and modules of the core that import a framework: no other of the core imports them."""
HEAVY = FRAMEWORKS | {"onnx", "onnx_ir", "onnxscript", "onnxruntime"}

VALUES = {"errors", "artifact", "operators", "recipe", "profile", "progress", "stage", "target_options", "kernel_costs"}
TOP = {"cli", "commands", "__main__", "api", "job", "options", "formatting", "manifest", "delivery", "steps", "report"}
TOP |= {"looking", "compare", "emulation"}


def _load_source_tree():
    path = Path(__file__).with_name("source_tree.py")
    spec = importlib.util.spec_from_file_location("source_tree", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["source_tree"] = module
    spec.loader.exec_module(module)
    return module


TREE = _load_source_tree()
MODULES = TREE.modules()


def is_in(name, top):
    """Whether a module is ``top``, or lies in the package of that name."""
    return name == top or name.startswith(f"{top}.")


def core_name(module):
    """``convertkit.parity.compare`` → ``parity``."""
    return module.split(".")[1] if "." in module else "convertkit"


def ours(module):
    return [each for each in MODULES[module].imports if each.module.startswith("convertkit")]


def part_of(name):
    second = name.split(".")[1] if "." in name else ""
    return second if second in TREE.PARTS else "core"


@pytest.mark.parametrize("name", [name for name, module in MODULES.items() if module.part == "core"])
def test_core_imports_no_plugin_and_no_framework(name):
    assert not [each.module for each in ours(name) if part_of(each.module) != "core"]
    tops = {each.module.partition(".")[0] for each in MODULES[name].imports}
    assert not tops & (FRAMEWORKS - set().union(*(OF_ITS_OWN[top] for top in OF_ITS_OWN if is_in(name, top))))


@pytest.mark.parametrize("top", OF_ITS_OWN)
def test_the_core_does_not_import_what_runs_in_other_processes(top):
    inside = [name for name in MODULES if is_in(name, top)]
    assert inside
    core = [name for name, module in MODULES.items() if module.part == "core" and name not in inside]
    assert not [name for name in core if any(is_in(each.module, top) for each in ours(name))]


@pytest.mark.parametrize("name", [name for name, module in MODULES.items() if module.part != "core"])
def test_plugins_import_the_core_and_their_own_tree(name):
    part = MODULES[name].part
    foreign = [each.module for each in ours(name) if part_of(each.module) not in ("core", part)]
    assert not foreign, "converters, quantization and targets never import each other"
    upper = [each.module for each in ours(name) if part_of(each.module) == "core" and core_name(each.module) in TOP]
    assert not [module for module in upper if not module.startswith("convertkit.report.jsonable")]


TFLITE, SHARED = "convertkit.targets.tflite", "convertkit.targets.forms"
AROUND_TFLITE = {
    f"convertkit.targets.{each}"
    for each in (
        "android",
        "ethos_u",
        "ios",
        "litert_npu",
        "mobile",
        "stablehlo",
        "tf_serving",
        "tflite",
        "tflite_micro",
    )
} | {"convertkit.targets.litert_lm"}
"""What compiles to TFLite, and the targets that are made of such a file."""


@pytest.mark.parametrize("name", [name for name in MODULES if is_in(name, "convertkit.targets")])
def test_compilers_share_forms_and_not_each_other(name):
    foreign = [each.module for each in ours(name) if is_in(each.module, TFLITE)]
    assert not foreign or any(is_in(name, top) for top in AROUND_TFLITE), "what targets share is in targets/forms"
    own = [each.module for each in ours(name) if is_in(each.module, "convertkit.targets")]
    assert not is_in(name, SHARED) or all(is_in(each, SHARED) for each in own)


@pytest.mark.parametrize("name", [name for name in MODULES if core_name(name) in VALUES])
def test_values_import_values_only(name):
    assert {core_name(each.module) for each in ours(name)} <= VALUES


@pytest.mark.parametrize("name", [name for name in MODULES if core_name(name) == "tasks"])
def test_tasks_know_nothing_of_models(name):
    assert {core_name(each.module) for each in ours(name)} <= {"tasks", "errors", "progress", "artifact"}


def test_layers_of_the_core():
    """cli → commands → job → steps → {plugins, parity, tasks} → values: nothing imports upwards."""
    below = {"plugins": TOP, "parity": TOP | {"plugins"}, "onnx": TOP | {"parity"}}
    below |= {
        "steps": {"cli", "commands", "__main__", "api", "job", "formatting", "looking", "compare", "emulation"},
        "report": {"cli", "commands", "__main__", "api", "job", "steps", "looking", "compare", "emulation"},
        "findings": {
            "cli",
            "commands",
            "__main__",
            "api",
            "job",
            "formatting",
            "steps",
            "looking",
            "compare",
            "emulation",
        },
        "looking": {"cli", "commands", "__main__", "api", "job", "compare", "emulation"},
        "compare": {"cli", "commands", "__main__", "api", "job", "emulation"},
        "emulation": {"cli", "commands", "__main__", "api", "job"},
        "records": TOP,
        "tasks": TOP | {"parity", "onnx", "plugins", "data"},
        "workers": TOP | {"parity", "onnx"},
        "data": TOP,
        "job": {"cli", "commands", "api", "formatting", "looking", "compare", "emulation"},
    }
    upwards = [
        f"{name} imports {each.module}"
        for name, module in MODULES.items()
        if module.part == "core"
        for each in ours(name)
        if core_name(each.module) in below.get(core_name(name), set())
    ]
    assert not upwards


def test_no_import_cycle():
    graph = {
        name: {each.module for each in ours(name) if not each.typing and not each.lazy and each.module != name}
        for name in MODULES
    }
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("name", [name for name, module in MODULES.items() if module.path.name == "__init__.py"])
def test_packages_load_no_framework(name):
    eager = {each.module.partition(".")[0] for each in MODULES[name].imports if not each.lazy and not each.typing}
    assert not eager & FRAMEWORKS


def loaded_by(code, modules=HEAVY):
    """Which of the heavy modules a fresh interpreter has loaded after ``code``."""
    script = f"{code}\nimport sys, json\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1])) & modules


HELP = """
from convertkit.cli import cli
try:
    cli.main({}, prog_name="convertkit")
except SystemExit:
    pass
"""


@pytest.mark.parametrize(
    "code",
    [
        "import convertkit",
        HELP.format(["--help"]),
        HELP.format(["export", "--help"]),
        "from convertkit import plugins; plugins.target_names()",
    ],
    ids=["import", "help", "export-help", "completion"],
)
def test_light_commands_load_nothing_heavy(code):
    assert not loaded_by(code)


def test_an_export_of_onnx_does_not_load_sympy(tmp_path):
    """It takes a third of a small export, for sizes that few models have; nor ONNX's evaluator of 200 modules."""
    source = Path(__file__).parents[2] / "fixtures" / "brackets" / "model.onnx"
    words = ["export", str(source), "-o", str(tmp_path / "out"), "--quiet"]
    code = f"from convertkit.cli import main; main({words!r})\nimport sys"
    script = f"{code}\nprint({{'sympy.core', 'onnx.reference.op_run'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_plugins_load_without_frameworks_and_runtimes():
    """Plugin objects are looked at for every command, so loading them must stay cheap."""
    code = (
        "from importlib.metadata import entry_points\n"
        "for group in ('converters', 'passes', 'targets'):\n"
        "    for point in entry_points(group='convertkit.' + group): point.load()"
    )
    assert not loaded_by(code)


def test_a_framework_begins_to_be_imported_before_numpy():
    """All that a command does before it starts a source's worker is on top of what the framework takes."""
    code = (
        "from convertkit import cli, job, plugins, console\nfrom convertkit.options import flags\n"
        "plugins.target('tflite'), plugins.passes(), plugins.converter_for('fixtures/digits/model.pt')\n"
        "from convertkit.converters.pytorch.read import opening"
    )
    assert not loaded_by(code, HEAVY | {"numpy"})
