"""The report page: complete, self-contained, and safe with hostile names."""

import copy
import re

import jsonschema
import pytest

from convertkit.report import charts
from convertkit.report.html import figure, percent, render, seconds, size
from convertkit.report.schema import schema


def tensor(name, **changes):
    return {
        "name": name,
        "shape": [1, 10],
        "dtype": "float32",
        "max_abs": 3e-7,
        "max_rel": 2e-6,
        "relative": 4e-8,
        "mean_abs": 1e-8,
        "cosine": 1.0,
        "snr_db": 140.2,
        "lsb": None,
        "lsb_share": None,
        "worst_index": [0, 3],
        "worst_feed": 2,
        "mismatch": "",
        "power": "ok",
        "histogram": {"edges": [-1.0, 0.0, 1.0], "counts": [5, 7]},
        **changes,
    }


def parity(*tensors, **changes):
    tolerance = {"reason": "float32", "relative": 1e-5, "lsb": None, "lsb_share": 0.99, "snr_db": None, "lossy": False}
    return {
        "passed": True,
        "before": "torchscript (source)",
        "after": "onnx (pytorch)",
        "feeds": 8,
        "tolerance": {**tolerance, **changes.pop("tolerance", {})},
        "failures": [],
        "warnings": [],
        "unproven": "",
        "waived": False,
        "edges": ["zeros"],
        "explained": [],
        "tensors": list(tensors),
        **changes,
    }


def step(stage, artifact_format, **changes):
    return {
        "stage": stage,
        "version": "1",
        "options": {"opset": 18},
        "notes": [],
        "seconds": 0.25,
        "parity_seconds": 0.1,
        "peak_rss_bytes": 200_000_000,
        "artifact": {
            "path": "model." + artifact_format,
            "format": artifact_format,
            "sha256": "ab" * 32,
            "bytes": 1500,
            "runtime": "LiteRT 2.3",
        },
        "parity": {"versus_previous": parity(tensor("logits")), "versus_source": parity(tensor("logits"))},
        **changes,
    }


def port(name, *shape):
    return {
        "name": name,
        "dtype": "int8",
        "shape": ["N", *shape],
        "dynamic": ["N"],
        "example": [1, *shape],
        "source_shape": ["N", *shape[-1:], *shape[:-1]],
        "perm": [0, 2, 3, 1] if len(shape) == 3 else [],
        "layout": "NHWC where the source has NCHW" if len(shape) == 3 else "",
        "normalization": {"input": name, "mean": [127.5], "std": [127.5]},
        "quantization": {"scale": 0.0078125, "zero_point": -1},
        "is_state": False, "labels": [], "sentence": "int8 N×8×8×1",
    }  # fmt: skip


def device_time(device, ms, *, shown, error=None):
    layers = [ms / 25] * 20 + [ms / 5] if shown else []
    return {"device": device, "ms": ms, "float32_ms": 2 * ms, "error": error, "shown": shown, "layers_ms": layers}


ERROR = {"from_ms": 0, "to_ms": 1, "median": 0.1, "worst": 0.4, "beside": "emulation"}
OPERATORS = [
    {"name": f"conv_{i}", "kind": "CONV_2D", "precision": "int8", "weight_bytes": 100 + i, "macs": 5000 + i}
    for i in range(20)
] + [{"name": "softmax", "kind": "SOFTMAX", "precision": "float32", "weight_bytes": 0, "macs": 0}]
TRANSPOSE = {"tensor": "boxes", "shape": [1, -1, 4], "node": "cat", "why": "output boxes keeps its layout"}


def diagnosis() -> dict:
    """What the quantize step says of its tensors; one of them was never seen by a sample."""
    made = {
        "method": "auto",
        "score": {"snr_db": 57.0, "expected_drop": 0.1},
        "held_out": {
            "samples": 50,
            "seen": False,
            "snr_db": 51.5,
            "snr_db_median": 52.0,
            "snr_db_p5": 40.25,
            "agreement": 0.98,
        },
        "tensors": [
            {
                "name": f"relu_{i}",
                "node": "Conv",
                "location": "model.py:12",
                "range": [0.0, 6.0],
                "quantized_range": [0.0, 6.0],
                "scale": 0.02,
                "zero_point": -128,
                "snr_db": 30.0 - i,
                "histogram": [4, 0, 2, 1],
            }
            for i in range(14)
        ],
        "curve": [
            {"float_nodes": i, "cost_ns": 9000.0 + 10 * i, "snr_db": 54.0 + i, "expected_drop": 0.1} for i in range(5)
        ],
        "float": {"softmax_1": "integers are slower here"},
    }
    made["worst"] = [f"relu_{i}" for i in range(13, 3, -1)]
    made["tensors"].append({**made["tensors"][0], "name": "unseen", "range": None, "snr_db": None})
    return made


@pytest.fixture
def report():
    quantized = {"tolerance": {"lossy": True}}
    both = {
        "versus_previous": parity(tensor("logits", snr_db=34.0), **quantized),
        "versus_source": parity(tensor("logits", snr_db=34.0), **quantized),
    }
    return {
        "schema": 1,
        "convertkit": "0.1.0",
        "source": {
            "path": "model.pt",
            "format": "torchscript",
            "sha256": "cd" * 32,
            "bytes": 4000,
            "runtime": "PyTorch 2.13",
        },
        "target": "tflite",
        "precision": "int8",
        "runs_here": True,
        "command": "convertkit export model.pt --target tflite --int8 --calib calib.npz",
        "seed": 0,
        "data": {"calibration": {"description": "calib.npz", "samples": 200, "sha256": "ef" * 32}, "evaluation": None},
        "interface": {"inputs": [port("input", 8, 8, 1)], "outputs": [port("logits", 10)]},
        "operators": OPERATORS,
        "times": [],
        "depth": [{"name": f"conv_{i}", "kind": "Conv", "snr_db": 50.0 - 3 * i} for i in range(12)],
        "providers": [],
        "steps": [
            step("pytorch", "onnx"),
            step("quantize", "onnx", parity=both, diagnosis=diagnosis()),
            step("tflite", "tflite", diagnosis={"transposes": [TRANSPOSE]}),
        ],
        "effective": {
            "requested": "int8",
            "effective": "mixed",
            "integer_macs_share": 0.71,
            "sentence": "int8 became mixed: 71 % of the multiply-adds in integers, the rest float32",
        },
        "quality": {
            "samples": 50,
            "origin": "held-out",
            "output": "logits",
            "snr_db": 34.0,
            "median_db": 36.0,
            "low_db": 30.5,
            "agreement": 0.99,
            "weak": False,
            "where": "50 held-out samples of --calib",
        },
        "latency": {
            "artifact_ms": 0.21,
            "float32_ms": 0.1,
            "rounds": 40,
            "speedup": 0.48,
            "spread": [0.4, 0.5],
            "slower": True,
            "verdict": "2.1 × SLOWER than float32 here",
        },
        "estimates": {
            "devices": [
                device_time("x86", 0.015625, shown=False),
                device_time("arm64-a76", 0.03125, error=ERROR, shown=True),
            ],
            "lacking": "",
        },
        "evaluation": {
            "metric": "top1",
            "samples": 360,
            "before": 99.5,
            "after": 99.25,
            "drop": 0.25,
            "max_drop": 0.5,
            "passed": True,
        },
        "environment": {"python": "3.11.7", "cores": 2, "packages": {"numpy": "2.4.6"}},
        "notes": ["dynamic batch assumed"],
        "failure": "",
        "passed": True,
    }


def test_example_fulfils_the_schema(report):
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(report, schema())


def test_page_tells_everything(report):
    page = render(report)
    for told in ("model.pt → tflite, int8", "99.5 → 99.25", "34 dB", "dynamic batch assumed", "3.11.7", "2.4.6"):
        assert told in page
    assert page.count('<li class="box') == 4
    assert page.count('class="bar"') >= 6
    assert "relu_13" in page
    assert page.count("<figcaption>values of relu_") == 10, "only the ten worst tensors are drawn"
    assert "all 15 quantized tensors" in page
    assert "relu_3<" in page
    assert "<polyline" in page
    assert "integers are slower here" in page
    assert "model.py:12" in page
    assert "output boxes keeps its layout" in page
    assert "What tflite did" not in page, "transposes have a section of their own"


def test_page_tells_what_was_decided(report):
    found = report["steps"][1]["diagnosis"]
    found["layers"] = [{"name": "conv_7", "way": "descended", "snr_db_before": 20.5, "snr_db_after": 31.25}]
    found["bias_corrected"] = ["conv_7", "conv_8"]
    found["tensors"][0]["method"] = "percentile"
    found["groups"] = [{"layers": ["stem", "head"], "channels_before": 16, "channels_after": 12}]
    page = render(report)
    told = ("percentile for 1", "50 held-out samples: 51.5 dB", "98.00 %", "biases corrected: 2", "20.5", "31.25")
    for each in (*told, "stem, head", ">12<"):
        assert each in page


def test_clipped_ends_are_marked(report):
    assert 'class="mark"' not in render(report), "everything is covered"
    for tensor in report["steps"][1]["diagnosis"]["tensors"]:
        tensor["quantized_range"] = [-1.0, 4.5]
    page = render(report)
    assert page.count('class="mark" x1="225.0"') == 10, "at three quarters of 300, once for each of the worst"


def test_page_needs_no_network(report):
    page = render(report)
    assert not re.search(r"https?:|//[a-z]|<script|<link|<img|@import|url\(", page)
    assert not re.search(r"\bsrc=|\bhref=(?!\"#)", page)


def hostile(value, text):
    """Every string of the report replaced by ``text``, keys of free objects included."""
    if isinstance(value, dict):
        free = {"packages", "options"}
        return {
            key: {text: text} if key in free else hostile(item, text) if key not in ("schema", "power") else item
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [hostile(item, text) for item in value]
    return text if isinstance(value, str) else value


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "'-alert(1)-'",
        "{{ 7 * 7 }}",
        "</style><svg/onload=x>",
    ],
)
def test_hostile_names_are_text(report, text):
    page = render(hostile(report, text))
    assert "<script" not in page
    assert "<img" not in page
    assert "<svg/onload" not in page
    assert "49" not in re.findall(r"<h1>.*</h1>", page)[0]
    assert page.count("<style>") == page.count("</style>") == 1


def test_failure_without_steps(report):
    report.update(steps=[], evaluation=None, passed=False, failure="verification failed after tflite: output <logits>")
    jsonschema.validate(report, schema())
    page = render(report)
    assert "verification failed after tflite: output &lt;logits&gt;" in page
    assert "badge bad" in page


def test_failed_step_is_marked_and_named(report):
    bad = parity(tensor("logits", power="constant"), passed=False, unproven='output "logits" is constant')
    report["steps"][2]["parity"]["versus_previous"] = bad
    page = render(report)
    assert "✗" in page
    assert "tflite: output &#34;logits&#34; is constant" in page


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_numbers_that_json_cannot_write(report, value):
    odd = copy.deepcopy(report)
    for name in ("max_abs", "relative", "snr_db", "cosine"):
        odd["steps"][0]["parity"]["versus_source"]["tensors"][0][name] = value
    odd["steps"][1]["diagnosis"]["curve"][0]["snr_db"] = value
    jsonschema.validate(odd, schema())
    assert render(odd)


def test_headline_is_the_number_that_decides():
    assert charts.headline(parity(tensor("y"))) == "4.0e−08"
    assert charts.headline(parity(tensor("y", relative=0.0))) == "equal"
    assert charts.headline(parity(tensor("y", lsb=1.0), tolerance={"lsb": 1.0})) == "1 LSB"
    assert charts.headline(parity(tensor("y", snr_db="inf"), tolerance={"lossy": True})) == "equal"
    assert charts.headline(parity()) == "nothing to compare"


def test_bars_fill_the_plot():
    plot = charts.bars({"edges": [-2.0, 0.0, 2.0], "counts": [0, 9]})
    assert [bar.height for bar in plot.bars] == [0.0, plot.height]
    assert [bar.share for bar in plot.bars] == [0.0, 1.0]
    assert charts.bars({"edges": [], "counts": []}) is None
    assert charts.bars({"edges": [-1.0, 1.0], "counts": [0]}) is None


def candidate(float_nodes, cost_ns, snr_db):
    return {"float_nodes": float_nodes, "cost_ns": cost_ns, "snr_db": snr_db}


def test_curve_needs_two_finite_points():
    assert charts.curve({}) is None
    assert charts.curve({"curve": [candidate(0, 1.0, 1.0), candidate(1, 2.0, "inf")]}) is None
    flat = charts.curve({"curve": [candidate(0, 1.0, 1.0), candidate(1, 2.0, 1.0)], "score": {"snr_db": 1.0}})
    assert flat.line == f"0.0,{flat.height / 2:.1f} {flat.width:.1f},{flat.height / 2:.1f}"


def test_chosen_candidate_is_the_one_that_was_kept(report):
    curve = charts.curve(report["steps"][1]["diagnosis"])
    assert [point.chosen for point in curve.points] == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (size(999), "999 B"),
        (size(1000), "1.0 KB"),
        (size(478_669), "479 KB"),
        (size(5_250_000_000), "5.25 GB"),
        (seconds(0.0421), "42 ms"),
        (seconds(3.21), "3.2 s"),
        (figure(None), "–"),
        (figure("inf"), "∞"),
        (figure(-0.5), "−0.5"),
        (figure(1.2345e-7), "1.23e−07"),
        (figure(0.9999987, 6), "0.999999"),
        (percent(0.995), "99.50 %"),
    ],
)
def test_figures_for_people(made, text):
    assert made == text


def test_page_tells_the_interface_and_code_to_copy(report):
    page = render(report)
    for told in (
        "NHWC where the source has NCHW",
        "(pixel − 127.5) / 127.5",
        "real = (integer − -1) × 0.0078125",
        "<summary>Kotlin</summary>",
        "<summary>C++</summary>",
        "from ai_edge_litert.interpreter import Interpreter",
    ):
        assert told in page, told


def test_page_tells_where_size_work_and_noise_lie(report):
    page = render(report)
    assert "<caption>Weights by layer</caption>" in page
    assert "8 more" in page, "twelve of twenty layers have a row of their own"
    assert page.count('<circle class="dot') == 12 + 5, "noise along the model, and the trade-off"
    assert page.count('<circle class="dot low"') == 1, "below 20 dB"
    assert "Time by node" not in page
    report["times"] = [{"name": "conv_0", "kind": "Conv", "ms": 0.25}]
    assert "0.25 ms" in render(report)


def test_page_tells_how_it_was_made(report):
    page = render(report)
    for told in (
        "--target tflite --int8 --calib calib.npz",
        "200 samples of calib.npz",
        "ef" * 32,
        "ab" * 32,
        "cd" * 32,
    ):
        assert told in page
    assert "<summary>Glossary</summary>" in page


def test_runtimes_are_named(report):
    assert "run by PyTorch 2.13" in render(report)
    report["steps"][-1]["artifact"]["runtime"] = "ONNX Runtime 1.31"
    report.update(target="tensorrt", runs_here=False)
    assert "ONNX Runtime 1.31, the source in PyTorch 2.13; not by tensorrt, which does not run here" in render(report)


def test_a_simulator_is_named_as_one(report):
    report.update(target="tensorrt", runs_here=False, execution="simulated")
    assert "the source in PyTorch 2.13; simulated, not run on the device" in render(report)


def test_a_compilers_estimate_names_it_and_has_no_single_operators(report):
    told = device_time("npu-128", 0.25, shown=True) | {"by": "Compiler 5.2", "cycles": 118544, "layers_ms": []}
    report["estimates"]["devices"] = [told | {"memory_bytes": {"SRAM": 6144}}]
    jsonschema.validate(report, schema())
    page = render(report)
    assert "Compiler 5.2&#39;s estimate, not measured, 118,544 cycles, SRAM 6,144 bytes" in page
    assert "by cost tables" not in page


def test_what_is_weak_is_not_green(report):
    assert '<div class="tile-value tick">34 dB</div>' in render(report)
    report["quality"].update(snr_db=15.2, weak=True)
    assert '<div class="tile-value amber">15.2 dB</div>' in render(report)
    report["quality"] = None
    warned = report["steps"][-1]["parity"]["versus_source"]
    warned["warnings"] = ['output "logits" keeps only 15.2 dB of signal over noise']
    assert '<div class="tile-value amber">4.0e−08</div>' in render(report)


def test_slower_is_told_as_a_factor_and_in_colour(report):
    assert '<div class="cross">float32 0.1 ms: 2.1 × SLOWER than float32 here</div>' in render(report)


def test_a_failed_page_has_the_ways_out_and_says_things_once(report):
    sentence = 'output "logits" max_abs 3, relative 1e+00'
    report["steps"][2]["parity"]["versus_previous"].update(failures=[sentence], passed=False)
    report.update(passed=False, interface=None, operators=[], estimates=None, depth=[], quality=None, effective=None)
    report["failure"] = (
        f"verification failed after tflite: {sentence}\n  from  a.py:3\n  try   --calib DATA\n  try   --static N=1"
    )
    page = render(report)
    assert "<li>--calib DATA</li><li>--static N=1</li>" in page
    assert page.count("max_abs 3") == 1
    assert "from  a.py:3" in page


def test_tables_can_be_heard_and_stacked(report):
    page = render(report)
    assert page.count("<table") == page.count("<caption>")
    assert "<th>" not in page
    heads = re.findall(r"<th [^>]*>", page)
    assert heads
    assert all('scope="' in head for head in heads)
    cells = re.findall(r"<td[^>]*>", page)
    assert [cell for cell in cells if "data-label" not in cell] == ["<td>"] * (3 * (12 + 1)), "bars say it themselves"


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_stands_out(root, mode):
    """WCAG 2.2, success criterion 1.4.3: at least 4.5 for text; 1.4.11: at least 3 for graphics."""
    css = (root / "convertkit/report/page.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", light if mode == "light" else dark))

    def contrast(one, other):
        low, high = sorted((luminance(colours[one]), luminance(colours[other])))
        return (high + 0.05) / (low + 0.05)

    texts = [(ink, ground) for ink in ("ink", "soft", "good", "bad", "warn") for ground in ("paper", "ground")]
    texts += [("warn", "warn-ground"), ("badge-ink", "badge-good"), ("badge-ink", "badge-bad"), ("ink", "code")]
    assert {pair: round(contrast(*pair), 2) for pair in texts if contrast(*pair) < 4.5} == {}
    assert min(contrast("accent", "paper"), contrast("bad", "paper")) >= 3
