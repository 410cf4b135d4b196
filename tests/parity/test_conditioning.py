"""Chaotic feeds give way to gentler ones, sane ones and stateful models are left alone."""

import numpy as np

from convertkit.artifact import Artifact, TensorSpec
from convertkit.parity.conditioning import calmed, settled, well_conditioned
from convertkit.parity.replay import record
from convertkit.stage import FLOAT32

RNG = np.random.default_rng(2)
FEEDS = tuple({"x": RNG.standard_normal((1, 8)).astype(np.float32) + 1} for _ in range(3))


class Chaotic:
    """exp(x^k) loses all precision for large inputs and is tame for small ones."""

    def run(self, feed):
        return {"y": np.sin(np.exp(feed["x"].astype(np.float64) * 6)).astype(np.float32)}


class Tame:
    def run(self, feed):
        return {"y": feed["x"] * 3}


def artifact(*names):
    return Artifact(None, "onnx", tuple(TensorSpec(name, (1, 8), "float32") for name in names), (), "")


def test_tame_models_keep_their_feeds():
    recording, notes = settled("tame", artifact("x"), Tame(), FEEDS, lossy=True)
    feeds = recording.feeds
    assert all(kept is given for kept, given in zip(feeds, FEEDS, strict=True))
    assert notes == ()
    assert [outputs["y"].tolist() for outputs in recording.outputs] == [(feed["x"] * 3).tolist() for feed in FEEDS]


def test_chaotic_feeds_become_quieter_and_it_is_said():
    recording, notes = settled("chaotic", artifact("x"), Chaotic(), FEEDS, lossy=True)
    feeds = recording.feeds
    assert all(np.abs(kept["x"]).max() < np.abs(given["x"]).max() for kept, given in zip(feeds, FEEDS, strict=True))
    assert "gave way to gentler ones" in notes[0]
    for feed, outputs in zip(feeds, recording.outputs, strict=True):
        assert np.array_equal(outputs["y"], Chaotic().run(feed)["y"])


class Counted(Chaotic):
    calls = 0

    def run(self, feed):
        self.calls += 1
        return super().run(feed)


def test_before_lossless_steps_chaotic_feeds_stay_until_one_departs():
    runner = Counted()
    recording, notes = settled("chaotic", artifact("x"), runner, FEEDS, lossy=False)
    assert (recording.feeds, notes, runner.calls) == (FEEDS, (), len(FEEDS))
    calm, notes = well_conditioned(recording, runner)
    again, same = settled("chaotic", artifact("x"), Chaotic(), FEEDS, lossy=True)
    assert notes == same
    for found, expected in zip(calm.feeds, again.feeds, strict=True):
        assert np.array_equal(found["x"], expected["x"])


def test_a_tame_recording_is_its_own_well_conditioned_one():
    recording, _ = settled("tame", artifact("x"), Tame(), FEEDS, lossy=False)
    assert well_conditioned(recording, Tame()) == (recording, ())


class Spectral:
    """The logarithm of a spectrum: rounding errors alone where the signal is smooth, however quiet it is."""

    def run(self, feed):
        spectrum = np.fft.rfft(feed["x"]).astype(np.complex64)
        return {"y": np.log(np.abs(spectrum) ** 2 + 1e-30).astype(np.float32)}


def test_smooth_signals_become_white_where_quieter_ones_do_not_help():
    smooth = np.exp(-(np.linspace(-6, 6, 64, dtype=np.float32) ** 2))[None]
    (feed,) = settled("spectral", artifact("x"), Spectral(), ({"x": smooth},), lossy=True)[0].feeds
    assert not np.allclose(feed["x"] / np.abs(feed["x"]).max(), smooth, atol=0.1)
    assert (feed["x"].min(), feed["x"].max()) >= (smooth.min(), 0)
    assert feed["x"].max() <= smooth.max()


def test_stateful_models_keep_their_feeds():
    recording, _ = settled("stateful", artifact("x", "state.h"), Chaotic(), FEEDS, lossy=True)
    assert recording.feeds == FEEDS


class Masked:
    """Adds the largest negative number where the mask is 0, as transformers do; a mask of 3 makes infinities."""

    def run(self, feed):
        with np.errstate(over="ignore", invalid="ignore"):
            shift = (1 - feed["mask"]).astype(np.float32) * np.finfo(np.float32).min
            return {"y": np.exp(np.minimum(shift + feed["x"], shift)) * np.float32(2)}


def test_a_mask_that_makes_infinities_becomes_one_of_flags():
    mask = np.array([[0, 1, 2, 3, 1, 0, 3, 2]])
    assert not np.isfinite(Masked().run({"x": FEEDS[0]["x"], "mask": mask})["y"]).all()
    given = {**FEEDS[0], "mask": mask}
    for lossy in (False, True):
        (feed,) = settled("masked", artifact("x", "mask"), Masked(), (given,), lossy=lossy)[0].feeds
        assert feed["mask"].tolist() == [[0, 1, 0, 1, 1, 0, 1, 0]]
        assert np.array_equal(feed["x"], FEEDS[0]["x"])


class Loud:
    """Amplifies a nudge thirtyfold where the input is loud, and not at all where it is quiet."""

    def run(self, feed):
        x = feed["x"]
        return {"y": np.sin(x * 30 if np.abs(x).max() > 1 else x).astype(np.float32)}


class Departing(Loud):
    def __init__(self, departure):
        self._departure = departure

    def run(self, feed):
        y = super().run(feed)["y"]
        return {"y": y + np.float32(self._departure * np.abs(y).max()) if np.abs(feed["x"]).max() > 1 else y}


def recorded(runner):
    return record("loud", artifact("x"), runner, FEEDS)


def test_a_departure_that_rounding_explains_is_judged_on_calmer_feeds():
    feeds, note = calmed(recorded(Loud()), recorded(Departing(2e-5)), FLOAT32, Loud())
    assert all(np.abs(calm["x"]).max() < np.abs(feed["x"]).max() for calm, feed in zip(feeds, FEEDS, strict=True))
    assert note.startswith("3 of 3 generated inputs amplify single roundings")


def test_a_departure_that_rounding_does_not_explain_stays_a_fault():
    assert calmed(recorded(Loud()), recorded(Departing(1e-3)), FLOAT32, Loud()) is None


def test_where_nothing_departs_nothing_is_calmed():
    assert calmed(recorded(Loud()), recorded(Departing(1e-6)), FLOAT32, Loud()) is None
