"""Weights that are limited as OpenVINO's kernels pair them are summed exactly on processors without VNNI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import convertkit
from convertkit.onnx.byte_sums import MOST, greatest_sums

PROCESSORS = ("SSE41", "AVX2", "AVX512_CORE")
EXACT = {"one channel", "one channel, a line", "groups of one channel", "transposed groups"}
"""Whose greatest weights are summed exactly on some of these processors."""
DEPTHWISE = "depthwise"
"""Begins the name of forms that are delivered with weights of full range."""


@pytest.mark.parametrize("processor", PROCESSORS)
def test_limited_weights_are_summed_exactly(processor: str) -> None:
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": processor}
    command = [sys.executable, "-m", "tests.targets.openvino.cut_sums"]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    found = json.loads(printed)
    assert {name: made for name, (made, _) in found.items() if made > 1} == {}
    cut = {name for name, (_, full) in found.items() if full > 1}
    free = {name for name in found if name.startswith(DEPTHWISE)}
    assert len(free) == 3
    assert not free & cut
    assert found.keys() - cut - free <= EXACT, "power: weights of full range are cut"


def test_what_is_delivered_is_limited_but_for_vnni(tmp_path: Path) -> None:
    calib = np.load("fixtures/digits/calib.npz")["input"]
    sums = {}
    for cpu in ("any", "vnni"):
        options = {"openvino": {"cpu": cpu}}
        made = convertkit.export(
            "fixtures/digits/model.pt",
            "openvino",
            int8=True,
            calib=calib,
            output=tmp_path / cpu,
            target_options=options,
        )
        sums[cpu] = max(map(_greatest, _weights(made.path / "model.xml")))
    assert sums["any"] <= MOST < sums["vnni"]


def _weights(path: Path) -> list[np.ndarray]:
    import openvino

    stored = [each.data for each in openvino.Core().read_model(path).get_ops() if each.get_type_name() == "Constant"]
    return [each for each in stored if each.dtype == np.int8 and each.ndim in (2, 4)]


def _greatest(weight: np.ndarray) -> int:
    flat = weight.reshape(len(weight), -1).astype(int)
    return int(greatest_sums(flat, int(np.prod(weight.shape[2:])), "in a tap").max())
