"""Every gate: where it passes, where it fails, and where it cannot tell."""

import pytest

from convertkit.release.gates import ESTIMATE_GATE, GATES, Evidence, bytes_of, judged

REPORT = {
    "evaluation": {"metric": "top1", "before": 98.0, "after": 97.0, "drop": 1.0, "passed": True},
    "quality": {"agreement": 0.98, "snr_db": 31.5},
    "latency": {"artifact_ms": 2.0, "float32_ms": 4.0, "speedup": 2.0, "spread": [1.6, 2.5]},
    "estimates": {
        "devices": [
            {"device": "phone", "ms": 3.0, "float32_ms": 6.0},
            {"device": "x86", "ms": 2.0, "float32_ms": 2.0},
        ],
        "lacking": "",
    },
    "operators": [{"name": "a", "kind": "Conv"}, {"name": "b", "kind": "Transpose"}],
    "data": {"evaluation": {"sha256": "1"}},
}
OLD = {**REPORT, "evaluation": {**REPORT["evaluation"], "after": 97.5}}
EMPTY = {
    "evaluation": None,
    "quality": None,
    "latency": None,
    "estimates": None,
    "operators": [],
    "data": {"evaluation": None},
}


def verdict(gate, limit, report=REPORT, baseline=OLD):
    whole = report is REPORT
    ratio, memory = ((1.05, 1.1, 1.2), 5_000_000) if whole else (None, None)
    before = {"phone": 2.0, "x86": 4.0}
    evidence = Evidence(report, 2_000_000, baseline, 1_000_000, ratio, memory_bytes=memory, baseline_estimates=before)
    (found,) = judged({gate: limit}, evidence)
    return found


@pytest.mark.parametrize(
    ("gate", "passes", "fails"),
    [
        ("agreement", 0.98, 0.99),
        ("snr_db", 31, 32),
        ("size", "2MB", "1.9MB"),
        ("peak_memory", "5MB", "4.9MB"),
        ("latency_ms", 2, 1.9),
        ("latency_ratio", 0.45, 0.39),
        ("latency_to_baseline", 1.06, 1.04),
        ("latency_estimate", {"phone": 0.5, "x86": 1}, {"phone": 0.49, "x86": 1}),
        ("latency_estimate", {"x86": 1}, {"phone": 0.6, "x86": 0.99}),
        ("latency_estimate_to_baseline", {"phone": 1.5, "x86": 0.5}, {"phone": 1.5, "x86": 0.49}),
        ("size_to_baseline", 2, 1.9),
        ("drop_to_baseline", 0.5, 0.4),
        ("operators", ["CONV", "Transpose"], ["Conv"]),
        ("transposes", 1, 0),
    ],
)
def test_a_limit_holds_on_both_sides(gate, passes, fails):
    assert verdict(gate, passes).passed is True
    broken = verdict(gate, fails)
    assert broken.passed is False
    assert broken.sentence.startswith(f"{gate}: ")


def test_the_drop_is_what_the_export_has_judged():
    assert verdict("max_drop", 1.0).passed is True
    failed = {**REPORT, "evaluation": {**REPORT["evaluation"], "passed": False}}
    assert verdict("max_drop", 0.5, failed).passed is False


@pytest.mark.parametrize("gate", [name for name in GATES if name not in ("size", "size_to_baseline")])
def test_what_cannot_be_judged_does_not_pass(gate):
    limit = {"operators": ["Conv"], "latency_estimate": {"phone": 1}, ESTIMATE_GATE: {"phone": 1}}.get(gate, 1)
    found = verdict(gate, limit, EMPTY)
    assert found.passed is None
    assert "cannot be judged" in found.sentence


@pytest.mark.parametrize("gate", [name for name in GATES if name.endswith("baseline")])
def test_without_a_baseline_its_gates_cannot_tell(gate):
    found = verdict(gate, 1, baseline=None)
    assert found.passed is None
    assert "names no baseline" in found.sentence


def test_other_samples_than_the_baseline_s_do_not_compare():
    other = {**OLD, "data": {"evaluation": {"sha256": "2"}}}
    assert verdict("drop_to_baseline", 1, baseline=other).passed is None


@pytest.mark.parametrize(
    ("limit", "changes", "why"),
    [
        ({"phnoe": 1}, {}, "no device is called phnoe, did you mean 'phone'; there are phone, x86"),
        ({"phone": 1}, {"devices": [], "lacking": "gate: no cost table knows WHILE"}, "no cost table knows WHILE"),
        ({"phone": 1}, {"devices": [{"device": "phone", "ms": 3.0, "float32_ms": None}]}, "no float32 form"),
    ],
)
def test_what_has_no_estimate_says_why(limit, changes, why):
    found = verdict("latency_estimate", limit, {**REPORT, "estimates": {**REPORT["estimates"], **changes}})
    assert found.passed is None
    assert why in found.sentence


def test_noise_does_not_trip_a_ratio():
    """The median is above the limit, and a quarter of the pairs is not."""
    report = {**REPORT, "latency": {**REPORT["latency"], "speedup": 0.95, "spread": [0.8, 1.1]}}
    assert verdict("latency_ratio", 1.0, report).passed is True


def test_sizes_in_words():
    assert [bytes_of(text) for text in ("1kB", "1.5 MiB", 12, "2gb")] == [1000, 1572864, 12, 2_000_000_000]
