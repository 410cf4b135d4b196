"""NumPy's matrix products on one thread.

Its BLAS waits for its threads by spinning: beside other work, a Cholesky factor of 1152 columns cost 698 ms of
processor time on two threads and 33 ms on one.  And sums come in an order that does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield
