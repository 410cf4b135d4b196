"""Cases of ONNX's node suite through SavedModels; ``python tests/targets/tf_serving/served_suite.py`` counts them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from convertkit.errors import ConvertKitError
from convertkit.workers.process import Worker

HERE = Path(__file__).resolve().parent
CONFORMANCE = HERE.parents[1] / "conformance"
sys.path.insert(0, str(CONFORMANCE))

import suite  # noqa: E402 - the folder of another script, which is no package


def run(cases: Sequence[suite.Eligible]) -> Iterator[tuple[suite.Eligible, dict[str, Any]]]:
    """Each case with what became of it, one after the other in a process with TensorFlow."""
    paths = (str(HERE), str(CONFORMANCE), os.environ.get("PYTHONPATH", ""))
    environment = {"PYTHONPATH": os.pathsep.join(paths), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    with (
        tempfile.TemporaryDirectory() as folder,
        Worker("saved_model_service:Conformance", timeout_s=120, env=environment, framework="tensorflow") as worker,
    ):
        tolerances = suite.write(tuple(cases), Path(folder))
        for case in cases:
            params = {"folder": folder, "name": case.name, **tolerances[case.name]}
            try:
                yield case, worker.call("case", params).value
            except ConvertKitError as error:
                yield case, {"status": "error", "reason": str(error), "codes": []}


def main() -> None:
    """Print every case that is not right, the operators that were met, and the totals."""
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    totals, codes = Counter[str](), set[str]()
    for case, found in run(suite.eligible()[::every]):
        totals[found["status"]] += 1
        codes |= set(found["codes"])
        if found["status"] != "right":
            print(f"{found['status']:8} {case.name}  {found['reason'][:300]}")
    print(dict(totals), len(codes))


if __name__ == "__main__":
    main()
