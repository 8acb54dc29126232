"""Collect what gRPC leaves, where no event loop runs.

Its poller ends with the last server or channel, which is part of a reference cycle, and joins a
thread then: an error in whichever test runs at that time.
"""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collect_grpc() -> Iterator[None]:
    yield
    gc.collect()
