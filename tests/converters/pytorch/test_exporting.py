"""What torch.export's road imports is imported once, before the forks that take it."""

import json
import subprocess
import sys

_EXPORT = """
import json, sys, torch
from convertkit.converters.pytorch import exporting, service
exporting.prepare()
prepared = set(sys.modules)
program = torch.export.export(torch.nn.Linear(3, 4), (torch.empty(1, 3),), strict=False)
exporting.write_program(program, ["x"], ["y"], sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - prepared)))
"""


def test_a_fork_finds_imported_what_it_needs(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", _EXPORT, str(tmp_path / "model.onnx")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    late = json.loads(done.stdout.splitlines()[-1])
    assert len(late) < 40, "of some 1,700"
    assert (tmp_path / "model.onnx").stat().st_size > 0
