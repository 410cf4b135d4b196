"""litert-torch on the zoo's torch module: ``litert_torch_convert.py NAME OUT.tflite``; ``zoo`` must be importable."""

from __future__ import annotations

import sys

import litert_torch
import zoo


def main() -> int:
    name, out = sys.argv[1:3]
    module, inputs = zoo.build(name)
    litert_torch.convert(module, tuple(inputs)).export(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
