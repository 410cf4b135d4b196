"""Seconds and memory of a ViT-B/16 artifact of ``jax.export`` on its way to canonical ONNX, and where they go.

``jax_conversion.py [--artifact FILE] [--rounds 3]``: each round is a process of its own, the importing of JAX apart;
the round with the least CPU time counts.  Without an artifact one is made, 346 MB with random weights.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class Watch:
    """Wall and CPU seconds by step."""

    def __init__(self) -> None:
        self.steps: dict[str, tuple[float, float]] = {}

    def time(self, step: str, work: Callable[[], Any]) -> Any:
        """What ``work`` returns, its seconds noted."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        self.steps[step] = (round(time.perf_counter() - wall, 3), round(time.process_time() - cpu, 3))
        return result


def conversion(artifact: Path, target: Path) -> dict[str, Any]:
    """One conversion in this process, step by step as ``JaxService`` takes them."""
    watch = Watch()
    watch.time("import jax", lambda: __import__("convertkit.converters.jax.service"))
    watch.time("import the optimizer", lambda: __import__("onnxscript.optimizer"))
    from convertkit.converters.jax.service import JaxService

    service = JaxService()
    opened = watch.time("open", lambda: service.open({"source": str(artifact), "kind": "jax-export"}, {}))
    assert opened.value["inputs"]
    request = {"path": str(target), "sizes": {}, "made_by": "bench"}
    watch.time("convert", lambda: service.convert(request, {}))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"steps": watch.steps, "peak_rss": peak, "bytes": target.stat().st_size}


def least(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The round with the least CPU time in all."""
    return min(records, key=lambda record: sum(cpu for _, cpu in record["steps"].values()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", action="store_true", help="one round, in this process, as JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.once:
            print(json.dumps(conversion(args.artifact, folder / "model.onnx")))
            return 0
        artifact = args.artifact or folder / "vit_b.jax"
        if args.artifact is None:
            make = (
                "import jax_models as m, numpy; data = m.exported(m.Vit(m.VIT_B), numpy.zeros((1, 224, 224, 3), 'f4'))"
            )
            write = f"import pathlib; pathlib.Path({str(artifact)!r}).write_bytes(data)"
            subprocess.run([sys.executable, "-c", f"{make}\n{write}"], check=True, cwd=HERE)
        command = [sys.executable, str(HERE / "jax_conversion.py"), "--once", "--artifact", str(artifact)]
        rounds = [json.loads(subprocess.check_output(command)) for _ in range(args.rounds)]
    best = least(rounds)
    for step, (wall, cpu) in best["steps"].items():
        print(f"{step:22} {wall:6.2f} s wall {cpu:6.2f} s CPU")
    own = [best["steps"][step] for step in ("open", "convert")]
    print(f"{'conversion':22} {sum(w for w, _ in own):6.2f} s wall {sum(c for _, c in own):6.2f} s CPU")
    print(f"peak RSS {best['peak_rss'] / 1e6:.0f} MB for a model of {best['bytes'] / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
