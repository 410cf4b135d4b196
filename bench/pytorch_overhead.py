"""What an export of a PyTorch model costs besides torch: ``pytorch_overhead.py [--rounds 5] [SOURCE…]``.

Without SOURCE, MobileNetV2 of the zoo is traced, exported and saved to a temporary folder.  Torch's own time is
what importing it, loading the model and the accepted export took (``torch_seconds`` in report.json); everything
else, all proofs included, is ours.  ``busy`` is how long the worker computed references and probed the interface for
us, ``ours`` the rest of the wall clock.  The fastest round counts: other programs only slow an export down.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_TRACED = """
import json, sys, time
from convertkit import worker
from convertkit.__main__ import main
spent = {}
plain = worker.Worker.begin
def begin(self, method, *args, **kwargs):
    reply = plain(self, method, *args, **kwargs)
    def timed():
        waited = time.perf_counter()
        try:
            return reply()
        finally:
            spent[method] = spent.get(method, 0.0) + time.perf_counter() - waited
    return timed
worker.Worker.begin = begin
try:
    main()
finally:
    print(json.dumps(spent), file=sys.stderr)
"""


def mobilenet(folder: Path) -> list[str]:
    """MobileNetV2 as traced archive and exported program."""
    code = (
        "import torch, zoo; model, example = zoo.build('mobilenetv2')\n"
        f"torch.jit.trace(model, example).save({str(folder / 'mobilenetv2.pt')!r})\n"
        f"torch.export.save(torch.export.export(model, example), {str(folder / 'mobilenetv2.pt2')!r})"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=Path(__file__).parent)
    return [str(folder / "mobilenetv2.pt"), str(folder / "mobilenetv2.pt2")]


def measured(source: str, folder: Path) -> dict[str, float]:
    """Seconds of one export in a process of its own."""
    command = [sys.executable, "-c", _TRACED, "export", source, "--target", "onnxruntime", "-o", str(folder / "out")]
    begun = time.perf_counter()
    done = subprocess.run(
        [*command, "--force"], check=True, capture_output=True, text=True, env={**os.environ, "CI": "1"}
    )
    total = time.perf_counter() - begun
    waited = json.loads(done.stderr.strip().splitlines()[-1])
    report = json.loads((folder / "out" / "report.json").read_text())
    torch = report["steps"][0]["options"]["torch_seconds"]
    busy = sum(seconds for method, seconds in waited.items() if method in ("describe", "reference", "run"))
    own = total - sum(torch.values())
    return {"total": total, **torch, "outside torch": own, "busy": busy, "ours": own - busy}


def main() -> None:
    """Print the fastest round of each source."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for source in args.sources or mobilenet(Path(name)):
            rounds = [measured(source, Path(name)) for _ in range(args.rounds)]
            best = min(rounds, key=lambda each: each["outside torch"])
            print(Path(source).name, "  ".join(f"{title} {seconds:.2f} s" for title, seconds in best.items()))


if __name__ == "__main__":
    main()
