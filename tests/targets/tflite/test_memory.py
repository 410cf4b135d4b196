"""What a file holds in memory, from its bytes alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from convertkit.operators import Memory
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.memory import memory
from convertkit.targets.tflite.tensor import Tensor
from tests.targets.tflite.test_estimated_operators import written

PROCESS = """
import sys
from ai_edge_litert.interpreter import Interpreter

def held():
    lines = open("/proc/self/status").read().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

def called(path):
    runner = Interpreter(path, num_threads=1)
    runner.allocate_tensors()
    runner.invoke()
    return runner

first = called(sys.argv[1])
before = held()
second = called(sys.argv[2])
print(held() - before)
"""


def convolved(side: int, channels: int, filters: int, window: int, path: Path) -> Path:
    """A convolution and an addition of what it computes to itself."""
    weight = np.random.default_rng(0).normal(size=(filters, window, window, channels)).astype(np.float32)

    def step(b: Builder, x: Tensor) -> Tensor:
        y = b.conv_2d(x, b.constant(weight), b.constant(np.zeros(filters, np.float32)), padding="SAME")
        return b.add(y, y)

    return written(path, (1, side, side, channels), step)


def test_a_convolution_is_counted_by_hand(tmp_path: Path) -> None:
    """The input is kept; the convolution's result and the sum are needed at one time."""
    found = memory(convolved(8, 4, 16, 3, tmp_path / "m.tflite"))
    weights = 4 * (16 * 3 * 3 * 4 + 16)
    assert found == Memory(4 * 8 * 8 * (4 + 16 + 16), weights, weights, 8 * 8 * 3 * 3 * 8)
    assert memory(convolved(8, 4, 16, 1, tmp_path / "p.tflite")).tables == 0


@pytest.mark.skipif(sys.platform != "linux", reason="a process tells its memory in /proc")
@pytest.mark.parametrize("sizes", [(16, 320, 320, 3), (160, 16, 16, 5)], ids=["weights", "tables and activations"])
def test_a_process_holds_about_as_much(sizes: tuple[int, int, int, int], tmp_path: Path) -> None:
    """Beside what any interpreter of this process needs, which a first one has taken."""
    small, large = convolved(8, 4, 16, 3, tmp_path / "small.tflite"), convolved(*sizes, tmp_path / "large.tflite")
    command = [sys.executable, "-c", PROCESS, str(small), str(large)]
    held = int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    found = memory(large)
    assert found.activations + found.packed_weights + found.tables == pytest.approx(held, rel=0.25)
