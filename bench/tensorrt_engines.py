"""Which TensorRT packages TensorRT-RTX parses and builds engines from, and whether two builds are the same.

    python bench/tensorrt_engines.py FOLDER OUT [--sms 80,89,120] [--forms float32,int8] [--models A,B]

FOLDER holds NAME.onnx and NAME.calib.npz (``make_zoo.py``, ``make_cases.py``).  Prints a row of
docs/measurements/tensorrt.md for each model.  Exports that exist in OUT are kept.  Needs no GPU; executes no engine.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from convertkit.artifact import TensorSpec
from convertkit.targets.tensorrt import rtx
from convertkit.targets.tensorrt.shapes import Range

FORMS = {
    "float32": (),
    "float16": ("--fp16",),
    "int8": ("--int8",),
    "w8": ("--w8",),
    "w4": ("--w4",),
    "fp8": ("--fp8",),
}
PROFILE = ("--tensorrt-profile", "N=1,4,16")


def built(model: Path, form: str, sms: str, out: Path) -> str:
    """The engine's size and whether a second build is the same, or the first line of the refusal."""
    folder = out / f"{model.stem}.{form}"
    if not folder.exists():
        calibration = model.with_name(f"{model.stem}.calib.npz")
        words = [*FORMS[form], *(["--calib", str(calibration)] if FORMS[form] and calibration.exists() else [])]
        words += PROFILE if dynamic(model) else ()
        command = [sys.executable, "-m", "convertkit", "export", str(model), "--target", "tensorrt", *words]
        asked = [*command, "--tensorrt-rtx-sm", sms, "-o", str(folder)]
        ran = subprocess.run(asked, capture_output=True, text=True, check=False)
        if ran.returncode:
            said = [line for line in ran.stderr.splitlines() if line.startswith("convertkit: ")]
            return (said[0] if said else ran.stderr[-200:]).removeprefix("convertkit: ")
    told = json.loads((folder / "constraints.json").read_text())
    first, second = (folder / rtx.FILE).read_bytes(), built_again(folder, told, sms)
    same = "same bytes" if first == second else "same program" if program(first) == program(second) else "not the same"
    return f"{len(first) / 1000:,.0f} KB, {same}"


def built_again(package: Path, told: dict[str, Any], sms: str) -> bytes:
    """Another engine from the package's model."""
    inputs = [TensorSpec(each["name"], tuple(each["shape"]), each["dtype"]) for each in told["inputs"]]
    ranges = [Range(name, *sizes) for name, sizes in told["dimensions"].items()]
    with tempfile.TemporaryDirectory() as place:
        for file in told["model"]["sha256"]:
            shutil.copyfile(package / file, Path(place) / file)
        rtx.build(Path(place) / told["model"]["file"], inputs, ranges, rtx.architectures(sms))
        return (Path(place) / rtx.FILE).read_bytes()


def program(engine: bytes) -> bytes:
    """An engine without its header, which counts bytes; inner names numbered as they come, runs of zeros as one."""
    numbers = dict[bytes, int]()
    start = max(engine.find(b"__mye"), 0)
    named = re.sub(rb"__mye\d+", lambda found: b"#%d" % numbers.setdefault(found[0], len(numbers)), engine[start:])
    return re.sub(rb"\0+", b"\0", named)


def dynamic(model: Path) -> bool:
    import onnx

    inputs = onnx.load(model, load_external_data=False).graph.input
    return any(dim.dim_param for each in inputs for dim in each.type.tensor_type.shape.dim)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sms", default="80,89,120")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--models", default="")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    forms = options.forms.split(",")
    print(f"| model | {' | '.join(forms)} |\n|{'---|' * (len(forms) + 1)}", flush=True)
    wanted = (
        options.models.split(",") if options.models else [each.stem for each in sorted(options.folder.glob("*.onnx"))]
    )
    for name in wanted:
        cells = [built(options.folder / f"{name}.onnx", form, options.sms, options.out) for form in forms]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
