"""What is relied on of TensorFlow and tf2onnx: ``compat_in_tensorflow.py``, in a process that may hold them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.installed import needs


def test_what_is_relied_on():
    needs("tensorflow")
    needs("tf2onnx")
    script = Path(__file__).with_name("compat_in_tensorflow.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "....." in done.stdout
