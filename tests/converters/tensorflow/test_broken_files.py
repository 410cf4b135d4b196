"""Files of every kind truncated and with flipped bits, exported as a user would.

Each gives one sentence and exit code 1, or converts to what the source framework computes from the same broken file.
Flips may turn weights into infinities, and then there are no numbers to compare: the proof says that it has no power.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from broken_exports import Ended, Exporter, mutants

from tests.installed import needs

HERE = Path(__file__).parent
NIGHTLY = 200
LOST_TAIL = "124.tflite: exit code 3: FAIL tflite-to-onnx"
"""A weight of -8e37 multiplies a sigmoid's tail, of which ONNX Runtime leaves nothing: the file is rightly refused."""
KINDS = {
    "-savedmodel": "tensorflow", "-frozen.pb": "tensorflow", ".keras": "keras", ".h5": "keras",
    "-float.tflite": "tflite", "-int8.tflite": "tflite",
}  # fmt: skip

FROZEN = """
import sys
import numpy as np
import tensorflow as tf
graph, rng = tf.Graph(), np.random.default_rng(0)
with graph.as_default():
    tf.compat.v1.disable_control_flow_v2()
    x = tf.compat.v1.placeholder(tf.float32, [None, 6, 6, 2], name="x")
    h = tf.nn.conv2d(x, tf.constant(rng.standard_normal((3, 3, 2, 4)).astype("f")), 1, "SAME")
    h = tf.nn.relu6(tf.nn.bias_add(h, tf.constant(rng.standard_normal(4).astype("f"))))
    h = tf.reshape(tf.nn.max_pool2d(h, 2, 2, "VALID"), [-1, 36]) @ tf.constant(rng.standard_normal((36, 5)).astype("f"))
    turns, h = tf.compat.v1.while_loop(
        lambda i, v: i < 4, lambda i, v: (i + 1, v * 0.5 + tf.math.erfc(v)), [tf.constant(0), h])
    tf.nn.softmax(h, name="result")
open(sys.argv[1], "wb").write(graph.as_graph_def().SerializeToString())
"""


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model in every format."""
    folder = tmp_path_factory.mktemp("sound")
    for arguments in (
        [str(HERE / "tensorflow_models.py"), str(folder), "several_inputs"],
        ["-c", FROZEN, str(folder / "several_inputs-frozen.pb")],
    ):
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return folder


def broken(source: Path, count: int, to: Path) -> Iterator[Path]:
    """Copies of a file, or of a folder in which the files take turns, each broken in another way."""
    files = [source] if source.is_file() else sorted(f for f in source.rglob("*") if f.is_file() and f.stat().st_size)
    changed = {file: mutants(file.read_bytes(), count, seed) for seed, file in enumerate(files)}
    for index in range(count):
        victim = files[index % len(files)]
        target = to / f"{index}{source.suffix}"
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        (target / victim.relative_to(source) if source.is_dir() else target).write_bytes(next(changed[victim]))
        yield target


def faults(source: Path, framework: str, count: int, to: Path) -> tuple[list[str], list[Ended]]:
    """What went wrong, and all that happened."""
    found, ended = [], []
    with Exporter(to, framework) as exporter:
        assert exporter.export(source).exit_code == 0
        for path in broken(source, count, to):
            ended.append(exporter.export(path))
            if fault := ended[-1].fault:
                found.append(f"{path.name}: {fault}")
    return found, ended


@pytest.mark.parametrize("kind", KINDS)
def test_broken_files_are_refused_or_mean_what_they_say(sound: Path, tmp_path: Path, kind: str):
    needs({"tensorflow": "tf2onnx", "keras": "keras", "tflite": "ai_edge_litert"}[KINDS[kind]])
    found, ended = faults(sound / f"several_inputs{kind}", KINDS[kind], 12, tmp_path)
    assert not found
    assert 1 in {each.exit_code for each in ended}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_many_broken_files(sound: Path, tmp_path: Path, kind: str):
    found, _ = faults(sound / f"several_inputs{kind}", KINDS[kind], NIGHTLY, tmp_path)
    assert not found


@pytest.mark.nightly
@pytest.mark.case
@pytest.mark.parametrize(
    "name",
    ["tflm/hello_world_int8.tflite", "mnist/trained_lstm_int8.tflite", "mnist/trained_lstm.tflite",
     "tflm/micro_speech_quantized.tflite", "mlperf-kws/saved_model"],
)  # fmt: skip
def test_many_broken_real_files(cases: Path, tmp_path: Path, name: str):
    framework = "tflite" if name.endswith(".tflite") else "tensorflow"
    found, _ = faults(cases / name, framework, 140 if framework == "tflite" else 40, tmp_path)
    known = [each for each in found if name == "mnist/trained_lstm.tflite" and each.startswith(LOST_TAIL)]
    assert len(known) == (name == "mnist/trained_lstm.tflite")
    assert found == known


def test_what_counts_as_a_fault():
    """The harness itself: a crash, a hang, a traceback and a wrong conversion are told."""
    assert "SIGSEGV" in Ended(-11, "").fault
    assert "hangs" in Ended(None, "").fault
    assert Ended(1, "Traceback (most recent call last):").fault
    assert Ended(1, "convertkit: internal error, KeyError: 'x'").fault
    assert Ended(3, 'FAIL onnxruntime: output "y" max_abs 0.3').fault
    assert Ended(1, "").fault
    assert not Ended(3, 'FAIL keras-to-onnx  not verified: output "y" is not finite').fault
    assert not Ended(1, "convertkit: model.h5 is not a readable HDF5 file").fault
    assert not Ended(0, "ok").fault


def test_mutants_differ_from_the_file():
    data = np.random.default_rng(0).bytes(500)
    made = list(mutants(data, 40, 1))
    assert sum(len(each) < len(data) for each in made) == 20
    assert sum(each != data for each in made) >= 38
