"""onnx2tf's own command, in a folder of its own; run with the interpreter of onnx2tf's environment.

``onnx2tf_cli.py MODEL.onnx OUT.tflite [--int8 CALIB.npz] [--quant-type per-channel]``, or
``onnx2tf_cli.py MODEL.onnx OUT --saved-model`` for a SavedModel by its TensorFlow backend (for TFLiteConverter).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def calibration(path: Path, folder: Path) -> list[str]:
    """``-cind NAME FILE MEAN STD`` for every input; the tool wants channels-last arrays of its own layout."""
    flags: list[str] = []
    arrays = np.load(path)
    for name in arrays.files:
        array = arrays[name]
        if array.ndim == 4:
            array = array.transpose(0, 2, 3, 1)
        elif array.ndim == 3:
            array = array.transpose(0, 2, 1)
        file = folder / f"{name}.npy"
        np.save(file, array)
        flags += ["-cind", name, str(file), "0", "1"]
    return flags


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--int8", type=Path)
    parser.add_argument("--quant-type", default="per-channel")
    parser.add_argument("--saved-model", action="store_true")
    args = parser.parse_args()
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The tool's simplifier overwrites its input file.
        source = Path(shutil.copy(args.model, folder / args.model.name))
        command = ["onnx2tf", "-i", str(source), "-o", str(folder / "out"), "-n", "-coion"]
        suffix = "_float32.tflite"
        if args.int8:
            command += ["-oiqt", "-qt", args.quant_type, *calibration(args.int8.resolve(), folder)]
            suffix = "_full_integer_quant.tflite"
        if args.saved_model:
            command += ["-tb", "tf_converter", "-osd"]
        code = subprocess.run(command, env=environment, cwd=folder, check=False).returncode
        if args.saved_model:
            if not (folder / "out" / "saved_model.pb").exists():
                return code or 1
            shutil.copytree(folder / "out", args.out, ignore=shutil.ignore_patterns("*.tflite"))
            return 0
        files = sorted((folder / "out").glob(f"*{suffix}"))
        if not files:
            return code or 1
        if code:
            print(f"SALVAGED: exit code {code}, yet {files[0].name} was left behind")
        shutil.copy(files[0], args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
