"""Models × formats, each converted to ONNX and compared with the framework that made it.

Run as a script it writes the table of docs: ``python tests/converters/tensorflow/tensorflow_grid.py PAGE``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

MODELS = {
    "functional_cnn": "functional CNN",
    "attention_gelu": "attention with exact GELU",
    "recurrent": "BiLSTM + GRU",
    "while_if": "tf.Module with while and if",
    "several_inputs": "two inputs, two outputs",
    "string_table": "strings and a hash table",
    "bytes_input": "uint8 input",
    "custom_layer": "custom layer",
}
FORMATS = {
    "-savedmodel": "SavedModel",
    ".keras": ".keras",
    ".h5": ".h5",
    "-float.tflite": ".tflite float",
    "-int8.tflite": ".tflite int8",
}
MAKER = Path(__file__).with_name("tensorflow_models.py")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one cell: ``refused`` and ``absent`` say why there is no model."""

    exit_code: int
    against_source: str
    refused: str = ""
    absent: str = ""

    @property
    def text(self) -> str:
        if self.absent:
            return f"— ({self.absent})"
        return f"refused: {self.refused}" if self.refused else self.against_source


def make(folder: Path, model: str) -> None:
    """Write one model in all formats, in a process of its own: TFLite's quantizer may crash."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, str(MAKER), str(folder), model], env=environment, check=True, capture_output=True)


def convert(folder: Path, model: str, suffix: str) -> Outcome:
    """Export one file to ONNX Runtime by the command line, as a user would."""
    source = folder / f"{model}{suffix}"
    if not source.exists():
        return Outcome(0, "", absent="TensorFlow cannot write it")
    arguments = ["--model", "grid_custom:ScaledTanh"] if model == "custom_layer" and suffix in (".keras", ".h5") else []
    output = folder / f"{model}{suffix}-out"
    command = [sys.executable, "-m", "convertkit", "export", source.name, "--target", "onnxruntime", "-o", str(output)]
    done = subprocess.run(
        [*command, "--force", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )
    if "Traceback" in done.stderr:
        raise AssertionError(done.stderr)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("convertkit:")]
        return Outcome(done.returncode, "", refused=said[-1].removeprefix("convertkit: ") if said else done.stderr)
    report = json.loads((output / "report.json").read_text())
    return Outcome(0, _worst(report["steps"][-1]["parity"]["versus_source"]["tensors"]))


def _worst(tensors: list[dict[str, object]]) -> str:
    """The largest difference in words: integer steps for integers, else relative."""
    steps = [float(each["lsb"]) for each in tensors if isinstance(each.get("lsb"), int | float)]
    if steps:
        return "equal" if max(steps) == 0 else f"within {max(steps):.0f} steps"
    relative = max(float(each["relative"]) for each in tensors)
    return "equal" if relative == 0 else f"{relative:.0e}"


def table(folder: Path) -> str:
    """The whole grid as Markdown."""
    lines = [f"| model | {' | '.join(FORMATS.values())} |", "|---" * (len(FORMATS) + 1) + "|"]
    for model, title in MODELS.items():
        make(folder, model)
        cells = [convert(folder, model, suffix).text for suffix in FORMATS]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


_HEAD = """# TensorFlow and Keras models × formats

Each cell is one export to ONNX; the number is the largest difference from the framework that made the
model, relative to the output's largest value (for int8 files, in steps of the output's integers, against
LiteRT).  Made by
`python tests/converters/tensorflow/tensorflow_grid.py docs/measurements/tensorflow-grid.md`; do not edit.

"""

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        Path(sys.argv[1]).write_text(_HEAD + table(Path(place)) + "\n")
