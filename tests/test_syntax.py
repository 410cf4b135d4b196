"""Text is parsed in many threads while a callback of the garbage collector lets others run."""

import ast
import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from convertkit.syntax import parsed


@pytest.fixture
def crowded():
    """Many collections, each with a callback in Python, and threads that change places all the time."""

    def callback(phase, info):
        time.sleep(0)

    before, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(callback)
    gc.set_threshold(20, 2, 2)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*before)
    gc.callbacks.remove(callback)


def test_threads_do_not_disturb_each_other(crowded):
    texts = ["floordiv(T + 3*W, 2)"] * 2000
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(lambda text: parsed(text, "eval"), texts))
    assert {ast.dump(tree) for tree in trees} == {ast.dump(ast.parse(texts[0], mode="eval"))}
