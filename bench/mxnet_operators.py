"""MXNet's own results against ours: every operator of the tests' table, and nets of Gluon's zoo.

    python -m venv mx && mx/bin/pip install mxnet==1.9.1 "numpy<1.24"
    python bench/mxnet_operators.py --python mx/bin/python --json build/mxnet.jsonl > docs/measurements/mxnet.md

A row that the JSON file has is not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "converters" / "mxnet"))

from mxnet_files import CASES, Case, write_case  # noqa: E402

import convertkit  # noqa: E402
from convertkit.converters.mxnet.source import MxnetSource  # noqa: E402
from convertkit.recipe import ExportOptions, InputSpec  # noqa: E402

NETS = {
    "resnet18_v1": (2, 3, 64, 64),
    "resnet50_v2": (1, 3, 64, 64),
    "mobilenet1.0": (2, 3, 64, 64),
    "mobilenetv2_1.0": (2, 3, 64, 64),
    "squeezenet1.0": (1, 3, 64, 64),
    "densenet121": (1, 3, 224, 224),
    "inceptionv3": (1, 3, 299, 299),
    "vgg11_bn": (1, 3, 32, 32),
    "lstm": (7, 2, 4),
    "gru": (2, 7, 4),
    "text": (2, 9),
}
_IN_MXNET = """
import sys, numpy as np, mxnet as mx
block = mx.gluon.SymbolBlock.imports
for folder in sys.argv[1:]:
    feed = dict(np.load(folder + "/feed.npz"))
    net = block(folder + "/m-symbol.json", list(feed), folder + "/m-0000.params")
    found = net(*[mx.nd.array(value) for value in feed.values()])
    found = found if isinstance(found, (list, tuple)) else [found]
    np.savez(folder + "/expected.npz", *[each.asnumpy() for each in found])
"""
_MAKE = """
import sys, numpy as np, mxnet as mx
from mxnet.gluon import nn, rnn
from mxnet.gluon.model_zoo import vision
folder, name, shape = sys.argv[1], sys.argv[2], eval(sys.argv[3])
mx.random.seed(7); np.random.seed(7)
x = mx.nd.array(np.random.standard_normal(shape))
if name == "lstm":
    net = nn.HybridSequential()
    net.add(rnn.LSTM(16, num_layers=2, bidirectional=True), nn.LayerNorm(), nn.Dense(5, flatten=False))
elif name == "gru":
    net = nn.HybridSequential(); net.add(rnn.GRU(16, layout="NTC"), nn.Dense(5))
elif name == "text":
    net = nn.HybridSequential()
    net.add(nn.Embedding(50, 12), nn.HybridLambda(lambda F, x: F.transpose(x, axes=(0, 2, 1))))
    net.add(nn.Conv1D(8, 3, activation="relu"), nn.GlobalMaxPool1D(), nn.Dropout(0.5), nn.Dense(4))
    x = mx.nd.array(np.random.randint(0, 50, shape))
else:
    net = vision.get_model(name, pretrained=False)
net.initialize(mx.init.Xavier(magnitude=2.5)); net.hybridize()
with mx.autograd.record():
    net(x)
net(x); net.export(folder + "/m", 0)
np.savez(folder + "/feed.npz", data=x.asnumpy())
"""


def in_mxnet(python: str, code: str, *words: str) -> None:
    subprocess.run([python, "-c", code, *words], check=True, capture_output=True)


def difference(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    assert [each.shape for each in found] == [each.shape for each in expected]
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in zip(found, expected, strict=True))


def of_cases(python: str, cases: list[Case], place: Path) -> Iterator[dict[str, object]]:
    """All in one process of MXNet, which takes seconds to begin."""
    written = [(case, place / str(number), *write_case(case, place / str(number))) for number, case in enumerate(cases)]
    for _, folder, _, feed in written:
        np.savez(folder / "feed.npz", **feed)
    if written:
        in_mxnet(python, _IN_MXNET, *(str(folder) for _, folder, _, _ in written))
    for case, folder, path, feed in written:
        expected = list(np.load(folder / "expected.npz").values())
        inputs = tuple(InputSpec(name, value.shape, "float32") for name, value in feed.items())
        found = MxnetSource(path, ExportOptions(str(path), inputs=inputs)).runner().run(feed)
        yield {"case": case.title, "evaluator": difference(list(found.values()), expected)}


def of_net(python: str, name: str, folder: Path) -> dict[str, object]:
    folder.mkdir(parents=True)
    shape = NETS[name]
    in_mxnet(python, _MAKE, str(folder), name, repr(shape))
    in_mxnet(python, _IN_MXNET, str(folder))
    expected = list(np.load(folder / "expected.npz").values())
    feed = dict(np.load(folder / "feed.npz"))
    sizes = ",".join(map(str, shape)) + (":float32[0,50)" if name == "text" else "")
    row: dict[str, object] = {"net": name, "input": "×".join(map(str, shape))}
    for target in ("onnxruntime", "tflite"):
        result = convertkit.export(folder / "m-symbol.json", target, input=f"data:{sizes}", output=folder / target)
        row[target] = difference(list(result.run(feed).values()), expected)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter that has MXNet 1.9.1")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", help="'operators', or the name of a net")
    asked = parser.parse_args()
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    lines = asked.json.read_text().splitlines() if asked.json.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {str(row.get("case") or row.get("net")) for row in rows}
    with tempfile.TemporaryDirectory() as place, asked.json.open("a") as stream:
        of_nets = (
            of_net(asked.python, name, Path(place) / name)
            for name in NETS
            if name not in done and asked.only in (None, name)
        )
        left = [case for case in CASES if case.title not in done and asked.only in (None, "operators")]
        for row in chain(of_cases(asked.python, left, Path(place)), of_nets):
            rows.append(row)
            stream.write(json.dumps(row) + "\n")
            stream.flush()
    print(page(rows))


def page(rows: list[dict[str, object]]) -> str:
    cases = [row for row in rows if "case" in row]
    nets = [row for row in rows if "net" in row]
    parts = [
        "# MXNet: what its operators compute, and what ours do\n",
        "Generated by `bench/mxnet_operators.py` with MXNet 1.9.1 on a CPU, in float32. Differences are the largest\n"
        "one, relative to the largest value of the output.\n",
        f"## Nets of Gluon, the delivered file against MXNet\n\n{len(nets)} nets with random weights.\n",
        "| net | input | ONNX Runtime | LiteRT |\n|---|---|---|---|",
        *(f"| {row['net']} | {row['input']} | {row['onnxruntime']:.1e} | {row['tflite']:.1e} |" for row in nets),
        f"\n## Operators, our float64 evaluator against MXNet\n\n{len(cases)} forms.\n",
        "| operator | difference |\n|---|---|",
        *(f"| {row['case']} | {row['evaluator']:.1e} |" for row in cases),
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    main()
