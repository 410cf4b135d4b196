"""What ``convertkit export`` of a PyTorch model costs beyond torch: ``pytorch_overhead.py [--rounds 5] [SOURCE…]``.

Two definitions, side by side:

*Own time outside torch* is the wall clock of ``convertkit export SOURCE --target T`` less the time in which torch works
in any of its processes: importing torch and its operators for ONNX, reading the model, capturing and exporting it,
computing it.  ``torch_clock`` notes those pieces in every process, on one clock; pieces that overlap count once, and
what we do beside them costs nothing.  Choosing the road by running the model at two batch sizes is
torch's time here.

*Beyond a bare script* is the same wall clock less that of a script which does with torch
what any export must: import it, load the model, export it with the exporter that the accepted road used, and run the
model once on each of the proof's six feeds (four of batch 1, two of batch 3).  Everything else is ours: both processes'
start, all imports, the runs of torch that find the interface and choose the road (six), both runtimes' runs of every
step's proof, reports and manifests.

The threads of both sleep while they wait (``OMP_WAIT_POLICY``), so that on a busy machine neither is slowed down by its
own spinning, and our modules have their bytecode, as torch's have.

Both run in turns, each in a process of its own; the fastest round of each counts, because other programs only slow a
round down.  Then follows how our own process and its worker spent one more round.

Without SOURCE, MobileNetV2 of the zoo is saved to a temporary folder as a traced archive, as an exported program with a
free batch and as a state_dict, whose factory is the zoo's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bytecode import write_bytecode

_HERE = Path(__file__).resolve().parent
_ENVIRONMENT = {"CI": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(_HERE)}
_CLOCK = {"PYTHONPATH": os.pathsep.join([str(_HERE / "torch_clock"), str(_HERE)])}
_BARE = """
import sys, warnings; warnings.simplefilter("ignore")
import torch
kind, source, shape, target = sys.argv[1], sys.argv[2], [int(n) for n in sys.argv[3].split(",")], sys.argv[4]
def write(program):
    torch.onnx.export(program, (), target, dynamo=True, external_data=False, optimize=False, verbose=False)
    return program.module()
with torch.no_grad():
    if kind == "pt2":
        model = write(torch.export.load(source))
    elif kind == "state-dict":
        from zoo_mobile import mobilenetv2
        model = mobilenetv2().eval()
        model.load_state_dict(torch.load(source, weights_only=True))
        free = ({0: torch.export.Dim.AUTO},)
        write(torch.export.export(model, (torch.rand(2, *shape[1:]),), dynamic_shapes=free, strict=False))
    else:
        model = torch.jit.load(source).eval()
        axes = {"x": {0: "N"}}
        torch.onnx.export(model, (torch.rand(shape),), target, input_names=["x"], dynamic_axes=axes, dynamo=False)
    for size in (1, 1, 1, 1, 3, 3):
        model(torch.rand(size, *shape[1:]))
"""

_TRACED = """
import json, sys, time
begun = time.perf_counter()
from convertkit.workers import launching
launching.foresee(sys.argv[1:])
from convertkit import cli
from convertkit.workers import process as worker
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
    cli.main(sys.argv[1:])
finally:
    print(json.dumps(spent), file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of one run."""

    wall_s: float
    torch_s: float = 0.0
    """Seconds in which torch worked in at least one process, where its clock ran."""

    @property
    def own_s(self) -> float:
        return self.wall_s - self.torch_s


@dataclass(frozen=True, slots=True)
class Case:
    """A file and the flags that it needs; ``kind`` chooses what the bare script does with it."""

    kind: str
    source: Path
    flags: tuple[str, ...] = ()


def mobilenet(folder: Path) -> list[Case]:
    """MobileNetV2 as traced archive, as exported program with a free batch and as weights alone."""
    code = (
        "import sys, torch, zoo\n"
        "model, (x,) = zoo.build('mobilenetv2')\n"
        "torch.jit.trace(model, x).save(sys.argv[1] + '/mobilenetv2.pt')\n"
        "free = ({0: torch.export.Dim('N')},)\n"
        "program = torch.export.export(model, (torch.cat([x, x]),), dynamic_shapes=free)\n"
        "torch.export.save(program, sys.argv[1] + '/mobilenetv2.pt2')\n"
        "torch.save(model.state_dict(), sys.argv[1] + '/mobilenetv2.pth')"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(folder)], check=True, cwd=_HERE)
    weights = ("--model", "zoo_mobile:mobilenetv2", "--input", "x:N,3,224,224")
    return [
        Case("torchscript", folder / "mobilenetv2.pt"),
        Case("pt2", folder / "mobilenetv2.pt2"),
        Case("state-dict", folder / "mobilenetv2.pth", weights),
    ]


def timed(command: list[str], clock: Mapping[str, str] | None = None) -> tuple[Round, str]:
    """One run of a command in a process of its own, and what it said on stderr."""
    begun = time.monotonic()
    environment = {**os.environ, **_ENVIRONMENT, **(clock or {})}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return Round(time.monotonic() - begun), done.stderr


def clocked(command: list[str], folder: Path) -> Round:
    """One run of a command, and how long torch worked in it."""
    notes = Path(tempfile.mkdtemp(dir=folder))
    taken, _ = timed(command, {**_CLOCK, "TORCH_CLOCK": str(notes)})
    pieces = [line.split() for file in notes.iterdir() for line in file.read_text().splitlines()]
    return replace(taken, torch_s=covered((float(begun), float(ended)) for begun, ended, _ in pieces))


def covered(pieces: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    total, last = 0.0, float("-inf")
    for begun, ended in sorted(pieces):
        total += max(0.0, ended - max(begun, last))
        last = max(last, ended)
    return total


def bare(case: Case, shape: str, folder: Path) -> Round:
    """The script that uses torch alone."""
    return timed([sys.executable, "-c", _BARE, case.kind, str(case.source), shape, str(folder / "bare.onnx")])[0]


def arguments(case: Case, target: str, folder: Path) -> list[str]:
    """One export with all its proofs, as arguments of the command."""
    return ["export", str(case.source), *case.flags, "--target", target, "-o", str(folder / "out"), "--force"]


def ours(case: Case, target: str, folder: Path) -> Round:
    """The command itself."""
    return clocked([sys.executable, "-m", "convertkit", *arguments(case, target, folder)], folder)


def stages(case: Case, target: str, folder: Path) -> dict[str, float]:
    """What one more run spends its seconds on."""
    _, told = timed([sys.executable, "-c", _TRACED, *arguments(case, target, folder)])
    steps = json.loads((folder / "out" / "report.json").read_text())["steps"]
    torch = {f"torch: {name}": seconds for name, seconds in steps[0]["options"]["torch_seconds"].items()}
    steps_s = {f"step {step['stage']}": step["seconds"] for step in steps[1:]}
    return {**json.loads(told.strip().splitlines()[-1]), **torch, **steps_s}


def main() -> None:
    """Print overhead and its parts for each source and target."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", nargs="*")
    parser.add_argument("--shape", default="1,3,224,224", help="of the model's one input")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    write_bytecode()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = [Case("pt2" if each.endswith(".pt2") else "torchscript", Path(each)) for each in args.sources]
        for case in given or mobilenet(folder):
            for target in ("onnxruntime", "tflite"):
                pairs = [(bare(case, args.shape, folder), ours(case, target, folder)) for _ in range(args.rounds)]
                report(f"{case.source.name} → {target}", pairs, stages(case, target, folder))


def report(title: str, pairs: list[tuple[Round, Round]], spent: dict[str, float]) -> None:
    """Print the fastest round of either side, and what a run of ours goes into."""
    torch = min((each for each, _ in pairs), key=lambda each: each.wall_s)
    export = min((each for _, each in pairs), key=lambda each: each.wall_s)
    own = min((each for _, each in pairs), key=lambda each: each.own_s)
    print(
        f"{title}: own time outside torch {own.own_s:.2f} s (of {own.wall_s:.2f} s); "
        f"beyond a bare script {export.wall_s - torch.wall_s:.2f} s "
        f"(export {export.wall_s:.2f} s, bare torch {torch.wall_s:.2f} s)"
    )
    print("   ", "  ".join(f"{stage} {seconds:.2f}" for stage, seconds in spent.items()), flush=True)


if __name__ == "__main__":
    main()
