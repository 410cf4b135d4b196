"""What ``convertkit export`` of a PyTorch model costs beyond torch: ``pytorch_overhead.py [--rounds 5] [SOURCE…]``.

Overhead is the wall clock of ``convertkit export SOURCE --target T`` less that of a bare script which does with torch
what any export must: import it, load the model, export it with the exporter that the accepted road used, and run the
model once on each of the proof's six feeds (four of batch 1, two of batch 3).  Everything else, all proofs, reports
and imports included, is ours.  The threads of both sleep while they wait (``OMP_WAIT_POLICY``), so that on a busy
machine neither is slowed down by its own spinning.

Both run in turns, each in a process of its own; the fastest round of each counts, because other programs only slow a
round down.  User and system seconds of all processes are printed beside the wall clock, and then how our own process
and its worker spent the fastest round.

Without SOURCE, MobileNetV2 of the zoo is traced, exported and saved to a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

_ENVIRONMENT = {"CI": "1", "OMP_WAIT_POLICY": "PASSIVE"}
_BARE = """
import sys, warnings; warnings.simplefilter("ignore")
import torch
source, shape, target = sys.argv[1], [int(n) for n in sys.argv[2].split(",")], sys.argv[3]
with torch.no_grad():
    if source.endswith(".pt2"):
        program = torch.export.load(source)
        torch.onnx.export(program, (), target, dynamo=True, external_data=False, optimize=False, verbose=False)
        model = program.module()
        sizes = (shape[0],) * 6
    else:
        model = torch.jit.load(source).eval()
        axes = {"x": {0: "N"}}
        torch.onnx.export(model, (torch.rand(shape),), target, input_names=["x"], dynamic_axes=axes, dynamo=False)
        sizes = (1, 1, 1, 1, 3, 3)
    for size in sizes:
        model(torch.rand(size, *shape[1:]))
"""

_TRACED = """
import json, sys, time
begun = time.perf_counter()
from convertkit import worker
from convertkit.__main__ import main
spent = {"before the worker": 0.0}
plain = worker.Worker._reply
def reply(self, process, number, expected):
    waited = time.perf_counter()
    try:
        return plain(self, process, number, expected)
    finally:
        title = f"waiting for {expected.method}"
        spent[title] = spent.get(title, 0.0) + time.perf_counter() - waited
worker.Worker._reply = reply
started = worker.Worker._started
def first(self):
    spent["before the worker"] = spent["before the worker"] or time.perf_counter() - begun
    return started(self)
worker.Worker._started = first
try:
    main()
finally:
    print(json.dumps(spent), file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of one run; ``stages`` says what they went into."""

    wall_s: float
    cpu_s: float
    stages: dict[str, float] = field(default_factory=dict)


def mobilenet(folder: Path) -> list[str]:
    """MobileNetV2 as traced archive and exported program."""
    code = (
        "import torch, zoo; model, example = zoo.build('mobilenetv2')\n"
        f"torch.jit.trace(model, example).save({str(folder / 'mobilenetv2.pt')!r})\n"
        f"torch.export.save(torch.export.export(model, example), {str(folder / 'mobilenetv2.pt2')!r})"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=Path(__file__).parent)
    return [str(folder / "mobilenetv2.pt"), str(folder / "mobilenetv2.pt2")]


def timed(command: list[str]) -> tuple[Round, str]:
    """One run of a command in a process of its own, and what it said on stderr."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **_ENVIRONMENT})
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Round(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), done.stderr


def bare(source: str, shape: str, folder: Path) -> Round:
    """The script that uses torch alone."""
    return timed([sys.executable, "-c", _BARE, source, shape, str(folder / "bare.onnx")])[0]


def ours(source: str, target: str, folder: Path) -> Round:
    """One export with all its proofs."""
    out = folder / "out"
    run, told = timed([sys.executable, "-c", _TRACED, "export", source, "--target", target, "-o", str(out), "--force"])
    steps = json.loads((out / "report.json").read_text())["steps"]
    torch = {f"torch: {name}": seconds for name, seconds in steps[0]["options"]["torch_seconds"].items()}
    steps_s = {f"step {step['stage']}": step["seconds"] for step in steps[1:]}
    return Round(run.wall_s, run.cpu_s, {**json.loads(told.strip().splitlines()[-1]), **torch, **steps_s})


def main() -> None:
    """Print overhead and its parts for each source and target."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", nargs="*")
    parser.add_argument("--shape", default="1,3,224,224", help="of the model's one input")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for source in args.sources or mobilenet(folder):
            for target in ("onnxruntime", "tflite"):
                pairs = [(bare(source, args.shape, folder), ours(source, target, folder)) for _ in range(args.rounds)]
                report(f"{Path(source).name} → {target}", pairs)


def report(title: str, pairs: list[tuple[Round, Round]]) -> None:
    """Print the fastest round of either side, and what ours went into."""
    torch = min((each for each, _ in pairs), key=lambda each: each.wall_s)
    export = min((each for _, each in pairs), key=lambda each: each.wall_s)
    print(
        f"{title}: export {export.wall_s:.2f} s (CPU {export.cpu_s:.2f}), bare torch {torch.wall_s:.2f} s "
        f"(CPU {torch.cpu_s:.2f}), overhead {export.wall_s - torch.wall_s:.2f} s"
    )
    print("   ", "  ".join(f"{stage} {seconds:.2f}" for stage, seconds in export.stages.items()), flush=True)


if __name__ == "__main__":
    main()
