"""Folders of WAV files as data: every encoding, rate and length, and a sentence for each file that cannot be used."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

from convertkit.artifact import TensorSpec
from convertkit.data.feeds import load_feeds
from convertkit.errors import FeedError, UsageError
from convertkit.options.sounds import parse_wav
from convertkit.recipe import WavOptions

RATE = 8000
TONE = 0.8 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)
WAVE = TensorSpec("x", ("N", 1000), "float32")


def pcm24(path: Path, values: np.ndarray) -> None:
    """24 bits, which scipy reads and does not write."""
    whole = np.rint(values * (1 << 23)).astype(np.int32)
    data = whole.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    head = (
        b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, RATE, 3 * RATE, 3, 24) + b"data" + struct.pack("<I", len(data))
    )
    path.write_bytes(b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data)


def store(path: Path, values: np.ndarray, kind: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "int24":
        pcm24(path, values)
        return path
    if kind == "uint8":
        stored = (np.rint(values * 127) + 128).astype(np.uint8)
    elif kind.startswith("int"):
        stored = np.rint(values * np.iinfo(kind).max).astype(kind)
    else:
        stored = values.astype(kind)
    wavfile.write(path, RATE, stored)
    return path


def rows(folder: Path, spec: TensorSpec = WAVE, text: str = "", **how: object) -> list[np.ndarray]:
    wav = parse_wav(text) if text else WavOptions()
    return [feed["x"] for feed in load_feeds(folder, (spec,), wav=wav, **how)]


@pytest.mark.parametrize(
    ("kind", "within"),
    [("uint8", 1 / 100), ("int16", 1e-4), ("int24", 1e-6), ("int32", 1e-6), ("float32", 1e-6), ("float64", 1e-6)],
)
def test_every_encoding_gives_the_same_numbers(tmp_path, kind, within) -> None:
    """Within one step of the encoding."""
    store(tmp_path / "data" / "a.wav", TONE, kind)
    found = rows(tmp_path / "data")
    assert len(found) == 8
    np.testing.assert_allclose(np.concatenate(found, axis=None), TONE, atol=within)


@pytest.mark.parametrize(
    ("shape", "sample"),
    [(("N", 1000), (1, 1000)), (("N", 1, 1000), (1, 1, 1000)), (("N", 1000, 1), (1, 1000, 1)), ((1000,), (1000,))],
)
def test_every_layout_of_a_waveform(tmp_path, shape, sample) -> None:
    store(tmp_path / "data" / "a.wav", TONE, "int16")
    found = rows(tmp_path / "data", TensorSpec("x", shape, "float32"))
    assert [each.shape for each in found] == [sample] * 8
    np.testing.assert_allclose(found[1].ravel(), TONE[1000:2000], atol=1e-4)


def test_an_integer_input_gets_pcm(tmp_path) -> None:
    store(tmp_path / "data" / "a.wav", TONE, "int16")
    found = rows(tmp_path / "data", TensorSpec("x", ("N", 1000), "int16"))[0]
    np.testing.assert_allclose(found[0] / 32768, TONE[:1000], atol=1e-4)


def test_windows_and_hops(tmp_path) -> None:
    store(tmp_path / "data" / "a.wav", TONE, "float64")
    store(tmp_path / "data" / "b.wav", TONE[:1400], "float64")
    found = rows(tmp_path / "data", text="hop:500")
    assert len(found) == 15 + 1, (
        "1 + (8000 - 1000) // 500, and one of the short file: a rest that fills none is left out"
    )
    np.testing.assert_allclose(found[3][0], TONE[1500:2500], atol=1e-6)
    timed = rows(tmp_path / "data", TensorSpec("x", ("N", "T"), "float32"), "window:125ms,hop:0.0625s")
    np.testing.assert_array_equal(np.stack(timed), np.stack(found))


def test_a_dynamic_length_takes_whole_files(tmp_path) -> None:
    store(tmp_path / "data" / "a.wav", TONE, "int16")
    store(tmp_path / "data" / "b.wav", TONE[:300], "int16")
    assert [each.shape for each in rows(tmp_path / "data", TensorSpec("x", ("N", "T"), "float32"))] == [
        (1, 8000),
        (1, 300),
    ]


def test_short_files_end_in_silence_and_that_is_told(tmp_path) -> None:
    store(tmp_path / "data" / "a.wav", TONE[:300], "int16")
    feeds = load_feeds(tmp_path / "data", (WAVE,))
    (found,) = (feed["x"][0] for feed in feeds)
    assert not found[300:].any()
    assert found[:300].any()
    assert "1 of 1 WAV files are shorter than 1000 samples; filled up with silence" in feeds.notes


def test_another_rate_is_resampled(tmp_path) -> None:
    store(tmp_path / "data" / "a.wav", TONE, "float64")
    (found,) = rows(tmp_path / "data", TensorSpec("x", ("N", "T"), "float32"), "rate:16000")
    expected = 0.8 * np.sin(2 * np.pi * 440 * np.arange(2 * RATE) / (2 * RATE))
    np.testing.assert_allclose(found[0, 200:-200], expected[200:-200], atol=2e-3)  # ends see silence beyond


def test_stereo_needs_a_word(tmp_path) -> None:
    both = np.stack([TONE, 0 * TONE], axis=1)
    store(tmp_path / "data" / "a.wav", both, "float32")
    with pytest.raises(FeedError, match=r"a\.wav has 2 channels, input 'x' takes 1; add mono to --wav"):
        rows(tmp_path / "data")
    np.testing.assert_allclose(rows(tmp_path / "data", text="mono")[0][0], TONE[:1000] / 2, atol=1e-6)
    found = rows(tmp_path / "data", TensorSpec("x", ("N", 2, 1000), "float32"))[0]
    np.testing.assert_allclose(found[0, 0], TONE[:1000], atol=1e-6)
    assert not found[0, 1].any()


def test_sub_folders_are_classes(tmp_path) -> None:
    store(tmp_path / "data" / "no" / "a.wav", TONE[:2000], "int16")
    store(tmp_path / "data" / "yes" / "b.wav", TONE[:1000], "int16")
    feeds = load_feeds(tmp_path / "data", (WAVE,), label=True)
    np.testing.assert_array_equal(feeds.labels, [0, 0, 1])


def broken(folder: Path) -> dict[str, tuple[bytes, str]]:
    good = store(folder / "good.wav", TONE, "int16").read_bytes()
    adpcm = bytearray(good)
    adpcm[20] = 0x11
    return {
        "text": (b"this is not a sound", "is not a WAV file"),
        "empty": (b"", "is not a WAV file"),
        "header": (good[:30], "is not a WAV file"),
        "truncated": (good[:-5000], "is truncated"),
        "compressed": (bytes(adpcm), "is not a WAV file of PCM or float"),
        "silent": (good[:4] + struct.pack("<I", 36) + good[8:40] + struct.pack("<I", 0), "holds no sound"),
    }


@pytest.mark.parametrize("name", ["text", "empty", "header", "truncated", "compressed", "silent"])
def test_a_broken_file_is_one_sentence(tmp_path, name) -> None:
    content, told = broken(tmp_path)[name]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bad.wav").write_bytes(content)
    with pytest.raises(FeedError, match=f"bad.wav {told}") as raised:
        rows(tmp_path / "data")
    assert "\n" not in str(raised.value)


def test_rates_that_differ(tmp_path) -> None:
    store(tmp_path / "data" / "a.wav", TONE, "int16")
    wavfile.write(tmp_path / "data" / "b.wav", 16000, TONE.astype(np.float32))
    with pytest.raises(FeedError, match=r"a\.wav has 8000 Hz and .*b.wav has 16000 Hz; .* --wav rate:8000"):
        rows(tmp_path / "data")


@pytest.mark.parametrize(
    ("shape", "text", "told"),
    [
        (("N", 49, 10), "", "of the shape N×49×10; expected a waveform"),
        (("N", 1, 96, 64), "", "expected a waveform"),
        (("N", 1000), "window:500", "--wav window of 500 samples: input 'x' takes 1000; leave the window out"),
    ],
)
def test_what_the_input_does_not_take(tmp_path, shape, text, told) -> None:
    store(tmp_path / "data" / "a.wav", TONE, "int16")
    with pytest.raises(FeedError, match=told):
        rows(tmp_path / "data", TensorSpec("x", shape, "float32"), text)


@pytest.mark.parametrize(
    "text", ["16000", "rate:0", "rate:x", "window:0", "window:-1", "mono,mono", "stereo", "hop:1m"]
)
def test_words_that_mean_nothing(text) -> None:
    with pytest.raises(UsageError, match="--wav"):
        parse_wav(text)
