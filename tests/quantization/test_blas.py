"""NumPy's products take one thread while a model is quantized: bytes do not depend on how many there are."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from convertkit.quantization.weights import tune
from convertkit.quantization.weights.blas import one_thread
from tests.quantization.models import images, small_cnn


def threads() -> set[int]:
    np.linalg.cholesky(np.eye(2))  # the library is loaded when it is first asked
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_limited_inside_and_as_before_behind() -> None:
    with threadpool_limits(limits=2, user_api="blas"):
        before = threads()
        with one_thread():
            assert threads() == {1}
        assert threads() == before


def test_weights_are_tuned_on_one_thread(quantized, monkeypatch) -> None:
    seen = []
    plain = tune.compensated

    def watched(*arguments: object) -> object:
        seen.append(threads())
        return plain(*arguments)

    monkeypatch.setattr(tune, "compensated", watched)
    with threadpool_limits(limits=2, user_api="blas"):
        quantized(small_cnn(), images(24), "w4", "tflite")
    assert seen
    assert all(each == {1} for each in seen)
