"""Edge inputs: of the model's shapes, types and ranges, no two alike."""

import numpy as np
import pytest

from convertkit.artifact import TensorSpec
from convertkit.parity.edge_inputs import NOTHING_KEPT, edge_feeds
from convertkit.parity.feeds import proof_feeds, proof_inputs
from convertkit.parity.natural import image_axes, is_recording, natural

RNG = np.random.default_rng(4)


def edges(*specs, base=None, **options):
    return dict(edge_feeds(specs, base or proof_feeds(specs, None, 0), **options))


def test_floats_meet_silence_constants_extremes_and_tiny_values():
    found = {name: feed["x"] for name, feed in edges(TensorSpec("x", (2, 30), "float32")).items()}
    assert not found["zeros"].any()
    assert not np.signbit(found["zeros"]).any()
    assert np.signbit(found["signed zeros"]).any()
    assert not found["signed zeros"].any()
    assert (found["ones"] == 1).all()
    assert len(np.unique(found["constant"])) == 1
    assert 1e-7 < np.abs(found["1e-6 of the scale"]).max() < 1e-5
    assert 1e-4 < np.abs(found["1e-3 of the scale"]).max() < 1e-2
    assert not found["half silent"][:, :15].any()
    assert found["half silent"][:, 15:].all()
    assert (found["negative"] <= 0).all()
    assert ((found["ties"] * 2) % 1 == 0).all()
    assert len(np.unique(found["ties"])) > 3
    assert found["highest"].min() > 1
    assert found["lowest"].max() < -1
    assert 0 < np.count_nonzero(found["sparse"]) < 8
    assert all(value.dtype == np.float32 and value.shape == (2, 30) for value in found.values())


def test_a_declared_range_is_kept():
    found = edges(TensorSpec("x", (2, 30), "float32", value_range=(0.0, 255.0)))
    values = np.stack([feed["x"] for feed in found.values()])
    assert values.min() == 0
    assert 254 < values.max() < 255
    assert (found["highest"]["x"] == values.max()).all()
    assert "lowest" not in found  # the same as zeros


def test_ids_are_the_least_the_greatest_and_padded_in_the_middle():
    found = edges(TensorSpec("ids", (1, 9), "int64", value_range=(0, 50)))
    assert not found["zeros"]["ids"].any()
    assert (found["highest"]["ids"] == 49).all()
    padded = found["padded"]["ids"]
    assert not padded[:, 3:6].any()
    assert padded[:, :3].any()
    assert padded[:, 6:].any()
    assert all(feed["ids"].min() >= 0 and feed["ids"].max() < 50 for feed in found.values())


@pytest.mark.parametrize(
    "spec", [TensorSpec("mask", (2, 8), "bool"), TensorSpec("mask", (2, 8), "int64", value_range=(0, 2))]
)
def test_masks_keep_at_least_one_key_but_in_one_edge_input(spec):
    found = edges(spec)
    assert not found.pop(NOTHING_KEPT)["mask"].any()
    assert found
    for feed in found.values():
        assert feed["mask"].any(-1).all()


def test_the_scale_is_that_of_the_data():
    base = [{"x": 100 * RNG.random((1, 12)).astype(np.float32)} for _ in range(4)]
    found = edges(TensorSpec("x", (1, 12), "float32"), base=base)
    assert found["highest"]["x"].max() == max(feed["x"].max() for feed in base)


def test_no_two_are_equal_and_none_is_the_base():
    found = proof_inputs(
        (TensorSpec("x", ("N", 3), "float32"), TensorSpec("n", (), "int64", value_range=(0, 2))), None, 0
    )
    digests = [tuple(value.tobytes() for value in feed.values()) for feed in found.edge_feeds]
    assert len(set(digests)) == len(digests) == len(found.edges)
    assert tuple(value.tobytes() for value in found.feeds[0].values()) not in digests


def test_brief_is_a_part_and_begins_with_silence():
    spec = TensorSpec("x", (1, 3, 32, 32), "float32")
    brief = proof_inputs((spec,), None, 0, brief=True)
    assert brief.edges[0] == "zeros"
    assert set(brief.edges) < set(proof_inputs((spec,), None, 0).edges)
    assert len(brief.usual) == 3


def test_text_and_complex_numbers_stay():
    assert edges(TensorSpec("t", (2,), "string")) == {}
    assert edges(TensorSpec("z", (2,), "complex64")) == {}


def test_images_and_recordings_are_told_by_their_shapes():
    assert image_axes((1, 3, 32, 48)) == (2, 3)
    assert image_axes((1, 32, 48, 3)) == (1, 2)
    assert image_axes((1, 8, 32, 48)) is None
    assert is_recording((1, 16000))
    assert not is_recording((8, 16000))
    assert natural(RNG, (4, 7)) is None


def test_an_image_has_flat_areas_and_falls_towards_high_frequencies():
    image = natural(RNG, (1, 3, 64, 64))
    assert 0 <= image.min() < image.max() <= 1
    assert np.ptp(image[0, 0, :16, :16]) == 0
    power = np.abs(np.fft.rfft(image[0, 0, 20:50], axis=-1)) ** 2
    assert power[:, 1:4].mean() > 10 * power[:, 20:].mean()


def test_a_recording_has_silence_and_sound():
    sound = natural(RNG, (1, 4000))
    assert not sound[:, :1000].any()
    assert np.abs(sound[:, 1000:]).max() > 0.2
