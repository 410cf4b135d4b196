"""The fixtures that every other test trusts."""

import numpy as np
import pytest


def test_digits_are_real_and_disjoint(digits):
    calib = np.load(digits.calib)["input"]
    assert digits.images.shape == (360, 1, 8, 8)
    assert digits.labels.shape == (360,)
    assert calib.shape == (200, 1, 8, 8)
    assert set(np.unique(digits.labels)) == set(range(10))
    seen = {image.tobytes() for image in calib}
    assert not seen & {image.tobytes() for image in digits.images}


@pytest.mark.case
def test_cases_folder_explains_itself(cases):
    assert (cases / "README.md").is_file()
