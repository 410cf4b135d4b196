"""What an export of a model of many weights holds at its peak, in all its processes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

_BENCH = Path(__file__).parents[1] / "bench/memory.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_memory", _BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _peak(bench: ModuleType, model: Path, out: Path, *flags: str) -> int:
    command = [sys.executable, "-m", "convertkit", "export", str(model), "-o", str(out), "--jobs", "1", *flags]
    found = bench.measured(command)
    assert found.code == 0
    return int(found.pss)


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_an_export_holds_few_copies_of_the_weights(bench: ModuleType, tmp_path: Path, target: str) -> None:
    """Beyond what an export of a small model takes, which is 70 to 90 MB.

    3.2 to 3.4 times 67 MB of weights; 5.0 and 6.1 times before weights stayed in their file.  Of 805 MB it is 2.0 times
    (``bench/memory.py``): a runtime's own room does not grow with the model.
    """
    tiny = bench.make(tmp_path / "tiny", "matmul", 1 << 16, 64)
    large = bench.make(tmp_path / "large", "matmul", 1 << 26, 2048)
    base = _peak(bench, tiny, tmp_path / "a", "--target", target)
    peak = _peak(bench, large, tmp_path / "b", "--target", target)
    assert peak - base <= 4 * bench.model_bytes(large)
