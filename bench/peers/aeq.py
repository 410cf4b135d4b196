"""ai-edge-quantizer on a float .tflite: ``aeq.py FLOAT.tflite OUT.tflite RECIPE [CALIB.npz]``.

RECIPE is a function of ``ai_edge_quantizer.recipe`` (static_wi8_ai8, dynamic_wi8_afp32, …).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import quantizer, recipe
from layouts import fit


def samples(model: str, calibration: Path) -> dict[str, list[dict[str, np.ndarray]]]:
    interpreter = Interpreter(model_path=model)
    key = next(iter(interpreter.get_signature_list()), None)
    details = interpreter.get_signature_runner(key).get_input_details()
    arrays = np.load(calibration)
    names = {name: name if name in arrays.files else arrays.files[i] for i, name in enumerate(details)}
    count = len(arrays[arrays.files[0]])
    return {
        key: [
            {
                name: fit(arrays[source][i : i + 1], details[name]["shape"]).astype(details[name]["dtype"])
                for name, source in names.items()
            }
            for i in range(count)
        ]
    }


def main() -> int:
    model, out, chosen = sys.argv[1:4]
    tool = quantizer.Quantizer(model, getattr(recipe, chosen)())
    result = tool.calibrate(samples(model, Path(sys.argv[4]))) if len(sys.argv) > 4 else None
    tool.quantize(result).export_model(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
