"""What a transposed convolution loses at its ends, against ONNX Runtime's sizes."""

from __future__ import annotations

import pytest

from convertkit.targets.forms.windows import Stated, Transposed


@pytest.mark.parametrize(("stride", "kernel", "lost"), [(2, 3, 1), (2, 2, 0), (3, 2, 0), (4, 1, 0)])
def test_same_cuts_to_the_size_times_the_stride_and_adds_nothing(stride: int, kernel: int, lost: int) -> None:
    """A stride beyond the kernel gives less than that: of 5 places, 4 apart, 17 and not 20."""
    stated = Stated(strides=(stride,), auto_pad="SAME_UPPER")
    ((before, after),) = Transposed(stated, None, None).over((5,), (kernel,)).pads
    assert (before + after, before >= 0, after >= 0) == (lost, True, True)
