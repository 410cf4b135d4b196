"""``convertkit verify`` of a delivered package gives its golden vectors to it again, as a device does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from convertkit.errors import SourceError
from convertkit.targets.coreml.options import TARGETS, Choices
from convertkit.targets.coreml.replay import replay
from convertkit.workers.process import Worker
from tests.targets.coreml.apple_packages import Compiled, compile_text, numbers

LABELS = ("ant", "bee", "cat", "dog", "eel")
NET = """test (float[1,3,6,8] x) => (float[1,5] p) {
    c = Conv<pads=[1,1,1,1]>(x, w) a = GlobalAveragePool(c) p = Flatten(a)
}"""


@pytest.fixture(scope="module")
def classifier(worker: Worker, tmp_path_factory) -> Compiled:
    choices = replace(Choices(TARGETS["iOS17"]), images=("x=bgr,scale:0.5/0.25/0.125,bias:1/-2/3",), labels=LABELS)
    return compile_text(worker, NET, tmp_path_factory.mktemp("golden") / "c", choices, w=numbers(5, 3, 3, 3))


def test_images_and_labels_are_given_as_a_device_gives_them(classifier: Compiled, tmp_path: Path):
    found = replay(classifier.artifact.path)
    assert (found.vectors, found.wrong) == (3, ())
    folder = classifier.artifact.path.parent
    golden = json.loads((folder / "golden.json").read_text())
    vector = golden["vectors"][1]
    vector["outputs"]["classLabel"]["text"] = "fly"
    vector["inputs"]["x"]["data"] = golden["vectors"][0]["inputs"]["x"]["data"]
    (tmp_path / "model.mlpackage").symlink_to(classifier.artifact.path)
    (tmp_path / "golden.json").write_text(json.dumps(golden))
    wrong = replay(tmp_path / "model.mlpackage").wrong
    assert any("vector 2: output classLabel is" in each and "golden is 'fly'" in each for each in wrong)
    assert any("vector 2: output classLabel_probs differs by" in each for each in wrong)
    assert not any("vector 1:" in each or "vector 3:" in each for each in wrong)


@pytest.mark.parametrize("content", ['{"vectors": [{}], "relative": 1}', "[]", '{"relative": 1}'])
def test_what_does_not_hold_golden_vectors(content, classifier: Compiled, tmp_path: Path):
    (tmp_path / "model.mlpackage").symlink_to(classifier.artifact.path)
    (tmp_path / "golden.json").write_text(content)
    with pytest.raises(SourceError, match=r"golden\.json"):
        replay(tmp_path / "model.mlpackage")
