"""Sound as a model's input: from a WAV file to the answer, and front ends against TensorFlow's own."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.artifact import TensorSpec
from convertkit.compare import verify
from convertkit.errors import UsageError
from convertkit.options.flags import options_from
from convertkit.processing.audio import bands, cosines, heard, sound_of, tapered
from convertkit.processing.audio_words import Audio, Spectrum
from convertkit.processing.words import audio_in
from tests import onnx_models
from tests.installed import needs

RATE = 8000
KWS = "window:30ms,hop:20ms,fft:256,hann,mel:20,low:20,high:4000,log:1e-6,mfcc:10"


def tone(count: int, seed: int = 0) -> np.ndarray:
    """A chirp in noise as PCM, (count,) of int16."""
    at = np.arange(count) / RATE
    noise = np.random.default_rng(seed).normal(0, 0.02, count)
    return (
        np.rint(32768 * (0.5 * np.sin(2 * np.pi * (300 + 2000 * at) * at) + noise)).clip(-32768, 32767).astype(np.int16)
    )


def wav(path: Path, pcm: np.ndarray) -> Path:
    """``pcm`` in a file."""
    path.parent.mkdir(exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(pcm.astype("<i2").tobytes())
    return path


def negation(folder: Path, shape: list[int | str]) -> Path:
    """``y = -x``, so that the answer is what the front end makes."""
    node = helper.make_node("Neg", ["x"], ["y"])
    return onnx_models.write(folder, onnx_models.model([node], {"x": shape}, {"y": shape}))


@pytest.mark.parametrize("target", ["onnxruntime", "tflite", "openvino", "coreml"])
@pytest.mark.parametrize("shape", [[1, 1000], [1, 1, 1000], [1000], [1, 1000, 1]])
def test_a_waveform_from_a_file_to_the_answer(target, shape, tmp_path):
    """PCM out of a WAV file is what the model takes, scaled as decoders of sound do; exact, as both are powers of 2."""
    pcm = tone(1000)
    with wave.open(str(wav(tmp_path / "a.wav", pcm))) as file:
        given = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    made = convertkit.export(negation(tmp_path, shape), target, preprocess=f"audio:{RATE}", output=tmp_path / "out")
    (port,) = made.artifact.inputs
    assert port.dtype == ("int32" if target == "coreml" else "int16")
    assert port.source_shape == ((1000,) if len(shape) == 1 else (1, 1000))
    found = made.run({"x": given.reshape(port.source_shape)})["y"]
    np.testing.assert_array_equal(found, (-pcm / 32768).astype(np.float32).reshape(shape))


@pytest.mark.parametrize("target", ["onnxruntime", "tflite", "openvino", "coreml"])
def test_a_front_end_in_the_model_is_the_references(target, tmp_path):
    pcm = np.stack([tone(1760, seed) for seed in range(1)])
    how = f"audio:{RATE},{KWS},mean:-2,std:1.5"
    made = convertkit.export(negation(tmp_path, [1, 10, 10, 1]), target, preprocess=how, output=tmp_path / "out")
    assert made.artifact.inputs[0].source_shape == (1, 240 + 9 * 160)
    sound = sound_of(audio_in(how), (TensorSpec("x", (1, 10, 10, 1), "float32"),))
    wanted = heard(pcm[:, :1680], sound)
    assert np.ptp(wanted) > 4
    # spectra are sums of 240 products in float32; the least of the bands here is 1e-3 of the largest
    np.testing.assert_allclose(-made.run({"x": pcm[:, :1680]})["y"], wanted, rtol=0, atol=2e-4)


def test_the_front_end_of_mlperf_tiny(tmp_path):
    """Keyword spotting: scaled by the greatest sample, 49 frames of 10 coefficients, as its training computes them."""
    needs("tensorflow")
    import tensorflow as tf

    words = "audio:16000,peak,samples:16000,window:30ms,hop:20ms,fft:512,hann,mel:40,low:20,high:4000,log:1e-6,mfcc:10"
    made = convertkit.export(negation(tmp_path, [1, 49, 10, 1]), "tflite", preprocess=words, output=tmp_path / "out")
    pcm = tone(16000)
    wave_ = tf.cast(pcm, tf.float32) / tf.cast(pcm.max(), tf.float32)
    magnitudes = tf.abs(tf.signal.stft(wave_, 480, 320, 512, tf.signal.hann_window))
    mels = magnitudes @ tf.signal.linear_to_mel_weight_matrix(40, 257, 16000, 20.0, 4000.0)
    wanted = tf.signal.mfccs_from_log_mel_spectrograms(tf.math.log(mels + 1e-6))[..., :10].numpy()
    assert np.ptp(wanted) > 15
    np.testing.assert_allclose(-made.run({"x": pcm[None]})["y"][0, :, :, 0], wanted, rtol=0, atol=2e-3)


@pytest.mark.parametrize("spectrum", [
    Spectrum(240, 160, 256, "hann", False, 20, 20, 4000, 1e-6, 10),
    Spectrum(241, 100, 512, "hamming", True, 13, 125, 3800, 1e-3, 0),
    Spectrum(200, 80, 200, "hann", True),
])  # fmt: skip
def test_the_front_end_is_tensorflows(spectrum):
    needs("tensorflow")
    import tensorflow as tf

    pcm = tone(2000)
    sound = sound_of(Audio(RATE, spectrum, samples=2000), (
        TensorSpec("x", (1, spectrum.frames(2000), spectrum.numbers), "float32"),
    ))  # fmt: skip
    windows = {"hann": tf.signal.hann_window, "hamming": tf.signal.hamming_window}
    window = windows[spectrum.taper]
    np.testing.assert_allclose(tapered(spectrum), window(spectrum.window).numpy(), rtol=0, atol=4e-7)
    found = tf.abs(tf.signal.stft(
        (pcm / 32768).astype(np.float64), spectrum.window, spectrum.hop, spectrum.fft,
        window_fn=lambda size, dtype: window(size, dtype=dtype),
    ))  # fmt: skip
    found = found**2 if spectrum.power else found
    if spectrum.mel:
        weights = tf.signal.linear_to_mel_weight_matrix(
            spectrum.mel, spectrum.fft // 2 + 1, RATE, spectrum.low, spectrum.high, dtype=tf.float64
        )
        np.testing.assert_allclose(bands(spectrum, RATE), weights, rtol=0, atol=1e-6)
        found = found @ weights
    if spectrum.log is not None:
        found = tf.math.log(found + spectrum.log)
    if spectrum.mfcc:
        bands_ = tf.constant(np.eye(spectrum.mel))
        matrix = tf.signal.mfccs_from_log_mel_spectrograms(bands_)[:, : spectrum.mfcc]
        np.testing.assert_allclose(cosines(spectrum), matrix, rtol=0, atol=1e-6)
        found = tf.signal.mfccs_from_log_mel_spectrograms(found)[..., : spectrum.mfcc]
    np.testing.assert_allclose(heard(pcm[None], sound)[0], found.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("precision", "kind"), [("int8", TensorProto.INT8), ("fp16", TensorProto.FLOAT16)])
def test_few_bits_leave_the_front_end_alone(precision, kind, tmp_path):
    """A folder of WAV files measures ranges; cosines stay float32, and the model's own weights do not."""
    rng = np.random.default_rng(0)
    for place in range(24):
        wav(tmp_path / "sounds" / f"{place:02}.wav", tone(1680, place))
    stored = [
        numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), name)
        for name, shape in (("w", (100, 256)), ("v", (256, 12)))
    ]
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    model = onnx_models.model(nodes, {"x": [1, 10, 10]}, {"y": [1, 12]}, stored)
    how = {precision: True, "calib": tmp_path / "sounds", "preprocess": f"audio:{RATE},{KWS}"}
    made = convertkit.export(onnx_models.write(tmp_path, model), "onnxruntime", output=tmp_path / "out", **how)
    graph = onnx.load(made.artifact.path).graph
    kinds = {each.name: each.data_type for each in graph.initializer}
    for operator, size in (("Conv", 2 * 129 * 240), ("MatMul", 129 * 20)):
        constants = [node.input[1] for node in graph.node if node.op_type == operator]
        (own,) = [each for each in graph.initializer if each.name in constants and np.prod(each.dims) == size]
        assert kinds[own.name] == TensorProto.FLOAT
    assert [list(each.dims) for each in graph.initializer if each.data_type == kind] == [[100, 256], [256, 12]]


def test_an_export_is_compared_with_its_plain_source(tmp_path):
    source = negation(tmp_path, ["N", 10, 10])
    made = convertkit.export(source, "tflite", preprocess=f"audio:{RATE},{KWS}", output=tmp_path / "out")
    assert verify(source, tmp_path / "out").passed
    assert made.run({"x": np.stack([tone(1680), tone(1680, 1)])})["y"].shape == (2, 10, 10)


def test_words():
    found = audio_in(
        "audio:16000,window:30ms,hop:320,fft:512,hamming,power,mel:40,low:20,high:7600,log:1e-3,samples:16000"
    )
    assert found == Audio(16000, Spectrum(480, 320, 512, "hamming", True, 40, 20, 7600, 1e-3), samples=16000)
    assert found.spectrum.frames(16000) == 49
    assert audio_in("image:8,mean:0,std:1") is None


FRONT = "audio:8000,window:240,hop:160,fft:256,hann"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("audio:0", "audio:0 is not a step"),
        ("audio:8000,stereo", "stereo is not a step"),
        ("audio:8000,raw,peak", "raw and peak exclude each other"),
        ("audio:8000,hop:160", "hop is of a front end, which begins with window"),
        ("audio:8000,window:240,fft:256,hann", "a front end needs hop"),
        ("audio:8000,window:240,hop:160,hann", "a front end needs fft"),
        ("audio:8000,window:240,hop:160,fft:256", "a front end needs one of hann, hamming"),
        ("audio:8000,window:300,hop:160,fft:256,hann", "an FFT that holds the frame"),
        (f"{FRONT},mel:20", "mel needs low:HZ and high:HZ"),
        (f"{FRONT},mel:20,low:20,high:5000", "at most half of the rate"),
        (f"{FRONT},mfcc:10", "mel:COUNT is missing"),
        (f"{FRONT},mel:20,low:20,high:4000,mfcc:10", "mfcc needs log:OFFSET"),
        (f"{FRONT},hann", "hann is given twice"),
        ("audio:8000,image:8", "image:8 is not a step"),
    ],
)
def test_bad_words_are_refused_at_the_start(words, sentence):
    with pytest.raises(UsageError, match=sentence):
        options_from({"source": "m.onnx", "preprocess": words})


@pytest.mark.parametrize(
    ("shape", "words", "sentence"),
    [
        ([1, 100, 3], "audio:8000", "a waveform has one in time"),
        ([1, 100], "audio:8000,samples:200", "takes 100 samples, not 200"),
        ([1, "T"], "audio:8000", "has a dynamic size"),
        ([1, 10, 128], FRONT, "expected frames before numbers with 129 numbers"),
        ([1, 10, 129], f"{FRONT},transposed", "expected numbers before frames with 129"),
        ([1, 10, 129], f"{FRONT},samples:1000", "1000 samples are 5 frames"),
        ([1, 100], "audio:8000,input:z", "input:z: no such input; the model has: x"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(shape, words, sentence, tmp_path):
    with pytest.raises(UsageError, match=sentence):
        convertkit.export(negation(tmp_path, shape), preprocess=words, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
